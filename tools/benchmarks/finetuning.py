"""Fine-tunes here and with Hugging Face's model: same settings, ids and seeds.

Each of --repeats seeds is a run of tools.run_finetuning, whose run.json has the
settings for the others. The task here scores all systems, and chooses the
checkpoint of each. Their sequences_per_second are those of the second half of
the updates alone, so that most of the compilation is left out; their seconds
are those of the whole program, which here also encodes the texts.
"""

from __future__ import annotations

import dataclasses
import shlex
import statistics
import tempfile
import time
import types
from typing import Any, Mapping

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, files, run_logs, runs
from official_albert.tasks import common, registry, trained_run
from official_albert.tools.benchmarks import turns
from official_albert.tools.cli import command_line

_EMBEDDING = "embedding"
# SQuAD 2.0 has the head of XLNet, which the others lack.
_HEADS = (
  *(*registry.TEXT_HEADS, registry.TAGS_HEAD),
  *("multiple_choice", "squad1", _EMBEDDING),
)
# As the others have them.
_SAME = ["--optimizer=adamw", "--bias_correction"]
_SAME.append("--learning_rate_decay=original")


def run(benchmark: str, options: turns.Options) -> None:
  """Trains, prints a table, and saves it if there is a folder."""
  flags = shlex.split(options.finetuning_flags)
  for word in flags:
    if not word.startswith("--"):
      raise ValueError(
        f"--finetuning_flags has {word!r}, which is no --NAME or --NAME=VALUE."
      )
  given = dict(x.lstrip("-").partition("=")[::2] for x in flags)
  name, source = given.get("task", ""), given.get("init_checkpoint", "")
  kind = registry.TASKS.get(name)
  if not (source and kind and kind.head in _HEADS):
    raise ValueError(
      "--finetuning_flags needs --init_checkpoint and one --task, but not "
      "glue, nor squad_v2, whose head the others lack."
    )
  is_embedding = kind.head == _EMBEDDING
  default = ["st_finetuned"] if is_embedding else ["hf_finetuned"]
  systems = options.systems or default
  for system in systems:
    if (system == "st_finetuned") != is_embedding:
      raise ValueError(
        f"{system} is not for --task={name}: choose other --systems."
      )
    turns.SYSTEMS[system].python()
  results: list[dict[str, Any]] = []
  with tempfile.TemporaryDirectory() as folder:
    convert = f"--input={source}", f"--output={folder}/hf"
    command_line.run_program("convert_checkpoint", "--to=hf", *convert)
    for seed in range(1, 1 + options.repeats):
      own, output = f"{folder}/{seed}", f"{folder}/found.npz"
      begun = time.monotonic()
      command_line.run_program(
        *("run_finetuning", f"--precision={options.precision}", *flags),
        *(*_SAME, f"--random_seed={seed}", f"--output_dir={own}"),
      )
      seconds = time.monotonic() - begun
      log = run_logs.read_metrics(own, "train")
      rates = [x["sequences_per_second"] for x in log[len(log) // 2 :]]
      speed = statistics.harmonic_mean(rates)
      best: Any = runs.read_best(own)
      first = _about("official_albert", seed, speed, seconds)
      first["step"] = best["step"]
      results.append({**first, **runs.read_results(own)})
      task = _open_task(given, own)
      settings = {
        **runs.read_run(own)["settings"],
        **trained_run.read(own).settings,
        **_write_rows(task, kind.head, f"{folder}/rows.json"),
        **{"model": f"{folder}/hf", "output_file": output},
      }
      for system in systems:
        begun = time.monotonic()
        if code := turns.SYSTEMS[system].start(settings, stdout=None).wait():
          raise ValueError(f"{system} ended with exit code {code}: see above.")
        seconds = time.monotonic() - begun
        found = dict(np.load(output))
        speed = float(found.pop("sequences_per_second"))
        about = _about(system, seed, speed, seconds)
        results.append({**about, **_choose(task, found)})
  workload = turns.Workload(
    {"source": source, "flags": flags},
    *(settings["train_batch_size"], task.max_seq_length, options.precision),
    settings=settings,
  )
  case = turns.case_name(benchmark, name, workload)
  unit = 1 if kind.head == "squad1" else 100  # SQuAD's are in percent.
  rows = [_row(result, unit) for result in results]
  turns.report(options, case, workload, results, rows)


def _about(
  system: str, seed: int, speed: float, seconds: float
) -> dict[str, Any]:
  """Returns the first columns of a row."""
  speeds = {"sequences_per_second": round(speed, 2), "seconds": round(seconds)}
  return {"system": system, "seed": seed, **speeds}


def _row(result: Mapping[str, Any], unit: int) -> dict[str, str]:
  """Returns a row of the table; `unit` times the metrics are percent."""
  row = {}
  for key, value in result.items():
    for name, number in value.items() if isinstance(value, dict) else ():
      if not name.endswith(runs.THRESHOLD):
        row[f"{key}, {name}"] = f"{unit * number:.1f}"
    if not isinstance(value, dict):
      row[key] = str(value)
  return row


def _open_task(given: Mapping[str, str], model_dir: str) -> Any:
  """Returns the task of a run on the data that its flags name."""
  run = trained_run.read(model_dir)
  skips = given.get("skip_invalid", "false").lower() not in ("false", "f", "0")
  values: dict[str, Any] = {"labels": run.labels, "skip_invalid": skips}
  given = {**given, "max_seq_length": str(run.max_seq_length)}
  for field in dataclasses.fields(common.TaskOptions):
    kind: Any = type(field.default)
    if field.name in given and kind in (str, int, float):
      values[field.name] = kind(given[field.name])
  with checkpoints.open(model_dir) as checkpoint:
    file: Any = checkpoint.choose_tokenizer()
    options = common.TaskOptions(**values, tokenizer=file.open())
  known = registry.make_task(run.task, options).recipe
  recipe = {k: x for k, x in run.settings.items() if hasattr(known, k)}
  return registry.make_task(
    run.task, dataclasses.replace(options, recipe=recipe)
  )


def _write_rows(task: Any, head: str, path: str) -> dict[str, Any]:
  """Writes the features by split; returns what the labels mean."""
  tests = [x for x in task.test_splits if task.has_split(x)]
  tests = [x for x in tests if task.is_labeled(x)]
  splits = ("train", *task.eval_splits, *tests)
  rows = {split: [*task.features(split)] for split in splits}
  files.write_json(path, rows, default=lambda x: x.tolist())
  mean, std = 0.0, 1.0
  if task.name.endswith("regression"):  # Standardizes; STS-B does not.
    mean, std = (float(f(task.gold("train"))) for f in (np.mean, np.std))
  return {
    **{"rows": path, "max_seq_length": task.max_seq_length},
    **{"classes": len(task.labels or "1"), "mean": mean, "std": std},
    "window_updates": task.window_updates,
    "head": head,
    "form": task.form("train") if head == _EMBEDDING else "",
  }


def _choose(task: Any, found: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns the step and the metrics of the best evaluation on dev data."""
  spans = types.SimpleNamespace(scores=("start_logits", "end_logits"))

  def score(split: str, step: int) -> dict[str, float]:
    values = tf.constant(found[f"{split} {step}"])
    ids = tf.zeros(values.shape[:2], tf.int32)
    batch = {"example_id": tf.range(len(values)), "input_ids": ids}
    outputs = dict.fromkeys(("logits", "embedding"), values)
    outputs |= zip(spans.scores, (values[..., 0], values[..., -1]))
    predictions = task.predictions(spans, outputs, batch)
    arrays = {name: value.numpy() for name, value in predictions.items()}
    return task.score_answers(split, task.answers(split, arrays))

  splits, steps = zip(*(key.split() for key in found))
  first, metric = task.eval_split, task.best_metric
  best = max(map(int, steps), key=lambda step: score(first, step)[metric])
  # That of the dev data chooses thresholds.
  return {"step": best, **{x: score(x, best) for x in dict.fromkeys(splits)}}
