"""Fine-tunes a pretrained ALBERT, evaluates it and predicts with it.

    python -m tools.run_finetuning --task=mrpc --data_dir=glue \\
        --init_checkpoint=RUN --output_dir=mrpc

Tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all nine;
squad_v1, squad_v2; race, race_v2; and for your own TSV, CSV or JSON lines
text_classification, text_regression, text_pair_classification,
text_pair_regression:

    --task=text_classification --train_file=train.tsv --dev_file=dev.tsv \\
        --test_file=new.tsv --text_column=review --label_column=stars

The defaults are the settings of the paper's Table 14, and 3 epochs for your own
data, whatever --help shows for training flags. The rates of Table 14 are for
models with hidden_size 768 and more; for smaller ones the default is
3e-4 * 128 / hidden_size, at most 3e-4. The log shows the rate and the reason.

--seeds=5 makes five runs and reports the median, the best and the spread.
--nodo_train, --nodo_eval and --nodo_predict skip a part. The same command
resumes an interrupted run; changed settings are refused without
--allow_changed_settings. Flags have the names of google-research/albert
run_classifier.py and run_squad_v2.py where these have one.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from absl import flags

from official_albert import checkpoints, distribution, files, training
from tasks import common
from tasks.classification import glue
from tools import finetuning
from tools.cli import (
  command_line,
  encoder_flags,
  finetuning_flags,
  job_flags,
  model_depth_flag,
  path_flags,
  training_flags,
)

_TASK = flags.DEFINE_enum(
  "task", None, job_flags.TASKS, "What to fine-tune on."
)
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
)


class _Run(NamedTuple):
  """The settings of one run, without its data."""

  config: training.TrainConfig
  settings: dict[str, Any]  # For run.json.
  notes: list[str]  # For the log.
  make_task: Callable[[Sequence[str]], common.FinetuningTask]


def open_run(
  name: str, model_dir: str
) -> tuple[encoder_flags.Encoder, finetuning.jobs.Job]:
  """Returns the encoder and the task, from the run if it is not trained now."""
  run, threshold = None, None
  if not _DO_TRAIN.value:
    run = finetuning.trained_run.read(model_dir)
    # An evaluation chooses a threshold; without one, that of the run applies.
    threshold = None if _DO_EVAL.value else run.null_score_diff_threshold
  encoder = encoder_flags.find(model_dir if run else "")
  config = model_depth_flag.at_depth(encoder.config)
  one_length = training_flags.DISTRIBUTION.value == "tpu"
  job = job_flags.make_job(name, encoder.tokenizer, run, threshold, one_length)
  if run and run.task != job.name:
    raise ValueError(
      f"{model_dir} has a run of {run.task}, not of {job.name}: give "
      f"--task={run.task}, or another --output_dir."
    )
  return encoder._replace(config=config), job


def prepare(job, encoder, model_dir: str, seed: int, devices) -> _Run:
  """Returns a run of `open_run` with one seed."""
  config, notes = finetuning_flags.train_config(
    job, encoder.config.hidden_size, model_dir, _DO_TRAIN.value
  )
  config = dataclasses.replace(
    config, seed=seed, init_checkpoint=encoder.checkpoint
  )
  config = training_flags.with_random_depths(config, encoder.config)
  settings = finetuning_flags.model_settings(job.recipe)
  return _Run(
    config,
    training_flags.settings(config, *devices),
    notes,
    lambda splits: job.make_task(splits, encoder.config, settings, seed),
  )


def check_folders(job, encoder, folders: Mapping[int, str], devices) -> None:
  """Raises ValueError if a seed's run cannot resume with these flags."""
  task = None
  for seed, folder in folders.items():
    if training.newest_step(folder):
      run = prepare(job, encoder, folder, seed, devices)
      task = task or run.make_task(("train", job.eval_splits[0]))
      finetuning.run.check_folder(
        task,
        run.config,
        run.settings,
        training_flags.ALLOW_CHANGED_SETTINGS.value,
      )


