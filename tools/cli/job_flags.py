"""Flags that name a task, its data and what is made of it: its `Job`."""

from __future__ import annotations

import os
from typing import Optional

from absl import flags

from official_albert import tokenization
from tools import finetuning
from tools.cli import path_flags

TASKS = ("glue", *finetuning.registry.TASKS)

_DATA_DIR = path_flags.define(
  "data_dir",
  "",
  "Folder of the task, or one that holds it: GLUE's, SQuAD's, RACE's.",
)
_CACHE_DIR = path_flags.define(
  "cache_dir",
  "",
  "Folder for records; by default the folder records in --output_dir.",
)
_FILES = {
  split: path_flags.define(
    f"{split}_file", "", f"The {split} data, if it has no official name."
  )
  for split in ("train", "dev", "test")
}
_COLUMNS = {
  "text": flags.DEFINE_string("text_column", "text", "Column of the text."),
  "text_b": flags.DEFINE_string(
    "text_b_column", "text_b", "Column of the second text of a pair."
  ),
  "label": flags.DEFINE_string("label_column", "label", "Column of the label."),
  "id": flags.DEFINE_string(
    "id_column", "", "Column of the ids; by default the rows' numbers."
  ),
}
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length", 0, "Tokens of an example at most; 0: as in the paper."
)
_MAX_TRAIN = flags.DEFINE_integer(
  "max_train_examples",
  0,
  "Train on so many, evenly spaced in the data; 0: all.",
)
MAX_EVAL = flags.DEFINE_integer(
  "max_eval_examples",
  0,
  "Evaluate and predict so many, evenly spaced in the data; 0: all.",
)
# Fields of recipes, for those that have them.
_RECIPE = {
  name: flags.DEFINE_integer(name, None, text)
  for name, text in {
    "doc_stride": "SQuAD: tokens from one window of a context to the next.",
    "max_query_length": "SQuAD: tokens of a question at most.",
    "n_best_size": "SQuAD: answers to a question that are kept.",
    "max_answer_length": "SQuAD: tokens of an answer at most.",
    "start_n_top": "SQuAD 2.0: starts that are tried.",
    "end_n_top": "SQuAD 2.0: ends that are tried for each start.",
    "max_qa_length": "RACE: tokens of question and option at most.",
  }.items()
}
_BUCKETS = flags.DEFINE_bool(
  "length_bucketing",
  True,
  "Batches of examples of similar length; off, and always on TPUs, all are "
  "padded to the longest.",
)
NULL_THRESHOLD = flags.DEFINE_float(
  "null_score_diff_threshold",
  None,
  "SQuAD 2.0: null odds over it mean no answer; by default what is best for "
  "the dev file.",
)


def check(name: str) -> None:
  """Refuses flags that a task would pass over.

  Raises:
    ValueError: there is such a flag.
  """
  used = finetuning.registry.TASKS[name].data_flags
  optional = (_DATA_DIR, *_FILES.values(), *_COLUMNS.values(), NULL_THRESHOLD)
  for flag in optional:
    if flags.FLAGS[flag.name].present and flag.name not in used:
      raise ValueError(
        f"--{flag.name} says nothing to --task={name}: leave it out; its data "
        f"is named by {', '.join(f'--{flag}' for flag in sorted(used))}."
      )


def make_job(
  name: str,
  tokenizer: Optional[tokenization.Tokenizer],
  run: Optional[finetuning.trained_run.TrainedRun] = None,
  null_score_diff_threshold: Optional[float] = None,
  one_length: bool = False,
) -> finetuning.jobs.Job:
  """The task `name` on the data that the flags name.

  Args:
    name: one of `TASKS` but glue.
    tokenizer: the encoder's; None if no task is to be made.
    run: one that is over; what it was trained with counts where no flag says
      anything else.
    null_score_diff_threshold: of SQuAD 2.0, where no flag says anything else.
    one_length: whatever flags say, all batches have the same, as TPUs want.

  Raises:
    ValueError, OSError: a flag is missing or of no use, or the data is not as
      it should be.
  """
  check(name)
  settings = run.settings if run else {}
  columns = {
    role: flag.value
    if run is None or flags.FLAGS[flag.name].present
    else run.columns.get(role, flag.value)
    for role, flag in _COLUMNS.items()
  }
  changes = {
    field: settings.get(field) if flag.value is None else flag.value
    for field, flag in _RECIPE.items()
  }
  if NULL_THRESHOLD.value is not None:
    null_score_diff_threshold = NULL_THRESHOLD.value
  options = finetuning.jobs.Options(
    data_dir=_DATA_DIR.value,
    cache_dir=_CACHE_DIR.value
    or os.path.join(flags.FLAGS["output_dir"].value, "records"),
    tokenizer=tokenizer,
    max_seq_length=_MAX_SEQ_LENGTH.value or (run.max_seq_length if run else 0),
    max_train_examples=_MAX_TRAIN.value,
    max_eval_examples=MAX_EVAL.value,
    files={split: flag.value for split, flag in _FILES.items()},
    columns=columns,
    recipe={k: v for k, v in changes.items() if v is not None},
    length_bucketing=_BUCKETS.value and not one_length,
    null_score_diff_threshold=null_score_diff_threshold,
    labels=run.labels if run else None,
  )
  kind = finetuning.registry.TASKS[name]
  if kind.data_flags == ("data_dir",) and not options.data_dir:
    raise ValueError(f"--task={name} needs --data_dir, the folder of its data.")
  return kind.make_job(name, options)
