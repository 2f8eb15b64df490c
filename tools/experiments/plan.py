"""Plans a table: a graph of jobs, each of them one command of this package.

A job has a key that names its folder, so jobs that two tables need are the same
job. `make_plan` returns the jobs of a table in an order in which they can run;
`runner.py` runs them.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import itertools
import json
import math
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union

import tfrecords
from official_albert import distribution, files, modeling
from tasks.pretraining import data
from tools.experiments import declaration, results, runner, scales, tables
from tools.experiments.declaration import Row, Table
from tools.experiments.results import Cell

_VOCABULARY = "data/vocabulary"
_SPEED_STEPS = 120
# Number of sentences on which layers are compared.
_SENTENCES = 200
_Settings = Mapping[str, Any]


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

  def path(self, *parts: str) -> str:
    """Returns the path of a file or folder below the output folder."""
    return os.path.join(self.output_dir, *parts)

  def write_sentences(self) -> str:
    """Writes the sentences on which layers are compared, unless they exist.

    They are one sentence of each of the first documents.

    Returns:
      The path of the file.
    """
    path = self.path("data", "sentences.txt")
    if not os.path.exists(path):
      reader = data.DocumentReader(data.find_files(self.input_files))
      lines = [
        document[len(document) // 2]
        for document in itertools.islice(reader, _SENTENCES)
      ]
      os.makedirs(os.path.dirname(path), exist_ok=True)
      files.write_text(path, "\n".join(lines) + "\n")
    return path


class Plan(NamedTuple):
  """The cells in the order of rows, then seeds; the jobs by key, in order."""

  cells: tuple[Cell, ...]
  jobs: dict[str, runner.Job]


class _Model(NamedTuple):
  """A model to pretrain.

  `starts_from` and `as_long_as` are keys of the jobs with its initial weights
  and with the training time that it takes instead of `steps`, or "".
  """

  config: modeling.AlbertConfig
  pair: str
  more_data: bool
  training: tuple[tuple[str, Any], ...]
  steps: int
  seed: int
  starts_from: str
  as_long_as: str
  key: str = ""


def _key(model: _Model, scale: scales.Scale) -> str:
  """Returns a readable folder name, unique for all that the weights depend on.

  Folders of earlier versions have these names.
  """
  c = model.config
  identity = [
    c.to_dict(),
    *(model.pair, model.more_data, model.training, model.steps),
    os.path.dirname(model.starts_from),
    os.path.dirname(model.as_long_as),
    sorted(scale.training.items()),
    sorted(scale.data.items()),
    [scale.warmup_share, scale.evaluations],
  ]
  text = json.dumps(identity, sort_keys=True)
  digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
  groups = c.num_hidden_groups
  sharing = f"{groups}groups" if groups > 1 else c.sharing
  sizes = f"H{c.hidden_size}-L{c.num_hidden_layers}-E{c.embedding_size}"
  return f"models/{sizes}-{sharing}-{model.pair}-{digest}/seed_{model.seed}"


def command(tool: str, settings: _Settings) -> list[str]:
  """Returns a tool and its flags, whose names have no dashes."""
  flags = [
    (f"--{name}" if value else f"--no{name}")
    if isinstance(value, bool)
    else f"--{name}={value}"
    for name, value in settings.items()
  ]
  return [*tool.split(), *flags]


def _short(key: str) -> str:
  """Returns a model's key as part of another: "models/A/seed_1": "A-seed_1"."""
  return "-".join(key.split("/")[1:])


def speed_key(model_key: str) -> str:
  """Returns the key of the job that measures a model's speed, for any seed."""
  return f"speed/{model_key.split('/')[1]}"


