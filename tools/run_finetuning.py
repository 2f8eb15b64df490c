"""Fine-tunes a pretrained ALBERT, measures it and predicts with it.

    python -m tools.run_finetuning --task=mrpc --data_dir=glue \\
        --init_checkpoint=RUN --output_dir=mrpc

Tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all nine;
squad_v1, squad_v2; race, race_v2; and for your own TSV, CSV or JSONL
text_classification, text_regression, text_pair_classification,
text_pair_regression:

    --task=text_classification --train_file=train.tsv --dev_file=dev.tsv \\
        --test_file=new.tsv --text_column=review --label_column=stars

Settings are those of the paper's Table 14 unless flags say otherwise; 3 epochs
for your own data. With --seeds=5 five runs are made, and the median, the best
and the spread reported. Training, evaluation and prediction can be had apart:
--nodo_train and so on. Started again, the same command goes on where it was.
Flags keep the names of google-research/albert run_classifier.py and
run_squad_v2.py where they have one.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import tensorflow as tf
from absl import flags

from official_albert import run_record
from tasks import finetuning_task
from tasks.glue import benchmark
from tools import (
  command_line,
  finetuning_encoder,
  finetuning_flags,
  finetuning_jobs,
  finetuning_run,
  finetuning_summary,
  training_flags,
)

_TASK = flags.DEFINE_enum(
  "task", None, finetuning_flags.TASKS, "What to fine-tune on."
)
_OUTPUT_DIR = flags.DEFINE_string(
  "output_dir",
  None,
  "Folder for checkpoints, results and predictions; glue makes one for each "
  "task in it, and --seeds one for each seed.",
)
_DO_TRAIN = flags.DEFINE_bool("do_train", True, "Train.")
_DO_EVAL = flags.DEFINE_bool("do_eval", True, "Measure on the labelled data.")
_DO_PREDICT = flags.DEFINE_bool(
  "do_predict", True, "Predict the test data, if there is any."
)
_SEEDS = flags.DEFINE_integer(
  "seeds", 1, "Runs to make, with --random_seed and the numbers after it."
)


def run_seed(
  job: finetuning_jobs.Job,
  encoder: finetuning_encoder.Encoder,
  model_dir: str,
  seed: int,
  devices: finetuning_run.Devices,
) -> dict[str, dict[str, float]]:
  """One run; returns the metrics of each labelled split."""
  tf.keras.backend.clear_session()
  config, notes = finetuning_flags.train_config(job, model_dir, _DO_TRAIN.value)
  config = dataclasses.replace(config, seed=seed)
  settings = finetuning_flags.model_settings(job.recipe)

  def make_task(splits) -> finetuning_task.FinetuningTask:
    return job.make_task(splits, encoder.config, settings, seed)

  tests = [s for s in job.test_splits if job.has_split(s)]
  if _DO_PREDICT.value and not tests and not _DO_TRAIN.value:
    raise ValueError(
      f"there is nothing to predict for {job.name}: --data_dir has none of "
      f"{', '.join(job.test_splits)}."
    )
  return finetuning_run.run(
    make_task,
    config,
    devices,
    # Training needs one to choose the best checkpoint by.
    eval_splits=job.eval_splits if _DO_EVAL.value else (),
    test_splits=tests if _DO_PREDICT.value else (),
    do_train=_DO_TRAIN.value,
    notes=notes,
  )


def run_task(
  name: str, output_dir: str, devices: finetuning_run.Devices
) -> list[dict[str, dict[str, float]]]:
  """All seeds of one task; returns each one's metrics."""
  first = training_flags.RANDOM_SEED.value
  seeds = range(first, first + _SEEDS.value)
  folders = {
    seed: os.path.join(output_dir, f"seed_{seed}")
    if _SEEDS.value > 1
    else output_dir
    for seed in seeds
  }
  encoder = finetuning_encoder.find("" if _DO_TRAIN.value else folders[first])
  job = finetuning_flags.make_job(
    name,
    encoder.tokenizer,
    # What the classes were called when they were learnt.
    None if _DO_TRAIN.value else _learnt_labels(folders[first]),
  )
  results = []
  for seed, folder in folders.items():
    print(f"{name}, seed {seed}: {folder}", flush=True)
    results.append(run_seed(job, encoder, folder, seed, devices))
    for split, values in results[-1].items():
      shown = ", ".join(f"{n} {v:.4g}" for n, v in values.items())
      print(f"{name} {split}: {shown}", flush=True)
  if _DO_EVAL.value:
    summary = finetuning_summary.summarize(
      job, dict(zip(seeds, results)), with_majority=_DO_TRAIN.value
    )
    finetuning_summary.write(output_dir, summary)
    print(finetuning_summary.describe(summary))
  return results


def _learnt_labels(model_dir: str) -> Any:
  return run_record.read(model_dir)["data"]["settings"].get("labels")


def main(argv) -> None:
  del argv
  if not (_DO_TRAIN.value or _DO_EVAL.value or _DO_PREDICT.value):
    raise ValueError(
      "nothing to do: leave one of --do_train, --do_eval and --do_predict on."
    )
  if _SEEDS.value < 1:
    raise ValueError(f"--seeds must be at least 1, got {_SEEDS.value}.")
  devices = finetuning_run.Devices(*training_flags.start_devices())
  names = [_TASK.value]
  if _TASK.value == "glue":
    names = list(benchmark.TASKS)
  for name in names:
    output_dir = _OUTPUT_DIR.value
    if _TASK.value == "glue":
      output_dir = os.path.join(output_dir, name)
    run_task(name, output_dir, devices)
  if _TASK.value in ("glue", *benchmark.TASKS):
    finetuning_summary.finish_glue(_OUTPUT_DIR.value, names)


if __name__ == "__main__":
  flags.mark_flags_as_required(["task", "output_dir"])
  command_line.run(main)
