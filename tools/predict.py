"""Predicts the user's own texts with a fine-tuned model.

    python -m tools.predict --model_dir=RUN --input_file=new.tsv \\
        --output_file=predictions.tsv

RUN is a run of tools.run_finetuning with --task=text_..., or several seeds of
one, of which the best is taken. The table (TSV, CSV or JSON lines) needs the
columns that the model was trained with, but no labels; the result has a line
for each of its rows, in their order: id, prediction, and the probability of
each label.

For the official tasks, tools.run_finetuning --nodo_train --nodo_eval predicts
their test files.
"""

from __future__ import annotations

import os
import tempfile

from absl import flags

from official_albert import probability_table
from tasks import finetuning_task
from tools import (
  command_line,
  finetuning_encoder,
  finetuning_jobs,
  finetuning_run,
  finetuning_summary,
  text_jobs,
  trained_run,
  training_flags,
)

_MODEL_DIR = flags.DEFINE_string("model_dir", None, "Folder of the run.")
_INPUT_FILE = flags.DEFINE_string("input_file", None, "The texts.")
_OUTPUT_FILE = flags.DEFINE_string("output_file", None, "The predictions.")
_SPLIT = "test"


def open_job(run: trained_run.TrainedRun, tokenizer, cache_dir: str):
  """The run's task, on the user's table.

  Raises:
    ValueError: the run is of another kind.
  """
  if run.task not in text_jobs.OWN_TASKS:
    raise ValueError(
      f"{run.model_dir} is a run of {run.task}, whose data has a form of its "
      f"own: predict with tools.run_finetuning --task={run.task} --nodo_train "
      "--nodo_eval."
    )
  return text_jobs.OwnJob(
    run.task,
    finetuning_jobs.Options(
      data_dir="",
      cache_dir=cache_dir,
      tokenizer=tokenizer,
      max_seq_length=run.max_seq_length,
      files={_SPLIT: _INPUT_FILE.value},
      columns=run.columns,
      labels=run.labels,
      note=lambda text: None,
    ),
  )


def main(argv) -> None:
  del argv
  model_dir = finetuning_summary.best_folder(_MODEL_DIR.value)
  run = trained_run.read(model_dir)
  encoder = finetuning_encoder.find(model_dir)
  with tempfile.TemporaryDirectory() as cache_dir:
    job = open_job(run, encoder.tokenizer, cache_dir)
    job.examples(_SPLIT)  # What is wrong with the table, before all else.
    devices = finetuning_run.Devices(*training_flags.start_devices())
    task = job.make_task(
      [_SPLIT],
      encoder.config,
      finetuning_task.ModelSettings(),
      training_flags.RANDOM_SEED.value,
    )
    predictor = finetuning_run.Predictor(
      task, model_dir, devices, training_flags.EVAL_BATCH_SIZE.value
    )
    table = task.table(_SPLIT, predictor.predictions(_SPLIT))
  if devices.is_chief:
    os.makedirs(
      os.path.dirname(os.path.abspath(_OUTPUT_FILE.value)), exist_ok=True
    )
    probability_table.write(_OUTPUT_FILE.value, table)
    print(
      f"wrote {_OUTPUT_FILE.value} ({len(table.ids):,} examples), predicted "
      f"with {predictor.checkpoint}"
    )


if __name__ == "__main__":
  flags.mark_flags_as_required(["model_dir", "input_file", "output_file"])
  command_line.run(main)