def run_seed(
  job, encoder, model_dir: str, seed: int, devices
) -> dict[str, dict[str, float]]:
  """Makes one run; returns the metrics of each labeled split."""
  import tensorflow as tf  # Not needed for --help.

  tf.keras.backend.clear_session()
  test_splits = []
  if _DO_PREDICT.value:
    test_splits = [split for split in job.test_splits if job.has_split(split)]
    if not (test_splits or _DO_TRAIN.value or _DO_EVAL.value):
      job.sources(job.test_splits[0])  # Raises an error about the file.
  run = prepare(job, encoder, model_dir, seed, devices)
  return finetuning.run.run(
    run.make_task,
    run.config,
    devices[0],
    train_splits=("train", job.eval_splits[0]) if _DO_TRAIN.value else (),
    eval_splits=job.eval_splits if _DO_EVAL.value else (),
    test_splits=test_splits,
    settings=run.settings,
    notes=run.notes,
    allow_changed_settings=training_flags.ALLOW_CHANGED_SETTINGS.value,
    results_dir=results_folder(model_dir),
  )


def results_folder(folder: str) -> str:
  """Returns the folder for results, which is separate for another depth."""
  depth = model_depth_flag.NUM_HIDDEN_LAYERS.value
  if _DO_TRAIN.value or not depth:
    return folder
  return os.path.join(folder, f"depth_{depth}")


def run_task(name: str, output_dir: str, devices) -> None:
  """Makes the runs of all seeds of one task, and summarizes them."""
  first, results = training_flags.RANDOM_SEED.value, {}
  folders = {first: output_dir}
  if _SEEDS.value > 1:
    seeds = range(first, first + _SEEDS.value)
    folders = {s: checkpoints.seed_folder(output_dir, s) for s in seeds}
  is_chief = distribution.is_chief(devices[0])
  for seed, folder in folders.items():
    # Training reads the data once; trained runs may have different settings.
    if seed == first or not _DO_TRAIN.value:
      encoder, job = open_run(name, folder)
    if seed == first and _DO_TRAIN.value and len(folders) > 1 and is_chief:
      check_folders(job, encoder, folders, devices)
    print(f"{name}, seed {seed}: {folder}", flush=True)
    results[seed] = run_seed(job, encoder, folder, seed, devices)
    for split, values in results[seed].items():
      shown = ", ".join(f"{n} {v:.4g}" for n, v in values.items())
      print(f"{name} {split}: {shown}", flush=True)
  if _DO_EVAL.value:
    summary = finetuning.summary.summarize(
      job, results, with_majority=_DO_TRAIN.value
    )
    print(finetuning.summary.describe(summary))
    if is_chief:
      finetuning.summary.write(results_folder(output_dir), summary)


def check_data(names: Sequence[str]) -> None:
  """Raises FileNotFoundError if data of a task is missing."""
  for name in names:
    job = job_flags.make_job(name, tokenizer=None)
    if _DO_TRAIN.value:
      job.sources("train")
    if _DO_TRAIN.value or _DO_EVAL.value:
      for split in job.eval_splits:
        job.sources(split)


def main(argv) -> None:
  del argv
  if not (_DO_TRAIN.value or _DO_EVAL.value or _DO_PREDICT.value):
    raise ValueError(
      "nothing to do: set one of --do_train, --do_eval and --do_predict."
    )
  training_flags.refuse_phases()
  task, output_dir = _TASK.value, _OUTPUT_DIR.value
  files.check_folder(output_dir)
  folders = {task: output_dir}
  if task == "glue":
    folders = {name: os.path.join(output_dir, name) for name in glue.GLUE_TASKS}
    check_data(list(folders))
  devices = training_flags.start_devices()
  for name, folder in folders.items():
    run_task(name, folder, devices)
  names, is_own_depth = list(folders), results_folder(output_dir) == output_dir
  is_chief = distribution.is_chief(devices[0])
  if names[0] in glue.GLUE_TASKS and is_chief and is_own_depth:
    finetuning.summary.finish_glue(
      output_dir, names, all_rows=not job_flags.MAX_EVAL.value
    )


if __name__ == "__main__":
  flags.mark_flags_as_required(["task", "output_dir"])
  command_line.run(main)
