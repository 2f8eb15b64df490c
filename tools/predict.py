r"""Predicts the rows of a table: texts, questions or exams.

    python -m tools.predict --model_dir=RUN --input_file=new.tsv \
        --output_file=predictions.tsv
    python -m tools.predict --saved_model_dir=EXPORT \
        --input_file=a.csv,b.jsonl --output_file=predictions.jsonl
    python -m tools.predict --model_dir=RUN --text="It rains."
    zcat big.tsv.gz | python -m tools.predict --model_dir=RUN --input_file=- \
        --input_format=tsv | gzip > predictions.tsv.gz

RUN is a run of tools.run_finetuning (with several seeds, the best one) or of
tools.run_pretraining, or a model of Hugging Face or google-research; with
--task, a classifier of theirs. EXPORT is a SavedModel of
tools.export_saved_model. The task determines the columns of a row:

    texts                    text, or text_a and text_b
    SQuAD                    question, context
    RACE                     passage, question, options (four, a JSON list)
    pretraining              --signature=fill_mask or encode: text
                             sentence_order or encode_pair: text_a, text_b

Instead of a table, flags with these names may give the texts, such as
--question="..." --context="...". Each may be repeated for further rows;
--options is given four times for each row.

By default, a model for the user's own texts reads the columns with which it was
trained; --columns=text=review,id=number names others, and --columns=id= numbers
the rows. The output has one line for each row, in the same order, with the id
of the row, or else its number and its texts, and then the prediction and its
probability, or that of each label. Texts may be empty. If the model refuses
some of the rows, such as texts without [MASK], their answers are empty, and the
exit code is 1.

Rows are sorted by length within windows of 32 batches, so memory does not
depend on their number. All rows of files are checked before the first
prediction; pipes can be read only once, so they are checked while they are
read.

To predict the official test files, use tools.run_finetuning --nodo_train
--nodo_eval.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Iterable, Mapping, Optional, Sequence

from absl import flags

from official_albert import settings, tokenization
from official_albert.tasks import registry
from official_albert.tools.cli import (
  command_line,
  encoder_flags,
  path_flags,
  printing,
)
from official_albert.tools.prediction import input as prediction_input
from official_albert.tools.prediction import output as prediction_output
from official_albert.train_config import TrainConfig

if TYPE_CHECKING:
  from official_albert.tasks import common

_CHECKPOINT = path_flags.define_checkpoint()
_NUM_HIDDEN_LAYERS = path_flags.define_num_hidden_layers()
_MODEL_DIR = path_flags.define("model_dir", "", "Folder of a run.")
_TASK_MODULE = path_flags.define_task_module()
_SAVED_MODEL_DIR = path_flags.define(
  "saved_model_dir", "", "Folder of an exported SavedModel."
)
_SIGNATURE = flags.DEFINE_string(
  "signature",
  "",
  "The signature of a SavedModel or a pretraining run; by default the first "
  "one that takes text.",
)
_TEXT_TASK = flags.DEFINE_enum(
  "task",
  None,
  registry.TEXT_TASKS,
  "What the model in --model_dir was fine-tuned on. Needed for classifiers and "
  "regressions of other formats, which do not name it.",
)
_INPUT_FILE = path_flags.define(
  "input_file",
  "",
  "Tables, comma-separated, read one after the other; - is standard input.",
)
_INPUT_FORMAT = flags.DEFINE_enum(
  "input_format",
  None,
  prediction_input.FORMATS,
  "Format of all input files; by default from their names. text: one text per "
  "line.",
)
_TEXTS = {
  role: flags.DEFINE_multi_string(
    role, [], f"Instead of --input_file: the {role} of a row; may be repeated."
  )
  for role in registry.ROLES
}
_OUTPUT_FILE = path_flags.define(
  "output_file", "-", "The predictions; - is standard output."
)
_OUTPUT_FORMAT = flags.DEFINE_enum(
  "output_format",
  None,
  prediction_output.FORMATS,
  "Format of the predictions; by default jsonl for a name that ends in .jsonl, "
  "plain for the answers to texts of the command line on standard output, else "
  "tsv.",
)
_COLUMNS = flags.DEFINE_list(
  "columns", [], "Columns with other names than expected: text=review,id=key."
)
_EVAL_BATCH_SIZE = flags.DEFINE_integer(
  "eval_batch_size", TrainConfig.eval_batch_size, "Rows in one batch."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length", 0, "Maximum tokens of a run's sequences; 0: as trained."
)
_NULL_THRESHOLD = flags.DEFINE_float(
  "null_score_diff_threshold",
  None,
  "SQuAD 2.0: higher null odds mean no answer; by default the threshold of the "
  "run.",
)
_PRECISION = flags.DEFINE_enum(
  "precision",
  "float32",
  tuple(settings.EXPORT_PRECISIONS),
  "Precision of matrix products.",
)
_TOP_K = flags.DEFINE_integer(
  "top_k", 5, "Pieces that a run returns for each [MASK]."
)


if __name__ == "__main__":
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import inference


def open_model() -> inference.LoadedModel:
  """Opens the model that the flags name, and checks flags that depend on it."""
  if path := _SAVED_MODEL_DIR.value:
    _refuse(
      [
        *(_MAX_SEQ_LENGTH, _NULL_THRESHOLD, _TOP_K, _CHECKPOINT, _TEXT_TASK),
        *(_PRECISION, _NUM_HIDDEN_LAYERS, *encoder_flags.ALL),
      ],
      f"{path} is an export, which has a fixed",
      ": leave it out, or name a run by --model_dir.",
    )
    return inference.open_export(path)
  path = _MODEL_DIR.value
  model = inference.open_model(
    path,
    dtype=settings.EXPORT_PRECISIONS[_PRECISION.value],
    task=_TEXT_TASK.value or "",
    checkpoint=_CHECKPOINT.value,
    max_seq_length=_MAX_SEQ_LENGTH.value,
    top_k=_TOP_K.value,
    num_hidden_layers=_NUM_HIDDEN_LAYERS.value,
    null_score_diff_threshold=_NULL_THRESHOLD.value,
    config_file=encoder_flags.CONFIG_FILE.value,
    tokenizer=encoder_flags.chosen_tokenizer(),
    lower_case=encoder_flags.LOWER_CASE.value,
    keep_accents=encoder_flags.KEEP_ACCENTS.value,
  )
  for note in model.notes:
    # Predictions may be written to standard output.
    print(f"{path}: {note}", file=sys.stderr, flush=True)
  if not model.names_task:
    raise ValueError(
      f"{path} has the head {model.kind}, but does not name its task: give "
      f"--task, such as --task=text_{model.kind}."
    )
  if model.tokenizer is None:
    raise ValueError(
      f"no tokenizer in {path}: give --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  for flag, kinds, runs in (
    (_NULL_THRESHOLD, ("squad2",), "squad_v2"),
    (_SIGNATURE, ("pretraining", "encoder"), "tools.run_pretraining"),
    (_TOP_K, ("pretraining", "encoder"), "tools.run_pretraining"),
  ):
    if model.kind not in kinds:
      others = f" is for runs of {runs}: leave it out, or name such a run."
      _refuse([flag], f"{model.about}, and", others)
  return model


def _refuse(
  refused: Sequence[flags.FlagHolder], about: str, advice: str
) -> None:
  for flag in refused:
    if flag.present:
      raise ValueError(f"{about} --{flag.name}{advice}")


def _find_rows(
  model: inference.LoadedModel,
  backend: inference.Backend,
  texts: Mapping[str, Sequence[str]],
) -> tuple[Iterable[common.Record], Optional[int], Sequence[str]]:
  """Returns the rows, their number if known, and the roles to repeat.

  `texts` are those of the command line by role; without any, the rows are those
  of the input files.
  """
  if texts:
    rows = prediction_input.given_rows(texts, backend.roles, backend.about)
    return rows, len(rows), prediction_input.repeated_roles(backend.roles)
  source = prediction_input.Source(
    _INPUT_FILE.value.split(","),
    backend.roles,
    model.columns,
    _COLUMNS.value,
    _INPUT_FORMAT.value or "",
  )
  return source.rows(), source.check(), source.repeated


def _output_format(path: str, has_texts: bool) -> str:
  if _OUTPUT_FORMAT.value:
    return _OUTPUT_FORMAT.value
  if path.endswith(".jsonl"):
    return "jsonl"
  is_for_people = has_texts and path == prediction_output.STANDARD_OUTPUT
  return "plain" if is_for_people else "tsv"


def main(argv) -> None:
  del argv
  if bool(_MODEL_DIR.value) == bool(_SAVED_MODEL_DIR.value):
    raise ValueError("give either --model_dir or --saved_model_dir.")
  registry.load_module(_TASK_MODULE.value)
  texts = {role: flag.value for role, flag in _TEXTS.items() if flag.value}
  if bool(_INPUT_FILE.value) == bool(texts):
    raise ValueError("give either --input_file, or texts such as --text.")
  if texts:
    about = "the rows are in the command line, and"
    _refuse([_COLUMNS, _INPUT_FORMAT], about, " is for files: leave it out.")
  path = _OUTPUT_FILE.value
  prediction_output.check(path)  # Before the model is loaded.
  model = open_model()
  backend = model.backend(_SIGNATURE.value)
  watch = tokenization.Watch(model.tokenizer)
  rows, total, repeated = _find_rows(model, backend, texts)
  progress, start = printing.ProgressLine(), time.monotonic()
  count, refused, first_refused = 0, 0, ""
  of_total = "" if total is None else f" of {total:,}"
  with prediction_output.writer(
    path, model.labels, _output_format(path, bool(texts))
  ) as write:
    for row, answer in inference.predict(
      backend, rows, _EVAL_BATCH_SIZE.value, keep_refused=True
    ):
      write(row.cells["id"], answer, {x: row.cells[x] for x in repeated})
      watch.see(row.cells[role] for role in backend.roles)
      count += 1
      if prediction_output.ERROR in answer:
        refused += 1
        reason = answer[prediction_output.ERROR]
        first_refused = first_refused or f"{row.where}: {reason}"
      speed = count / max(time.monotonic() - start, 1e-9)
      progress.show(
        "predicting",
        count / total if total else 0.0,
        0,
        f"{count:,}{of_total} examples, {speed:,.1f} examples/s",
      )
  progress.close()
  to_stdout = path == prediction_output.STANDARD_OUTPUT
  examples = "1 example" if count == 1 else f"{count:,} examples"
  print(
    f"wrote {'standard output' if to_stdout else path} ({examples}), "
    f"predicted with {model.checkpoint}",
    file=sys.stderr if to_stdout else sys.stdout,
  )
  if note := watch.note():
    print(note, file=sys.stderr)
  if refused:
    raise ValueError(
      f"{refused:,} of {count:,} rows have no answer, so their predictions are "
      f"empty; the first is {first_refused} ({backend.about})"
    )


if __name__ == "__main__":
  command_line.run(main)
