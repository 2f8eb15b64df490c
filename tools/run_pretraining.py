"""Pretrains an ALBERT on records of tools.create_pretraining_data.

    python -m tools.run_pretraining --input_dir=DATA --model_dir=RUN \\
        --preset=albert_base_v2 --train_batch_size=4096 \\
        --num_train_steps=125000 --num_warmup_steps=3125

Started again with the same flags, it goes on from its latest checkpoint and
computes what the uninterrupted run would have computed. --recipe=base_gpu and
others (--list_recipes) set all flags but the folders. Two phases, the second on
longer sequences, are

    --input_dir=DATA128,DATA512 --phase_steps=112500,12500 \\
    --train_batch_size=4096,1024

Evaluation can be left to a second process: train with --eval_steps=0, and give
--mode=evaluate_continuously with the same folders. Flags keep the names
and defaults of google-research/albert run_pretraining.py where they have one.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import Optional

from absl import flags

from official_albert import (
  checkpoints,
  continuous_evaluation,
  distribution,
  learning_rate,
  objective,
  optimization,
  reporting,
  run_record,
  training,
)
from official_albert import config as config_lib
from official_albert import train_config as train_config_lib
from tasks.pretraining import export, phases, recipes
from tfrecords import schemas
from tools import command_line, phase_flags, recipe_flags

_MODE = flags.DEFINE_enum(
  "mode",
  "train",
  ["train", "evaluate", "evaluate_continuously"],
  "Train; or evaluate, once, the run's latest checkpoint or --init_checkpoint; "
  "or each checkpoint that another process saves.",
)
_INPUT_DIR = flags.DEFINE_string(
  "input_dir",
  None,
  "Folder of tools.create_pretraining_data; with --phase_steps, one for each "
  "phase.",
)
_EVAL_INPUT_DIR = flags.DEFINE_string(
  "eval_input_dir",
  "",
  "Another such folder to evaluate on (one, or one for each phase): its "
  "held-out split, or all of it if it has none.",
)
_MODEL_DIR = flags.DEFINE_string(
  "model_dir", None, "Folder for checkpoints and logs; made if missing."
)
_CONFIG_FILE = flags.DEFINE_string(
  "albert_config_file", None, "The model, as an albert_config.json."
)
_PRESET = flags.DEFINE_string(
  "preset",
  None,
  "The model, by name, such as albert_base_v2; takes the data's vocab_size.",
)
_INIT_CHECKPOINT = flags.DEFINE_string(
  "init_checkpoint", "", "Weights to start from (ours or TF1); optional."
)
_PHASE_STEPS = flags.DEFINE_string(
  "phase_steps",
  "",
  "Updates of each phase, such as 112500,12500; the schedule spans them all.",
)
_BATCH_SIZE = flags.DEFINE_string(
  "train_batch_size", "4096", "Examples in one update, or those of each phase."
)
_ACCUMULATION = flags.DEFINE_string(
  "gradient_accumulation_steps",
  "1",
  "Micro-batches that make up one update, or those of each phase.",
)
_EVAL_BATCH_SIZE = flags.DEFINE_integer(
  "eval_batch_size", 64, "Held-out examples evaluated at once."
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "lamb", optimization.OPTIMIZERS, "How weights are updated."
)
_LEARNING_RATE = flags.DEFINE_float(
  "learning_rate",
  None,
  "Peak rate; by default 0.00176 * sqrt(train_batch_size / 4096), for LAMB.",
)
_DECAY = flags.DEFINE_enum(
  "learning_rate_decay",
  "original",
  optimization.DECAYS,
  "original drops a little when the warm-up ends, continuous does not.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 125000, "Updates in all; --phase_steps say it too."
)
_WARMUP_STEPS = flags.DEFINE_integer(
  "num_warmup_steps", 3125, "Updates over which the rate rises from 0."
)
_WEIGHT_DECAY = flags.DEFINE_float("weight_decay", 0.01, "Weight decay.")
_BETA_2 = flags.DEFINE_float("beta_2", 0.999, "Memory of squared gradients.")
_BIAS_CORRECTION = flags.DEFINE_bool(
  "bias_correction", False, "Correct the moments' start from zero."
)
_CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "Largest global norm of the gradient."
)
_STEPS_PER_LOOP = flags.DEFINE_integer(
  "steps_per_loop", 100, "Updates between two log lines."
)
_EVAL_STEPS = flags.DEFINE_integer(
  "eval_steps",
  1000,
  "Updates between two evaluations; 0: only at the end, and the best "
  "checkpoint is left to --mode=evaluate_continuously.",
)
_BEST_METRIC = flags.DEFINE_string(
  "best_metric",
  "loss",
  "The held-out number whose lowest value makes the best checkpoint; loss is "
  "the sum of all objectives.",
)
_EXPORT_DIR = flags.DEFINE_string(
  "export_dir",
  "",
  "Folder for a SavedModel of the best checkpoint, made at the end.",
)
_TIMEOUT = flags.DEFINE_float(
  "timeout",
  3600.0,
  "Seconds without a new checkpoint after which --mode=evaluate_continuously "
  f"ends, with exit code {continuous_evaluation.EXIT_CODE}.",
)
_SAVE_STEPS = flags.DEFINE_integer(
  "save_checkpoints_steps", 1000, "Updates between two checkpoints."
)
_KEEP_MAX = flags.DEFINE_integer(
  "keep_checkpoint_max", 5, "How many of the newest checkpoints are kept."
)
_ON_DIVERGENCE = flags.DEFINE_enum(
  "on_divergence",
  "stop",
  train_config_lib.ON_DIVERGENCE,
  "When a loss or gradient is not finite: stop, or go back to the last "
  "checkpoint and leave out those batches, three times at most.",
)
_PROFILE_STEPS = flags.DEFINE_string(
  "profile_steps",
  "",
  "FROM,TO: profile the updates after step FROM up to TO, for TensorBoard.",
)
_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "Seed of weights, data order and dropout."
)
_PRECISION = flags.DEFINE_enum(
  "precision", "float32", distribution.PRECISIONS, "Dtype of the products."
)
_XLA = flags.DEFINE_bool(
  "xla",
  False,
  "Compile forward and backward pass as a whole; slower on CPUs. Dropout draws "
  "other masks than without.",
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute_activations",
  False,
  "Keep only each block's input for the gradient and compute the rest again: "
  "less memory, about a third more time.",
)
_DISTRIBUTION = flags.DEFINE_enum(
  "distribution", "one_device", distribution.STRATEGIES, "Devices to use."
)
_NUM_DEVICES = flags.DEFINE_integer(
  "num_devices",
  0,
  "Devices of --distribution=mirrored; 0: all GPUs, or one for each core.",
)


def model_config(input_dir: str) -> config_lib.AlbertConfig:
  """The model that the flags ask for; to evaluate, the run's by default."""
  recorded = os.path.join(_MODEL_DIR.value, run_record.CONFIG_FILE)
  silent = not _CONFIG_FILE.value and not _PRESET.value
  if _MODE.value != "train" and silent and os.path.exists(recorded):
    return config_lib.AlbertConfig.from_json_file(recorded)
  if bool(_CONFIG_FILE.value) == bool(_PRESET.value):
    raise ValueError(
      "give either --albert_config_file or --preset, and not both."
    )
  if _CONFIG_FILE.value:
    return config_lib.AlbertConfig.from_json_file(_CONFIG_FILE.value)
  manifest = schemas.read_manifest(input_dir)
  return dataclasses.replace(
    config_lib.AlbertConfig.from_preset(_PRESET.value),
    vocab_size=manifest.tokenizer.vocab_size,
  )


