"""Pretrains an ALBERT on records of tools.create_pretraining_data.

    python -m tools.run_pretraining --input_dir=DATA --model_dir=RUN \\
        --preset=albert_base_v2 --train_batch_size=4096 \\
        --num_train_steps=125000 --num_warmup_steps=3125

The same command resumes an interrupted run from its latest checkpoint and
computes what the uninterrupted run would have computed. Flags that change the
result, such as another learning rate, are refused then, unless
--allow_changed_settings is given. --recipe=base_gpu and others (--list_recipes)
set all flags but the folders.

Two phases, the second on longer sequences:

    --input_dir=DATA128,DATA512 --phase_steps=112500,12500 \\
    --train_batch_size=4096,1024

Fewer applications of the shared layers at first:

    --depth_schedule=3:0.5,6:0.25,12:0.25

A second process can evaluate: train with --eval_steps=0, and start
--mode=evaluate_continuously with the same folders. Flags have the names and
defaults of google-research/albert run_pretraining.py where it has them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from typing import Optional

from absl import flags

import tfrecords
from official_albert import (
  checkpoints,
  distribution,
  files,
  modeling,
  training,
)
from tasks import pretraining
from tools import conversion, inspection
from tools.cli import (
  command_line,
  model_depth_flag,
  path_flags,
  recipe_flags,
  training_flags,
)

_MODE = flags.DEFINE_enum(
  "mode",
  "train",
  ["train", "evaluate", "evaluate_continuously"],
  "Train; evaluate the run's latest checkpoint or --init_checkpoint once; or "
  "evaluate each checkpoint that another process saves.",
)
_INPUT_DIR = path_flags.define(
  "input_dir",
  None,
  "Folder of tools.create_pretraining_data; with --phase_steps, one for each "
  "phase.",
)
_EVAL_INPUT_DIR = path_flags.define(
  "eval_input_dir",
  "",
  "Folder to evaluate on, if not --input_dir (one, or one for each phase): its "
  "held-out split, or all of it if it has none.",
)
_MODEL_DIR = path_flags.define(
  "model_dir", None, "Folder for checkpoints and logs."
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file", None, "albert_config.json of the model."
)
_PRESET = flags.DEFINE_string(
  "preset",
  None,
  "Name of the model, such as albert_base_v2; its vocab_size is the data's.",
)
_EXPORT_DIR = path_flags.define(
  "export_dir",
  "",
  "Folder for a SavedModel of the best checkpoint, written at the end.",
)
_TIMEOUT = flags.DEFINE_float(
  "timeout",
  3600.0,
  "Seconds without a new checkpoint after which --mode=evaluate_continuously "
  f"ends, with exit code {training.TIMEOUT_EXIT_CODE}.",
)
_METRICS_FILE = path_flags.define(
  "metrics_file",
  "",
  "With --mode=evaluate, JSON file for the metrics.",
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute_activations",
  False,
  "Keep only the input of each block for the gradient and recompute the rest: "
  "less memory, about a third more time.",
)


def model_config(input_dir: str) -> modeling.AlbertConfig:
  """Returns the model of the flags; to evaluate, by default that of the run."""
  return model_depth_flag.at_depth(_whole_config(input_dir))


def _whole_config(input_dir: str) -> modeling.AlbertConfig:
  recorded = os.path.join(_MODEL_DIR.value, training.CONFIG_FILE)
  silent = not _CONFIG_FILE.value and not _PRESET.value
  if _MODE.value != "train" and silent and os.path.exists(recorded):
    return modeling.AlbertConfig.from_json_file(recorded)
  start = training_flags.INIT_CHECKPOINT.value
  if silent and start:
    with checkpoints.unpacked_archive(start) as path:
      return checkpoints.read_checkpoint(path).config
  if bool(_CONFIG_FILE.value) == bool(_PRESET.value):
    raise ValueError(
      "give either --albert_config_file or --preset, and not both; or neither "
      "with --init_checkpoint, whose configuration is taken."
    )
  if _CONFIG_FILE.value:
    return modeling.AlbertConfig.from_json_file(_CONFIG_FILE.value)
  manifest = tfrecords.read_manifest(input_dir)
  return dataclasses.replace(
    modeling.AlbertConfig.from_preset(_PRESET.value),
    vocab_size=manifest.tokenizer.vocab_size,
  )


def make_tasks(num_phases: int):
  """Returns the model's configuration, and a task for each phase."""
  folders = training_flags.phase_folders(
    "input_dir", _INPUT_DIR.value, num_phases
  )
  eval_folders = [_EVAL_INPUT_DIR.value] if _EVAL_INPUT_DIR.value else []
  if "," in _EVAL_INPUT_DIR.value and num_phases > 1:
    eval_folders = training_flags.phase_folders(
      "eval_input_dir", _EVAL_INPUT_DIR.value, num_phases
    )
  config = model_config(folders[0])
  return config, pretraining.make_tasks(
    config,
    folders,
    training_flags.RANDOM_SEED.value,
    eval_folders,
    _RECOMPUTE.value,
  )


