"""Opens, lists, writes and removes files on disks and in buckets.

Paths are local or addresses such as gs://bucket/name. Local paths need only the
standard library, because data workers and programs in other environments import
this module too. Addresses go through `tf.io.gfile`, and TensorFlow is loaded at
the first one. Its errors become the `OSError` that a local path would raise,
with the address and the reason.

Writing is atomic. `replacing`, `write_text`, `write_json`, `write_bytes` and
`new_folder` write under a temporary name and rename at the end, so readers
never find a half-written file, even if the program is killed. SIGKILL leaves
the temporary file, NAME.0123456789abcdef.tmp, or folder, .new-xxxxxxxx. In a
bucket an object appears when it is complete. A bucket has neither folders nor
locks: a folder exists while it has objects, and `lock` does not lock.
"""

from __future__ import annotations

import builtins
import codecs
import collections
import contextlib
import errno
import fcntl
import functools
import glob as local_glob
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import tempfile
from typing import IO, Any, Iterator, Optional, TypeVar, Union

import google_crc32c

from official_albert import remote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BUCKET = re.compile(r"gs://[^/,]+(?=[/,]|$)")
_BUFFER_BYTES = 1 << 20

_Shape = TypeVar("_Shape")


def quote(*values: Any, most: int = 80) -> str:
  """Quotes values of a file for a message, with at most `most` characters.

  >>> from official_albert import files
  >>> files.quote("id", "text"), len(files.quote("x" * 100_000))
  ("'id', 'text'", 80)
  """
  text = ", ".join(map(repr, values)) or "none"
  return text if len(text) <= most else f"{text[: most - 3]}..."


def is_remote(path: str) -> bool:
  """Returns whether `path` is an address such as gs://bucket/name."""
  return bool(_SCHEME.match(os.fspath(path)))


def open(path: str, mode: str = "r", **options: Any) -> IO[Any]:
  """Opens a file like Python's `open`; text is UTF-8.

  Each `flush` of a remote file that is open for appending uploads what is new
  (see GCS_APPEND_MODE in `official_albert`), which takes several requests.

  Args:
    path: the file.
    mode: "r" or "a", with or without "b"; also "w" and "x" for local files.
      Use `replacing` or the functions `write_...` to write whole files.
    **options: other arguments of Python's `open` for text: newline, errors.
  """
  text = {} if "b" in mode else {"encoding": "utf-8", **options}
  if not is_remote(path):
    return builtins.open(path, mode, **text)
  raw = remote.RemoteFile(path, mode[0])
  binary: Any
  if mode[0] == "r":
    binary = io.BufferedReader(raw, _BUFFER_BYTES)
    binary.peek(1)  # Raises if there is no such file.
  else:
    binary = remote.RemoteWriter(raw, _BUFFER_BYTES)
  return io.TextIOWrapper(binary, **text) if text else binary


def read_bytes(path: str) -> bytes:
  """Returns the content of a file."""
  with open(path, "rb") as file:
    return file.read()


def read_json(path: str, shape: type[_Shape], advice: str) -> _Shape:
  """Reads a JSON file that has the types of `shape`; see `parse_json`."""
  return parse_json(read_bytes(path), path, shape, advice)


