"""Predicts the rows of a table: texts, questions or exams.

    python -m tools.predict --model_dir=RUN --input_file=new.tsv \\
        --output_file=predictions.tsv
    python -m tools.predict --model_dir=EXPORT \\
        --input_file=a.csv,b.jsonl.gz --output_file=predictions.jsonl
    python -m tools.predict --model_dir=RUN --text="It rains."

RUN is a run of tools.run_finetuning (with several seeds, the best one) or of
tools.run_pretraining, or a model of Hugging Face or google-research; with
--task, a classifier of theirs. EXPORT is a SavedModel of
tools.export_saved_model. The task determines the columns of a row:

    texts                    text, or text_a and text_b
    SQuAD                    question, context
    RACE                     passage, question, options (four, a JSON list)
    pretraining              --signature=fill_mask or encode: text
                             sentence_order or encode_pair: text_a, text_b

Instead of a table, flags with these names may give the texts of one row, such
as --question="..." --context="..."; --options is given four times.

By default, a model for the user's own texts reads the columns with which it was
trained; --columns=text=review,id=number names others, and --columns=id= numbers
the rows. The output has one line for each row, in the same order, with the id
of the row, or else its number, and then the prediction and its probability, or
that of each label. Texts may be empty. If the model refuses
some of the rows, such as texts without [MASK], their answers are empty, and the
exit code is 1.

Memory does not depend on the number of rows, and all of them are checked before
the first prediction. To predict the official test files, use
tools.run_finetuning --nodo_train --nodo_eval.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping

from absl import flags

from official_albert import tokenization
from official_albert.tasks import registry
from official_albert.tools.cli import (
  command_line,
  encoder_flags,
  path_flags,
  printing,
)
from official_albert.tools.prediction import lines
from official_albert.train_config import TrainConfig

_CHECKPOINT = path_flags.define_shared("checkpoint")
_NUM_HIDDEN_LAYERS = path_flags.define_num_hidden_layers()
_MODEL_DIR = path_flags.define(
  "model_dir", None, "Folder of a run, of another model or of an export."
)
_TASK_MODULE = path_flags.define_shared("task_module")
_SIGNATURE = flags.DEFINE_string(
  "signature",
  "",
  "The signature of a model that has several; by default the first one that "
  "takes text.",
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
  "Tables, comma-separated, read one after the other; .txt: one text per line.",
)
_TEXTS = {
  role: flags.DEFINE_string(
    role, None, f"Instead of --input_file: the {role} of a row."
  )
  for role in registry.ROLES
  if role != registry.OPTIONS
}
_OPTIONS = flags.DEFINE_multi_string(
  registry.OPTIONS, [], "Instead of --input_file: the four options of a row."
)
_OUTPUT_FILE = path_flags.define(
  "output_file",
  "-",
  "The predictions: a table, or JSON lines for .jsonl and standard output (-).",
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
_TOP_K = flags.DEFINE_integer(
  "top_k", 0, "Pieces that a run returns for each [MASK]; 0: five."
)


if __name__ == "__main__":
  flags.mark_flag_as_required("model_dir")
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import inference
from official_albert.tasks import answer_fields

_SAMPLE = 1000  # Rows.


def open_model() -> inference.LoadedModel:
  """Opens the model that the flags name."""
  path = _MODEL_DIR.value
  model = inference.open_model(
    path,
    task=_TEXT_TASK.value or "",
    checkpoint=_CHECKPOINT.value,
    max_seq_length=_MAX_SEQ_LENGTH.value,
    top_k=_TOP_K.value,
    num_hidden_layers=_NUM_HIDDEN_LAYERS.value,
    config_file=encoder_flags.CONFIG_FILE.value,
    tokenizer=encoder_flags.chosen_tokenizer(),
  )
  for note in model.source.notes:
    # Predictions may be written to standard output.
    print(f"{path}: {note}", file=sys.stderr, flush=True)
  if not model.source.names_task:
    raise ValueError(
      f"{path} has the head {model.kind}, but does not name its task: give "
      f"--task, such as --task=text_{model.kind}."
    )
  return model


def predict(
  model: inference.LoadedModel,
  texts: Mapping[str, Any],
  write: Callable[..., None],
) -> tuple[int, int, str]:
  """Writes the answers to the rows of `texts` by role, or of --input_file.

  Returns the numbers of rows and of those without an answer, and the reason of
  the first of them.
  """
  backend = model.backend(_SIGNATURE.value)
  rows: Any
  if texts:
    rows = [lines.given_row(texts, backend.roles, backend.about)]
    total = 1
  else:
    paths = _INPUT_FILE.value.split(",")
    columns = lines.choose_columns(
      paths, backend.roles, model.source.columns, _COLUMNS.value
    )
    total = sum(1 for _ in lines.read_rows(paths, columns))  # Checks all.
    rows = lines.read_rows(paths, columns)
  sample: list[str] = []
  progress = printing.ProgressLine()
  count, refused, first_refused = 0, 0, ""
  for row, answer in inference.predict(
    backend, rows, _EVAL_BATCH_SIZE.value, keep_refused=True
  ):
    fields = answer_fields.fields_of(
      answer, model.labels, row.cells.get("text", "")
    )
    write(row.cells["id"], fields)
    if count < _SAMPLE:
      for cell in (row.cells[role] for role in backend.roles):
        sample += [cell] if isinstance(cell, str) else cell
    count += 1
    if reason := fields.get(answer_fields.ERROR):
      refused += 1
      first_refused = first_refused or f"{row.where}: {reason}"
    details = f"{count:,} of {total:,} examples"
    progress.show("predicting", count / total, 0, details)
  if note := tokenization.coverage_note(model.tokenizer, sample):
    print(note, file=sys.stderr)
  return count, refused, first_refused


def main(_) -> None:
  registry.load_module(_TASK_MODULE.value)
  texts: dict[str, Any] = {
    role: flag.value for role, flag in _TEXTS.items() if flag.value is not None
  }
  if _OPTIONS.value:
    texts[registry.OPTIONS] = _OPTIONS.value
  if bool(_INPUT_FILE.value) == bool(texts):
    raise ValueError("give either --input_file, or texts such as --text.")
  if texts and _COLUMNS.value:
    raise ValueError("--columns is for tables of --input_file: leave it out.")
  path = _OUTPUT_FILE.value
  with lines.writer(path) as write:
    model = open_model()
    count, refused, first_refused = predict(model, texts, write)
  examples = "1 example" if count == 1 else f"{count:,} examples"
  to_stdout = path == lines.STANDARD_OUTPUT
  print(
    f"wrote {'standard output' if to_stdout else path} ({examples}), "
    f"predicted with {model.source.checkpoint}",
    file=sys.stderr if to_stdout else sys.stdout,
  )
  if refused:
    raise ValueError(
      f"{refused:,} of {count:,} rows have no answer, so their predictions are "
      f"empty; the first is {first_refused} ({model.about})"
    )


if __name__ == "__main__":
  command_line.run(main)
