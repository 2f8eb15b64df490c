"""Flags that name a pretrained encoder: weights, configuration, tokenizer.

All three lie in one folder, that of a run of tools.run_pretraining or of a
released checkpoint, so that --init_checkpoint is enough.
"""

from __future__ import annotations

import glob
import os
from typing import Any, NamedTuple

from absl import flags

import tfrecords
from official_albert import checkpoints, modeling, tokenization, training
from tools import conversion
from tools.cli import path_flags, training_flags

_CONFIG_FILE = path_flags.define(
  "albert_config_file",
  "",
  "The encoder; by default the albert_config.json beside --init_checkpoint.",
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file",
  "",
  "Its SentencePiece model; by default the one beside --init_checkpoint.",
)
_VOCAB_FILE = path_flags.define(
  "vocab_file",
  "",
  "Its WordPiece vocabulary, for the released zh models; by default the one "
  "beside --init_checkpoint.",
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case",
  None,
  "Lower-case all text; by default as for the encoder, if its run.json says "
  "so, else yes.",
)


class Encoder(NamedTuple):
  """A pretrained encoder; `checkpoint` is "" for fresh weights."""

  config: modeling.AlbertConfig
  tokenizer: tokenization.Tokenizer
  checkpoint: str


def find(run_dir: str = "", shown: str = "") -> Encoder:
  """The encoder that the flags name.

  Args:
    run_dir: a fine-tuned run, whose files are taken where no flag names any.
    shown: what messages call it, where `run_dir` is a temporary copy.

  Raises:
    ValueError: a file is not named and not found, of no use, or not what the
      encoder was trained with.
    FileNotFoundError: a named file is missing.
  """
  named = training_flags.INIT_CHECKPOINT.value
  checkpoint = named and checkpoints.run_folder(conversion.own_copy.of(named))
  folders = [run_dir] if run_dir else []
  if checkpoint:
    folder = checkpoint if os.path.isdir(checkpoint) else _parent(checkpoint)
    if not os.path.isdir(folder):
      raise FileNotFoundError(
        f"--init_checkpoint {checkpoint} is neither a folder nor in one."
      )
    if not glob.glob(glob.escape(checkpoint) + "*"):
      raise FileNotFoundError(f"--init_checkpoint {checkpoint} is not there.")
    # The best checkpoint of a run is one folder below the run.
    folders += [folder, _parent(folder)]
  where = (
    f"in {shown or run_dir or named}"
    if folders
    else "without --init_checkpoint"
  )
  config_file = _CONFIG_FILE.value or _find(folders, training.CONFIG_FILE)
  if not config_file:
    raise ValueError(
      f"no {training.CONFIG_FILE} {where}: give --albert_config_file."
    )
  return Encoder(
    modeling.AlbertConfig.from_json_file(config_file),
    _open_tokenizer(folders, where),
    checkpoint,
  )


def _open_tokenizer(folders: list[str], where: str) -> tokenization.Tokenizer:
  spm_model_file, vocab_file = _SPM_MODEL_FILE.value, _VOCAB_FILE.value
  if not spm_model_file and not vocab_file:
    spm_model_file = _find(folders, tfrecords.TOKENIZER_FILE, "*.model")
    if not spm_model_file:
      # The released zh models have a vocab_chinese.txt.
      vocab_file = _find(
        folders, tfrecords.TOKENIZER_FILES["wordpiece"], "vocab*.txt"
      )
    if not spm_model_file and not vocab_file:
      raise ValueError(
        f"no tokenizer {where}: give --spm_model_file, or --vocab_file for "
        "WordPiece."
      )
  folder, recorded = _recorded_tokenizer(folders)
  lower_case = _LOWER_CASE.value
  if lower_case is None:
    lower_case = recorded.get("lower_case", True)
  tokenizer = tokenization.open_tokenizer(
    spm_model_file, vocab_file, lower_case
  )
  if recorded.get("sha256", tokenizer.sha256) != tokenizer.sha256:
    raise ValueError(
      f"{spm_model_file or vocab_file} is not the tokenizer that the model in "
      f"{folder} was trained with: its ids would mean other pieces; give that "
      "one, or none if it is in the folder."
    )
  return tokenizer


def _recorded_tokenizer(folders: list[str]) -> tuple[str, dict[str, Any]]:
  """The first folder of a run, and what that says of its tokenizer."""
  for folder in folders:
    if os.path.exists(os.path.join(folder, training.RECORD_FILE)):
      return folder, training.read_run(folder)["data"].get("tokenizer", {})
  return "", {}


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
