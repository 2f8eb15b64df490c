"""Flags of a fine-tuning task; the task and the encoder of these flags."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from absl import flags

from official_albert import runs, tokenization
from official_albert.config import AlbertConfig
from official_albert.tasks import common, race, registry, squad, trained_run
from official_albert.tools.cli import encoder_flags, path_flags

if TYPE_CHECKING:
  from official_albert.tasks.common import finetuning_task

_TASK_MODULE = path_flags.define_task_module()
_DATA_DIR = path_flags.define(
  "data_dir",
  "",
  "Folder of the task, or one that contains it: of GLUE, SQuAD or RACE.",
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
_DEV_SHARE = flags.DEFINE_float(
  "dev_share",
  0.0,
  "Share of the rows of --train_file to hold out, instead of --dev_file; 0: "
  "none, or that of the run.",
  lower_bound=0.0,
  upper_bound=1.0,
)
_COLUMNS = {
  "text": flags.DEFINE_string("text_column", "text", "Column of the text."),
  "text_b": flags.DEFINE_string(
    "text_b_column", "text_b", "Column of the second text of a pair."
  ),
  "label": flags.DEFINE_string("label_column", "label", "Column of the label."),
  "id": flags.DEFINE_string(
    "id_column", "", "Column of the ids; by default the row numbers."
  ),
}
_SETTINGS = path_flags.define_settings(common.TaskOptions)
MAX_EVAL = _SETTINGS["max_eval_examples"]
# Fields of recipes; by default those of the task or of the run.
_RECIPE = {
  name: flag
  for recipe in (squad.Recipe, race.Recipe)
  for name, flag in path_flags.define_settings(
    recipe, **dict.fromkeys(recipe.__annotations__)
  ).items()
}
NULL_THRESHOLD = flags.DEFINE_float(
  "null_score_diff_threshold",
  None,
  "SQuAD 2.0: higher null odds mean no answer. By default 0 for exact and f1 "
  "of the dev file; its best value for test data and exports.",
)


def define_task(*names: str) -> flags.FlagHolder[str]:
  """Defines --task, a name of `registry.TASKS`, or one of `names`."""
  names = (*names, *registry.TASKS)
  task = flags.DEFINE_string(
    "task",
    None,
    f"What to fine-tune on: one of {', '.join(names)}, or a name that "
    "--task_module registers.",
  )

  def is_known(values: dict[str, Any]) -> bool:
    known = (None, *names)
    return bool(values["task_module"]) or values["task"] in known

  flags.register_multi_flags_validator(
    ["task", "task_module"],
    is_known,
    f"--task must be one of {', '.join(names)}",
  )
  return task


def load_module() -> None:
  """Runs the file of --task_module, if it is given."""
  registry.load_module(_TASK_MODULE.value)


def make_task(
  name: str,
  tokenizer: Optional[tokenization.Tokenizer],
  run: Optional[trained_run.TrainedRun] = None,
  one_length: bool = False,
) -> finetuning_task.FinetuningTask:
  """Returns a task on the data that the flags name. Loads TensorFlow.

  Args:
    name: one of `registry.TASKS`, or of --task_module.
    tokenizer: the encoder's tokenizer; None if no records are built.
    run: a trained run, whose settings are the defaults of the flags.
    one_length: whether to pad all batches to the same length, as TPUs need.
  """
  kind = registry.get(name)
  for flag in (
    _DATA_DIR,
    *_FILES.values(),
    _DEV_SHARE,
    *_COLUMNS.values(),
    NULL_THRESHOLD,
    _SETTINGS["skip_invalid_questions"],
  ):
    if flag.present and flag.name not in kind.data_flags:
      raise ValueError(
        f"--{flag.name} does not apply to --task={name}: leave it out; its "
        f"data is given by {', '.join(f'--{f}' for f in kind.data_flags)}."
      )
  if kind.data_flags == ("data_dir",) and not _DATA_DIR.value:
    raise ValueError(f"--task={name} needs --data_dir, the folder of its data.")
  settings = run.settings if run else {}
  columns = {role: flag.value for role, flag in _COLUMNS.items()}
  for role, flag in _COLUMNS.items():
    if run and role in run.columns and not flag.present:
      columns[role] = run.columns[role]
  recipe = {
    field: settings.get(field) if flag.value is None else flag.value
    for field, flag in _RECIPE.items()
  }
  values = {name: flag.value for name, flag in _SETTINGS.items()}
  if run and not values["max_seq_length"]:
    values["max_seq_length"] = run.max_seq_length
  values["length_bucketing"] &= not one_length
  output_dir = flags.FLAGS["output_dir"].value
  options = common.TaskOptions(
    **values,
    data_dir=_DATA_DIR.value,
    cache_dir=_CACHE_DIR.value or os.path.join(output_dir, "records"),
    tokenizer=tokenizer,
    files={split: flag.value for split, flag in _FILES.items()},
    dev_share=_dev_share(run),
    columns=columns,
    recipe={k: v for k, v in recipe.items() if v is not None},
    null_score_diff_threshold=NULL_THRESHOLD.value,
    chosen_threshold=run.null_score_diff_threshold if run else None,
    labels=run.labels if run else None,
  )
  return registry.make_task(name, options)


def _dev_share(run: Optional[trained_run.TrainedRun]) -> float:
  """Returns the share of the flag, else that of the run; 0 for none."""
  share = _DEV_SHARE.value
  if _FILES["dev"].value:
    if share:
      raise ValueError(
        "--dev_share and --dev_file exclude each other: give one of them."
      )
    return 0.0
  recorded = run.settings.get("dev_share", 0.0) if run else share
  if run and share not in (0, recorded):
    raise ValueError(
      f"{run.model_dir} was not trained with --dev_share={share:g}, which "
      "could evaluate rows of its training: leave it out, or give --dev_file."
    )
  return recorded


class Encoder(NamedTuple):
  """A pretrained encoder; `checkpoint` is "" for random weights."""

  config: AlbertConfig
  tokenizer: tokenization.Tokenizer
  checkpoint: str


def find_encoder(run_dir: str = "", init_checkpoint: str = "") -> Encoder:
  """Returns the encoder of the flags.

  Args:
    run_dir: a fine-tuned run that provides files without a flag.
    init_checkpoint: the value of --init_checkpoint, if the program has it.
  """
  from official_albert import checkpoints  # Loads TensorFlow.

  source, config_file = run_dir or init_checkpoint, encoder_flags.CONFIG_FILE
  where = f"in {source}" if source else "without --init_checkpoint"
  if not (source or config_file.value):
    raise ValueError(
      f"no {runs.CONFIG_FILE} {where}: give --albert_config_file."
    )
  found, recorded = None, None
  with contextlib.ExitStack() as stack:
    if source:
      checkpoint = stack.enter_context(
        checkpoints.open(source, config_file.value)
      )
      config, found = checkpoint.config, checkpoint.tokenizer
      recorded = (checkpoint.record.get("data") or {}).get("tokenizer")
    else:
      config = AlbertConfig.from_json_file(config_file.value)
    tokenizer = checkpoints.checked_tokenizer(
      found,
      recorded or {},
      source,
      encoder_flags.chosen_tokenizer(),
      encoder_flags.LOWER_CASE.value,
      encoder_flags.KEEP_ACCENTS.value,
    )
    if tokenizer is None:
      raise ValueError(
        f"no tokenizer {where}: give --spm_model_file, or --vocab_file for "
        "WordPiece."
      )
    return Encoder(config, tokenizer.open(), init_checkpoint)