def check_tokenizer(init_checkpoint: str, sha256: str) -> None:
  """Refuses data whose ids mean other pieces than in --init_checkpoint.

  Args:
    init_checkpoint: see `training.warm_start`.
    sha256: of the data's tokenizer.

  Raises:
    ValueError: the checkpoint has another tokenizer.
  """
  prefix = checkpoints.find_prefix(init_checkpoint)
  found = checkpoints.find_tokenizer(checkpoints.folders_of(prefix))
  if found and found.sha256() != sha256:
    raise ValueError(
      f"--init_checkpoint {training_flags.INIT_CHECKPOINT.value} has another "
      "tokenizer than the data, so the same ids mean other pieces: make the "
      "data with that tokenizer, or change the vocabulary of the checkpoint "
      "with tools.convert_checkpoint."
    )


def draw_curves(report: training.Reporter, is_chief: bool) -> None:
  """Draws the curves of the run; a failure is only a warning."""
  if not is_chief:
    return
  path = os.path.join(_MODEL_DIR.value, "curves.png")
  # It logs that it builds its font cache.
  logging.getLogger("matplotlib").setLevel(logging.ERROR)
  try:
    inspection.plot.plot_curves(_MODEL_DIR.value, path)
  except (ImportError, OSError, ValueError) as error:
    report.note(f"warning: no curves were drawn: {error}")
  else:
    report.note(f"curves in {path}")


def train(recipe: Optional[pretraining.Recipe]) -> None:
  """--mode=train."""
  files.check_folder(_MODEL_DIR.value)
  config, about_rate = training_flags.train_config(_MODEL_DIR.value)
  config = training_flags.with_depth_schedule(config)
  step = training.newest_step(_MODEL_DIR.value)
  if _EXPORT_DIR.value and step < config.num_train_steps:
    files.check_new_folder(_EXPORT_DIR.value, "--export_dir")
  depths = training_flags.scheduled_depths(config)
  num_phases = 1 if depths else len(config.phase_ends)
  albert_config, tasks = make_tasks(num_phases)
  config = training_flags.with_random_depths(config, albert_config)
  descriptions = [task.describe() for task in tasks]
  if depths:
    tasks = pretraining.at_depths(tasks[0], depths)
  strategy, precision = training_flags.start_devices()
  # A resumed run does not read --init_checkpoint.
  if config.init_checkpoint and not step:
    start = conversion.own_copy.of(config.init_checkpoint)
    config = dataclasses.replace(config, init_checkpoint=start)
    check_tokenizer(start, tasks[0].manifest.tokenizer.sha256)
  training.check_batch_sizes(config, strategy.num_replicas_in_sync)
  settings = {
    **training_flags.settings(config, strategy, precision),
    "recompute_activations": _RECOMPUTE.value,
    "recipe": recipe.name if recipe else "",
  }
  is_chief, changes = distribution.is_chief(strategy), []
  record = (
    _MODEL_DIR.value,
    albert_config,
    settings,
    training.combined_data(descriptions),
  )
  if is_chief:
    changes = training.check(
      *record,
      step,
      training.is_finished(config),
      training_flags.ALLOW_CHANGED_SETTINGS.value,
    )

  def write_record() -> None:
    if is_chief:
      tokenizer = tasks[0].manifest.tokenizer
      path = os.path.join(tasks[0].input_dir, tokenizer.file)
      training.write_run(*record)
      training.copy_tokenizer(path, tokenizer.sha256, _MODEL_DIR.value)

  with training.make_reporter(strategy, _MODEL_DIR.value) as report:
    about_recipe = (
      recipe_flags.describe(recipe, tasks[0].manifest) if recipe else ()
    )
    for line in (*about_recipe, *about_rate):
      report.note(line)
    report.note(f"precision {precision}, logs in {_MODEL_DIR.value}")
    for change in changes:
      report.note(f"warning: {change}; the resumed run is not the same run.")
    try:
      with distribution.naming_lost_workers(strategy):
        training.train(tasks, config, strategy, report, write_record)
    except training.Divergence:
      draw_curves(report, is_chief)
      raise
    draw_curves(report, is_chief)
    if is_chief and _EXPORT_DIR.value:
      export(report)


