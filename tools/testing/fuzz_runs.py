"""JSON that this package wrote: of runs, their data and exports."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable

from official_albert import (
  checkpoints,
  files,
  modeling,
  serving,
  tfrecords,
  training,
)
from official_albert.tasks import pretraining
from official_albert.tools import finetuning, prediction
from official_albert.tools.testing import fuzz, mutations, toy_data, toy_runs

_LABELS = ("bad", "good")


def _write_run(folder: str) -> None:
  columns = {"text": "review", "label": "mood"}
  toy_runs.write_finetuned(
    os.path.join(folder, "run"), "text_classification", _LABELS, columns=columns
  )


def _write_results(folder: str) -> None:
  toy_runs.write_finetuned(
    os.path.join(folder, "run"), "squad_v2", threshold=-1.5
  )


def _write_best(folder: str) -> None:
  path = os.path.join(folder, "run")
  toy_runs.write_pretrained(path)
  record = dict(step=1, phase=1, metric="loss", best_is="lowest")
  record.update(values={"loss": 2.5}, checkpoint="../model.ckpt-1")
  files.make_folder(os.path.join(path, training.BEST_FOLDER))
  files.write_json(
    os.path.join(path, training.BEST_FOLDER, "best.json"), record
  )


def _write_summary(folder: str) -> None:
  splits = {"dev": {"matthews": {"median": 0.5}}}
  summary = {"best_seed": 3, "seeds": {"3": {}, "4": {}}, "splits": splits}
  finetuning.summary.write(os.path.join(folder, "run"), summary)


def _write_records(folder: str) -> None:
  toy_data.write_corpus(os.path.join(folder, "corpus.txt"))
  toy_runs.write_tokenizer(folder)
  toy_runs.write_records(folder, "records", 24, 0.2)


def _write_pretraining(folder: str) -> None:
  """Writes a run like those of tools.run_pretraining, and its records."""
  _write_records(folder)
  path = os.path.join(folder, "run")
  toy_runs.write_pretrained(path)
  config = training.TrainConfig(
    path, num_train_steps=1, num_warmup_steps=0, train_batch_size=8
  )
  config_file = os.path.join(path, training.CONFIG_FILE)
  encoder = modeling.AlbertConfig.from_json_file(config_file)
  task = pretraining.PretrainingTask(
    encoder, os.path.join(folder, "records"), config.seed
  )
  training.write_run(path, encoder, dataclasses.asdict(config), task.describe())


def _evaluate(folder: str, content: Any) -> None:
  fuzz.run_program(
    "run_pretraining",
    "--mode=evaluate",
    f"--input_dir={folder}/records",
    f"--model_dir={folder}/run",
  )


def _write_export(folder: str) -> None:
  _write_run(folder)
  toy_runs.write_export(
    os.path.join(folder, "export"), os.path.join(folder, "run"), "ids"
  )


def _write_log(folder: str) -> None:
  path = os.path.join(folder, "run", training.METRICS_FILE)
  speeds = dict(tokens_per_second=3.5, sequences_per_second=0.5)
  lines = [dict(kind="start", step=0, unix_time_seconds=1.5)]
  for step in (10, 20):
    values = dict(step=step, loss=2.5, masked_lm_loss=1.5)
    lines.append(dict(kind="train", **values, **speeds, unix_time_seconds=step))
    lines.append(dict(kind="eval", **values, phase=1))
  files.make_folder(os.path.dirname(path))
  files.write_text(path, "".join(f"{json.dumps(line)}\n" for line in lines))


def _read_log(folder: str, content: Any) -> None:
  path = os.path.join(folder, "run")
  records = training.read_report(os.path.join(path, training.METRICS_FILE))
  training.summarize_run(records)
  training.read_metrics(path, "eval")


def _load(name: str) -> Callable[[str, Any], None]:
  """Returns a function that asks a model of texts."""

  def load(folder: str, content: Any) -> None:
    model = prediction.load(os.path.join(folder, name))
    model.classify(["good and bad"])

  return load


_RUN, _CONFIG = f"run/{training.RECORD_FILE}", f"run/{training.CONFIG_FILE}"
_EXPORT = f"export/{serving.ASSETS}/{serving.EXPORT_FILE}"
_MANIFEST = f"records/{tfrecords.MANIFEST_FILE}"
_RESULTS = f"run/{finetuning.trained_run.RESULTS_FILE}"
_BEST = f"run/{training.BEST_FOLDER}/best.json"
_SUMMARY = f"run/{checkpoints.SUMMARY_FILE}"
_LOG = f"run/{training.METRICS_FILE}"


def _target(
  name: str,
  write: Callable[[str], None],
  file: str,
  call: Callable[[str, Any], Any],
  weight: float = 1.0,
  damage: Callable[[bytes], Any] = mutations.damaged_json,
) -> fuzz.Target:
  # Refusals of what does not fit together name the folder of the file.
  named = f"/{file.split('/')[0]}"
  return fuzz.Target(name, write, damage, call, file, named, weight)


TARGETS = (
  _target(
    "results",
    _write_results,
    _RESULTS,
    lambda folder, content: finetuning.trained_run.read(f"{folder}/run"),
  ),
  _target(
    "best",
    _write_best,
    _BEST,
    lambda folder, content: checkpoints.find_prefix(f"{folder}/run"),
  ),
  _target(
    "summary",
    _write_summary,
    _SUMMARY,
    lambda folder, content: (
      checkpoints.run_folder(f"{folder}/run"),
      finetuning.summary.read(f"{folder}/run"),
    ),
  ),
  _target(
    "log", _write_log, _LOG, _read_log, 0.2, mutations.damaged_json_lines
  ),
  _target("run", _write_run, _RUN, _load("run"), 0.2),
  _target("config", _write_run, _CONFIG, _load("run"), 0.2),
  _target("export", _write_export, _EXPORT, _load("export"), 0.1),
  _target("evaluate", _write_pretraining, _RUN, _evaluate, 0.1),
  _target("evaluate_data", _write_pretraining, _MANIFEST, _evaluate, 0.1),
)
