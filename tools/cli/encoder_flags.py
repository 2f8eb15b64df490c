"""Flags for a pretrained encoder: weights, configuration, tokenizer.

All three are in the folder of a run or of a released checkpoint, so
--init_checkpoint is enough.
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
  "Configuration of the encoder; by default the albert_config.json beside "
  "--init_checkpoint.",
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file",
  "",
  "SentencePiece model; by default the one beside --init_checkpoint.",
)
_VOCAB_FILE = path_flags.define(
  "vocab_file",
  "",
  "WordPiece vocabulary, for the released zh models; by default the one beside "
  "--init_checkpoint.",
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case",
  None,
  "Lower-case all text; by default as recorded in the run.json of the encoder, "
  "else true.",
)


class Encoder(NamedTuple):
  """A pretrained encoder; `checkpoint` is "" for random weights."""

  config: modeling.AlbertConfig
  tokenizer: tokenization.Tokenizer
  checkpoint: str


def find(run_dir: str = "", shown: str = "") -> Encoder:
  """Returns the encoder of the flags.

  Args:
    run_dir: a fine-tuned run, for files that no flag names.
    shown: name of `run_dir` in messages, if it is a temporary copy.

  Raises:
    ValueError: a file is not found or invalid, or the encoder was trained with
      another tokenizer.
    FileNotFoundError: a file that a flag names does not exist.
  """
  named = training_flags.INIT_CHECKPOINT.value
  checkpoint = named and checkpoints.run_folder(conversion.own_copy.of(named))
  folders = [run_dir] if run_dir else []
  if checkpoint:
    folder = checkpoint if os.path.isdir(checkpoint) else _parent(checkpoint)
    if not os.path.isdir(folder):
      raise FileNotFoundError(
        f"--init_checkpoint {checkpoint} does not exist, nor does its folder."
      )
    if not glob.glob(glob.escape(checkpoint) + "*"):
      raise FileNotFoundError(f"--init_checkpoint {checkpoint} does not exist.")
    # The best checkpoint is in a subfolder of the run.
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
      f"{folder} was trained with, so the same ids mean other pieces: give "
      "that tokenizer, or none if it is in the folder."
    )
  return tokenizer


def _recorded_tokenizer(folders: list[str]) -> tuple[str, dict[str, Any]]:
  """Returns the first folder of a run and the tokenizer in its run.json."""
  for folder in folders:
    if os.path.exists(os.path.join(folder, training.RECORD_FILE)):
      return folder, training.read_run(folder)["data"].get("tokenizer", {})
  return "", {}


def _parent(path: str) -> str:
  return os.path.dirname(os.path.abspath(path))


def _find(folders: list[str], *patterns: str) -> str:
  """Returns the only file of a pattern in the first folder that has one."""
  for folder in folders:
    for pattern in patterns:
      found = glob.glob(os.path.join(glob.escape(folder), pattern))
      if len(found) == 1:
        return found[0]
  return ""