def make_tasks(num_phases: int):
  """The model's configuration, and a task for each phase."""
  folders = phase_flags.folders("input_dir", _INPUT_DIR.value, num_phases)
  eval_folders = [_EVAL_INPUT_DIR.value] if _EVAL_INPUT_DIR.value else []
  if "," in _EVAL_INPUT_DIR.value and num_phases > 1:
    eval_folders = phase_flags.folders(
      "eval_input_dir", _EVAL_INPUT_DIR.value, num_phases
    )
  config = model_config(folders[0])
  return config, phases.make_tasks(
    config, folders, _SEED.value, eval_folders, _RECOMPUTE.value
  )


def draw_curves(report: reporting.Reporter) -> None:
  """Draws the run's curves; a run must not fail for want of a picture."""
  path = os.path.join(_MODEL_DIR.value, "curves.png")
  # It would say that it lists the fonts of a machine for the first time.
  logging.getLogger("matplotlib").setLevel(logging.ERROR)
  try:
    from tools import curve_plot  # Matplotlib takes a second to load.

    curve_plot.plot(_MODEL_DIR.value, path)
  except (ImportError, OSError, ValueError) as error:
    report.note(f"warning: no curves were drawn: {error}")
  else:
    report.note(f"curves in {path}")


def train_config(rate: float) -> train_config_lib.TrainConfig:
  """The flags as checked settings."""
  run_phases = phase_flags.make_phases(
    _PHASE_STEPS.value, _BATCH_SIZE.value, _ACCUMULATION.value
  )
  return train_config_lib.TrainConfig(
    model_dir=_MODEL_DIR.value,
    num_train_steps=phase_flags.total_steps(
      run_phases, _TRAIN_STEPS.value, flags.FLAGS["num_train_steps"].present
    ),
    phases=run_phases,
    num_warmup_steps=_WARMUP_STEPS.value,
    learning_rate=rate,
    train_batch_size=phase_flags.numbers("train_batch_size", _BATCH_SIZE.value)[
      0
    ],
    gradient_accumulation_steps=phase_flags.numbers(
      "gradient_accumulation_steps", _ACCUMULATION.value
    )[0],
    xla=_XLA.value,
    eval_batch_size=_EVAL_BATCH_SIZE.value,
    optimizer=_OPTIMIZER.value,
    weight_decay=_WEIGHT_DECAY.value,
    beta_2=_BETA_2.value,
    bias_correction=_BIAS_CORRECTION.value,
    learning_rate_decay=_DECAY.value,
    clip_norm=_CLIP_NORM.value,
    steps_per_loop=_STEPS_PER_LOOP.value,
    eval_steps=_EVAL_STEPS.value,
    best_metric=_BEST_METRIC.value,
    save_checkpoints_steps=_SAVE_STEPS.value,
    keep_checkpoint_max=_KEEP_MAX.value,
    on_divergence=_ON_DIVERGENCE.value,
    init_checkpoint=_INIT_CHECKPOINT.value,
    profile_steps=_PROFILE_STEPS.value,
    seed=_SEED.value,
  )


