"""Jobs that train and measure models, by the tools of this package."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any, Mapping, Sequence

from official_albert import config as config_lib
from official_albert import run_summary
from tools.experiments import declaration, jobs, scales

_MEASURED_STEPS = 120


@dataclasses.dataclass(frozen=True)
class Model:
  """A model to pretrain: what distinguishes its weights from any other's.

  Attributes:
    config: its sizes.
    pair, more_data, training: as in `declaration.Row`.
    steps: updates; of `as_long_as`, for information only.
    seed: of weights, data order and dropout.
    starts_from: key of the job whose weights it begins with, or "".
    as_long_as: key of the job whose time it trains for, or "".
  """

  config: config_lib.AlbertConfig
  pair: str
  more_data: bool
  training: tuple[tuple[str, Any], ...]
  steps: int
  seed: int
  starts_from: str = ""
  as_long_as: str = ""

  def records_key(self, pair: str = "") -> str:
    """The job that makes its data, or that of another objective."""
    if pair:
      return f"data/records-{pair}"
    return f"data/records-{self.pair}{'-more' if self.more_data else ''}"


def _arguments(
  place: jobs.Place, scale: scales.Scale, model: Model, folder: str, steps: int
) -> list[str]:
  every = math.ceil(steps / scale.evaluations)
  config_file = place.path(f"{folder}.albert_config.json")
  os.makedirs(os.path.dirname(config_file), exist_ok=True)
  model.config.to_json_file(config_file)
  settings = {
    "input_dir": place.path(model.records_key()),
    "model_dir": place.path(folder),
    "albert_config_file": config_file,
    "num_train_steps": steps,
    "num_warmup_steps": int(steps * scale.warmup_share),
    "random_seed": model.seed,
    "eval_steps": every,
    "save_checkpoints_steps": every,
    "keep_checkpoint_max": 1,
    **scale.training,
    **dict(model.training),
  }
  if model.more_data:
    # Compared on the same text as a model that did not read the other.
    settings["eval_input_dir"] = place.path(f"data/records-{model.pair}")
  if model.starts_from:
    settings["init_checkpoint"] = place.path(model.starts_from)
  return ["tools.run_pretraining", *jobs.as_flags(settings)]


def pretraining_cost(scale: scales.Scale, model: Model, steps: int) -> float:
  """Floating-point operations of the training, without the heads."""
  sequences = steps * int(scale.training["train_batch_size"])
  return 3.0 * sequences * model.config.forward_flops(scale.max_seq_length)


def speed(
  place: jobs.Place, scale: scales.Scale, model: Model, key: str
) -> jobs.Job:
  """Measures a model's tokens a second; `key` is the model's."""
  folder = f"speed/{jobs.name_of(key)}"

  def arguments(values: jobs.Values) -> list[str]:
    short = _arguments(place, scale, model, folder, _MEASURED_STEPS)
    # Many loops: the first compiles and does not count.
    return [
      *short,
      f"--steps_per_loop={_MEASURED_STEPS // 6}",
      "--eval_steps=0",
    ]

  def read() -> dict[str, Any]:
    summary = run_summary.summarize(_metrics(place.path(folder)))
    return {"tokens_per_second": summary["tokens_per_second"]}

  return jobs.Job(
    folder,
    f"speed of {jobs.name_of(key)}",
    arguments,
    read,
    needs=(model.records_key(),),
    cost=pretraining_cost(scale, model, _MEASURED_STEPS),
  )


def pretraining(
  place: jobs.Place, scale: scales.Scale, model: Model, key: str
) -> jobs.Job:
  """Pretrains a model and measures it on held-out text."""
  needs = [model.records_key()]
  if model.more_data:
    needs.append(f"data/records-{model.pair}")
  needs += [need for need in (model.starts_from, model.as_long_as) if need]
  speed_key = f"speed/{jobs.name_of(key)}"
  if model.as_long_as:
    needs.append(speed_key)

  def arguments(values: jobs.Values) -> list[str]:
    steps = model.steps
    if model.as_long_as:
      # Both speeds are medians: neither compilation nor evaluations count.
      other, own = values[model.as_long_as], values[speed_key]
      relative = own["tokens_per_second"] / other["tokens_per_second"]
      steps = math.ceil(other["steps"] * relative)
    return _arguments(place, scale, model, key, steps)

  return jobs.Job(
    key,
    f"pretraining {jobs.name_of(key)}",
    arguments,
    lambda: read_pretraining(place.path(key), model.config),
    needs=tuple(needs),
    cost=pretraining_cost(scale, model, model.steps),
  )


def read_pretraining(
  folder: str, config: config_lib.AlbertConfig
) -> dict[str, Any]:
  """Numbers of a finished run: the last evaluation, time, curve."""
  records_ = without_pauses(_metrics(folder))
  last = [r for r in records_ if r["kind"] == "eval"][-1]
  summary = run_summary.summarize(records_)
  values = {
    "parameters": config.parameter_count(),
    "steps": summary["last_step"],
    "training_seconds": summary["training_seconds"],
    "tokens_per_second": summary["tokens_per_second"],
    "masked_lm_loss": last["masked_lm_loss"],
    "masked_lm_accuracy": 100 * last["masked_lm_accuracy"],
    "curve": [
      [r["step"], r["unix_time_seconds"], r["masked_lm_loss"]]
      for r in records_
      if r["kind"] == "eval"
    ],
  }
  if "sentence_order_accuracy" in last:
    values["sentence_pair_accuracy"] = 100 * last["sentence_order_accuracy"]
  return values


def without_pauses(
  records: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
  """A run's log as if it had never been killed.

  Each later start takes up the clock where its checkpoint was, so that neither
  the time until then nor the steps it repeats count.

  Args:
    records: of metrics.jsonl, in the order in which they were written.
  """
  kept: list[dict[str, Any]] = []
  started, pause = False, 0.0
  # Where the evaluation is that a process makes before its start.
  first = 0
  for record in records:
    if record["kind"] == "start":
      if started:
        del kept[first:]
        while kept[-1]["step"] > record["step"]:
          kept.pop()
        pause = record["unix_time_seconds"] - kept[-1]["unix_time_seconds"]
        continue
      # Killed before, it evaluated more than once.
      del kept[:first]
      started = True
    first = len(kept) if record["kind"] == "eval" else len(kept) + 1
    time = record["unix_time_seconds"] - pause
    kept.append({**record, "unix_time_seconds": time})
  return kept


def pair_evaluation(
  place: jobs.Place, scale: scales.Scale, model: Model, key: str, pair: str
) -> jobs.Job:
  """Measures a model on the records of another objective."""
  own = f"evaluations/{jobs.name_of(key)}-{pair}"
  metrics_file = place.path(f"{own}.metrics.json")
  data = model.records_key(pair)

  def arguments(values: jobs.Values) -> list[str]:
    os.makedirs(os.path.dirname(metrics_file), exist_ok=True)
    settings = {
      "mode": "evaluate",
      "input_dir": place.path(data),
      "model_dir": place.path(key),
      "metrics_file": metrics_file,
      "eval_batch_size": scale.training.get("eval_batch_size", 64),
      "precision": scale.training["precision"],
    }
    for name in ("distribution", "tpu"):
      if name in scale.training:
        settings[name] = scale.training[name]
    return ["tools.run_pretraining", *jobs.as_flags(settings)]

  def read() -> dict[str, Any]:
    values = read_json(metrics_file)
    found = {f"{pair}_accuracy": 100 * values["sentence_order_accuracy"]}
    if pair == "sop":  # All rows on the same text with the same masks.
      found["masked_lm_loss"] = values["masked_lm_loss"]
      found["masked_lm_accuracy"] = 100 * values["masked_lm_accuracy"]
    return found

  return jobs.Job(
    own,
    f"{pair.upper()} of {jobs.name_of(key)}",
    arguments,
    read,
    needs=(key, data),
    cost=1e11,
  )


def finetuning(
  place: jobs.Place, scale: scales.Scale, model: Model, key: str, column: str
) -> jobs.Job:
  """Fine-tunes a pretrained model on a task and measures it."""
  task = declaration.TASKS[column]
  own = f"tasks/{jobs.name_of(key)}-{task}"
  settings = {
    "task": task,
    "data_dir": place.task_data_dirs[column],
    "init_checkpoint": place.path(key),
    "output_dir": place.path(own),
    "cache_dir": place.path("data", "task_records"),
    "do_predict": False,
    "random_seed": model.seed,
    **scale.finetuning,
    **scale.task_flags.get(column, {}),
  }
  return jobs.Job(
    own,
    f"{column} with {jobs.name_of(key)}",
    lambda values: ["tools.run_finetuning", *jobs.as_flags(settings)],
    lambda: read_finetuning(place.path(own), column),
    needs=(key,),
    cost=finetuning_cost(scale, model, settings),
  )


def finetuning_cost(
  scale: scales.Scale, model: Model, settings: Mapping[str, Any]
) -> float:
  """Floating-point operations, taking an epoch for 10,000 examples."""
  length = int(settings.get("max_seq_length", scale.max_seq_length))
  examples = 10_000 * float(settings.get("num_train_epochs", 3))
  return 3.0 * examples * model.config.forward_flops(length)


def read_finetuning(folder: str, column: str) -> dict[str, Any]:
  """In percent: what the paper's tables show of a task."""
  results = read_json(os.path.join(folder, "eval_results.json"))
  first = next(iter(results.values()))
  if column == "SQuAD1.1":
    return {column: (first["f1"] + first["exact_match"]) / 2}
  if column == "SQuAD2.0":
    return {column: (first["f1"] + first["exact"]) / 2}
  return {column: 100 * first["accuracy"]}


def inspection(place: jobs.Place, key: str, sentences: str) -> jobs.Job:
  """Compares each layer's input and output on some sentences."""
  own = f"layers/{jobs.name_of(key)}"
  settings = {
    "model": place.path(key),
    "input_files": sentences,
    "output_dir": place.path(own),
  }
  file = place.path(own, "inspection.json")
  return jobs.Job(
    own,
    f"layers of {jobs.name_of(key)}",
    lambda values: ["tools.inspect_model", *jobs.as_flags(settings)],
    lambda: {"layers": read_json(file)["models"][0]["layers"]},
    needs=(key,),
    cost=1e11,
    result=file,
  )


def _metrics(folder: str) -> list[dict[str, Any]]:
  path = os.path.join(folder, "metrics.jsonl")
  with open(path, encoding="utf-8") as file:
    return [json.loads(line) for line in file if line.strip()]


def read_json(path: str) -> dict[str, Any]:
  """The object in a JSON file."""
  with open(path, encoding="utf-8") as file:
    return json.load(file)
