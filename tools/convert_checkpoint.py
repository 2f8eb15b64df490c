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

from absl import flags

from official_albert import checkpoints
from tools import conversion, finetuning
from tools.cli import command_line, path_flags

_CHECKPOINT = path_flags.define_checkpoint()
_FROM = flags.DEFINE_enum(
  "from",
  "",
  ["", *checkpoints.READ_FORMATS],
  "Format of --input; by default what lies there.",
)
_TO = flags.DEFINE_enum(
  "to", None, list(checkpoints.WRITE_FORMATS), "Format of --output."
)
_INPUT = path_flags.define(
  "input",
  None,
  "A folder or a .tar.gz of one, or the prefix of a TensorFlow checkpoint. Of "
  "a run its best checkpoint is taken, of several seeds that of the best run.",
)
_OUTPUT = path_flags.define(
  "output", None, "The new folder; must be empty or not there."
)
_HEAD = flags.DEFINE_enum(
  "head",
  "",
  ["", *checkpoints.HEADS],
  "What to carry besides the encoder; by default what the input has.",
)
_TEXT_TASK = flags.DEFINE_enum(
  "task",
  None,
  finetuning.registry.TEXT_TASKS,
  "What a classifier or a regression of another format was fine-tuned on. "
  "tools.predict and tools.export_saved_model then take the result of "
  "--to=official_albert as it is. Labels are those of the input.",
)
_INCLUDE_OPTIMIZER = flags.DEFINE_bool(
  "include_optimizer",
  False,
  "Carry m, v and the step too, between tf1 and official_albert.",
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file",
  "",
  "Configuration of a TensorFlow checkpoint; by default the one beside it, "
  "else that of the release with the same shapes.",
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", "", "SentencePiece model instead of the one in --input."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", "", "WordPiece vocabulary instead of the one in --input."
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Whether tokenizers given by flags lower-case."
)
_NUM_HIDDEN_GROUPS = flags.DEFINE_integer(
  "num_hidden_groups", 0, "More groups of layers, with the same weights."
)
_MAX_POSITION_EMBEDDINGS = flags.DEFINE_integer(
  "max_position_embeddings", 0, "A longer or shorter table of positions."
)
_POSITION_METHOD = flags.DEFINE_enum(
  "position_method",
  "tile",
  list(checkpoints.POSITION_METHODS),
  "How the table of positions gets longer.",
)
_NEW_SPM_MODEL_FILE = path_flags.define(
  "new_spm_model_file", "", "Another vocabulary; rows are copied by piece."
)
_NEW_VOCAB_FILE = path_flags.define(
  "new_vocab_file", "", "Another WordPiece vocabulary, likewise."
)
_HF_PYTHON = path_flags.define(
  "hf_python",
  "",
  "An interpreter with torch and transformers, for the proof; by default this "
  "one if it has them.",
)
_DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Convert and prove, but leave nothing behind."
)


def main(argv) -> None:
  del argv
  if _POSITION_METHOD.present and not _MAX_POSITION_EMBEDDINGS.value:
    raise ValueError(
      "--position_method says how --max_position_embeddings is reached: give "
      "both."
    )
  report = conversion.conversion.convert(
    _FROM.value,
    _TO.value,
    _INPUT.value,
    _OUTPUT.value,
    _HEAD.value,
    _INCLUDE_OPTIMIZER.value,
    _CONFIG_FILE.value,
    checkpoints.chosen_tokenizer(
      _SPM_MODEL_FILE.value, _VOCAB_FILE.value, _LOWER_CASE.value
    ),
    _HF_PYTHON.value,
    _DRY_RUN.value,
    conversion.conversion.Changes(
      _NUM_HIDDEN_GROUPS.value,
      _MAX_POSITION_EMBEDDINGS.value,
      _POSITION_METHOD.value,
      checkpoints.chosen_tokenizer(
        _NEW_SPM_MODEL_FILE.value, _NEW_VOCAB_FILE.value, _LOWER_CASE.value
      ),
    ),
    _CHECKPOINT.value,
    _TEXT_TASK.value or "",
  )
  print(report)
  if _DRY_RUN.value:
    print("dry run: nothing was written")


if __name__ == "__main__":
  flags.mark_flags_as_required(["to", "input", "output"])
  command_line.run(main)
