"""Plans a table: a graph of jobs, each of them one command of this package.

A job has a key that names its folder, so jobs that two tables need are the same
job. `make_plan` returns the jobs of a table in an order in which they can run;
`runner.py` runs them.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import math
import os
import statistics
from typing import Any, Mapping, NamedTuple, Sequence

import tfrecords
from official_albert import distribution, modeling
from tools.experiments import declaration, readings, scales, tables
from tools.experiments.declaration import Row, Table
from tools.experiments.runner import Job, Values

_VOCABULARY = "data/vocabulary"
_MEASURED_STEPS = 120


@dataclasses.dataclass(frozen=True)
class Place:
  """Where an experiment's text, tasks and results are.

  Attributes:
    output_dir: everything is written below it.
    input_files, additional_files: values of --input_files of the data tools.
    task_data_dirs: from a column of `declaration.TASKS` to --data_dir.
  """

  output_dir: str
  input_files: str
  additional_files: str
  task_data_dirs: Mapping[str, str]

  @property
  def sentences_file(self) -> str:
    """The sentences on which layers are compared."""
    return self.path("data", "sentences.txt")

  def path(self, *parts: str) -> str:
    """Returns the path of a file or folder below the output folder."""
    return os.path.join(self.output_dir, *parts)


class Cell(NamedTuple):
  """A row with one seed; `keys` are its jobs, that of its model first."""

  label: str
  seed: int
  keys: tuple[str, ...]


class Plan(NamedTuple):
  """The cells in the order of rows, then seeds; the jobs by key, in order."""

  cells: tuple[Cell, ...]
  jobs: dict[str, Job]


@dataclasses.dataclass(frozen=True)
class _Model:
  """A model to pretrain: everything that its weights depend on.

  Attributes:
    config: its sizes.
    pair, more_data, training: as in `declaration.Row`.
    steps: updates; ignored if `as_long_as` is set.
    seed: of weights, data order and dropout.
    starts_from: key of the job with its initial weights, or "".
    as_long_as: key of the job whose training time it takes, or "".
  """

  config: modeling.AlbertConfig
  pair: str
  more_data: bool
  training: tuple[tuple[str, Any], ...]
  steps: int
  seed: int
  starts_from: str
  as_long_as: str

  def key(self, scale: scales.Scale) -> str:
    """Returns a readable folder name, unique for all that differs."""
    identity = json.dumps(
      [
        self.config.to_dict(),
        self.pair,
        self.more_data,
        self.training,
        self.steps,
        os.path.dirname(self.starts_from),
        os.path.dirname(self.as_long_as),
        sorted(scale.training.items()),
        sorted(scale.data.items()),
        [scale.warmup_share, scale.evaluations],
      ],
      sort_keys=True,
    )
    digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
    c = self.config
    groups = c.num_hidden_groups
    sharing = f"{groups}groups" if groups > 1 else c.sharing
    name = f"H{c.hidden_size}-L{c.num_hidden_layers}-E{c.embedding_size}"
    return f"models/{name}-{sharing}-{self.pair}-{digest}/seed_{self.seed}"


def command(tool: str, settings: Mapping[str, Any]) -> list[str]:
  """Returns a tool and its flags, whose names have no dashes."""

  def flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
      return f"--{name}" if value else f"--no{name}"
    return f"--{name}={value}"

  return [tool, *(flag(name, value) for name, value in settings.items())]


def _short(key: str) -> str:
  """Returns a model's key as part of another: "models/A/seed_1": "A-seed_1"."""
  return "-".join(key.split("/")[1:])


def speed_key(model_key: str) -> str:
  """Returns the key of the job that measures a model's speed, for any seed."""
  return f"speed/{model_key.split('/')[1]}"


def _write_config(config: modeling.AlbertConfig, path: str) -> None:
  os.makedirs(os.path.dirname(path), exist_ok=True)
  config.to_json_file(path)