def parse_json(
  content: Union[str, bytes], name: str, shape: type[_Shape], advice: str
) -> _Shape:
  """Parses JSON that has the types of `shape`.

  Types are strict: "1", 1.0 and true are no integers. Only an integer may
  stand for a float.

  Args:
    content: the JSON, in UTF-8, bytes also with a byte order mark.
    name: the name of the file or variable, for the error message.
    shape: a type such as dict[str, float], a dataclass, or a `TypedDict` of
      `typing_extensions`. Keys that the last two do not have are ignored.
    advice: what the user can do about wrong content, for the error message.

  Raises:
    ValueError: it is not JSON, is nested too deeply, has a key twice or other
      types. The message has the key, what was found and what was expected.
  """
  import pydantic  # Most programs start without it.

  if isinstance(content, bytes):
    content = content.removeprefix(codecs.BOM_UTF8)
  try:
    validator = _validator(shape)  # type: ignore[arg-type]
    value = validator.validate_json(content, strict=True)
    # pydantic takes the last of equal keys. The hook keeps nothing, so that a
    # large file takes a third of the time of its validation.
    json.loads(content, object_pairs_hook=lambda x: unique_keys(x) and None)
    return value
  except pydantic.ValidationError as error:
    problem = error.errors(include_url=False)[0]
    key = ".".join(map(str, problem["loc"]))
    where = f"{name}: {key!r:.80}" if key else name
    expected = problem["msg"].split(" should ", 1)[-1]  # Such as "be a list".
    expected = expected.replace(" after validation", "")
    message = f"{where} is {problem['input']!r:.50}, but must {expected}"
    if problem["type"] == "json_invalid":
      message = f"{name} is not valid JSON ({problem['ctx']['error']})"
    elif problem["type"] == "missing":
      message = f"{name} has no {key!r:.80}"
    elif problem["type"] == "value_error":  # Of a dataclass's constructor.
      message = f"{where}: {problem['ctx']['error']}".rstrip(".")
    raise ValueError(f"{message}: {advice}.") from error
  except ValueError as error:  # Of `unique_keys`.
    raise ValueError(f"{name}: {error}: keep one of them.") from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Returns an object of JSON; of equal keys, `json` would take the last.

  It is the `object_pairs_hook` of `json.loads`; equal keys are a ValueError.
  """
  value = dict(pairs)
  if len(value) < len(pairs):
    (name, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
    place = f"{quote(name, most=40)} twice, in {quote(value, most=40)}"
    raise ValueError(f"it has the key {place}")
  return value


@functools.cache
def _validator(shape: Any) -> Any:
  import pydantic

  return pydantic.TypeAdapter(shape)


def _is_remote_folder(path: str) -> Optional[bool]:
  """Returns whether an address is a folder; None if there is nothing.

  `gfile.isdir` returns False for paths without read permission.
  """
  bucket = _BUCKET.match(path)
  with contextlib.suppress(FileNotFoundError):
    if not bucket or bucket[0] != path.rstrip("/"):
      return remote.call("stat", path).is_directory
    # Few accounts have permission to read the metadata of a bucket.
    remote.call("glob", os.path.join(path, ".none", "*"))  # Lists nothing.
    return True
  return None


def exists(path: str) -> bool:
  """Returns whether there is a file or folder."""
  if not is_remote(path):
    return os.path.exists(path)
  return _is_remote_folder(path) is not None


def is_dir(path: str) -> bool:
  """Returns whether there is a folder."""
  if not is_remote(path):
    return os.path.isdir(path)
  return _is_remote_folder(path) is True


def is_file(path: str) -> bool:
  """Returns whether there is a file."""
  if not is_remote(path):
    return os.path.isfile(path)
  return _is_remote_folder(path) is False


def stat(path: str) -> tuple[int, int]:
  """Returns a file's size in bytes and its modification time in ns."""
  if not is_remote(path):
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
  found = remote.call("stat", path)
  return int(found.length), int(found.mtime_nsec)


def _list_remote(path: str) -> list[str]:
  """Returns the names in a folder; those of folders end with a slash."""
  if not remote.call("isdir", path):
    remote.call("stat", path)  # Raises the reason.
  return [name for name in remote.call("listdir", path) if name]


def list_dir(path: str) -> list[str]:
  """Returns the sorted names of the files and folders in a folder."""
  if not is_remote(path):
    return sorted(os.listdir(path))
  return sorted({name.rstrip("/") for name in _list_remote(path)})


def glob(pattern: str) -> list[str]:
  """Returns the sorted paths that match a pattern."""
  if not is_remote(pattern):
    return sorted(local_glob.glob(pattern))
  if not re.search(r"[*?[]", pattern):  # Lists nothing.
    return [pattern] if exists(pattern) else []
  return sorted(remote.call("glob", pattern))


def walk(path: str) -> list[str]:
  """Returns the sorted paths of all files below a folder, relative to it."""
  if not is_remote(path):
    parts = (
      (folder, name) for folder, _, names in os.walk(path) for name in names
    )
    return sorted(os.path.relpath(os.path.join(*part), path) for part in parts)
  # `gfile.walk` makes a request for each file.
  folders, found = [""], list[str]()
  with contextlib.suppress(FileNotFoundError):
    for folder in folders:
      for name in _list_remote(os.path.join(path, folder)):
        (folders if name.endswith("/") else found).append(folder + name)
  return sorted(found)


def absolute(path: str) -> str:
  """Returns an absolute path without a slash at its end."""
  return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def make_folder(path: str) -> None:
  """Creates a local folder and its parents, if `check_folder` permits it."""
  check_folder(path)
  if not is_remote(path):
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
  """Removes a file."""
  if not is_remote(path):
    return os.remove(path)
  remote.call("remove", path)


