"""Flags for the configuration and the tokenizer of an encoder.

Both are beside the weights in the folder of a run or of a released checkpoint,
so the folder is enough.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, Optional

from absl import flags

from official_albert import files, runs, tokenization
from official_albert.config import AlbertConfig
from official_albert.tools.cli import path_flags

if TYPE_CHECKING:
  from official_albert import checkpoints

CONFIG_FILE = path_flags.define(
  "albert_config_file",
  "",
  "Configuration of the encoder; by default the albert_config.json beside the "
  "weights.",
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file",
  "",
  "SentencePiece model; by default the one beside the weights.",
)
_VOCAB_FILE = path_flags.define(
  "vocab_file",
  "",
  "WordPiece vocabulary, for the released zh models; by default the one beside "
  "the weights.",
)
LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case",
  None,
  "Lower-case all text; by default as recorded in the run.json of the encoder, "
  "else true.",
)
KEEP_ACCENTS = flags.DEFINE_bool(
  "keep_accents",
  None,
  "Keep accents and other combining marks; by default as recorded in the "
  "run.json of the encoder, else as in the original, which loses them.",
)
ALL = CONFIG_FILE, _SPM_MODEL_FILE, _VOCAB_FILE, LOWER_CASE, KEEP_ACCENTS


class Encoder(NamedTuple):
  """A pretrained encoder; `checkpoint` is "" for random weights."""

  config: AlbertConfig
  tokenizer: tokenization.Tokenizer
  checkpoint: str


def check_given(init_checkpoint: str) -> None:
  """Raises an error if there is no encoder, before TensorFlow is loaded."""
  if not (init_checkpoint or CONFIG_FILE.value):
    raise ValueError(
      f"no {runs.CONFIG_FILE} without --init_checkpoint: give "
      "--albert_config_file."
    )
  names = init_checkpoint, f"{init_checkpoint}.index"
  if init_checkpoint and not any(map(files.exists, names)):
    raise FileNotFoundError(
      f"--init_checkpoint {init_checkpoint} does not exist."
    )


def find(run_dir: str = "", init_checkpoint: str = "") -> Encoder:
  """Returns the encoder of the flags.

  Args:
    run_dir: a fine-tuned run that provides files without a flag.
    init_checkpoint: the value of --init_checkpoint, if the program has it.
  """
  from official_albert import checkpoints  # Loads TensorFlow.

  if init_checkpoint or not run_dir:
    check_given(init_checkpoint)
  source = run_dir or init_checkpoint
  where = f"in {source}" if source else "without --init_checkpoint"
  with contextlib.ExitStack() as stack:
    found, recorded = None, None
    if source:
      opened = checkpoints.open(source, CONFIG_FILE.value)
      checkpoint = stack.enter_context(opened)
      config, found = checkpoint.config, checkpoint.tokenizer
      recorded = (checkpoint.record.get("data") or {}).get("tokenizer")
    else:
      config = AlbertConfig.from_json_file(CONFIG_FILE.value)
    tokenizer = checkpoints.checked_tokenizer(
      found,
      recorded or {},
      source,
      chosen_tokenizer(),
      LOWER_CASE.value,
      KEEP_ACCENTS.value,
    )
    if tokenizer is None:
      raise ValueError(
        f"no tokenizer {where}: give --spm_model_file, or --vocab_file for "
        "WordPiece."
      )
    return Encoder(config, tokenizer.open(), init_checkpoint)


def chosen_tokenizer(
  spm_model_file: Optional[str] = None, vocab_file: Optional[str] = None
) -> Optional[checkpoints.TokenizerFile]:
  """Returns the tokenizer of these files, by default the flags', if any."""
  from official_albert import checkpoints  # Loads TensorFlow.

  return checkpoints.chosen_tokenizer(
    _SPM_MODEL_FILE.value if spm_model_file is None else spm_model_file,
    _VOCAB_FILE.value if vocab_file is None else vocab_file,
    LOWER_CASE.value is not False,
    KEEP_ACCENTS.value,
  )
