"""Checkpoints of other formats, where a program works on folders of ours."""

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
  """Whether a path is an archive, or a folder that has to be converted."""
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
  """A folder of this package with what lies at a path.

  Computes with TensorFlow if it has to convert, so devices are set up before.

  Args:
    path: see `AlbertModel.from_checkpoint`.
    checkpoint: of a run, see `checkpoint_files.find_prefix`.
    prepare: changes the checkpoint that was read before it is written, such
      as to name the task of a classifier.

  Returns:
    `path` itself if it is ours or a TF1 checkpoint and nothing is changed, else
    a temporary folder, which is removed when the process ends.

  Raises:
    ValueError, OSError: it cannot be read; or what `prepare` raises.
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
    notes = [f"a checkpoint of {name}, read as {folder}", *read.notes]
    if kind == "hf" and read.tokenizer:
      notes.append(
        f"texts are tokenized with {os.path.basename(read.tokenizer.path)} by "
        "the rules of this package; transformers may give other ids, see "
        "docs/checkpoints.md"
      )
    for note in notes:
      # Standard output may be where predictions go.
      print(f"{path}: {note}", file=sys.stderr, flush=True)
    checkpoints.WRITERS["official_albert"](read, folder)
  return folder