def remove_tree(path: str) -> None:
  """Removes a folder with its content, if it exists."""
  if not is_remote(path):
    return shutil.rmtree(path, ignore_errors=True)
  if is_dir(path):
    remote.call("rmtree", path)


def rename(source: str, target: str) -> None:
  """Renames a file or local folder; a file at `target` is replaced."""
  if not is_remote(source):
    return os.replace(source, target)
  remote.call("rename", source, target, overwrite=True)


def copy(source: str, target: str) -> None:
  """Copies a file atomically; a file at `target` is replaced."""
  if not is_remote(source):
    os.stat(source)  # Raises an error about it rather than about the target.
  if is_remote(target):
    with remote.client(source if is_remote(source) else target) as gfile:
      gfile.copy(source, target, overwrite=True)
    return
  with replacing(target) as temporary:
    if is_remote(source):
      remote.call("copy", source, temporary, overwrite=True)
    else:
      shutil.copyfile(source, temporary)


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
  """Yields a local path to a file or folder for libraries that need one.

  A remote file or folder is downloaded to a temporary folder, which is removed
  at the end. A local path is yielded as it is.
  """
  if not is_remote(path):
    yield path
    return
  with tempfile.TemporaryDirectory(prefix="official-albert-") as folder:
    target = os.path.join(folder, os.path.basename(path.rstrip("/")))
    names = walk(path) if is_dir(path) else [""]
    for name in names:
      part = os.path.join(target, name) if name else target
      os.makedirs(os.path.dirname(part), exist_ok=True)
      copy(os.path.join(path, name) if name else path, part)
    yield target


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
  """Yields a temporary local path and moves it to `path` at the end.

      with files.replacing("loss.png") as temporary:
        figure.savefig(temporary, format="png")

  If the body raises, the temporary file is removed and `path` stays as it was.
  """
  if is_remote(path):
    with tempfile.TemporaryDirectory(prefix="official-albert-") as folder:
      temporary = os.path.join(folder, os.path.basename(path))
      yield temporary
      copy(temporary, path)
    return
  # Unique across machines, as several may write to one network file system.
  temporary = f"{path}.{os.urandom(8).hex()}.tmp"
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)


def write_bytes(path: str, content: bytes) -> None:
  """Replaces the content of a file."""
  with replacing(path) as temporary, open(temporary, "wb") as file:
    file.write(content)


def write_text(path: str, text: str) -> None:
  r"""Replaces the content of a file by UTF-8 text; "\n" ends a line."""
  write_bytes(path, text.encode("utf-8"))


def write_json(path: str, value: Any, **options: Any) -> None:
  """Replaces the content of a file by JSON, by default with indent 1."""
  write_text(path, json.dumps(value, **{"indent": 1, **options}) + "\n")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
  """Yields a temporary local folder and moves it to `path` at the end.

  Missing parents are created. If the body raises, the temporary folder and the
  created parents are removed. See `_upload` for folders in a bucket.

  Raises:
    FileExistsError: `path` is a file or a folder that is not empty.
  """
  check_new_folder(path)
  if is_remote(path):
    with tempfile.TemporaryDirectory(prefix="official-albert-") as temporary:
      yield temporary
      check_new_folder(path)  # Again, as the body takes time.
      _upload(temporary, path)
    return
  path = os.path.realpath(path)  # A link to an empty folder stays one.
  parent = pathlib.Path(path).parent
  created = [x for x in (parent, *parent.parents) if not os.path.exists(x)]
  with contextlib.ExitStack() as stack:
    for folder in reversed(created):  # Those that stay empty.
      stack.callback(remove_empty, folder)
    parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".new-", dir=parent)
    stack.callback(shutil.rmtree, temporary, ignore_errors=True)
    # mkdtemp's folder is for its user alone; this one has the user's umask.
    new = os.path.join(temporary, "new")
    os.mkdir(new)
    yield new
    os.replace(new, path)


def remove_empty(folder: Union[str, pathlib.Path]) -> None:
  """Removes a local folder, if it is empty."""
  with contextlib.suppress(OSError):
    os.rmdir(folder)


def _upload(folder: str, path: str) -> None:
  """Copies the files below a local folder to a bucket.

  Files that describe others come last: outer folders after inner ones, and
  .json and .pb files at the end. So a folder with its saved_model.pb or
  dataset.json is complete.
  """
  ends = (".json", ".pb")
  for name in sorted(
    walk(folder), key=lambda x: (-x.count("/"), x.endswith(ends), x)
  ):
    copy(os.path.join(folder, name), os.path.join(path, name))


