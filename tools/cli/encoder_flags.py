"""Flags for the configuration and the tokenizer of an encoder.

Both are beside the weights in the folder of a run or of a released checkpoint,
so the folder is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

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
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case",
  None,
  "Lower-case all text; by default as recorded in the run.json of the encoder, "
  "else true.",
)
_KEEP_ACCENTS = flags.DEFINE_bool(
  "keep_accents",
  None,
  "Keep accents and other combining marks; by default as recorded in the "
  "run.json of the encoder, else as in the original, which loses them.",
)


def chosen_tokenizer() -> checkpoints.TokenizerChoice:
  """Returns what the flags say of the tokenizer."""
  from official_albert import checkpoints  # Loads TensorFlow.

  return checkpoints.TokenizerChoice(
    _SPM_MODEL_FILE.value,
    _VOCAB_FILE.value,
    _LOWER_CASE.value,
    _KEEP_ACCENTS.value,
  )
