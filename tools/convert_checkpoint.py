"""Converts checkpoints of ALBERT between Google, Hugging Face and this package.

    python -m tools.convert_checkpoint --to=official_albert \\
      --input=albert_base_v2.tar.gz --output=albert_base_v2
    python -m tools.convert_checkpoint --to=hf --input=RUN --output=FOLDER

Before the output is there, every value has been read from it again and
compared, and where torch and transformers are installed a batch has gone
through both models; see docs/checkpoints.md. The report is printed and left in
conversion.json. Nothing is unpickled, and no graph of others is run.
"""

from __future__ import annotations

import os

from absl import flags

from official_albert import checkpoint_names, portable_checkpoint, pretrained
from tools import checkpoint_conversion, command_line

_FROM = flags.DEFINE_enum(
  "from",
  "",
  ["", *pretrained.READERS],
  "Format of --input; by default what lies there.",
)
_TO = flags.DEFINE_enum(
  "to", None, list(pretrained.WRITERS), "Format of --output."
)
_INPUT = flags.DEFINE_string(
  "input",
  None,
  "A folder or a .tar.gz of one, or the prefix of a TensorFlow checkpoint.",
)
_OUTPUT = flags.DEFINE_string(
  "output", None, "The new folder; must be empty or not there."
)
_HEAD = flags.DEFINE_enum(
  "head",
  "",
  ["", *checkpoint_names.HEADS],
  "What to carry besides the encoder; by default what the input has.",
)
_INCLUDE_OPTIMIZER = flags.DEFINE_bool(
  "include_optimizer",
  False,
  "Carry m, v and the step too, between tf1 and official_albert.",
)
_CONFIG_FILE = flags.DEFINE_string(
  "albert_config_file",
  "",
  "Configuration of a TensorFlow checkpoint; by default the one beside it, "
  "else that of the release with the same shapes.",
)
_SPM_MODEL_FILE = flags.DEFINE_string(
  "spm_model_file", "", "SentencePiece model instead of the one in --input."
)
_VOCAB_FILE = flags.DEFINE_string(
  "vocab_file", "", "WordPiece vocabulary instead of the one in --input."
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Whether the tokenizer of these two lower-cases."
)
_HF_PYTHON = flags.DEFINE_string(
  "hf_python",
  "",
  "An interpreter with torch and transformers, for the proof; by default this "
  "one if it has them.",
)
_DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Convert and prove, but leave nothing behind."
)


def find_tokenizer():
  """The tokenizer that the flags name; None if they name none.

  Raises:
    ValueError: they name two.
    FileNotFoundError: it is not there.
  """
  named = {
    "sentencepiece": _SPM_MODEL_FILE.value,
    "wordpiece": _VOCAB_FILE.value,
  }
  named = {kind: path for kind, path in named.items() if path}
  if not named:
    return None
  if len(named) > 1:
    raise ValueError("give --spm_model_file or --vocab_file, not both.")
  ((kind, path),) = named.items()
  if not os.path.isfile(path):
    raise FileNotFoundError(f"the tokenizer {path} does not exist.")
  return portable_checkpoint.TokenizerFile(path, kind, _LOWER_CASE.value)


def main(argv) -> None:
  del argv
  report = checkpoint_conversion.convert(
    _FROM.value,
    _TO.value,
    _INPUT.value,
    _OUTPUT.value,
    _HEAD.value,
    _INCLUDE_OPTIMIZER.value,
    _CONFIG_FILE.value,
    find_tokenizer(),
    _HF_PYTHON.value,
    _DRY_RUN.value,
  )
  print(report)
  if _DRY_RUN.value:
    print("dry run: nothing was written")


if __name__ == "__main__":
  flags.mark_flags_as_required(["to", "input", "output"])
  command_line.run(main)
