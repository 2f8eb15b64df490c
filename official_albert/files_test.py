"""Files are complete or absent, locks exclude, bad paths are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import json
import os
import re
import subprocess
import sys
from typing import Annotated
from unittest import mock

import annotated_types
import pytest

from official_albert import files, remote
from official_albert.testing import fake_gcs


def test_a_replaced_file_has_the_new_content(tmp_path):
  path = tmp_path / "a.json"
  path.write_text("old")
  files.write_json(str(path), {"\u00e9": [1, 2]}, ensure_ascii=False)
  expected = json.dumps({"\u00e9": [1, 2]}, indent=1, ensure_ascii=False)
  assert path.read_bytes().decode("utf-8") == expected + "\n"
  files.write_text(str(path), "a\nb\u00e9")
  assert path.read_bytes() == b"a\nb\xc3\xa9"
  files.write_bytes(str(path), b"\0\1")
  assert path.read_bytes() == b"\0\1"
  assert os.listdir(tmp_path) == ["a.json"]


def test_a_failure_keeps_the_old_file(tmp_path):
  path = tmp_path / "a.txt"
  path.write_text("old")
  with (
    pytest.raises(ValueError, match="stop"),
    files.replacing(str(path)) as temporary,
  ):
    assert os.path.dirname(temporary) == str(tmp_path)
    with open(temporary, "w") as file:
      file.write("half")
    raise ValueError("stop")
  with pytest.raises(TypeError):
    files.write_json(str(path), {"a": object()})
  with pytest.raises(TypeError), files.new_folder(f"{tmp_path}/b/c") as folder:
    files.write_json(f"{folder}/a", object())
  assert path.read_text() == "old"
  assert os.listdir(tmp_path) == ["a.txt"]


@dataclasses.dataclass(frozen=True)
class Part:
  size: int
  names: tuple[str, ...] = ()

  def __post_init__(self):
    if self.size < 0:
      raise ValueError(f"size {self.size} is negative.")


@dataclasses.dataclass(frozen=True)
class Whole:
  parts: dict[str, Part]
  share: float


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
def test_json_becomes_a_dataclass(tmp_path, mark):
  path = tmp_path / "a.json"
  text = '{"new": 1, "parts": {"a": {"size": 3, "names": ["x"]}}, "share": 2}'
  path.write_text(mark + text, "utf-8")
  found = files.read_json(str(path), Whole, "make it again")
  assert found == Whole({"a": Part(3, ("x",))}, 2.0)
  with pytest.raises(FileNotFoundError):
    files.read_json(str(tmp_path / "b.json"), Whole, "make it again")


_PARTS = '{"share": 1, "parts": {"a": %s}}'


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("", "FILE is not valid JSON (EOF"),
    ("[" * 10**5, "FILE is not valid JSON (recursion limit exceeded"),
    (b'"\xff"', "FILE is not valid JSON (invalid unicode"),
    ('{"a": "\\ud800"}', "FILE is not valid JSON (unexpected end of hex"),
    (
      _PARTS % '{"size": 1, "size": 2}',
      "FILE: it has the key 'size' twice, in",
    ),
    ("[7]", "FILE is [7], but must be an object: make it again."),
    ('{"share": 1.5}', "FILE has no 'parts': make it again."),
    ('{"share": "1.5", "parts": {}}', "FILE: 'share' is '1.5', but"),
    (_PARTS % '{"size": true}', "'parts.a.size' is True, but"),
    (_PARTS % '{"size": 1.0}', "'parts.a.size' is 1.0, but"),
    (_PARTS % '{"size": 1, "names": ["x", []]}', "'parts.a.names.1' is []"),
    ('{"share": 1, "parts": {"a\\nb": {"size": -1}}}', r"'parts.a\nb': size"),
    (json.dumps({"parts": {"k" * 999: [7] * 999}}), "but must be an object"),
  ],
)
def test_json_of_another_shape_is_refused(tmp_path, content, message):
  path = str(tmp_path / "a.json")
  content = content if type(content) is bytes else content.encode()
  files.write_bytes(path, content)
  with pytest.raises(ValueError) as raised:
    files.read_json(path, Whole, "make it again")
  shown = str(raised.value).replace(path, "FILE")
  assert message in shown and len(shown) < 300 and "\n" not in shown


def test_a_list_with_too_many_entries_is_refused():
  shape = Annotated[list[int], annotated_types.Len(0, 1)]
  with pytest.raises(ValueError) as raised:
    files.parse_json("[7, 8]", "FILE", shape, "make it again")
  message = (
    "FILE is [7, 8], but must have at most 1 item, not 2: make it again."
  )
  assert str(raised.value) == message


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("name", ["a/b/c", "empty"])
def test_a_new_folder_appears_complete(tmp_path, name, umask, request):
  (tmp_path / "empty").mkdir()
  path = tmp_path / name
  request.addfinalizer(functools.partial(os.umask, os.umask(umask)))
  with files.new_folder(str(path)) as temporary:
    with open(os.path.join(temporary, "x"), "w") as file:
      file.write("text")
    assert not (path / "x").exists()
  assert (path / "x").read_text() == "text"
  assert len(os.listdir(path.parent)) == 1
  assert path.stat().st_mode & 0o777 == 0o777 & ~umask


@pytest.mark.parametrize("path", ["a", "a/x"])
def test_a_folder_in_use_is_not_replaced(tmp_path, path):
  (tmp_path / "a").mkdir()
  (tmp_path / "a" / "x").touch()
  with (
    pytest.raises(FileExistsError, match=f"{path} exists and is not"),
    files.new_folder(str(tmp_path / path)),
  ):
    pytest.fail("it must be refused before any work")
  assert os.listdir(tmp_path / "a") == ["x"]


def test_a_folder_where_a_link_or_a_disk_is(tmp_path, monkeypatch):
  (tmp_path / "real").mkdir()
  (tmp_path / "link").symlink_to("real")
  with files.new_folder(str(tmp_path / "link")) as temporary:
    files.write_text(f"{temporary}/x", "text")
  assert (tmp_path / "link").is_symlink()
  assert (tmp_path / "real" / "x").read_text() == "text"
  monkeypatch.setattr(os.path, "ismount", lambda path: True)
  with pytest.raises(OSError, match="disk: name a folder in it"):
    files.check_new_folder(str(tmp_path / "empty"))


def test_a_lock_is_held_until_it_is_closed(tmp_path, monkeypatch):
  path = str(tmp_path / "lock")
  held = files.lock(path, "taken")
  with pytest.raises(OSError, match="^taken$"):
    files.lock(path, "taken")
  held.close()
  # A process that inherits the file holds the lock, too.
  with files.lock(path, "taken") as held:
    child = subprocess.Popen(
      [sys.executable, "-c", "input()"],
      stdin=subprocess.PIPE,
      pass_fds=[held.fileno()],
    )
  with pytest.raises(OSError, match="taken"):
    files.lock(path, "taken")
  child.communicate(b"\n")
  files.lock(path, "taken").close()
  # A file system may have no locks.
  error = OSError(errno.ENOLCK, "No locks available")
  monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=error))
  files.lock(path, "taken").close()


def test_checks_make_nothing(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for path in ("a.txt", "gs://bucket", "gs://bucket,gs://bucket/*.txt"):
    files.check_path(path)
  for path in ("", "a", "a/b", f"{tmp_path}/a"):
    files.check_folder(path)
  for path in ("a.png", f"{tmp_path}/a.png"):
    files.check_file(path)
  assert not os.listdir(tmp_path)
  for path in ("a/b", "a"):
    files.make_folder(path)
    assert os.path.isdir(path)


@pytest.mark.parametrize(
  "refuse",
  [
    files.check_path,
    files.make_folder,
    files.check_new_folder,
    files.check_file,
  ],
)
@pytest.mark.parametrize(
  "path", ["file:///a", "gs:///a", "a.txt,s3://bucket/*.txt"]
)
def test_other_addresses_are_refused(tmp_path, monkeypatch, refuse, path):
  monkeypatch.chdir(tmp_path)
  message = f"^{re.escape(repr(path))} is neither a local path nor gs://BUCKET"
  with pytest.raises(ValueError, match=message):
    refuse(path)
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  "cause, address, reason, advice",
  [
    (
      'HTTP response code 403 with body \'{\n  "error": {\n    "code": 403,\n'
      '    "message": "no access",\n    "errors": [\n\''
      "\n\t when reading metadata of gs://b/x",
      *("gs://b/x", "no access", "give this account a role on the"),
    ),
    (
      'HTTP response code 401 with body \'{"message": "Who?."\'\n\t when '
      "deleting gs://b/a b\n\t [[{{node R}}]]",
      *("gs://b/a b", "Who?", "run `gcloud auth"),
    ),
    (
      "HTTP response code 404 with body '<Error><Code>NoSuchBucket</Code>"
      "<Message>The specified bucket does not exist.</Message></Error>'"
      "\n\t when renaming gs://b/x to gs://b/y",
      "gs://b/x to gs://b/y",
      *("bucket does not exist", "check the name"),
    ),
    (
      "HTTP response code 404 with body 'No such object: b/x'\n\t when reading "
      "gs://b/x",
      *("gs://b/x", "No such file or directory", ""),
    ),
    ("HTTP response code 403 with body 'no'", "", "code 403", "give this"),
    (
      "libcurl code 6 meaning 'Couldn't resolve host name', error details: "
      "Could not resolve host: www.googleapis.com\n\t when reading gs://b/x",
      *("gs://b/x", "Could not resolve host", "check the network"),
    ),
  ],
)
def test_failed_requests_are_explained(cause, address, reason, advice):
  message = f"{{{{node}}}} Error executing an HTTP request: {cause}"
  found = remote.explain(message)
  assert found[0] == address and len(found[1]) < 400
  assert reason in found[1] and advice in found[1], found


def test_other_errors_of_tensorflow_are_on_one_line():
  for message in (
    "truncated\n  record ",
    "{{function_node __x}} truncated record [Op:Next] name: ",
    "Graph execution error:\n\nDetected at node A defined at (most recent call "
    'last):\n  File "a.py"\n\ntruncated record\n\t [[{{node A}}]] [Op:f]',
  ):
    assert remote.explain(message) == ("", "truncated record")
  full = "{{function_node __wrapped__Flush_device_/device:CPU:0}} /run/events"
  full += "; No space left on device\n\tFailed to flush 1 events to /run/events"
  assert remote.explain(full) == ("", "/run/events: No space left on device")
  # In linear time.
  assert remote.explain("x" * 10**6) == ("", "x" * 10**6)


@pytest.mark.parametrize(
  "refuse, path, kind, message",
  [
    (files.make_folder, "a.txt", NotADirectoryError, "a.txt is a file"),
    (files.check_folder, "a.txt/b/c", NotADirectoryError, "a.txt is a file,"),
    (files.check_file, ".", IsADirectoryError, ". is a folder"),
    (files.check_file, "b/x.png", FileNotFoundError, "b/x.png .* folder b"),
    (files.check_file, "a.txt/x.png", NotADirectoryError, "a.txt is a file"),
    (files.check_file, "/dev/null", OSError, "/dev/null is a device"),
    (files.check_file, "/dev/stdout", OSError, "/dev/stdout is a device"),
  ],
)
def test_wrong_paths_are_refused(
  tmp_path, monkeypatch, refuse, path, kind, message
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "a.txt").write_text("text")
  files.check_file("a.txt")  # It may be replaced.
  with pytest.raises(kind, match=f"^{message}.*: (name|make) "):
    refuse(path)
  assert (tmp_path / "a.txt").read_text() == "text"
  # Root may write in a read-only folder.
  monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
  with pytest.raises(PermissionError) as caught:
    files.check_file(str(tmp_path / "x.png"))
  assert caught.value.filename == str(tmp_path)


@pytest.fixture(scope="module", name="gcs")
def fixture_gcs():
  with fake_gcs.FakeGcs() as gcs:
    yield gcs


@pytest.fixture(scope="module", name="client")
def fixture_client(gcs):
  with gcs.client(GCS_APPEND_MODE="compose") as client:
    yield client


def _error(function, *arguments):
  """Returns the type and number of the error that a function raises."""
  try:
    return function(*arguments)
  except (OSError, ValueError) as error:
    return type(error).__name__, getattr(error, "errno", None)


def _use(root):
  """Returns what most functions return for a new folder."""

  def path(name):
    return f"{root}/{name}"

  files.make_folder(root)
  files.write_text(path("a [1].txt"), "one\ntwö\n")
  for line in ("1\n", "2\n"):
    with files.open(path("log"), "a") as log:
      for _ in range(2):
        log.write(line)
        log.flush()
  for _ in range(2):
    with (
      contextlib.suppress(FileExistsError),
      files.new_folder(path("new")) as folder,
    ):
      files.make_folder(f"{folder}/inner")
      files.write_json(f"{folder}/inner/b.json", {"b": 1})
      files.write_bytes(f"{folder}/c", b"c" * 999)
  with files.local_copy(path("new")) as copied:
    copies = files.walk(copied), files.read_bytes(f"{copied}/c")
  files.copy(path("new/c"), path("d"))
  files.rename(path("d"), path("e"))
  with files.open(path("e"), "rb") as file:
    file.seek(-2, os.SEEK_END)
    end = file.read()
  found = [
    *(copies, end, files.list_dir(root), files.walk(root)),
    [os.path.relpath(x, root) for x in files.glob(path("*"))],
    [os.path.relpath(x, root) for x in files.glob(path("new/*.none"))],
    [os.path.relpath(x, root) for x in files.glob(path("log"))],
    [list(files.open(path(name))) for name in ("a [1].txt", "log")],
    (files.sha256(path("e")), files.stat(path("e"))[0]),
  ]
  for name in ("new", "new/c", "none"):
    functions = files.exists, files.is_dir, files.is_file
    found.append([function(path(name)) for function in functions])
  for function in (
    *(files.read_bytes, files.stat, files.remove, files.list_dir),
    *(files.open, files.walk),
  ):
    found.append(_error(function, path("none")))
  found += [
    _error(files.check_new_folder, path("new")),
    _error(files.check_new_folder, path("log")),
    _error(files.check_new_folder, path("other")),
    _error(files.check_file, path("new")),
  ]
  files.remove_tree(path("new"))
  files.remove_tree(path("new"))
  return [*found, files.walk(root)]


def test_a_bucket_is_used_like_a_disk(gcs, client, tmp_path):
  local = _use(str(tmp_path / "a folder"))
  assert client(_use, "gs://bucket/a folder") == local
  assert local[2] == ["a [1].txt", "e", "log", "new"]
  # Only what is new of the log was uploaded, and the parts are removed.
  assert "compose" in {request.kind for request in gcs.requests}
  assert not [name for name in gcs.names() if "/.tmpcompose/" in name]


def test_the_files_that_mark_a_folder_as_complete_come_last(gcs, client):
  path, first = "gs://bucket/ordered", len(gcs.requests)
  client(_write_folder, path, ["b.json", "c", "a/b.json"])
  uploads = [x.address for x in gcs.requests[first:] if x.kind == "upload"]
  names = [x.removeprefix(f"{path}/") for x in uploads if ".tmp" not in x]
  assert names == ["a/b.json", "c", "b.json"]
  found = client(_error, _write_folder, path, ["d"])
  assert found[0] == "FileExistsError" and len(gcs.names(f"{path}/")) == 3


def _write_folder(path, names):
  with files.new_folder(path) as folder:
    for name in names:
      files.make_folder(os.path.dirname(f"{folder}/{name}"))
      files.write_text(f"{folder}/{name}", name)


@pytest.mark.parametrize(
  "bucket, error", [("closed", "EACCES"), ("no", "ENOENT")]
)
def test_a_bucket_that_cannot_be_used(gcs, client, bucket, error):
  gcs.forbidden = ("gs://closed/",)
  for function in ("check_folder", "check_file", "list_dir", "glob", "open"):
    path = f"gs://{bucket}/x*"
    found = client(_error, getattr(files, function), path)
    assert found[1] == getattr(errno, error), function
  if bucket == "closed":  # Is not taken for an empty one.
    assert client(_error, files.is_dir, "gs://closed/x")[1] == errno.EACCES
  # The root of a bucket is a folder, and a slash at the end names no file.
  assert client(files.is_dir, "gs://bucket") is True
  assert client(files.exists, "gs://none") is False
  for path in ("gs://bucket/x/", "x/"):
    assert client(_error, files.check_file, path)[0] == "IsADirectoryError"


@pytest.mark.parametrize("check", [files.check_file, files.check_new_folder])
def test_whether_a_bucket_can_be_written_is_tried(gcs, client, check):
  folder = f"gs://bucket/{check.__name__}"
  client(check, f"{folder}/x")
  assert not gcs.names(folder)
  gcs.forbidden = (f"{folder}/only/.",)
  found = client(_error, check, f"{folder}/only/x")
  assert found[1] == errno.EACCES
