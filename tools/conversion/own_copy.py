"""Converted copies of other formats, for programs that read our folders."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
from typing import Callable, Optional

from official_albert import checkpoints


def is_foreign(path: str) -> bool:
  """Returns whether a path is an archive, a HF folder or a SavedModel."""
  return checkpoints.is_archive(path) or any(
    os.path.exists(os.path.join(path, name))
    for name in (checkpoints.HF_CONFIG_FILE, "saved_model.pb")
  )


@functools.cache
def of(
  path: str,
  checkpoint: str = "",
  prepare: Optional[Callable[[checkpoints.PortableCheckpoint], None]] = None,
) -> str:
  """Returns a folder of this package with the checkpoint at a path.

  That is `path` itself if it needs no conversion, being ours or a TF1
  checkpoint; else a temporary folder, which is removed when the process ends.
  A conversion runs TensorFlow, so set up devices first.

  Args:
    path: as in `AlbertModel.from_checkpoint`.
    checkpoint: which checkpoint of a run, as in `find_prefix`.
    prepare: changes the checkpoint before it is written, for example to name
      the task of a classifier.

  Raises:
    ValueError, OSError: the checkpoint cannot be read; or from `prepare`.
  """
  if not prepare and not is_foreign(path):
    return path
  folder = tempfile.mkdtemp(prefix="albert-")
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  with checkpoints.unpacked_archive(path) as source:
    kind, weights = checkpoints.choose(source, checkpoint)
    read = checkpoints.READERS[kind](weights)
    if prepare:
      prepare(read)
    name = {"hf": "Hugging Face", "official_albert": "this package"}.get(
      kind, "google-research"
    )
    notes = [f"a checkpoint of {name}, converted to {folder}", *read.notes]
    if kind == "hf" and read.tokenizer:
      notes.append(
        f"texts are tokenized with {os.path.basename(read.tokenizer.path)} by "
        "the rules of this package; transformers may give other ids, see "
        "docs/checkpoints.md"
      )
    for note in notes:
      # Predictions may be written to standard output.
      print(f"{path}: {note}", file=sys.stderr, flush=True)
    checkpoints.WRITERS["official_albert"](read, folder)
  return folder