def export(report: training.Reporter) -> None:
  """Writes the SavedModel of --export_dir, unless the folder holds files.

  In a new process: an export computes on a CPU, in float32, whatever devices
  and precision this process has set up.
  """
  try:
    files.check_new_folder(_EXPORT_DIR.value)
  except FileExistsError:
    report.note(f"{_EXPORT_DIR.value} exists and is not replaced")
    return
  done = subprocess.run(
    [
      *(sys.executable, "-m", "tools.export_saved_model"),
      f"--model_dir={_MODEL_DIR.value}",
      f"--export_dir={_EXPORT_DIR.value}",
    ],
    env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    check=False,
  )
  if done.returncode:
    raise ValueError(
      f"the run in {_MODEL_DIR.value} is finished, but was not exported: see "
      "the message above, then export it with tools.export_saved_model."
    )


def evaluate() -> None:
  """--mode=evaluate and --mode=evaluate_continuously."""
  continuously = _MODE.value == "evaluate_continuously"
  if continuously and model_depth_flag.given():
    raise ValueError(
      "--mode=evaluate_continuously keeps the best checkpoint at the run's own "
      "depth: give --num_hidden_layers to --mode=evaluate."
    )
  config, path = None, training_flags.INIT_CHECKPOINT.value
  if continuously:
    config = training.wait_for_run(_MODEL_DIR.value, _TIMEOUT.value)
  elif not path:
    config = training.read_train_config(_MODEL_DIR.value)
    path = checkpoints.find_prefix(_MODEL_DIR.value, checkpoints.LATEST)
  _, tasks = make_tasks(len(config.phase_ends) if config else 1)
  if config:
    data = training.read_run(_MODEL_DIR.value)["data"]
    training.check_tokenizer(_MODEL_DIR.value, data, tasks[0].describe())
  strategy, _ = training_flags.start_devices()
  evaluator = training.Evaluator(
    tasks, strategy, training_flags.EVAL_BATCH_SIZE.value
  )
  if continuously:
    folder = os.path.join(_MODEL_DIR.value, training.EVALUATION_FOLDER)
    with training.Reporter(folder) as report:
      report.note(f"waiting for checkpoints, logs in {folder}")
      training.evaluate_continuously(
        evaluator, _MODEL_DIR.value, report, _TIMEOUT.value
      )
    return
  evaluator.read(path if config else conversion.own_copy.of(path))
  at = config.phases_at(training.step_of(path)) if config else (0,)
  for phase in at:
    print(f"{path} on the held-out data of {tasks[phase].eval_dir}")
    values = evaluator.evaluate(phase)
    for name, value in values.items():
      print(f"  {name} {value:.6g}")
  if _METRICS_FILE.value:  # At the border of two phases, of the later one.
    files.write_json(_METRICS_FILE.value, values)


def main(argv) -> None:
  del argv
  if recipe_flags.listing():
    return
  recipe = recipe_flags.apply()
  if _METRICS_FILE.value and _MODE.value != "evaluate":
    raise ValueError(
      "--metrics_file is for --mode=evaluate; other modes write "
      f"{training.METRICS_FILE} in the run's folder."
    )
  if _MODE.value == "train":
    train(recipe)
  else:
    evaluate()


if __name__ == "__main__":
  recipe_flags.mark_as_required(["input_dir", "model_dir"])
  command_line.run(main)
