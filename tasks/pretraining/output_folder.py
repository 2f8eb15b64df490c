"""A dataset's folder: built aside, put in place whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import Iterator

from tfrecords import schemas

_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")


@contextlib.contextmanager
def staging_folder(output_dir: str, overwrite: bool) -> Iterator[str]:
  """A folder inside the output folder, which is made if need be.

  Whatever happens, it is gone in the end; so is an output folder that was
  made here and is still empty.

  Raises:
    ValueError: the folder is a file, or holds a dataset and `overwrite` is
      not given.
    OSError: it can't be written.
  """
  if os.path.exists(output_dir) and not os.path.isdir(output_dir):
    raise ValueError(f"output_dir {output_dir!r} is a file; name a folder.")
  manifest = os.path.join(output_dir, schemas.MANIFEST_FILE)
  if os.path.exists(manifest) and not overwrite:
    raise ValueError(
      f"{output_dir!r} holds a dataset already ({schemas.MANIFEST_FILE}): "
      "name another output_dir, or replace it with --overwrite."
    )
  is_new = not os.path.isdir(output_dir)
  os.makedirs(output_dir, exist_ok=True)
  try:
    with tempfile.TemporaryDirectory(
      prefix=".unfinished-", dir=output_dir
    ) as staging:
      yield staging
  finally:
    if is_new and not os.listdir(output_dir):
      os.rmdir(output_dir)


def publish(staging: str, output_dir: str, manifest: schemas.Manifest) -> None:
  """Moves the shards and the tokenizer of a dataset into its folder.

  The old manifest goes first and the new one comes last, so that the folder
  never holds a manifest with shards of another dataset.
  """
  old = os.path.join(output_dir, schemas.MANIFEST_FILE)
  if os.path.exists(old):
    os.remove(old)
  for name in os.listdir(output_dir):
    if _SHARD.fullmatch(name):
      os.remove(os.path.join(output_dir, name))
  for name in schemas.TOKENIZER_FILES.values():
    if os.path.exists(os.path.join(output_dir, name)):
      os.remove(os.path.join(output_dir, name))
  files = [manifest.tokenizer.file]
  for split in manifest.splits.values():
    files += [shard.file for shard in split.shards]
  for name in files:
    os.replace(os.path.join(staging, name), os.path.join(output_dir, name))
  schemas.write_manifest(output_dir, manifest)
