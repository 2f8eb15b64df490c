"""A pretraining run's weights, read for a SavedModel, and the SavedModel.

What the SavedModel offers stands in `serving`, what lies around it in
official_albert/saved_model_folder; this is about which weights of a run go into
it.
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
  """What an export needs of a run.

  Attributes:
    model: with the run's weights.
    path: the prefix of the checkpoint that they are from.
    tokenizer: the run's.
    max_seq_length: what the weights were trained with.
  """

  model: model_lib.AlbertForPretraining
  path: str
  tokenizer: checkpoints.TokenizerFile
  max_seq_length: int


def open_run(
  model_dir: str, checkpoint: str = "", num_hidden_layers: int = 0
) -> PretrainedRun:
  """Reads a run, in the precision that the process computes in.

  Args:
    model_dir: the run's folder, with its record and its tokenizer.
    checkpoint: see `checkpoint_files.find_prefix`.
    num_hidden_layers: how many times the shared layers are applied; 0: as
      trained.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    ValueError: the checkpoint does not fit its record, the model has no such
      depth, or the run is one of fine-tuning.
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

  The process computes in the precision of `options` from then on.

  Args:
    model_dir: the run's folder, with its record and its tokenizer.
    export_dir: must not exist yet.
    top_k: pieces returned for each mask.
    max_seq_length: longer texts lose their end; 0: what the weights were
      trained with.
    checkpoint: see `checkpoint_files.find_prefix`.
    options: see `saved_model_folder.Options`.

  Returns:
    The prefix of the checkpoint that was taken.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    FileExistsError: `export_dir` is not empty.
    ValueError: the checkpoint does not fit its record, or a setting the model.
  """
  files.check_new_folder(export_dir, "export_dir")
  # A server's processor need not multiply what the run was trained in.
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
  """Positions beyond it have had no training when `path` was written.

  Args:
    record: of a run, as `run_record.read` returns it.
    path: of one of its checkpoints, or of another one.
  """
  try:
    step = training.step_of(path)
  except ValueError:  # Not one of a run.
    return record["data"]["max_seq_length"]
  return training.max_seq_length(record, step)