def train(recipe: Optional[recipes.Recipe]) -> None:
  """--mode=train."""
  rate, about_rate = learning_rate.choose(
    _LEARNING_RATE.value,
    phase_flags.numbers("train_batch_size", _BATCH_SIZE.value)[0],
    _OPTIMIZER.value,
  )
  config = train_config(rate)
  step = checkpoints.newest_step(_MODEL_DIR.value)
  if _EXPORT_DIR.value and step < config.num_train_steps:
    export.check_new(_EXPORT_DIR.value)
  albert_config, tasks = make_tasks(len(config.phase_ends))
  strategy = distribution.make_strategy(_DISTRIBUTION.value, _NUM_DEVICES.value)
  distribution.start_compiler()
  distribution.make_deterministic()
  precision = distribution.set_precision(_PRECISION.value)
  training.check_batch_sizes(config, strategy.num_replicas_in_sync)
  settings = {
    **dataclasses.asdict(config),
    "num_replicas": strategy.num_replicas_in_sync,
    "precision": precision,
    "recompute_activations": _RECOMPUTE.value,
    "distribution": _DISTRIBUTION.value,
    "recipe": recipe.name if recipe else "",
  }
  data = run_record.data_of([task.describe() for task in tasks])
  changes = run_record.write(
    _MODEL_DIR.value, albert_config, settings, data, step
  )
  tokenizer = tasks[0].manifest.tokenizer
  run_record.copy_tokenizer(
    os.path.join(tasks[0].input_dir, tokenizer.file),
    tokenizer.sha256,
    _MODEL_DIR.value,
  )
  with reporting.Reporter(_MODEL_DIR.value) as report:
    about_recipe = (
      recipe_flags.describe(recipe, tasks[0].manifest) if recipe else ()
    )
    for line in (*about_recipe, *about_rate):
      report.note(line)
    report.note(f"precision {precision}, logs in {_MODEL_DIR.value}")
    for change in changes:
      report.note(f"warning: {change}; the resumed run is not the same run.")
    try:
      training.train(tasks, config, strategy, report)
    except objective.Divergence:
      draw_curves(report)
      raise
    draw_curves(report)
  if _EXPORT_DIR.value and os.path.exists(_EXPORT_DIR.value):
    print(f"{_EXPORT_DIR.value} is there already and is left as it is")
  elif _EXPORT_DIR.value:
    path = export.export(_MODEL_DIR.value, _EXPORT_DIR.value)
    print(f"exported {path} to {_EXPORT_DIR.value}")


def evaluate() -> None:
  """--mode=evaluate and --mode=evaluate_continuously."""
  continuously = _MODE.value == "evaluate_continuously"
  config, path = None, _INIT_CHECKPOINT.value
  if continuously:
    config = continuous_evaluation.wait_for_run(
      _MODEL_DIR.value, _TIMEOUT.value
    )
  elif not path:
    config = continuous_evaluation.read_config(_MODEL_DIR.value)
    path = export.find_checkpoint(_MODEL_DIR.value, export.LATEST)
  _, tasks = make_tasks(len(config.phase_ends) if config else 1)
  if config:
    data = run_record.read(_MODEL_DIR.value)["data"]
    run_record.check_tokenizer(_MODEL_DIR.value, data, tasks[0].describe())
  strategy = distribution.make_strategy(_DISTRIBUTION.value, _NUM_DEVICES.value)
  distribution.start_compiler()
  distribution.make_deterministic()
  distribution.set_precision(_PRECISION.value)
  evaluator = continuous_evaluation.Evaluator(
    tasks, strategy, _EVAL_BATCH_SIZE.value
  )
  if continuously:
    folder = os.path.join(_MODEL_DIR.value, continuous_evaluation.FOLDER)
    with reporting.Reporter(folder) as report:
      report.note(f"waiting for checkpoints, logs in {folder}")
      continuous_evaluation.evaluate_continuously(
        evaluator, _MODEL_DIR.value, report, _TIMEOUT.value
      )
    return
  evaluator.read(path)
  at = config.phases_at(checkpoints.step_of(path)) if config else (0,)
  for phase in at:
    print(f"{path} on the held-out data of {tasks[phase].eval_dir}")
    for name, value in evaluator.evaluate(phase).items():
      print(f"  {name} {value:.6g}")


def main(argv) -> None:
  del argv
  if recipe_flags.listing():
    return
  recipe = recipe_flags.apply()
  if _MODE.value == "train":
    train(recipe)
  else:
    evaluate()


if __name__ == "__main__":
  recipe_flags.mark_as_required(["input_dir", "model_dir"])
  command_line.run(main)
