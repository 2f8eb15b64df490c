"""Flags of a fine-tuning task; the task and the encoder of these flags."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Optional

from absl import flags

from official_albert import runs, tokenization
from official_albert.config import AlbertConfig
from official_albert.tasks import (
  common,
  embedding,
  race,
  registry,
  squad,
  trained_run,
)
from official_albert.tools.cli import encoder_flags, path_flags

if TYPE_CHECKING:
  from official_albert.tasks.common import finetuning_task

TASK_MODULE = path_flags.define_shared("task_module")
_SETTINGS = path_flags.define_settings(common.TaskOptions)
# Fields of recipes; by default those of the task or of the run.
_RECIPE: dict[str, flags.FlagHolder] = {}
for _recipe in (common.Recipe, squad.Recipe, race.Recipe, embedding.Recipe):
  _unset = dict.fromkeys(field.name for field in dataclasses.fields(_recipe))
  _RECIPE |= path_flags.define_settings(_recipe, list(_RECIPE), **_unset)


def define_task(*names: str) -> flags.FlagHolder[str]:
  """Defines --task, a name of `registry.TASKS`, or one of `names`."""
  names = (*names, *registry.TASKS)
  task = flags.DEFINE_string(
    "task",
    None,
    f"What to fine-tune on: one of {', '.join(names)}, or a name that "
    "--task_module registers.",
  )
  flags.register_multi_flags_validator(
    ["task", "task_module"],
    lambda x: x["task_module"] or x["task"] in (None, *names),
    f"--task must be one of {', '.join(names)}",
  )
  return task


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
  of_some = {flag for x in registry.TASKS.values() for flag in x.data_flags}
  for flag, holder in _SETTINGS.items():
    if holder.present and flag in of_some - {*kind.data_flags}:
      raise ValueError(
        f"--{flag} does not apply to --task={name}: leave it out; its data is "
        f"given by {', '.join(f'--{f}' for f in kind.data_flags)}."
      )
  values = {flag: holder.value for flag, holder in _SETTINGS.items()}
  if kind.data_flags == ("data_dir",) and not values["data_dir"]:
    raise ValueError(f"--task={name} needs --data_dir, the folder of its data.")
  if values["dev_file"] and values["dev_share"]:
    raise ValueError(
      "--dev_share and --dev_file exclude each other: give one of them."
    )
  settings = run.settings if run else {}
  if run:
    share = 0.0 if values["dev_file"] else settings.get("dev_share", 0.0)
    if values["dev_share"] not in (0, share):
      raise ValueError(
        f"{run.model_dir} was not trained with --dev_share="
        f"{values['dev_share']:g}, which could evaluate rows of its training: "
        "leave it out, or give --dev_file."
      )
    recorded = {
      "max_seq_length": run.max_seq_length,
      "dev_share": share,
      "label_separator": settings.get("label_separator", ","),
      **{f"{role}_column": name for role, name in run.columns.items()},
    }
    values |= {k: v for k, v in recorded.items() if not _SETTINGS[k].present}
  if not values["cache_dir"]:
    output_dir = flags.FLAGS["output_dir"].value
    values["cache_dir"] = os.path.join(output_dir, "records")
  values["length_bucketing"] &= not one_length
  recipe = {
    field: settings.get(field) if flag.value is None else flag.value
    for field, flag in _RECIPE.items()
  }
  options = common.TaskOptions(
    **values,
    tokenizer=tokenizer,
    recipe={k: v for k, v in recipe.items() if v is not None},
    chosen_threshold=run.null_score_diff_threshold if run else None,
    thresholds=run.thresholds if run else {},
    labels=run.labels if run else None,
    trained_on=settings.get("trained_on", ""),
  )
  return registry.make_task(name, options)


def find_encoder(source: str) -> tuple[AlbertConfig, tokenization.Tokenizer]:
  """Returns the encoder's configuration and tokenizer.

  They are those of the flags, else those of `source`, a fine-tuned run or the
  value of --init_checkpoint.
  """
  from official_albert import checkpoints  # Loads TensorFlow.

  config_file = encoder_flags.CONFIG_FILE.value
  where = f"in {source}" if source else "without --init_checkpoint"
  if not (source or config_file):
    raise ValueError(
      f"no {runs.CONFIG_FILE} {where}: give --albert_config_file."
    )
  choice = encoder_flags.chosen_tokenizer()
  if source:
    with checkpoints.open(source, config_file) as checkpoint:
      config = checkpoint.config
      tokenizer = checkpoint.choose_tokenizer(choice)
  else:
    config = AlbertConfig.from_json_file(config_file)
    tokenizer = choice.apply(None, tokenization.TextRules())
  if tokenizer is None:
    raise ValueError(
      f"no tokenizer {where}: give --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  return config, tokenizer.open()