class _Planner:
  """Adds jobs and, before them, the jobs they need; methods return keys."""

  def __init__(
    self,
    table: Table,
    scale: scales.Scale,
    place: Place,
    tasks: Sequence[str],
    first_seed: int,
  ):
    self.first_seed = first_seed
    self.table, self.scale, self.place = table, scale, place
    self.tasks = tuple(tasks) if table.tasks else ()
    self.jobs: dict[str, runner.Job] = {}

  def add(
    self,
    key: str,
    title: str,
    tool: str,
    settings: Union[_Settings, Callable[[runner.Values], _Settings]],
    read: Callable[[], dict[str, Any]] = dict,
    **options: Any,
  ) -> str:
    """Adds a job unless it is there.

    The flags are `settings`, or what it returns when the job starts; the other
    arguments are those of `runner.Job`.
    """

    def arguments(values: runner.Values) -> list[str]:
      return command(tool, settings(values) if callable(settings) else settings)

    self.jobs.setdefault(
      key, runner.Job(key, title, arguments, read, **options)
    )
    return key

  def cell(self, row: Row, seed: int) -> Cell:
    if row.preset:
      return Cell(row.label, seed, (self.preset_speed(row.preset),))
    model = self.model(row, seed)
    keys = [model.key]
    if row.num_applied_layers:
      if seed == self.first_seed:
        keys.append(self.depth_latency())
      keys += self.depth_evaluations(model, row.num_applied_layers)
      return Cell(row.label, seed, tuple(keys))
    if self.table.speed_reference:
      keys.append(self.speed(model))
    keys += [self.pair_evaluation(model.key, pair) for pair in self.table.pairs]
    keys += [self.finetuning(model, task) for task in self.tasks]
    if self.table.layers:
      keys.append(self.layers(model.key))
    return Cell(row.label, seed, tuple(keys))

  def vocabulary(self) -> str:
    folder = self.place.path(_VOCABULARY)
    return self.add(
      _VOCABULARY,
      "vocabulary",
      "tools.train_vocabulary",
      {
        "input_files": self.place.input_files,
        "output_dir": folder,
        "vocab_size": self.scale.vocab_size,
      },
      result=os.path.join(folder, tfrecords.TOKENIZER_FILE),
      uses_all_cores=True,
    )

  def records(self, pair: str, more_data: bool = False) -> str:
    key = f"data/records-{pair}{'-more' if more_data else ''}"
    place, folder = self.place, self.place.path(key)
    # The additional text comes last: document numbers decide what is held out.
    text = [place.input_files, *([place.additional_files] * more_data)]
    return self.add(
      key,
      f"records, {pair}{' with additional text' if more_data else ''}",
      "tools.create_pretraining_data",
      {
        "input_files": ",".join(text),
        "output_dir": folder,
        "spm_model_file": place.path(_VOCABULARY, tfrecords.TOKENIZER_FILE),
        "sentence_pair": pair,
        "num_workers": distribution.cpu_count(),
        **self.scale.data,
      },
      lambda: results.read_records(folder),
      needs=(self.vocabulary(),),
      result=os.path.join(folder, tfrecords.MANIFEST_FILE),
      uses_all_cores=True,
    )

  def model(self, row: Row, seed: int) -> _Model:
    """Adds the pretraining of a row's model and all that it needs."""
    starts_from = as_long_as = ""
    if row.starts_from is not None:
      starts_from = self.model(self.table.row(row.starts_from), seed).key
    if row.equal_time:
      first = self.model(self.table.rows[0], seed)
      as_long_as = first.key
      self.speed(first)
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
      *(seed, starts_from, as_long_as),
    )
    model = model._replace(key=_key(model, self.scale))
    if row.equal_time:
      self.speed(model)
    self.pretraining(model)
    return model

  def _pretraining_settings(
    self, model: _Model, folder: str, steps: int
  ) -> dict[str, Any]:
    place, scale = self.place, self.scale
    fitting = scale.fit(model.config)
    if not fitting.fits:
      raise ValueError(f"{fitting.describe()}.")
    every = math.ceil(steps / scale.evaluations)
    settings = {
      "input_dir": place.path(self.records(model.pair, model.more_data)),
      "model_dir": place.path(folder),
      "albert_config_file": self._write_config(folder, model.config),
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

  def _write_config(self, name: str, config: modeling.AlbertConfig) -> str:
    path = self.place.path(f"{name}.albert_config.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    config.to_json_file(path)
    return path

  def _cost(self, model: _Model, steps: int) -> float:
    """Returns the operations of the training, without the heads."""
    sequences = steps * int(self.scale.training["train_batch_size"])
    flops = model.config.forward_flops(self.scale.max_seq_length)
    return 3.0 * sequences * flops

  def pretraining(self, model: _Model) -> str:
    key, other = model.key, model.as_long_as
    needs = [self.records(model.pair, model.more_data)]
    if model.more_data:
      needs.append(self.records(model.pair))
    needs += [need for need in (model.starts_from, other) if need]
    if other:
      needs += [speed_key(key), speed_key(other)]

    def settings(values: runner.Values) -> _Settings:
      steps = model.steps
      if other:
        ours, theirs = (
          values[speed_key(k)]["tokens_per_second"] for k in (key, other)
        )
        steps = math.ceil(values[other]["steps"] * ours / theirs)
      return self._pretraining_settings(model, key, steps)

    return self.add(
      key,
      f"pretraining {_short(key)}",
      "tools.run_pretraining",
      settings,
      lambda: results.read_pretraining(
        self.place.path(key),
        model.config,
        int(self.scale.training["train_batch_size"]),
      ),
      needs=tuple(needs),
      cost=self.jobs[other].cost if other else self._cost(model, model.steps),
      note=self.scale.fit(model.config).describe(),
    )

  def speed(self, model: _Model) -> str:
    """Measures a model's tokens per second, alone on the machine."""
    key = speed_key(model.key)
    return self.add(
      key,
      f"speed of {key.split('/')[1]}",
      "tools.run_pretraining",
      # Nothing but steps and log lines, of which the first is discarded.
      lambda values: {
        **self._pretraining_settings(model, key, _SPEED_STEPS),
        "steps_per_loop": _SPEED_STEPS // 6,
        "save_checkpoints_steps": _SPEED_STEPS,
        "eval_steps": 0,
      },
      lambda: results.read_speed(self.place.path(key)),
      needs=(self.records(model.pair, model.more_data),),
      cost=self._cost(model, _SPEED_STEPS),
      uses_all_cores=True,
    )

  def pair_evaluation(self, model_key: str, pair: str) -> str:
    """Evaluates a model on the records of a sentence objective."""
    key = f"evaluations/{_short(model_key)}-{pair}"
    metrics_file = self.place.path(f"{key}.metrics.json")
    records = self.records(pair)
    return self.add(
      key,
      f"{pair.upper()} of {_short(model_key)}",
      "tools.run_pretraining",
      {
        "mode": "evaluate",
        "input_dir": self.place.path(records),
        "model_dir": self.place.path(model_key),
        "metrics_file": metrics_file,
        "eval_batch_size": self.scale.training.get("eval_batch_size", 64),
        "precision": self.scale.training["precision"],
        **self.scale.placement,
      },
      lambda: results.read_pair_evaluation(metrics_file, pair),
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

  def finetuning(self, model: _Model, task: str) -> str:
    key = f"tasks/{_short(model.key)}-{declaration.TASKS[task]}"
    settings = {
      **self._finetuning_settings(key, task),
      "init_checkpoint": self.place.path(model.key),
      "random_seed": model.seed,
    }
    length = int(settings.get("max_seq_length", self.scale.max_seq_length))
    sequences = min(
      declaration.TRAIN_SEQUENCES[task],
      int(settings.get("max_train_examples") or 1e9),
    ) * float(settings.get("num_train_epochs", 3))
    return self.add(
      key,
      f"{task} with {_short(model.key)}",
      "tools.run_finetuning",
      settings,
      lambda: results.read_finetuning(self.place.path(key), task),
      needs=(model.key,),
      cost=3.0 * sequences * model.config.forward_flops(length),
    )

  def layers(self, model_key: str) -> str:
    """Compares each layer's input and output on some sentences."""
    key = f"layers/{_short(model_key)}"
    file = self.place.path(key, "inspection.json")
    return self.add(
      key,
      f"layers of {_short(model_key)}",
      "tools.inspect_model",
      lambda values: {
        "model": self.place.path(model_key),
        "input_files": self.place.write_sentences(),
        "output_dir": self.place.path(key),
      },
      lambda: {"layers": results.read_json(file)["models"][0]["layers"]},
      needs=(model_key,),
      cost=1e11,
      result=file,
    )

  def preset_speed(self, preset: str) -> str:
    """Measures training steps of a preset (table 1), whatever the scale."""
    key = f"configurations/{preset}"
    batch, length = tables.SPEED_BATCH, tables.SPEED_LENGTH
    config = modeling.AlbertConfig.from_preset(preset)
    return self.add(
      key,
      f"speed of {preset}",
      "tools.benchmark step",
      {
        "preset": preset,
        "batch_size": batch,
        "max_seq_length": length,
        "precision": "mixed_bfloat16",
        "steps": 2,
        "repeats": 3,
        "output_dir": self.place.path(key),
      },
      lambda: results.read_benchmark(self.place.path(key), config, length),
      # A warm-up step, and three times two measured steps.
      cost=3.0 * config.forward_flops(length) * batch * 7,
      uses_all_cores=True,
    )

  def depth_latency(self) -> str:
    config = self.scale.config(self.table.rows[0].model)
    key = "data/depth_latency"
    output_file = self.place.path(f"{key}.json")
    depths = [str(row.num_applied_layers) for row in self.table.rows]

    def read() -> dict[str, Any]:
      times = results.read_json(output_file)
      return {f"{declaration.MILLISECONDS} at {d}": t for d, t in times.items()}

    return self.add(
      key,
      "latency at each depth",
      "tools.experiments.depth_latency",
      lambda values: {
        "albert_config_file": self._write_config(key, config),
        "depths": ",".join(depths),
        "max_seq_length": self.scale.max_seq_length,
        "output_file": output_file,
      },
      read,
      uses_all_cores=True,
    )

  def depth_evaluations(self, model: _Model, depth: int) -> list[str]:
    """Measures the fine-tuned models, and those trained further, at a depth."""
    keys = []
    for task in self.tasks:
      tuned = self.finetuning(model, task)
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

    def with_start(values: runner.Values) -> _Settings:
      # Starts from the weights that were measured: the best, if they were kept.
      run = self.place.path(tuned)
      best = glob.glob(os.path.join(glob.escape(run), "best", "*.index"))
      start = best[0].removesuffix(".index") if best else run
      return {**settings, "init_checkpoint": start}

    return self.add(
      key,
      f"{self.jobs[tuned].title}, then {more}",
      "tools.run_finetuning",
      with_start,
      needs=(tuned,),
      cost=self.jobs[tuned].cost,
    )

  def _depth_evaluation(
    self, run: str, task: str, more: str, depth: int
  ) -> str:
    column = declaration.task_column(task, more)
    settings = {
      **self._finetuning_settings(run, task),
      "do_train": False,
      "num_hidden_layers": depth,
    }
    for name in ("num_train_epochs", "learning_rate"):
      settings.pop(name, None)
    folder = self.place.path(run, f"depth_{depth}")

    def read() -> dict[str, Any]:
      found = results.read_finetuning(folder, task)[task]
      return {f"{column} at {depth}": found}

    return self.add(
      f"{run}-depth_{depth}",
      f"{column} at depth {depth}",
      "tools.run_finetuning",
      settings,
      read,
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
  """Plans a table with one run of each row per seed."""
  if any(row.more_data for row in table.rows) and not place.additional_files:
    raise ValueError(
      f"Table {table.name} compares with additional text: set "
      "--additional_input_dir."
    )
  planner = _Planner(table, scale, place, tasks, seeds[0])
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
