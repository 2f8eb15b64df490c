"""The .tar.gz of a SavedModel, as TF Hub's library and its site take it.

The files lie at the root of the archive. The bytes are a function of names and
contents alone: sorted, no times, no owners, so that two archives of the same
folder have the same checksum.

Source: "Model hosting protocol" and "Write documentation" of TF Hub's
documentation; for what may be inside, tools/validator.py of
tensorflow/tfhub.dev.
"""

from __future__ import annotations

import fnmatch
import gzip
import os
import tarfile

from official_albert import files

# The site refuses all else, as no loader needs it.
_ALLOWED = (
  "saved_model.pb",
  "variables/variables.*",
  "assets/*",
  "assets.extra/*",
)


def write(folder: str, path: str) -> None:
  """Packs a SavedModel.

  Args:
    folder: of the SavedModel.
    path: of the archive; is whole or not there.

  Raises:
    ValueError: the folder holds a file that no SavedModel has.
    OSError: it cannot be read, or not written.
  """
  names = sorted(
    os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")
    for parent, _, found in os.walk(folder)
    for name in found
  )
  for name in names:
    if not any(fnmatch.fnmatch(name, pattern) for pattern in _ALLOWED):
      raise ValueError(
        f"{os.path.join(folder, name)} is no file of a SavedModel, so TF Hub "
        "would refuse the archive: remove it."
      )
  # The library makes no folder that the archive does not name before.
  parents = {os.path.dirname(name) for name in names} - {""}
  members = sorted([*names, *parents])
  with (
    files.replacing(path) as temporary,
    open(temporary, "wb") as raw,
    _gzip(raw) as packed,
  ):
    _write_entries(packed, folder, members)


def _gzip(raw) -> gzip.GzipFile:
  """Without a name and a time of its own."""
  return gzip.GzipFile("", "wb", mtime=0, fileobj=raw)


def _write_entries(packed, folder: str, names: list[str]) -> None:
  with tarfile.open(
    fileobj=packed, mode="w", format=tarfile.GNU_FORMAT
  ) as archive:
    for name in names:
      entry = tarfile.TarInfo(name)
      source = os.path.join(folder, name)
      if os.path.isdir(source):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
        continue
      entry.mode, entry.size = 0o644, os.path.getsize(source)
      with open(source, "rb") as file:
        archive.addfile(entry, file)