class _Planner:
  """Adds jobs and, before them, the jobs they need; methods return keys."""

  def __init__(
    self,
    table: Table,
    scale: scales.Scale,
    place: Place,
    tasks: Sequence[str],
    seeds: Sequence[int],
  ):
    self.table, self.scale, self.place = table, scale, place
    self.tasks = tuple(tasks) if table.tasks else ()
    self.seeds = seeds
    self.jobs: dict[str, Job] = {}

  def add(
    self, key: str, title: str, arguments: Any, read: Any = dict, **options: Any
  ) -> str:
    self.jobs.setdefault(key, Job(key, title, arguments, read, **options))
    return key

  def cell(self, row: Row, seed: int) -> Cell:
    if row.preset:
      return Cell(row.label, seed, (self.preset_speed(row.preset),))
    model, key = self.model(row, seed)
    keys = [key]
    if row.num_applied_layers:
      if seed == self.seeds[0]:
        keys.append(self.depth_latency())
      keys += self.depth_evaluations(model, key, row.num_applied_layers)
      return Cell(row.label, seed, tuple(keys))
    if self.table.speed_reference:
      keys.append(self.speed(model, key))
    keys += [self.pair_evaluation(key, pair) for pair in self.table.pairs]
    keys += [self.finetuning(model, key, task) for task in self.tasks]
    if self.table.layers:
      keys.append(self.layers(key))
    return Cell(row.label, seed, tuple(keys))

  def vocabulary(self) -> str:
    folder = self.place.path(_VOCABULARY)
    settings = {
      "input_files": self.place.input_files,
      "output_dir": folder,
      "vocab_size": self.scale.vocab_size,
    }
    return self.add(
      _VOCABULARY,
      "vocabulary",
      lambda values: command("tools.train_vocabulary", settings),
      result=os.path.join(folder, tfrecords.TOKENIZER_FILE),
      uses_all_cores=True,
    )

  def records(self, pair: str, more_data: bool = False) -> str:
    key = f"data/records-{pair}{'-more' if more_data else ''}"
    place, folder = self.place, self.place.path(key)
    # The additional text comes last: document numbers decide what is held out.
    text = [place.input_files, *([place.additional_files] * more_data)]
    settings = {
      "input_files": ",".join(text),
      "output_dir": folder,
      "spm_model_file": place.path(_VOCABULARY, tfrecords.TOKENIZER_FILE),
      "sentence_pair": pair,
      "num_workers": distribution.cpu_count(),
      **self.scale.data,
    }
    return self.add(
      key,
      f"records, {pair}{' with additional text' if more_data else ''}",
      lambda values: command("tools.create_pretraining_data", settings),
      lambda: readings.records(folder),
      needs=(self.vocabulary(),),
      result=os.path.join(folder, tfrecords.MANIFEST_FILE),
      uses_all_cores=True,
    )

  def model(self, row: Row, seed: int) -> tuple[_Model, str]:
    """Adds the pretraining of a row's model and all that it needs."""
    starts_from = as_long_as = ""
    if row.starts_from is not None:
      starts_from = self.model(self.table.row(row.starts_from), seed)[1]
    if row.equal_time:
      first, as_long_as = self.model(self.table.rows[0], seed)
      self.speed(first, as_long_as)
    training = dict(row.training)
    peak = self.scale.peak_rate(self.table.name, row.rate)
    if peak != self.scale.training["learning_rate"]:
      training["learning_rate"] = f"{peak:.6g}"
    model = _Model(
      self.scale.config(row.model),
      row.sentence_pair,
      row.more_data,
      tuple(sorted(training.items())),
      self.scale.steps_of(self.table.name, row.share),
      seed,
      starts_from,
      as_long_as,
    )
    key = model.key(self.scale)
    if row.equal_time:
      self.speed(model, key)
    self.pretraining(model, key)
    return model, key

  def _pretraining_settings(
    self, model: _Model, folder: str, steps: int
  ) -> dict[str, Any]:
    place, scale = self.place, self.scale
    fitting = scale.fit(model.config)
    if not fitting.fits:
      raise ValueError(f"{fitting.describe()}.")
    every = math.ceil(steps / scale.evaluations)
    config_file = place.path(f"{folder}.albert_config.json")
    _write_config(model.config, config_file)
    settings = {
      "input_dir": place.path(self.records(model.pair, model.more_data)),
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
      **fitting.flags,
    }
    if model.more_data:
      # All models are compared on the same held-out text.
      settings["eval_input_dir"] = place.path(self.records(model.pair))
    if model.starts_from:
      settings["init_checkpoint"] = place.path(model.starts_from)
    return settings

  def _cost(self, model: _Model, steps: int) -> float:
    """Floating-point operations of the training, without the heads."""
    sequences = steps * int(self.scale.training["train_batch_size"])
    flops = model.config.forward_flops(self.scale.max_seq_length)
    return 3.0 * sequences * flops

  def pretraining(self, model: _Model, key: str) -> str:
    needs = [self.records(model.pair, model.more_data)]
    if model.more_data:
      needs.append(self.records(model.pair))
    needs += [need for need in (model.starts_from, model.as_long_as) if need]
    cost = self._cost(model, model.steps)
    if model.as_long_as:
      needs += [speed_key(key), speed_key(model.as_long_as)]
      cost = self.jobs[model.as_long_as].cost

    def arguments(values: Values) -> list[str]:
      steps = model.steps
      if model.as_long_as:
        own, other = (
          values[speed_key(k)]["tokens_per_second"]
          for k in (key, model.as_long_as)
        )
        steps = math.ceil(values[model.as_long_as]["steps"] * own / other)
      settings = self._pretraining_settings(model, key, steps)
      return command("tools.run_pretraining", settings)

    return self.add(
      key,
      f"pretraining {_short(key)}",
      arguments,
      lambda: readings.pretraining(
        self.place.path(key),
        model.config,
        int(self.scale.training["train_batch_size"]),
      ),
      needs=tuple(needs),
      cost=cost,
      note=self.scale.fit(model.config).describe(),
    )

  def speed(self, model: _Model, model_key: str) -> str:
    """Measures a model's tokens per second, alone on the machine."""
    key = speed_key(model_key)

    def arguments(values: Values) -> list[str]:
      settings = self._pretraining_settings(model, key, _MEASURED_STEPS)
      # Nothing but steps and log lines, of which the first is discarded.
      settings |= {
        "steps_per_loop": _MEASURED_STEPS // 6,
        "save_checkpoints_steps": _MEASURED_STEPS,
        "eval_steps": 0,
      }
      return command("tools.run_pretraining", settings)

    return self.add(
      key,
      f"speed of {key.split('/')[1]}",
      arguments,
      lambda: readings.speed(self.place.path(key)),
      needs=(self.records(model.pair, model.more_data),),
      cost=self._cost(model, _MEASURED_STEPS),
      uses_all_cores=True,
    )

  def pair_evaluation(self, model_key: str, pair: str) -> str:
    """Evaluates a model on the records of a sentence objective."""
    key = f"evaluations/{_short(model_key)}-{pair}"
    metrics_file = self.place.path(f"{key}.metrics.json")
    records = self.records(pair)
    settings = {
      "mode": "evaluate",
      "input_dir": self.place.path(records),
      "model_dir": self.place.path(model_key),
      "metrics_file": metrics_file,
      "eval_batch_size": self.scale.training.get("eval_batch_size", 64),
      "precision": self.scale.training["precision"],
      **self.scale.placement,
    }

    def arguments(values: Values) -> list[str]:
      os.makedirs(os.path.dirname(metrics_file), exist_ok=True)
      return command("tools.run_pretraining", settings)

    return self.add(
      key,
      f"{pair.upper()} of {_short(model_key)}",
      arguments,
      lambda: readings.pair_evaluation(metrics_file, pair),
      needs=(model_key, records),
      cost=1e11,
    )

  def _finetuning_settings(self, key: str, task: str) -> dict[str, Any]:
    return {
      "task": declaration.TASKS[task],
      "data_dir": self.place.task_data_dirs[task],
      "output_dir": self.place.path(key),
      "cache_dir": self.place.path("data", "task_records"),
      "do_predict": False,
      **self.scale.finetuning,
      **self.scale.task_flags.get(task, {}),
      **self.scale.finetuning_placement,
    }

  def finetuning(self, model: _Model, model_key: str, task: str) -> str:
    key = f"tasks/{_short(model_key)}-{declaration.TASKS[task]}"
    settings = {
      **self._finetuning_settings(key, task),
      "init_checkpoint": self.place.path(model_key),
      "random_seed": model.seed,
    }
    length = int(settings.get("max_seq_length", self.scale.max_seq_length))
    sequences = min(
      declaration.TRAIN_SEQUENCES[task],
      int(settings.get("max_train_examples") or 1e9),
    ) * float(settings.get("num_train_epochs", 3))
    return self.add(
      key,
      f"{task} with {_short(model_key)}",
      lambda values: command("tools.run_finetuning", settings),
      lambda: readings.finetuning(self.place.path(key), task),
      needs=(model_key,),
      cost=3.0 * sequences * model.config.forward_flops(length),
    )

  def layers(self, model_key: str) -> str:
    """Compares each layer's input and output on some sentences."""
    key = f"layers/{_short(model_key)}"
    settings = {
      "model": self.place.path(model_key),
      "input_files": self.place.sentences_file,
      "output_dir": self.place.path(key),
    }
    file = self.place.path(key, "inspection.json")
    return self.add(
      key,
      f"layers of {_short(model_key)}",
      lambda values: command("tools.inspect_model", settings),
      lambda: {"layers": readings.read_json(file)["models"][0]["layers"]},
      needs=(model_key,),
      cost=1e11,
      result=file,
    )

  def preset_speed(self, preset: str) -> str:
    """Measures training steps of a preset (table 1), whatever the scale."""
    key = f"configurations/{preset}"
    batch, length = tables.SPEED_BATCH, tables.SPEED_LENGTH
    folder = self.place.path(key)
    settings = {
      "preset": preset,
      "batch_size": batch,
      "max_seq_length": length,
      "precision": "mixed_bfloat16",
      "steps": 2,
      "repeats": 3,
      "output_dir": folder,
    }
    config = modeling.AlbertConfig.from_preset(preset)

    def read() -> dict[str, Any]:
      [path] = glob.glob(os.path.join(glob.escape(folder), "*.json"))
      rate = statistics.median(readings.read_json(path)["tokens_per_second"])
      flops = config.forward_flops(length) / length / 1e6
      return {
        "parameters": config.parameter_count(),
        "tokens_per_second": rate,
        "columns": {declaration.FLOPS: flops, declaration.TOKENS: rate},
      }

    return self.add(
      key,
      f"speed of {preset}",
      lambda values: [
        "tools.benchmark",
        *command("step", settings),
      ],
      read,
      # A warm-up step, and three times two measured steps.
      cost=3.0 * config.forward_flops(length) * batch * 7,
      uses_all_cores=True,
    )

  def depth_latency(self) -> str:
    config = self.scale.config(self.table.rows[0].model)
    config_file = self.place.path("data", "depth_latency.albert_config.json")
    output_file = self.place.path("data", "depth_latency.json")
    depths = [row.num_applied_layers for row in self.table.rows]
    settings = {
      "albert_config_file": config_file,
      "depths": ",".join(map(str, depths)),
      "max_seq_length": self.scale.max_seq_length,
      "output_file": output_file,
    }

    def arguments(values: Values) -> list[str]:
      _write_config(config, config_file)
      return command("tools.experiments.depth_latency", settings)

    def read() -> dict[str, Any]:
      times = readings.read_json(output_file)
      return {f"{declaration.MILLISECONDS} at {d}": t for d, t in times.items()}

    return self.add(
      "data/depth_latency",
      "latency at each depth",
      arguments,
      read,
      uses_all_cores=True,
    )

  def depth_evaluations(
    self, model: _Model, model_key: str, depth: int
  ) -> list[str]:
    """Measures the fine-tuned models, and those trained further, at a depth."""
    keys = []
    for task in self.tasks:
      tuned = self.finetuning(model, model_key, task)
      keys.append(self._depth_evaluation(tuned, task, "", depth))
      for more in declaration.MORE_TRAINING:
        run = self._more_steps(tuned, model, task, more)
        keys.append(self._depth_evaluation(run, task, more, depth))
    return keys

  def _more_steps(self, tuned: str, model: _Model, task: str, more: str) -> str:
    key = f"{tuned}-{more.replace(' ', '_')}"
    settings = {
      **self._finetuning_settings(key, task),
      "random_seed": model.seed,
      "num_train_steps": declaration.MORE_STEPS,
      **declaration.MORE_TRAINING[more],
    }
    settings.pop("num_train_epochs", None)

    def arguments(values: Values) -> list[str]:
      # Starts from the weights that were measured: the best, if they were kept.
      run = self.place.path(tuned)
      best = glob.glob(os.path.join(glob.escape(run), "best", "*.index"))
      start = best[0].removesuffix(".index") if best else run
      return command(
        "tools.run_finetuning", {**settings, "init_checkpoint": start}
      )

    return self.add(
      key,
      f"{self.jobs[tuned].title}, then {more}",
      arguments,
      needs=(tuned,),
      cost=self.jobs[tuned].cost,
    )

  def _depth_evaluation(
    self, run: str, task: str, more: str, depth: int
  ) -> str:
    column = f"{declaration.task_column(task, more)} at {depth}"
    settings = {
      **self._finetuning_settings(run, task),
      "do_train": False,
      "num_hidden_layers": depth,
    }
    for name in ("num_train_epochs", "learning_rate"):
      settings.pop(name, None)
    folder = self.place.path(run, f"depth_{depth}")
    return self.add(
      f"{run}-depth_{depth}",
      f"{declaration.task_column(task, more)} at depth {depth}",
      lambda values: command("tools.run_finetuning", settings),
      lambda: {column: readings.finetuning(folder, task)[task]},
      needs=(run,),
      cost=1e10 * depth,
    )


def make_plan(
  table: Table,
  scale: scales.Scale,
  place: Place,
  tasks: Sequence[str],
  seeds: Sequence[int],
) -> Plan:
  """Plans a table.

  Args:
    table: one of `tables.TABLES`.
    scale: the sizes.
    place: where everything is.
    tasks: columns of `declaration.TASKS` to fine-tune on.
    seeds: one run of each row per seed.

  Raises:
    ValueError: a row needs additional text and there is none.
  """
  if any(row.more_data for row in table.rows) and not place.additional_files:
    raise ValueError(
      f"Table {table.name} compares with additional text: set "
      "--additional_input_dir."
    )
  planner = _Planner(table, scale, place, tasks, seeds)
  # All rows of one seed come before the next seed, so an interrupted table has
  # rows to compare. What is measured without training needs one run only.
  cells = [
    planner.cell(row, seed)
    for seed in (seeds if table.trains else seeds[:1])
    for row in table.rows
  ]
  labels = [row.label for row in table.rows]
  cells.sort(key=lambda cell: labels.index(cell.label))
  return Plan(tuple(cells), planner.jobs)
