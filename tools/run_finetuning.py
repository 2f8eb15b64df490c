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
from typing import Mapping, Sequence

from absl import flags

from official_albert import checkpoints, files, training
from tasks import common
from tasks.classification import glue
from tools import finetuning
from tools.cli import (
  command_line,
  finetuning_flags,
  job_flags,
  model_depth_flag,
  path_flags,
  training_flags,
)
from tools.cli import encoder_flags as finetuning_encoder

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
  "seeds", 1, "Number of runs, with --random_seed and the numbers after it."
)


def run_settings(
  job: finetuning.jobs.Job,
  encoder: finetuning_encoder.Encoder,
  model_dir: str,
  seed: int,
) -> tuple[training.TrainConfig, list[str]]:
  """Returns the settings of one run, and notes about them for the log."""
  config, notes = finetuning_flags.train_config(
    job, encoder.config.hidden_size, model_dir, _DO_TRAIN.value
  )
  config = dataclasses.replace(
    config, seed=seed, init_checkpoint=encoder.checkpoint
  )
  return training_flags.with_random_depths(config, encoder.config), notes


def check_folders(
  job: finetuning.jobs.Job,
  encoder: finetuning_encoder.Encoder,
  folders: Mapping[int, str],
  devices: finetuning.run.Devices,
) -> None:
  """Checks the folders of all seeds before the first is trained.

  Raises:
    ValueError: a folder has a run that cannot resume with these settings.
    OSError: the data cannot be read.
  """
  task = None
  for seed, folder in folders.items():
    if not (devices.is_chief and training.newest_step(folder)):
      continue
    config, _ = run_settings(job, encoder, folder, seed)
    if task is None:
      task = job.make_task(
        ("train", job.eval_splits[0]),
        encoder.config,
        finetuning_flags.model_settings(job.recipe),
        seed,
      )
    finetuning.run.check_folder(
      task,
      config,
      devices,
      training_flags.settings(config, devices.strategy, devices.precision),
      training_flags.ALLOW_CHANGED_SETTINGS.value,
    )


def run_seed(
  job: finetuning.jobs.Job,
  encoder: finetuning_encoder.Encoder,
  model_dir: str,
  seed: int,
  devices: finetuning.run.Devices,
) -> dict[str, dict[str, float]]:
  """Makes one run; returns the metrics of each labeled split."""
  import tensorflow as tf  # Not needed for --help.

  tf.keras.backend.clear_session()
  config, notes = run_settings(job, encoder, model_dir, seed)
  settings = finetuning_flags.model_settings(job.recipe)

  def make_task(splits) -> common.FinetuningTask:
    return job.make_task(splits, encoder.config, settings, seed)

  test_splits = []
  if _DO_PREDICT.value:
    test_splits = [split for split in job.test_splits if job.has_split(split)]
    if not (test_splits or _DO_TRAIN.value or _DO_EVAL.value):
      job.sources(job.test_splits[0])  # Raises an error about the file.
  return finetuning.run.run(
    make_task,
    config,
    devices,
    train_splits=("train", job.eval_splits[0]) if _DO_TRAIN.value else (),
    eval_splits=job.eval_splits if _DO_EVAL.value else (),
    test_splits=test_splits,
    record=training_flags.settings(config, devices.strategy, devices.precision),
    notes=notes,
    allow_changed_settings=training_flags.ALLOW_CHANGED_SETTINGS.value,
    results_dir=results_folder(model_dir),
  )


def results_folder(folder: str) -> str:
  """Returns the folder for results, which is separate for another depth."""
  if _DO_TRAIN.value or not model_depth_flag.given():
    return folder
  depth = model_depth_flag.NUM_HIDDEN_LAYERS.value
  return os.path.join(folder, f"depth_{depth}")


def open_encoder(model_dir: str = "") -> finetuning_encoder.Encoder:
  """Returns the encoder at the depth of the flag."""
  encoder = finetuning_encoder.find(model_dir)
  return encoder._replace(config=model_depth_flag.at_depth(encoder.config))


def open_run(
  name: str, model_dir: str
) -> tuple[finetuning_encoder.Encoder, finetuning.jobs.Job]:
  """Returns the encoder and the task; without training, those of the run.

  Raises:
    ValueError, OSError: a flag, a file or the run is missing or invalid, or the
      run is of another task.
  """
  on_tpu = training_flags.on_tpu()
  if _DO_TRAIN.value:
    encoder = open_encoder()
    job = job_flags.make_job(name, encoder.tokenizer, one_length=on_tpu)
    return encoder, job
  run = finetuning.trained_run.read(model_dir)
  encoder = open_encoder(model_dir)
  # An evaluation chooses a threshold; without one, that of the run applies.
  threshold = None if _DO_EVAL.value else run.null_score_diff_threshold
  job = job_flags.make_job(name, encoder.tokenizer, run, threshold, on_tpu)
  if run.task != job.name:
    raise ValueError(
      f"{model_dir} has a run of {run.task}, not of {job.name}: give "
      f"--task={run.task}, or another --output_dir."
    )
  return encoder, job


def run_task(
  name: str, output_dir: str, devices: finetuning.run.Devices
) -> None:
  """Makes the runs of all seeds of one task, and summarizes them."""
  first = training_flags.RANDOM_SEED.value
  folders = {first: output_dir}
  if _SEEDS.value > 1:
    folders = {
      seed: checkpoints.seed_folder(output_dir, seed)
      for seed in range(first, first + _SEEDS.value)
    }
  results = {}
  for seed, folder in folders.items():
    # Training reads the data once; trained runs may have different settings.
    if seed == first or not _DO_TRAIN.value:
      encoder, job = open_run(name, folder)
    if seed == first and _DO_TRAIN.value and len(folders) > 1:
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
    if devices.is_chief:
      finetuning.summary.write(results_folder(output_dir), summary)


def check_data(names: Sequence[str]) -> None:
  """Checks that all tasks have data before the first is trained.

  Raises:
    FileNotFoundError: a file is missing.
  """
  for name in names:
    job = job_flags.make_job(name, tokenizer=None)
    for split in (
      *(["train"] if _DO_TRAIN.value else []),
      *(job.eval_splits if _DO_TRAIN.value or _DO_EVAL.value else []),
    ):
      job.sources(split)


def main(argv) -> None:
  del argv
  if not (_DO_TRAIN.value or _DO_EVAL.value or _DO_PREDICT.value):
    raise ValueError(
      "nothing to do: set one of --do_train, --do_eval and --do_predict."
    )
  training_flags.refuse_phases()
  if _SEEDS.value < 1:
    raise ValueError(f"--seeds must be at least 1, got {_SEEDS.value}.")
  output_dir, names = _OUTPUT_DIR.value, [_TASK.value]
  files.check_folder(output_dir)
  folders = {_TASK.value: output_dir}
  if _TASK.value == "glue":
    names = list(glue.GLUE_TASKS)
    folders = {name: os.path.join(output_dir, name) for name in names}
    check_data(names)
  devices = finetuning.run.Devices(*training_flags.start_devices())
  for name, folder in folders.items():
    run_task(name, folder, devices)
  is_own_depth = results_folder(output_dir) == output_dir
  if names[0] in glue.GLUE_TASKS and devices.is_chief and is_own_depth:
    finetuning.summary.finish_glue(
      output_dir, names, all_rows=not job_flags.MAX_EVAL.value
    )


if __name__ == "__main__":
  flags.mark_flags_as_required(["task", "output_dir"])
  command_line.run(main)