def masked_crc32c(content: bytes) -> int:
  """Returns a CRC-32C, masked as in TFRecords and checkpoints (crc32c.h)."""
  crc = google_crc32c.value(content)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def sha256(path: str) -> str:
  """Returns the SHA-256 of a file's content in hexadecimal."""
  digest = hashlib.sha256()
  with open(path, "rb") as file:
    for block in iter(lambda: file.read(1 << 20), b""):
      digest.update(block)
  return digest.hexdigest()


def lock(path: str, refusal: str) -> IO[bytes]:
  """Locks a local file against other processes.

  Args:
    path: the lock file, which is created if necessary.
    refusal: the error message if another process holds the lock.

  Returns:
    An open file. The lock is held until the file is closed, or until this
    process and all that inherited the file have ended. Buckets, and network
    file systems without locks, are not locked: there the user has to make sure
    that only one program writes to a folder.

  Raises:
    OSError: with `refusal`.
  """
  if is_remote(path):
    return builtins.open(os.devnull, "ab")
  file = open(path, "ab")
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    file.close()
    raise OSError(refusal) from error
  except OSError:
    pass
  return file


def check_path(path: str) -> None:
  """Refuses addresses other than gs://BUCKET/NAME, also within a list.

  Raises:
    ValueError: TensorFlow has no file system for it, or it names no bucket.
  """
  for found in _SCHEME.finditer(path):
    if not _BUCKET.match(path, found.start()):
      raise ValueError(remote.unsupported(path))


@functools.cache
def _check_bucket(folder: str) -> None:
  """Raises OSError unless a file can be written in a remote folder."""
  trial = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
  write_bytes(trial, b"")
  remove(trial)


def check_folder(path: str) -> None:
  """Refuses a path at which no folder can be created.

  In a bucket, it writes and removes an empty object beside the path, as nothing
  else shows whether that is permitted.

  Raises:
    ValueError: see `check_path`.
    OSError: there is no such bucket, or this account may not write there.
    NotADirectoryError: it or one of its parents is a file.
  """
  check_path(path)
  if is_remote(path):
    bucket = _BUCKET.match(path)[0]
    return _check_bucket(
      max(bucket, os.path.dirname(path.rstrip("/")), key=len)
    )
  above = path
  while above and not os.path.exists(above):
    above = os.path.dirname(above)
  if above and not os.path.isdir(above):
    below = "" if above == path else f", and so {path} cannot be made"
    raise NotADirectoryError(f"{above} is a file{below}: name a folder.")


def check_new_folder(path: str, name: str = "The folder") -> None:
  """Refuses a path at which `new_folder` cannot put a folder.

  Args:
    path: the folder.
    name: the name of the path in messages, such as "--output_dir".

  Raises:
    FileExistsError: `path` is a file or a folder that is not empty.
    OSError: it is where a disk is mounted, so nothing can replace it.
    ValueError, NotADirectoryError: see `check_folder`.
  """
  check_path(path)
  if is_file(path) or is_dir(path) and list_dir(path):
    raise FileExistsError(
      f"{name} {path} exists and is not empty: choose a new folder."
    )
  if os.path.ismount(os.path.realpath(path)):
    raise OSError(f"{name} {path} is the root of a disk: name a folder in it.")
  check_folder(path)


def check_file(path: str) -> None:
  """Refuses a path at which no file can be written.

  Raises:
    OSError: it is a folder or a device, or its parent does not exist or is
      read-only.
    ValueError: see `check_path`.
  """
  check_path(path)
  folder = os.path.dirname(path) or "."
  if is_dir(path) or path.endswith("/"):
    raise IsADirectoryError(f"{path} is a folder: name a file.")
  if is_remote(path):
    return check_folder(path)
  # A file that is replaced would take the place of /dev/null for all programs.
  is_special = os.path.exists(path) and not os.path.isfile(path)
  if is_special or os.path.dirname(os.path.abspath(path)) == "/dev":
    raise OSError(f"{path} is a device or a pipe: name a file.")
  check_folder(folder)
  if not os.path.isdir(folder):
    raise FileNotFoundError(
      f"{path} cannot be written, as there is no folder {folder}: make it, or "
      "name another file."
    )
  if not os.access(folder, os.W_OK):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
