"""Reads the weights of a pretraining run for an export."""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple

from official_albert import checkpoints, modeling, training
from tasks.pretraining import model as model_lib


class PretrainedRun(NamedTuple):
  """What an export needs of a run."""

  model: model_lib.AlbertForPretraining
  # The prefix of the checkpoint of the model's weights.
  path: str
  tokenizer: checkpoints.TokenizerFile
  # The length that the weights were trained with.
  max_seq_length: int


def open_run(
  model_dir: str, checkpoint: str = "", num_hidden_layers: int = 0
) -> PretrainedRun:
  """Reads a run, in the precision of this process.

  Args:
    model_dir: the run's folder, with its record and its tokenizer.
    checkpoint: see `checkpoints.find_prefix`.
    num_hidden_layers: how many times the shared layers are applied; 0: as
      trained.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    ValueError: the checkpoint does not fit its record, the model has no such
      depth, or the run is a run of fine-tuning.
  """
  record = training.read_run(model_dir)
  if "task" in record["data"]:
    raise ValueError(
      f"{model_dir} is a run of {record['data']['task']}, not of pretraining: "
      "name a run of tools.run_pretraining, or export it with "
      "tools.export_saved_model."
    )
  config = modeling.AlbertConfig.from_json_file(
    os.path.join(model_dir, training.CONFIG_FILE)
  )
  if num_hidden_layers:
    config = config.at_depth(num_hidden_layers)
  path = checkpoints.find_prefix(model_dir, checkpoint)
  model = model_lib.AlbertForPretraining(config, name="model")
  report = training.warm_start(model, path)
  if report.missing:
    raise ValueError(f"{path} lacks weights of the model: {report}")
  tokenizer = checkpoints.recorded_tokenizer(
    model_dir, record["data"]["tokenizer"]
  )
  return PretrainedRun(model, path, tokenizer, trained_length(record, path))


def trained_length(record: Mapping[str, Any], path: str) -> int:
  """Returns how many positions had been trained when `path` was written.

  Args:
    record: a run's record, as `training.read_run` returns it.
    path: the prefix of one of its checkpoints, or of another checkpoint.
  """
  try:
    step = training.step_of(path)
  except ValueError:  # Not a checkpoint of a run.
    return record["data"]["max_seq_length"]
  return training.max_seq_length(record, step)
