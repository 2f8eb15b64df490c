"""Reads the weights of a pretraining run and exports them as a SavedModel.

`serving` has the signatures of the SavedModel.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from official_albert import checkpoints, files, modeling, training
from official_albert import serving as serving_lib
from official_albert.tokenization import in_graph
from tasks.pretraining import model as model_lib
from tasks.pretraining import serving


class PretrainedRun(NamedTuple):
  """A pretraining run that has been read.

  Attributes:
    model: the model with the run's weights.
    path: prefix of the checkpoint with the weights.
    tokenizer: tokenizer of the run.
    max_seq_length: length of the training examples.
  """

  model: model_lib.AlbertForPretraining
  path: str
  tokenizer: checkpoints.TokenizerFile
  max_seq_length: int


def open_run(
  model_dir: str, checkpoint: str = "", num_hidden_layers: int = 0
) -> PretrainedRun:
  """Reads a run, in the current precision of the process.

  Args:
    model_dir: folder of the run, with its record and tokenizer.
    checkpoint: see `checkpoints.find_prefix`.
    num_hidden_layers: number of layers to apply; 0 means as trained.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    ValueError: the checkpoint does not fit its record, the model cannot have
      the depth, or it is a fine-tuning run.
  """
  record = training.read_run(model_dir)
  if "task" in record["data"]:
    raise ValueError(
      f"{model_dir} is a run of {record['data']['task']}, not of pretraining: "
      "use a run of tools.run_pretraining, or export it with "
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
  return PretrainedRun(
    model,
    path,
    checkpoints.recorded_tokenizer(model_dir, record["data"]["tokenizer"]),
    trained_length(record, path),
  )


def export_run(
  model_dir: str,
  export_dir: str,
  top_k: int = 5,
  max_seq_length: int = 0,
  checkpoint: str = "",
  options: serving_lib.ExportOptions = serving_lib.DEFAULT_OPTIONS,
) -> str:
  """Writes the SavedModel of a run.

  This sets the precision of the process to that of `options`.

  Args:
    model_dir: folder of the run, with its record and tokenizer.
    export_dir: a new or empty folder.
    top_k: number of pieces returned for each mask.
    max_seq_length: length to which texts are truncated; 0 means that of the
      training examples.
    checkpoint: see `checkpoints.find_prefix`.
    options: see `serving.ExportOptions`.

  Returns:
    The prefix of the exported checkpoint.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    FileExistsError: `export_dir` is not empty.
    ValueError: the checkpoint does not fit its record, or a setting the model.
  """
  files.check_new_folder(export_dir, "export_dir")
  # A server may not support the precision of the training.
  options.set_precision()
  run = open_run(model_dir, checkpoint)
  module = serving.ServedPretraining(
    run.model,
    in_graph.make_text_layer(
      run.tokenizer.kind, run.tokenizer.path, run.tokenizer.lower_case
    ),
    max_seq_length or run.max_seq_length,
    top_k,
  )
  serving_lib.write_saved_model(
    module, export_dir, options, module.kind, run.path, run.tokenizer
  )
  return run.path


def trained_length(record, path: str) -> int:
  """Returns the longest sequence that a checkpoint was trained on.

  Args:
    record: record of the run, as `training.read_run` returns it.
    path: prefix of the checkpoint, of this or another run.
  """
  try:
    step = training.step_of(path)
  except ValueError:  # It is not a run's checkpoint.
    return record["data"]["max_seq_length"]
  return training.max_seq_length(record, step)
