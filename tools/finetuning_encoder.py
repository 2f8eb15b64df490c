"""Flags that name a pretrained encoder: weights, configuration, tokenizer.

All three lie in one folder, that of a run of tools.run_pretraining or of a
released checkpoint, so that --init_checkpoint is enough.
"""

from __future__ import annotations

import glob
import os
from typing import NamedTuple

from absl import flags

from official_albert import config as config_lib
from official_albert import run_record, tokenization
from tfrecords import schemas
from tools import training_flags

_CONFIG_FILE = flags.DEFINE_string(
  "albert_config_file",
  "",
  "The encoder; by default the albert_config.json beside --init_checkpoint.",
)
_SPM_MODEL_FILE = flags.DEFINE_string(
  "spm_model_file",
  "",
  "Its SentencePiece model; by default the one beside --init_checkpoint.",
)
_VOCAB_FILE = flags.DEFINE_string(
  "vocab_file", "", "Its WordPiece vocabulary, for the released zh models."
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Lower-case all text, as the encoder's was."
)


class Encoder(NamedTuple):
  """A pretrained encoder; `checkpoint` is "" for fresh weights."""

  config: config_lib.AlbertConfig
  tokenizer: tokenization.Tokenizer
  checkpoint: str


def find(run_dir: str = "") -> Encoder:
  """The encoder that the flags name.

  Args:
    run_dir: a fine-tuned run, whose files are taken where no flag names any.

  Raises:
    ValueError: a file is not named and not found, or of no use.
    FileNotFoundError: a named file is missing.
  """
  checkpoint = training_flags.INIT_CHECKPOINT.value
  folders = [run_dir] if run_dir else []
  if checkpoint:
    folder = checkpoint if os.path.isdir(checkpoint) else _parent(checkpoint)
    # The best checkpoint of a run is one folder below the run.
    folders += [folder, _parent(folder)]
  config_file = _CONFIG_FILE.value or _find(folders, run_record.CONFIG_FILE)
  if not config_file:
    raise ValueError(
      f"no {run_record.CONFIG_FILE} beside --init_checkpoint {checkpoint!r}: "
      "give --albert_config_file."
    )
  spm_model_file, vocab_file = _SPM_MODEL_FILE.value, _VOCAB_FILE.value
  if not spm_model_file and not vocab_file:
    spm_model_file = _find(folders, schemas.TOKENIZER_FILE, "*.model")
    if not spm_model_file:
      vocab_file = _find(folders, schemas.TOKENIZER_FILES["wordpiece"])
    if not spm_model_file and not vocab_file:
      raise ValueError(
        f"no tokenizer beside --init_checkpoint {checkpoint!r}: give "
        "--spm_model_file, or --vocab_file for WordPiece."
      )
  return Encoder(
    config_lib.AlbertConfig.from_json_file(config_file),
    tokenization.open_tokenizer(spm_model_file, vocab_file, _LOWER_CASE.value),
    checkpoint,
  )


def _parent(path: str) -> str:
  return os.path.dirname(os.path.abspath(path))


def _find(folders: list[str], *patterns: str) -> str:
  """The only file with such a name in the first folder that has one."""
  for folder in folders:
    for pattern in patterns:
      found = glob.glob(os.path.join(glob.escape(folder), pattern))
      if len(found) == 1:
        return found[0]
  return ""
