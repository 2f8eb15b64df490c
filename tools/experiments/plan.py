"""All jobs of a table, each once, in an order in which they can be run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from typing import Any, Iterable, Sequence

from tools.experiments import declaration, jobs, model_jobs, scales


@dataclasses.dataclass(frozen=True)
class Cell:
  """A row with one seed, and the keys of the jobs that fill it.

  Attributes:
    label: of the row.
    seed: of its training.
    model: key of the job that trains it.
    others: keys of the jobs that measure it.
    depth: what the row measures, where that is a depth of the same model.
  """

  label: str
  seed: int
  model: str
  others: tuple[str, ...]
  depth: int = 0

  @property
  def keys(self) -> tuple[str, ...]:
    """Of all its jobs."""
    return (self.model, *self.others)


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a table takes.

  Attributes:
    cells: in the order of rows, then seeds.
    jobs: by key, each after those that it needs.
  """

  cells: tuple[Cell, ...]
  jobs: dict[str, jobs.Job]


class _Planner:
  def __init__(
    self,
    table: declaration.Table,
    scale: scales.Scale,
    place: jobs.Place,
    tasks: Sequence[str],
  ):
    self.table, self.scale, self.place = table, scale, place
    self.tasks = tuple(tasks) if table.tasks else ()
    self.jobs: dict[str, jobs.Job] = {}

  def add(self, job: jobs.Job) -> str:
    self.jobs.setdefault(job.key, job)
    return job.key

  def add_records(self, pair: str, more_data: bool) -> None:
    self.add(jobs.vocabulary(self.place, self.scale))
    self.add(jobs.records(self.place, self.scale, pair, more_data))

  def add_model(self, row: declaration.Row, seed: int) -> tuple:
    """The model of a row, its key, and whatever has to be there before."""
    starts_from = as_long_as = ""
    if row.starts_from is not None:
      starts_from = self.add_model(self.table.row(row.starts_from), seed)[1]
    if row.equal_time:
      as_long_as = self.add_model(self.table.rows[0], seed)[1]
    model = model_jobs.Model(
      self.scale.config(row.model),
      row.sentence_pair,
      row.more_data,
      tuple(sorted(self.training_of(row).items())),
      self.scale.steps_of(self.table.name, row.share),
      seed,
      starts_from,
      as_long_as,
    )
    key = model_key(model, self.scale)
    self.add_records(row.sentence_pair, row.more_data)
    if row.more_data:
      self.add_records(row.sentence_pair, False)
    if row.equal_time:
      first, first_key = self.add_model(self.table.rows[0], seed)
      self.add_speed(first, first_key)
      self.add_speed(model, key)
    job = model_jobs.pretraining(self.place, self.scale, model, key)
    if row.equal_time:  # At the same speed, as many operations.
      job = dataclasses.replace(job, cost=self.jobs[as_long_as].cost)
    self.add(job)
    return model, key

  def training_of(self, row: declaration.Row) -> dict[str, Any]:
    training = dict(row.training)
    peak = self.scale.peak_rate(self.table.name, row.rate)
    if peak != self.scale.training["learning_rate"]:
      training["learning_rate"] = f"{peak:.6g}"
    return training

  def add_speed(self, model: model_jobs.Model, key: str) -> str:
    return self.add(model_jobs.speed(self.place, self.scale, model, key))

  def add_cell(self, row: declaration.Row, seed: int) -> Cell:
    model, key = self.add_model(row, seed)
    others = []
    if self.table.speed_reference:
      others.append(self.add_speed(model, key))
    for pair in self.table.pairs:
      self.add_records(pair, False)
      job = model_jobs.pair_evaluation(self.place, self.scale, model, key, pair)
      others.append(self.add(job))
    for column in self.tasks:
      job = model_jobs.finetuning(self.place, self.scale, model, key, column)
      others.append(self.add(job))
    if self.table.layers:
      job = model_jobs.inspection(self.place, key)
      others.append(self.add(job))
    return Cell(row.label, seed, key, tuple(others))


def model_key(model: model_jobs.Model, scale: scales.Scale) -> str:
  """The folder of a model: readable, and different for all that differs."""
  told = json.dumps(
    [
      model.config.to_dict(),
      model.pair,
      model.more_data,
      model.training,
      model.steps,
      os.path.dirname(model.starts_from),
      os.path.dirname(model.as_long_as),
      sorted(scale.training.items()),
      sorted(scale.data.items()),
      [scale.warmup_share, scale.evaluations],
    ],
    sort_keys=True,
  )
  c = model.config
  digest = hashlib.blake2b(told.encode(), digest_size=4).hexdigest()
  sharing = c.sharing
  if c.num_hidden_groups > 1:
    sharing = f"{c.num_hidden_groups}groups"
  name = f"H{c.hidden_size}-L{c.num_hidden_layers}-E{c.embedding_size}"
  return f"models/{name}-{sharing}-{model.pair}-{digest}/seed_{model.seed}"


def make_plan(
  table: declaration.Table,
  scale: scales.Scale,
  place: jobs.Place,
  tasks: Sequence[str],
  seeds: Iterable[int],
) -> Plan:
  """Plans a table.

  Args:
    table: of `TABLES`.
    scale: how large.
    place: where everything is.
    tasks: columns of `declaration.TASKS` to fine-tune on.
    seeds: one run of each row for each.

  Raises:
    ValueError: a row needs additional text and there is none.
  """
  if any(row.more_data for row in table.rows) and not place.additional_files:
    raise ValueError(
      f"table {table.name} compares with additional text: name its folder by "
      "--additional_input_dir."
    )
  planner = _Planner(table, scale, place, tasks)
  # All rows of one seed before the next one: a table that is cut off has rows
  # to compare.
  cells = {
    (row.label, seed): planner.add_cell(row, seed)
    for seed in seeds
    for row in table.rows
  }
  labels = [row.label for row in table.rows]
  ordered = sorted(cells, key=lambda cell: labels.index(cell[0]))
  return Plan(tuple(cells[cell] for cell in ordered), planner.jobs)
