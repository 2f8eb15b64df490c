"""Plans a table: a graph of jobs, each of them one command of this package.

The key of a job names its folder, so jobs that two tables need are the same
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
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from official_albert import distribution, files, modeling, tfrecords
from official_albert.tasks.pretraining import data
from official_albert.tools.experiments import results, runner, scales, tables
from official_albert.tools.experiments.results import Cell
from official_albert.tools.experiments.tables import Row, Table

_VOCABULARY = "data/vocabulary"
_SPEED_STEPS = 120
# Number of sentences on which layers are compared.
_SENTENCES = 200
# Operations of jobs that take seconds.
_LITTLE = 1e11


@dataclasses.dataclass(frozen=True)
class Place:
  """Where an experiment's text, tasks and results are."""

  output_dir: str  # Everything is written below it.
  input_files: str  # --input_files of the data tools.
  additional_files: str  # Likewise, for table 7; may be "".
  task_data_dirs: Mapping[str, str]  # --data_dir by task.

  def path(self, *parts: str) -> str:
    """Returns the path of a file or folder below the output folder."""
    return os.path.join(self.output_dir, *parts)

  def write_sentences(self) -> str:
    """Writes one sentence of each of the first documents, once."""
    path = self.path("data", "sentences.txt")
    if not files.exists(path):
      reader = data.DocumentReader(data.find_files(self.input_files))
      lines = [
        document[len(document) // 2]
        for document in itertools.islice(reader, _SENTENCES)
      ]
      files.make_folder(os.path.dirname(path))
      files.write_text(path, "\n".join(lines) + "\n")
    return path


class Plan(NamedTuple):
  """The cells in the order of rows, then seeds; the jobs by key, in order."""

  cells: tuple[Cell, ...]
  jobs: dict[str, runner.Job]


class _Model(NamedTuple):
  """A model to pretrain."""

  key: str  # Of its job.
  config: modeling.AlbertConfig
  row: Row  # One of those that it belongs to.
  seed: int
  starts_from: str  # Key of the model with its initial weights, or "".


def command(tool: str, settings: Mapping[str, Any]) -> list[str]:
  """Returns a tool and its flags, whose names have no dashes."""
  return [*tool.split(), *(f"--{k}={value}" for k, value in settings.items())]


def _short(key: str) -> str:
  """Returns a model's key as part of another: "models/A/seed_1": "A-seed_1"."""
  return "-".join(key.split("/")[1:])


def speed_key(model_key: str) -> str:
  """Returns the key of the job that measures a model's speed, for any seed."""
  return f"speed/{model_key.split('/')[1]}"


@dataclasses.dataclass
class _Planner:
  """Adds jobs after those that they need; most methods return a key."""

  table: Table
  scale: scales.Scale
  place: Place
  tasks: Sequence[str]
  first_seed: int
  jobs: dict[str, runner.Job] = dataclasses.field(default_factory=dict)

  def add(
    self,
    key: str,
    tool: str,
    settings: Callable[[runner.Values], Mapping[str, Any]],
    read: Callable[[], dict[str, Any]] = dict,
    **options: Any,
  ) -> str:
    """Adds a job unless it is there; `settings` returns the flags of `tool`."""

    def arguments(values: runner.Values) -> list[str]:
      return command(tool, settings(values))

    self.jobs.setdefault(key, runner.Job(key, arguments, read, **options))
    return key

  def cell(self, row: Row, seed: int) -> Cell:
    """Adds all jobs of a row with one seed."""
    if row.preset:
      return Cell(row.label, seed, (self.preset_speed(row.preset),))
    columns, model = self.table.columns, self.model(row, seed)
    keys = [model.key]
    if row.num_applied_layers:
      if seed == self.first_seed:
        keys.append(self.depth_latency())
      for task in self.tasks:
        keys.append(self.finetuning(model, task))
        keys += [
          self.depth_evaluation(model, task, more, row.num_applied_layers)
          for more in ("", *tables.MORE_TRAINING)
        ]
      return Cell(row.label, seed, tuple(keys))
    if tables.SPEED in columns:
      keys.append(self.speed(model))
    for column in columns:
      text, name = tables.TEXT_COLUMNS.get(column, ("", column))
      if name in (tables.NSP, tables.SOP):
        keys.append(self.pair_evaluation(model.key, name, text))
    keys += [self.finetuning(model, task) for task in self.tasks]
    if tables.JUMP in columns:
      keys.append(self.layers(model.key))
    return Cell(row.label, seed, tuple(keys))

  def vocabulary(self) -> str:
    folder = self.place.path(_VOCABULARY)
    return self.add(
      _VOCABULARY,
      "official_albert.tools.train_vocabulary",
      lambda values: {
        "input_files": self.place.input_files,
        "output_dir": folder,
        "vocab_size": self.scale.vocab_size,
      },
      result=os.path.join(folder, tfrecords.TOKENIZER_FILE),
      uses_all_cores=True,
    )

  def text_of(self, task: str) -> str:
    key = f"data/text-{tables.TASKS[task]}.txt"
    path = self.place.path(key)
    flags = {
      "task": tables.TASKS[task],
      "data_dir": self.place.task_data_dirs[task],
      "output_file": path,
    }
    return self.add(
      key,
      "official_albert.tools.gather_corpus",
      lambda values: flags,
      result=path,
    )

  def records(self, pair: str, more_data: bool = False, task: str = "") -> str:
    """Adds records of the text to pretrain on, or of a task's."""
    suffix = "-more" if more_data else f"-{tables.TASKS[task]}" if task else ""
    key = f"data/records-{pair}{suffix}"
    place, folder = self.place, self.place.path(key)
    # The additional text comes last: document numbers decide what is held out.
    text = [place.input_files, *([place.additional_files] * more_data)]
    needs, options = [self.vocabulary()], dict(self.scale.data)
    if task:
      needs.append(self.text_of(task))
      text, options["heldout_share"] = [place.path(needs[1])], 0
    return self.add(
      key,
      "official_albert.tools.create_pretraining_data",
      lambda values: {
        "input_files": ",".join(text),
        "output_dir": folder,
        "spm_model_file": place.path(_VOCABULARY, tfrecords.TOKENIZER_FILE),
        "sentence_pair": pair,
        "num_workers": distribution.cpu_count(),
        **options,
      },
      needs=tuple(needs),
      result=os.path.join(folder, tfrecords.MANIFEST_FILE),
      uses_all_cores=True,
    )

  def records_of(self, row: Row) -> list[str]:
    """Adds the records that a row's model reads; the first are for training."""
    records = [self.records(row.sentence_pair, row.more_data)]
    if row.more_data:
      # All models are compared on the same held-out text.
      records.append(self.records(row.sentence_pair))
    return records

  def model(self, row: Row, seed: int) -> _Model:
    """Adds the pretraining of a row's model and all that it needs."""
    scale, name = self.scale, self.table.name
    starts_from = as_long_as = ""
    if row.starts_from is not None:
      starts_from = self.model(self.table.row(row.starts_from), seed).key
    if row.equal_time:
      first = self.model(self.table.rows[0], seed)
      as_long_as = first.key
      self.speed(first)
    config, steps = scale.config(row.model), scale.steps_of(name, row.share)
    # All that the weights depend on; folders of earlier versions have these
    # names.
    identity = [
      *(config.to_dict(), row.sentence_pair, row.more_data),
      *(sorted(row.training.items()), steps),
      *(os.path.dirname(starts_from), os.path.dirname(as_long_as)),
      *(sorted(scale.training.items()), sorted(scale.data.items())),
      [scale.warmup_share, scale.evaluations],
    ]
    text = json.dumps(identity, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    c, groups = config, config.num_hidden_groups
    sizes = f"H{c.hidden_size}-L{c.num_hidden_layers}-E{c.embedding_size}"
    sharing = f"{groups}groups" if groups > 1 else c.sharing
    folder = f"models/{sizes}-{sharing}-{row.sentence_pair}-{digest}"
    key = f"{folder}/seed_{seed}"
    model = _Model(key, config, row, seed, starts_from)
    needs = [*self.records_of(row), *filter(None, (starts_from, as_long_as))]
    cost = self._cost(model, steps)
    if as_long_as:
      needs += [self.speed(model), speed_key(as_long_as)]
      cost = self.jobs[as_long_as].cost

    def settings(values: runner.Values) -> dict[str, Any]:
      count = steps
      if as_long_as:
        ours, theirs = (
          values[speed_key(k)]["tokens_per_second"] for k in (key, as_long_as)
        )
        count = math.ceil(values[as_long_as]["steps"] * ours / theirs)
      return self._pretraining_settings(model, key, count)

    _, note = scale.fit(config)
    self.add(
      key,
      "official_albert.tools.run_pretraining",
      settings,
      lambda: results.read_pretraining(
        self.place.path(key), config, scale.batch_size
      ),
      needs=tuple(needs),
      cost=cost,
      note=note,
    )
    return model

  def _pretraining_settings(
    self, model: _Model, folder: str, steps: int
  ) -> dict[str, Any]:
    place, scale = self.place, self.scale
    memory_flags, note = scale.fit(model.config)
    if memory_flags is None:
      raise ValueError(f"{note}.")
    every = math.ceil(steps / scale.evaluations)
    records, *heldout = map(place.path, self.records_of(model.row))
    settings = {
      "input_dir": records,
      "model_dir": place.path(folder),
      "albert_config_file": self._write_config(folder, model.config),
      "num_train_steps": steps,
      "num_warmup_steps": int(steps * scale.warmup_share),
      "random_seed": model.seed,
      "eval_steps": every,
      "save_checkpoints_steps": every,
      "keep_checkpoint_max": 1,
      **scale.training,
      **model.row.training,
      **scales.placement(scale.tpu),
      **memory_flags,
    }
    if heldout:
      settings["eval_input_dir"] = heldout[0]
    if model.starts_from:
      settings["init_checkpoint"] = place.path(model.starts_from)
      settings.pop("init_neighbor_attention", None)
    return settings

  def _write_config(self, name: str, config: modeling.AlbertConfig) -> str:
    path = self.place.path(f"{name}.albert_config.json")
    files.make_folder(os.path.dirname(path))
    config.to_json_file(path)
    return path

  def _cost(self, model: _Model, steps: int) -> float:
    """Returns the operations of the training, without the heads."""
    sequences = steps * self.scale.batch_size
    flops = model.config.forward_flops(self.scale.max_seq_length)
    return 3.0 * sequences * flops

  def _last_checkpoint(self, model_key: str, values: runner.Values) -> str:
    """Returns the weights of a model that its held-out numbers belong to."""
    name = f"model.ckpt-{values[model_key]['steps']}"
    return self.place.path(model_key, name)

  def speed(self, model: _Model) -> str:
    """Measures a model's tokens per second, alone on the machine."""
    key = speed_key(model.key)
    return self.add(
      key,
      "official_albert.tools.run_pretraining",
      # Nothing but steps and log lines, of which the first is discarded.
      lambda values: {
        **self._pretraining_settings(model, key, _SPEED_STEPS),
        "steps_per_loop": _SPEED_STEPS // 6,
        "save_checkpoints_steps": _SPEED_STEPS,
        "eval_steps": 0,
      },
      lambda: results.read_speed(self.place.path(key)),
      needs=tuple(self.records_of(model.row)),
      cost=self._cost(model, _SPEED_STEPS),
      uses_all_cores=True,
    )

  def pair_evaluation(self, model_key: str, column: str, task: str) -> str:
    """Evaluates a sentence objective on held-out text or on a task's."""
    pair = column.lower()
    key = f"evaluations/{_short(model_key)}-{pair}"
    records = heldout = self.records(pair)
    if task:
      key = f"{key}-{tables.TASKS[task]}"
      heldout = self.records(pair, task=task)
    metrics_file = self.place.path(f"{key}.metrics.json")
    return self.add(
      key,
      "official_albert.tools.run_pretraining",
      lambda values: {
        "mode": "evaluate",
        "input_dir": self.place.path(records),
        "eval_input_dir": self.place.path(heldout),
        "model_dir": self.place.path(model_key),
        "metrics_file": metrics_file,
        "eval_batch_size": self.scale.training.get("eval_batch_size", 64),
        "precision": self.scale.training["precision"],
        **scales.placement(self.scale.tpu),
      },
      lambda: results.read_pair_evaluation(
        metrics_file,
        self.place.path(heldout, tfrecords.MANIFEST_FILE),
        pair,
        task,
      ),
      needs=(model_key, records, heldout),
      cost=_LITTLE,
    )

  def layers(self, model_key: str) -> str:
    """Compares each layer's input and output on some sentences."""
    key = f"layers/{_short(model_key)}"
    file = self.place.path(key, "inspection.json")
    return self.add(
      key,
      "official_albert.tools.inspect_model",
      lambda values: {
        "model": self._last_checkpoint(model_key, values),
        "input_files": self.place.write_sentences(),
        "output_dir": self.place.path(key),
      },
      lambda: {"layers": results.read_json(file)["models"][0]["layers"]},
      needs=(model_key,),
      cost=_LITTLE,
      result=file,
    )

  def preset_speed(self, preset: str) -> str:
    """Measures training steps of a preset (table 1), whatever the scale."""
    key = f"configurations/{preset}"
    batch, length = tables.SPEED_BATCH, tables.SPEED_LENGTH
    config = modeling.AlbertConfig.from_preset(preset)
    return self.add(
      key,
      "official_albert.tools.benchmark step",
      lambda values: {
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
    key = "data/depth_latency"
    config = self.scale.config(self.table.rows[0].model)
    output_file = self.place.path(f"{key}.json")
    depths = [str(row.num_applied_layers) for row in self.table.rows]
    return self.add(
      key,
      "official_albert.tools.experiments.depth_latency",
      lambda values: {
        "albert_config_file": self._write_config(key, config),
        "depths": ",".join(depths),
        "max_seq_length": self.scale.max_seq_length,
        "output_file": output_file,
      },
      lambda: {
        f"{tables.MILLISECONDS} at {depth}": time
        for depth, time in results.read_json(output_file).items()
      },
      uses_all_cores=True,
    )

  def _finetuning_settings(self, key: str, task: str) -> dict[str, Any]:
    return {
      "task": tables.TASKS[task],
      "data_dir": self.place.task_data_dirs[task],
      "output_dir": self.place.path(key),
      "cache_dir": self.place.path("data", "task_records"),
      "do_predict": False,
      **self.scale.finetuning,
      **self.scale.task_flags.get(task, {}),
      **scales.placement(self.scale.finetuning_tpu),
    }

  def finetuning(self, model: _Model, task: str, more: str = "") -> str:
    """Fine-tunes a model; with `more`, trains the fine-tuned model further."""
    key = f"tasks/{_short(model.key)}-{tables.TASKS[task]}"
    before = self.finetuning(model, task) if more else model.key
    if more:
      key = f"{key}-{more.replace(' ', '_')}"

    def settings(values: runner.Values) -> dict[str, Any]:
      flags = self._finetuning_settings(key, task)
      if not more:
        start = self._last_checkpoint(model.key, values)
      else:
        start = self.place.path(before)
        # Starts from the weights that were measured: the best, if they exist.
        best = files.glob(os.path.join(glob.escape(start), "best", "*.index"))
        start = best[0].removesuffix(".index") if best else start
        flags.pop("num_train_epochs", None)
        flags["num_train_steps"] = tables.MORE_STEPS
        flags |= tables.MORE_TRAINING[more]
      return {**flags, "init_checkpoint": start, "random_seed": model.seed}

    flags = self._finetuning_settings(key, task)
    length = flags.get("max_seq_length", self.scale.max_seq_length)
    if more:
      sequences = tables.MORE_STEPS * flags.get("train_batch_size", 32)
    else:
      sequences = min(
        tables.TRAIN_SEQUENCES[task], flags.get("max_train_examples", math.inf)
      ) * flags.get("num_train_epochs", 3)
    return self.add(
      key,
      "official_albert.tools.run_finetuning",
      settings,
      lambda: (
        {} if more else results.read_finetuning(self.place.path(key), task)
      ),
      needs=(before,),
      cost=3.0 * sequences * model.config.forward_flops(length),
    )

  def depth_evaluation(
    self, model: _Model, task: str, more: str, depth: int
  ) -> str:
    """Measures what `finetuning` has trained at a depth."""
    run = self.finetuning(model, task, more)
    settings = {
      **self._finetuning_settings(run, task),
      "do_train": False,
      "num_hidden_layers": depth,
    }
    for name in ("num_train_epochs", "learning_rate"):
      settings.pop(name, None)
    folder = self.place.path(run, f"depth_{depth}")
    column = tables.task_column(task, more)
    return self.add(
      f"{run}-depth_{depth}",
      "official_albert.tools.run_finetuning",
      lambda values: settings,
      lambda: {
        f"{column} at {depth}": results.read_finetuning(folder, task)[task]
      },
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
  if tables.SCORES not in table.columns:
    tasks = ()
  planner = _Planner(table, scale, place, tasks, seeds[0])
  # All rows of one seed come before the next seed, so an interrupted table has
  # rows to compare. What is measured without training needs one run only.
  cells = [
    planner.cell(row, seed)
    for seed in (seeds if table.trains else seeds[:1])
    for row in table.rows
    if row.runs
  ]
  labels = [row.label for row in table.rows]
  cells.sort(key=lambda cell: labels.index(cell.label))
  return Plan(tuple(cells), planner.jobs)
