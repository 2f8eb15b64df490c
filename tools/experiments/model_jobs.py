"""Jobs that train and measure models, by the tools of this package."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Mapping, NamedTuple

from official_albert import modeling
from tools import inspection as inspection_lib
from tools.experiments import declaration, jobs, readings, scales

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

  config: modeling.AlbertConfig
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
    **scale.placement,
    **_flags_that_fit(scale, model),
  }
  if model.more_data:
    # Compared on the same text as a model that did not read the other.
    settings["eval_input_dir"] = place.path(f"data/records-{model.pair}")
  if model.starts_from:
    settings["init_checkpoint"] = place.path(model.starts_from)
  return ["tools.run_pretraining", *jobs.as_flags(settings)]


def _flags_that_fit(scale: scales.Scale, model: Model) -> dict[str, Any]:
  found = fit(scale, model.config)
  if not found.fits:
    raise ValueError(f"{found.describe()}.")
  return found.flags


def pretraining_cost(scale: scales.Scale, model: Model, steps: int) -> float:
  """Floating-point operations of the training, without the heads."""
  sequences = steps * int(scale.training["train_batch_size"])
  return 3.0 * sequences * model.config.forward_flops(scale.max_seq_length)


def speed_key(key: str) -> str:
  """The job that measures the speed of a model: one for all its seeds."""
  return f"speed/{key.split('/')[1]}"


def speed(
  place: jobs.Place, scale: scales.Scale, model: Model, key: str
) -> jobs.Job:
  """Measures a model's tokens a second, alone on the machine."""
  own = speed_key(key)

  def arguments(values: jobs.Values) -> list[str]:
    short = _arguments(place, scale, model, own, _MEASURED_STEPS)
    # Many log lines, of which the first compiles and does not count, and
    # nothing else.
    short.append(f"--steps_per_loop={_MEASURED_STEPS // 6}")
    short.append(f"--save_checkpoints_steps={_MEASURED_STEPS}")
    return [*short, "--eval_steps=0"]

  return jobs.Job(
    own,
    f"speed of {own.split('/')[1]}",
    arguments,
    lambda: readings.speed(place.path(own)),
    needs=(model.records_key(),),
    cost=pretraining_cost(scale, model, _MEASURED_STEPS),
    uses_all_cores=True,
  )


def pretraining(
  place: jobs.Place, scale: scales.Scale, model: Model, key: str
) -> jobs.Job:
  """Pretrains a model and measures it on held-out text."""
  needs = [model.records_key()]
  if model.more_data:
    needs.append(f"data/records-{model.pair}")
  needs += [need for need in (model.starts_from, model.as_long_as) if need]
  if model.as_long_as:
    needs += [speed_key(key), speed_key(model.as_long_as)]

  def arguments(values: jobs.Values) -> list[str]:
    steps = model.steps
    if model.as_long_as:
      own, other = (
        values[speed_key(k)]["tokens_per_second"]
        for k in (key, model.as_long_as)
      )
      steps = math.ceil(values[model.as_long_as]["steps"] * own / other)
    return _arguments(place, scale, model, key, steps)

  return jobs.Job(
    key,
    f"pretraining {jobs.name_of(key)}",
    arguments,
    lambda: readings.pretraining(
      place.path(key), model.config, int(scale.training["train_batch_size"])
    ),
    needs=tuple(needs),
    cost=pretraining_cost(scale, model, model.steps),
    note=fit(scale, model.config).describe(),
  )


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
      **scale.placement,
    }
    return ["tools.run_pretraining", *jobs.as_flags(settings)]

  def read() -> dict[str, Any]:
    values = readings.object_of(metrics_file)
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
  own = f"tasks/{jobs.name_of(key)}-{declaration.TASKS[column]}"
  settings = {
    **finetuning_settings(place, scale, own, column),
    "init_checkpoint": place.path(key),
    "random_seed": model.seed,
  }
  return jobs.Job(
    own,
    f"{column} with {jobs.name_of(key)}",
    lambda values: ["tools.run_finetuning", *jobs.as_flags(settings)],
    lambda: readings.finetuning(place.path(own), column),
    needs=(key,),
    cost=finetuning_cost(scale, model, column, settings),
  )


