"""Pretrains an ALBERT on records of tools.create_pretraining_data.

    python -m tools.run_pretraining --input_dir=DATA --model_dir=RUN \\
        --preset=albert_base_v2 --train_batch_size=4096 \\
        --num_train_steps=125000 --num_warmup_steps=3125

The same command resumes an interrupted run from its latest checkpoint and
computes what the uninterrupted run would have computed. Flags that change the
result, such as another learning rate, are refused then, unless
--allow_changed_settings is given. --recipe=base_gpu and others set all flags
but the folders.

Two phases, the second on longer sequences:

    --input_dir=DATA128,DATA512 --phase_steps=112500,12500 \\
    --train_batch_size=4096,1024

--masked_lm_prob=0.3,0.15 --phase_layers=6,12 change with the phase, too.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Optional

from absl import flags

from official_albert import files, runs, tfrecords
from official_albert.tasks.pretraining import recipes
from official_albert.tools.cli import (
  command_line,
  device_flags,
  path_flags,
  training_flags,
)
from official_albert.train_config import whole_numbers

_RECIPE = flags.DEFINE_string(
  "recipe",
  "",
  "Use the values of this recipe for flags that are not given; see "
  "docs/training.md and docs/tpu.md.",
)
_MODE = flags.DEFINE_enum(
  "mode",
  "train",
  ["train", "evaluate"],
  "Train, or evaluate --init_checkpoint, by default the run's latest "
  "checkpoint, on the held-out data of each folder.",
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
_NUM_HIDDEN_LAYERS = path_flags.define_num_hidden_layers()
_METRICS_FILE = path_flags.define(
  "metrics_file", "", "With --mode=evaluate, JSON file for the metrics."
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute_activations",
  False,
  "Keep only the input of each block for the gradient and recompute the rest: "
  "less memory, about a third more time.",
)
_MASKED_LM_PROB = flags.DEFINE_string(
  "masked_lm_prob",
  "0",
  "Share of tokens to mask in training, for records of --masking=dynamic; 0: "
  "that of the records, with which the evaluation masks. With --phase_steps, "
  "one value or a list.",
)
_PHASE_LAYERS = flags.DEFINE_string(
  "phase_layers",
  "",
  "How many times each phase applies the shared layers, such as 3,6,12: a "
  "shallow model learns as well at first, in less time.",
)
_NEIGHBORS = flags.DEFINE_bool(
  "init_neighbor_attention",
  False,
  "Start without --init_checkpoint with attention heads that look at "
  "neighboring positions; learns sooner (docs/results/quality.md).",
)
_WORD_VECTORS = flags.DEFINE_bool(
  "init_word_vectors",
  False,
  "Start without --init_checkpoint with word embeddings from counts of "
  "neighboring tokens in --input_dir; learns sooner.",
)
_SHIFT = flags.DEFINE_bool(
  "shift_positions",
  False,
  "Train all positions of the longest sequences in the phases of shorter ones, "
  "too: each batch begins at a random one.",
)
_OF_TASK = (_RECOMPUTE, _NEIGHBORS, _WORD_VECTORS, _SHIFT)


def apply_recipe() -> Optional[recipes.Recipe]:
  """Sets the flags that are not given to the values of --recipe, if given."""
  if not _RECIPE.value:
    return None
  recipe = recipes.get_recipe(_RECIPE.value)
  for name, value in recipe.flags.items():
    # --albert_config_file replaces the preset.
    if name != "preset" or not _CONFIG_FILE.present:
      flags.FLAGS.set_default(name, str(value))
  return recipe


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_dir", "model_dir"])
  # `--help` ends here, before TensorFlow is loaded.
  command_line.parse(apply_recipe)

from official_albert import checkpoints, distribution, modeling, training
from official_albert.tasks.pretraining import phases
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.inspection import plot


def model_config(input_dir: str, start: str) -> modeling.AlbertConfig:
  """Returns the model of the flags, or else of the checkpoint `start`."""
  named = bool(_CONFIG_FILE.value) + bool(_PRESET.value)
  if not named and start:
    with checkpoints.open(start) as checkpoint:
      return checkpoint.config
  if named != 1:
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


def make_tasks(num_phases: int, start: str, **of_training: Any):
  """Returns a task for each phase."""
  folders = _INPUT_DIR.value.split(",")
  if len(folders) != num_phases or not all(folders):
    raise ValueError(
      f"--input_dir names {len(folders)} folders ({_INPUT_DIR.value!r}), but "
      f"the run has {num_phases} phases (see --phase_steps): give one folder "
      "for each, separated by commas."
    )
  config = model_config(folders[0], start)
  config = config.at_depth(_NUM_HIDDEN_LAYERS.value or config.num_hidden_layers)
  config = training_flags.with_adapters(config)
  options = {flag.name: flag.value for flag in _OF_TASK} | of_training
  return phases.make_tasks(
    config,
    folders,
    training_flags.RANDOM_SEED.value,
    _EVAL_INPUT_DIR.value.split(",") if _EVAL_INPUT_DIR.value else (),
    **options,
  )


def mask_shares() -> tuple[float, ...]:
  """Returns the value of --masked_lm_prob, or those of the phases."""
  try:
    found = tuple(float(x) for x in _MASKED_LM_PROB.value.split(","))
  except ValueError:
    found = (math.nan,)
  if not all(0 <= x <= 1 for x in found):
    raise ValueError(
      f"--masked_lm_prob is {_MASKED_LM_PROB.value!r:.60}, but must be a share "
      "from 0 to 1, or one for each phase, separated by commas."
    )
  return found


def check_start(path: str, task: task_lib.PretrainingTask) -> None:
  """Refuses a checkpoint of another tokenizer than that of the data."""
  with checkpoints.open(path, default_config=task.config) as checkpoint:
    file = checkpoint.tokenizer
    if file and file.sha256() != task.manifest.tokenizer.sha256:
      raise ValueError(
        f"{path} has another tokenizer than the data, so the same ids mean "
        "other pieces: make the data with that tokenizer."
      )


def train(recipe: Optional[recipes.Recipe]) -> None:
  """Implements --mode=train."""
  model_dir = _MODEL_DIR.value
  files.check_folder(model_dir)
  config, about_rate = training_flags.train_config(model_dir)
  shares = mask_shares()
  tasks = make_tasks(
    *(len(config.phase_ends), config.init_checkpoint),
    mask_shares=shares,
    layers=whole_numbers("phase_layers", _PHASE_LAYERS.value or "0"),
  )
  config = training_flags.with_random_depths(config, tasks[0].config)
  if config.random_depths and _PHASE_LAYERS.value:
    raise ValueError(
      "--random_depths draws the layers of each update, and --phase_layers "
      "sets them: give one of them."
    )
  data = runs.combined_data([task.describe() for task in tasks])
  manifest = tasks[0].manifest
  strategy, precision = device_flags.start_devices()
  # A resumed run does not read --init_checkpoint.
  if config.init_checkpoint and not runs.list_checkpoints(model_dir):
    check_start(config.init_checkpoint, tasks[0])
  settings = {
    **training_flags.settings(config, strategy, precision),
    **{flag.name: flag.value for flag in _OF_TASK},
    "masked_lm_prob": shares[0] if len(shares) == 1 else shares,
    "phase_layers": _PHASE_LAYERS.value,
    "recipe": recipe.name if recipe else "",
  }
  record = runs.Start(
    tasks[0].config,
    settings,
    data,
    os.path.join(tasks[0].input_dir, manifest.tokenizer.file),
    manifest.tokenizer.sha256,
    training_flags.ALLOW_CHANGED_SETTINGS.value,
  )
  with training.open_report(model_dir, strategy) as report:
    if recipe:
      changed = [name for name in recipe.flags if flags.FLAGS[name].present]
      for line in recipe.describe(changed, data["max_seq_length"]):
        report.note(line)
    report.note(about_rate)
    if _SHIFT.value and not any(task.position_shift for task in tasks):
      report.note(
        "warning: --shift_positions has no effect, because no phase has "
        "shorter sequences than another."
      )
    report.note(f"precision {precision}, logs in {model_dir}")
    training.Trainer(tasks, config, strategy, report, record).run()
  if distribution.is_chief(strategy):
    path = os.path.join(model_dir, "curves.png")
    try:
      plot.plot_curves(model_dir, path)
      print(f"curves in {path}")
    except (ImportError, OSError, ValueError) as error:
      print(f"warning: no curves were drawn: {error}")


def evaluate() -> None:
  """Implements --mode=evaluate: prints the metrics of one checkpoint."""
  if _METRICS_FILE.value:
    files.check_file(_METRICS_FILE.value)
  path = training_flags.INIT_CHECKPOINT.value
  path = path or runs.find_prefix(_MODEL_DIR.value, runs.LATEST)
  tasks = make_tasks(_INPUT_DIR.value.count(",") + 1, path)
  check_start(path, tasks[0])
  strategy, _ = device_flags.start_devices()
  config, _ = training_flags.train_config(_MODEL_DIR.value)
  batch_size = config.eval_batch_size
  training.check_batch_size("eval_batch_size", batch_size, strategy)
  with strategy.scope():
    model = tasks[0].build_model()
  report = tasks[0].warm_start(model, path)
  if report.missing:
    raise ValueError(f"{path} lacks weights of the model: {report}")
  for task in tasks:
    print(f"{path} on the held-out data of {task.eval_dir}")
    evaluation = training.Evaluation(task, model, strategy, config)
    values = evaluation(task.eval_dataset(batch_size))
    for name, value in values.items():
      print(f"  {name} {training.shown(value, '.6g')}")
  if _METRICS_FILE.value:  # On the last of several folders.
    files.write_json(_METRICS_FILE.value, values)


def main(_) -> None:
  recipe = apply_recipe()
  if _MODE.value == "train":
    if _METRICS_FILE.value:
      raise ValueError(
        "--metrics_file is for --mode=evaluate; a training has its numbers in "
        "metrics.jsonl of its folder: leave it out."
      )
    train(recipe)
  else:
    evaluate()


if __name__ == "__main__":
  command_line.run(main)
