"""Fine-tunes a pretrained ALBERT, evaluates it and predicts with it.

    python -m tools.run_finetuning --task=mrpc --data_dir=glue \\
        --init_checkpoint=RUN --output_dir=mrpc

Tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all nine;
squad_v1, squad_v2; race, race_v2; and for your own TSV, CSV or JSON lines
text_classification, text_multi_label (several labels a text), text_regression,
and the same with text_pair; text_embedding, from pairs, triplets or scores;
token_classification (entities, CoNLL files too):

    --task=text_classification --train_file=train.tsv --dev_file=dev.tsv \\
        --test_file=new.tsv --text_column=review --label_column=stars

The defaults are the settings of the paper's Table 14, and 3 epochs for your own
data, with a tenth of all steps for the warm-up. For models with a hidden_size
below 768 the rate is 5e-4 * 128 / hidden_size, at most 5e-4, with
--bias_correction, and your own data has 5 epochs. Each run has ten evaluations
and checkpoints, of which the one with the best --best_metric is used.

--seeds=5 makes five runs and reports the median, the best and the spread.
--search_trials=20 looks for the learning rate, the batch size and the epochs.
--nodo_train, --nodo_eval and --nodo_predict skip a part. The same command
resumes an interrupted run. docs/finetuning.md says more.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Mapping, Optional

from absl import flags

from official_albert import files, runs
from official_albert.config import AlbertConfig
from official_albert.tasks import registry, trained_run
from official_albert.tasks.classification import glue
from official_albert.tools.cli import (
  command_line,
  device_flags,
  path_flags,
  training_flags,
)
from official_albert.tools.finetuning import task_flags
from official_albert.train_config import whole_numbers

_TASK = task_flags.define_task("glue")
_OUTPUT_DIR = path_flags.define(
  "output_dir",
  None,
  "Folder for checkpoints, results and predictions; glue and --seeds add a "
  "folder for each task and seed.",
)
_DO_TRAIN = flags.DEFINE_bool("do_train", True, "Train.")
_DO_EVAL = flags.DEFINE_bool("do_eval", True, "Evaluate on the labeled data.")
_DO_PREDICT = flags.DEFINE_bool(
  "do_predict", True, "Predict the test data, if there is any."
)
_SEEDS = flags.DEFINE_integer(
  "seeds",
  1,
  "Number of runs, with --random_seed and the numbers after it.",
  lower_bound=1,
  upper_bound=1000,
)
_SEARCH_TRIALS = flags.DEFINE_integer(
  "search_trials",
  0,
  "Runs to find the best --learning_rate, --train_batch_size and "
  "--num_train_epochs; those that are given stay. Needs Optuna.",
  lower_bound=0,
  upper_bound=10_000,
)
# Of a user's own data, for models smaller than the paper's: their rate is low
# enough for 3,000 rows (docs/results/data/finetuning_defaults.json).
_SMALL_MODEL_EPOCHS = 5.0
# Evaluations in a run by default.
_EVALUATIONS = 10
# Flags whose default depends on the task and the size, see above.
_TASK_DEFAULTS = (
  "best_metric eval_steps learning_rate num_train_steps num_warmup_steps "
  "save_checkpoints_steps steps_per_loop train_batch_size"
).split()
for _name in _TASK_DEFAULTS:
  flags.FLAGS[_name].help += " By default that of the task, see above."
  flags.FLAGS.set_default(_name, None)
flags.FLAGS.set_default("optimizer", "adamw")
flags.FLAGS.set_default("best_is", "highest")
flags.FLAGS.set_default("keep_checkpoint_max", 1)

_EPOCHS = flags.DEFINE_float(
  "num_train_epochs",
  0.0,
  "Passes over the training data, instead of --num_train_steps; 0: that "
  "number of steps, and for your own data 3 passes (5 of small models).",
  lower_bound=0.0,
  upper_bound=1e6,
)


if __name__ == "__main__":
  flags.mark_flags_as_required(["task", "output_dir"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

import tensorflow as tf

from official_albert import distribution, training
from official_albert.tasks.common import finetuning_task
from official_albert.tools.finetuning import results, search


def open_run(
  name: str, model_dir: str
) -> tuple[AlbertConfig, finetuning_task.FinetuningTask]:
  """Returns the encoder's configuration and the task.

  They are those of the run if it is not trained now.
  """
  run = None if _DO_TRAIN.value else trained_run.read(model_dir)
  source = model_dir if run else training_flags.INIT_CHECKPOINT.value or ""
  config, tokenizer = task_flags.find_encoder(source)
  if not run:
    config = training_flags.with_adapters(config)
  # TPUs need batches of one length.
  one_length = device_flags.DISTRIBUTION.value == "tpu"
  task = task_flags.make_task(name, tokenizer, run, one_length)
  if run and run.task != task.name:
    raise ValueError(
      f"{model_dir} has a run of {run.task}, not of {task.name}: give "
      f"--task={run.task}, or another --output_dir."
    )
  return config, task


def run_seed(
  task: finetuning_task.FinetuningTask,
  encoder: AlbertConfig,
  model_dir: str,
  seed: int,
  devices: tuple[tf.distribute.Strategy, str],
  trainer: Optional[training.Trainer],
) -> tuple[runs.Results, Optional[training.Trainer]]:
  """Makes one run; returns the metrics of labeled splits, and the trainer.

  `trainer` is that of another seed, whose graphs this one uses.
  """
  tests = [split for split in task.test_splits if task.has_split(split)]
  evaluated, predicted = [], tests if _DO_PREDICT.value else []
  if _DO_EVAL.value:
    evaluated = [split for split in tests if task.is_labeled(split)]
    is_idle = not (evaluated or predicted)
    if _DO_TRAIN.value or is_idle or task.has_split(task.eval_split):
      evaluated = [*task.eval_splits, *evaluated]
  if not (_DO_TRAIN.value or evaluated or predicted):
    for split in task.test_splits:
      task.sources(split)  # Raises an error about the file.
  config, note = train_config(task, encoder.hidden_size, model_dir)
  config = dataclasses.replace(config, seed=seed)
  config = training_flags.with_random_depths(config, encoder)
  trained = ["train", task.eval_split] if _DO_TRAIN.value else []
  splits = list(dict.fromkeys([*trained, *evaluated, *predicted]))
  task = task.with_records(splits, encoder, seed)
  if _DO_TRAIN.value:
    settings = training_flags.settings(config, *devices)
    record = runs.Start(
      task.config,
      {**settings, **task.model_settings()},
      task.describe(),
      *task.tokenizer_file,
      training_flags.ALLOW_CHANGED_SETTINGS.value,
    )
    with training.open_report(model_dir, devices[0]) as report:
      report.note(note)
      if trainer:
        trainer.reset([task], config, report, record)
      else:
        trainer = training.Trainer([task], config, devices[0], report, record)
      trainer.run()
  if not (evaluated or predicted):
    return {}, trainer
  arguments = task, config, devices[0], trainer, evaluated, predicted
  return results.predict(*arguments), trainer


def run_task(
  name: str, output_dir: str, devices: tuple[tf.distribute.Strategy, str]
) -> dict[str, Any]:
  """Makes the runs of all seeds of one task; returns their summary, if any."""
  first = training_flags.RANDOM_SEED.value
  folders = {first: output_dir}
  if _SEEDS.value > 1:
    seeds = range(first, first + _SEEDS.value)
    folders = {s: os.path.join(output_dir, f"seed_{s}") for s in seeds}
  found, trainer = {}, None
  for seed, folder in folders.items():
    # Training reads the data, traces and compiles once; trained runs may have
    # different settings.
    if seed == first or not _DO_TRAIN.value:
      encoder, task = open_run(name, folder)
      tf.keras.backend.clear_session()
    print(f"{name}, seed {seed}: {folder}", flush=True)
    found[seed], trainer = run_seed(
      task, encoder, folder, seed, devices, trainer
    )
  if not all(task.eval_split in values for values in found.values()):
    return {}
  metric, best_is = (flags.FLAGS[x].value for x in ("best_metric", "best_is"))
  summary = results.summarize(
    task, found, folders, metric, best_is, with_majority=_DO_TRAIN.value
  )
  print(results.describe(summary))
  if distribution.is_chief(devices[0]):
    files.make_folder(output_dir)
    files.write_json(os.path.join(output_dir, runs.SUMMARY_FILE), summary)
    for line in results.doubts(summary):
      print(line, flush=True)
  return summary


def search_best(
  name: str, output_dir: str, devices: tuple[tf.distribute.Strategy, str]
) -> None:
  """Searches settings in a run for each trial; predicts with the best run."""
  if not (_DO_TRAIN.value and _DO_EVAL.value) or _SEEDS.value > 1:
    raise ValueError(
      "--search_trials makes, trains and evaluates runs of one seed: leave "
      "--seeds, --nodo_train and --nodo_eval out."
    )
  if name == "glue" or files.is_remote(output_dir):
    raise ValueError(
      "--search_trials is for one --task and a local --output_dir."
    )
  encoder, task = open_run(name, output_dir)
  task.check(["train", *task.eval_splits])
  train_config(task, encoder.hidden_size, output_dir)  # Refuses wrong flags.
  given = [x for x in search.SEARCHED if flags.FLAGS[x].present]
  if flags.FLAGS["num_train_steps"].present:
    given.append("num_train_epochs")
  same = [
    flags.FLAGS[x].serialize()
    for x in flags.FLAGS
    if flags.FLAGS[x].present and x not in ("search_trials", "output_dir")
  ]
  recipe = task.recipe
  by_size, _ = training.for_finetuning(
    recipe.learning_rate, encoder.hidden_size
  )
  do_predict = _DO_PREDICT.value

  def run(folder: str, values: Mapping[str, Any]) -> float:
    for key, value in {"do_predict": False, **values}.items():
      flag = flags.FLAGS[key]
      flag.unparse()
      flag.parse(str(value))
      flag.using_default_value = False  # As if it was given.
    run_task(name, folder, devices)
    best = runs.read_best(folder)
    assert best
    return best["values"][best["metric"]]

  best, values = search.find_best(
    output_dir,
    _SEARCH_TRIALS.value,
    same,
    given,
    by_size["learning_rate"],
    flags.FLAGS["best_is"].value == "highest",
    training_flags.RANDOM_SEED.value,
    run,
  )
  if do_predict:
    run(best, {**values, "do_predict": True})
  print(f"the best run is {best}", flush=True)


def train_config(
  task: finetuning_task.FinetuningTask, hidden_size: int, model_dir: str
) -> tuple[training.TrainConfig, str]:
  """Returns the settings of a run, and a line about them for the log.

  Reads no data unless it trains.
  """
  given, recipe = flags.FLAGS, task.recipe
  batch_size = recipe.train_batch_size
  if given["train_batch_size"].present:
    text = given["train_batch_size"].value
    batch_size = whole_numbers("train_batch_size", text)[0]
  by_size, reason = training.for_finetuning(recipe.learning_rate, hidden_size)
  if given["learning_rate"].present:
    reason = "as given"
  epochs = _EPOCHS.value or recipe.num_train_epochs
  if epochs and not _EPOCHS.value and "bias_correction" in by_size:
    epochs = _SMALL_MODEL_EPOCHS
  if given["num_train_steps"].present:
    steps = given["num_train_steps"].value
    if _EPOCHS.value:
      raise ValueError(
        "--num_train_epochs and --num_train_steps exclude each other: give one."
      )
  elif epochs and _DO_TRAIN.value:
    steps = max(math.ceil(epochs * task.num_train_examples() / batch_size), 1)
  else:
    steps = recipe.num_train_steps or 1  # Without training, not used.
  warmup = steps // 10
  if recipe.num_train_steps:
    warmup = steps * recipe.num_warmup_steps // recipe.num_train_steps
  every = max(steps // _EVALUATIONS, 1)
  defaults = {
    **by_size,
    "train_batch_size": batch_size,
    "num_train_steps": steps,
    "num_warmup_steps": warmup,
    "best_metric": task.best_metric,
    "eval_steps": every,
    "save_checkpoints_steps": every,
    "steps_per_loop": min(every, 100),
  }
  for name, value in defaults.items():
    # Does not change flags that the user gave.
    flags.FLAGS.set_default(name, str(value))
  config, _ = training_flags.train_config(model_dir)
  return config, (
    f"{task.name}: {config.num_train_steps:,} steps of "
    f"{config.train_batch_size}, peak rate {config.learning_rate:g}, {reason}"
  )


def main(_) -> None:
  if not (_DO_TRAIN.value or _DO_EVAL.value or _DO_PREDICT.value):
    raise ValueError(
      "nothing to do: set one of --do_train, --do_eval and --do_predict."
    )
  if flags.FLAGS["phase_steps"].value:
    raise ValueError("--phase_steps is for pretraining: leave it out.")
  registry.load_module(task_flags.TASK_MODULE.value)
  task, output_dir = _TASK.value, _OUTPUT_DIR.value
  files.check_folder(output_dir)
  folders = {task: output_dir}
  if task == "glue":
    folders = {name: os.path.join(output_dir, name) for name in glue.GLUE_TASKS}
    for name in folders:  # Missing data is found before the first training.
      found = task_flags.make_task(name, tokenizer=None)
      for split in ("train", *found.eval_splits) if _DO_TRAIN.value else ():
        found.sources(split)
  print("loading TensorFlow", flush=True)
  devices = device_flags.start_devices()
  if _SEARCH_TRIALS.value:
    return search_best(task, output_dir, devices)
  summaries = {
    name: run_task(name, folder, devices) for name, folder in folders.items()
  }
  if task == "glue" and all(summaries.values()):
    print(results.describe_glue(summaries))


if __name__ == "__main__":
  command_line.run(main)