def finetuning_settings(
  place: jobs.Place, scale: scales.Scale, own: str, column: str
) -> dict[str, Any]:
  """Flags of tools.run_finetuning for a task; `own` is the run's folder."""
  return {
    "task": declaration.TASKS[column],
    "data_dir": place.task_data_dirs[column],
    "output_dir": place.path(own),
    "cache_dir": place.path("data", "task_records"),
    "do_predict": False,
    **scale.finetuning,
    **scale.task_flags.get(column, {}),
    **scale.finetuning_placement,
  }


def finetuning_cost(
  scale: scales.Scale,
  model: Model,
  column: str,
  settings: Mapping[str, Any],
) -> float:
  """Floating-point operations of the training, without the heads."""
  length = int(settings.get("max_seq_length", scale.max_seq_length))
  sequences = min(
    declaration.TRAIN_SEQUENCES[column],
    int(settings.get("max_train_examples") or 1e9),
  )
  epochs = float(settings.get("num_train_epochs", 3))
  return 3.0 * sequences * epochs * model.config.forward_flops(length)


def inspection(place: jobs.Place, key: str) -> jobs.Job:
  """Compares each layer's input and output on some sentences."""
  own = f"layers/{jobs.name_of(key)}"
  settings = {
    "model": place.path(key),
    "input_files": place.sentences_file,
    "output_dir": place.path(own),
  }
  file = place.path(own, "inspection.json")
  return jobs.Job(
    own,
    f"layers of {jobs.name_of(key)}",
    lambda values: ["tools.inspect_model", *jobs.as_flags(settings)],
    lambda: {"layers": readings.object_of(file)["models"][0]["layers"]},
    needs=(key,),
    cost=1e11,
    result=file,
  )


# What the estimate leaves out; docs/inspect_model.md has it beside peaks.
_MARGIN = 0.9


class Fit(NamedTuple):
  """How a step is cut.

  Attributes:
    flags: of tools.run_pretraining.
    bytes: of one device, estimated; 0 where the scale knows no device.
    fits: whether the device has them.
  """

  flags: dict[str, Any]
  bytes: int
  fits: bool

  def describe(self) -> str:
    """In words; "" where nothing is known."""
    if not self.bytes:
      return ""
    told = f"about {self.bytes / 2**30:.1f} GiB a device"
    if not self.fits:
      return f"{told}, however it is cut: does not fit"
    cuts = [f"{name}={value}" for name, value in self.flags.items()]
    return ", ".join([told, *cuts])


def fit(scale: scales.Scale, config: modeling.AlbertConfig) -> Fit:
  """The fewest micro-batches with which a row fits, or the last attempt."""
  if not scale.device_bytes:
    return Fit({}, 0, True)
  batch = -(-int(scale.training["train_batch_size"]) // scale.num_devices)
  room = _MARGIN * scale.device_bytes
  precision = scale.training["precision"]
  if precision not in inspection_lib.model_size.PRECISIONS:
    precision = "float32"  # The larger of those that it may turn out to be.
  flags: dict[str, Any] = {}
  needed = 0
  for recompute in (False, True):
    micro_batches = 1
    while micro_batches <= batch:
      setting = inspection_lib.model_size.Setting(
        batch_size=batch // micro_batches,
        max_seq_length=scale.max_seq_length,
        predictions=int(scale.data["max_predictions_per_seq"]),
        precision=precision,
        recompute_activations=recompute,
      )
      needed = inspection_lib.model_size.training_bytes(config, setting)[
        "total"
      ]
      flags = {}
      if micro_batches > 1:
        flags["gradient_accumulation_steps"] = micro_batches
      if recompute:
        flags["recompute_activations"] = True
      if needed <= room:
        return Fit(flags, needed, True)
      micro_batches *= 2
  return Fit(flags, needed, False)
