"""Detects, reads and writes the supported checkpoint formats."""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
import tempfile
import zlib
from typing import Iterator

from official_albert.checkpoints import (
  checkpoint_files,
  hf_checkpoints,
  own_checkpoints,
  portable,
  tf1_checkpoints,
)

# reader(path, head, include_optimizer, config_file) -> PortableCheckpoint; for
# the arguments see `tf1_checkpoints.read_tf1_checkpoint`.
READERS = {
  "tf1": tf1_checkpoints.read_tf1_checkpoint,
  "tf_hub": tf1_checkpoints.read_tf1_checkpoint,
  "hf": hf_checkpoints.read,
  "official_albert": own_checkpoints.read,
}
# writer(checkpoint, folder) -> path of the weights.
WRITERS = {
  "tf1": tf1_checkpoints.write_tf1_checkpoint,
  "hf": hf_checkpoints.write,
  "official_albert": own_checkpoints.write,
}
_MAX_FILES = 1000
_MAX_HEADER_BYTES = 2**24


def choose(
  path: str, checkpoint: str = "", source: str = ""
) -> tuple[str, str]:
  """Returns the format, a key of `READERS`, and the path for its reader.

  Args:
    path: see `AlbertModel.from_checkpoint`; not an archive.
    checkpoint: which checkpoint of a run; see `find_prefix`.
    source: the format; "" detects it.

  Raises:
    ValueError, OSError: there is no such checkpoint.
  """
  path = checkpoint_files.run_folder(path)
  if not source:
    if os.path.exists(os.path.join(path, checkpoint_files.HF_CONFIG_FILE)):
      source = "hf"
    elif os.path.exists(os.path.join(path, "saved_model.pb")):
      source = "tf_hub"
    else:
      prefix = checkpoint_files.find_prefix(path)
      is_own = checkpoint_files.TensorBundle(prefix).is_object_based
      source = "official_albert" if is_own else "tf1"
  if source == "official_albert":
    return source, checkpoint_files.find_prefix(path, checkpoint)
  if checkpoint:
    raise ValueError(
      f"{path} is not the folder of a run, so there are no checkpoints to "
      "choose from: leave --checkpoint out."
    )
  return source, path


def read_checkpoint(
  path: str, config_file: str = ""
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of any format; `checkpoints.fill` loads the result.

  Args:
    path: see `AlbertModel.from_checkpoint`; not an archive.
    config_file: albert_config.json, if none lies beside the weights.

  Raises:
    ValueError, OSError: there is no valid checkpoint.
  """
  source, path = choose(path)
  return READERS[source](path, config_file=config_file)


def is_archive(path: str) -> bool:
  """Returns whether a path is a file with the extension of an archive."""
  return path.endswith((".tar.gz", ".tgz")) and os.path.isfile(path)


class _BoundedGzip(gzip.GzipFile):
  """Refuses large reads, because tarfile reads a header of any size at once."""

  def read(self, size: int = -1) -> bytes:
    if not 0 <= size <= _MAX_HEADER_BYTES:
      raise tarfile.ReadError(f"a header claims {size:,} bytes")
    return super().read(size)


@contextlib.contextmanager
def unpacked_archive(path: str, max_bytes: int = 2**34) -> Iterator[str]:
  """Unpacks an archive; yields the temporary folder, or any other path as is.

  If the archive holds a single folder, that folder is yielded. Archives from
  untrusted sources are safe. An xxlarge model with optimizer state has 2.8 GB.

  Raises:
    ValueError: the archive is damaged, too large, or holds a link, a device or
      a path outside of the folder.
  """
  if not is_archive(path):
    yield path
    return
  with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
    try:
      _extract(path, folder, max_bytes)
    except tarfile.FilterError as error:
      raise ValueError(f"{path} is not used: {error}.") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
      raise ValueError(
        f"{path} is damaged, truncated or not a .tar.gz ({error}): copy it "
        "again."
      ) from error
    inside = os.listdir(folder)
    only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
    yield only if os.path.isdir(only) else folder


def _extract(path: str, folder: str, max_bytes: int) -> None:
  if not hasattr(tarfile, "data_filter"):
    raise ValueError(
      f"{path} cannot be unpacked safely by this Python: use 3.10.12, 3.11.4 "
      "or newer, or unpack the archive and give its folder."
    )
  total = 0
  with (
    _BoundedGzip(path) as stream,
    tarfile.open(fileobj=stream, mode="r:") as archive,
  ):
    for count, member in enumerate(archive, 1):
      total += member.size
      if total > max_bytes or count > _MAX_FILES:
        raise ValueError(
          f"{path} unpacks to more than {max_bytes:,} bytes or {_MAX_FILES} "
          "files: it is not a checkpoint of an ALBERT."
        )
      if not (member.isreg() or member.isdir()):
        raise ValueError(
          f"{path} holds {member.name!r}, which is neither a file nor a "
          "folder: the archive is not used."
        )
      archive.extract(member, folder, filter="data")
