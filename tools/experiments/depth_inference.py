"""Any depth at inference: what a fine-tuned model is worth at each.

One model is pretrained and fine-tuned at its own depth, a copy of it trained on
for some steps at random depths, another for as many at its own depth, and all
three are measured at each depth.
"""

from __future__ import annotations

import glob
import os
from typing import Any, Sequence

from tools.experiments import (
  jobs,
  model_jobs,
  plan,
  readings,
  scales,
)
from tools.experiments.declaration import Row, Table

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_OWN_DEPTH = 12
# At tiny, depth 12 throughout learns no more than how often each piece occurs.
_TRAINING = {"depth_schedule": "3:0.5,6:0.25,12:0.25"}
MORE_STEPS = 300
# What follows fine-tuning, and its flags.
MORE = {
  "own depth": {},
  "random depths": {"random_depths": "2,3,4,6,8,12"},
}
MILLISECONDS = "ms"

TABLE = Table(
  name="depth_inference",
  title="Depth as a dial: fewer layers for an answer",
  source="not in the paper",
  question=(
    "What does a model of 12 shared layers, pretrained shallow first, know "
    "when only some of them are applied, or more; and what after a few hundred "
    "steps at random depths, beside as many at its own?"
  ),
  rows=tuple(
    Row(
      f"{depth} layers" if depth > 1 else "1 layer",
      {"num_hidden_layers": _OWN_DEPTH},
    )
    for depth in DEPTHS
  ),
  depths=DEPTHS,
)


def column_of(task: str, more: str = "") -> str:
  """The column of a task, as it was tuned or after `more` steps."""
  return f"{task}, {more}" if more else task


def columns(tasks: Sequence[str]) -> list[str]:
  """Of the table, in the order in which they are shown."""
  shown = [MILLISECONDS]
  for task in tasks:
    shown += [column_of(task, more) for more in ("", *MORE)]
  return shown


def make_plan(
  scale: scales.Scale,
  place: jobs.Place,
  tasks: Sequence[str],
  seeds: Sequence[int],
) -> plan.Plan:
  """As `plan.make_plan`; all rows share one model a seed."""
  made: dict[str, jobs.Job] = {}
  cells = []

  def add(job: jobs.Job) -> str:
    made.setdefault(job.key, job)
    return job.key

  add(jobs.vocabulary(place, scale))
  add(jobs.records(place, scale, "sop", False))
  latency = add(_latency(place, scale))
  for seed in seeds:
    model = model_jobs.Model(
      *(scale.config(TABLE.rows[0].model), "sop", False),
      *(tuple(_TRAINING.items()), scale.steps, seed),
    )
    key = plan.model_key(model, scale)
    add(model_jobs.pretraining(place, scale, model, key))
    found: dict[int, list[str]] = {depth: [] for depth in DEPTHS}
    for task in tasks:
      job = model_jobs.finetuning(place, scale, model, key, task)
      tuned = add(job)
      runs = {tuned: column_of(task)}
      for more in MORE:
        run = add(_more_steps(place, scale, job, model, task, more))
        runs[run] = column_of(task, more)
      for run, column in runs.items():
        for depth in DEPTHS:
          evaluation = _evaluation(place, scale, run, column, depth)
          found[depth].append(add(evaluation))
    for row, depth in zip(TABLE.rows, DEPTHS):
      # Measured once, so it is of the first seed alone.
      once = (latency,) if seed == seeds[0] else ()
      others = (*once, *found[depth])
      cells.append(plan.Cell(row.label, seed, key, others, depth))
  return plan.Plan(tuple(cells), made)


def _more_steps(
  place: jobs.Place,
  scale: scales.Scale,
  tuned: jobs.Job,
  model: model_jobs.Model,
  task: str,
  more: str,
) -> jobs.Job:
  """Some hundred more steps."""
  own = f"{tuned.key}-{more.replace(' ', '_')}"
  settings = {
    **model_jobs.finetuning_settings(place, scale, own, task),
    "random_seed": model.seed,
    "num_train_steps": MORE_STEPS,
    **MORE[more],
  }
  settings.pop("num_train_epochs", None)

  def arguments(values: jobs.Values) -> list[str]:
    # With the weights that are measured: the best ones where they were kept.
    run = place.path(tuned.key)
    best = glob.glob(os.path.join(glob.escape(run), "best", "*.index"))
    start = best[0][: -len(".index")] if best else run
    flags = jobs.as_flags({**settings, "init_checkpoint": start})
    return ["tools.run_finetuning", *flags]

  return jobs.Job(
    own,
    f"{tuned.title}, then {more}",
    arguments,
    dict,
    needs=(tuned.key,),
    cost=tuned.cost,
  )


def _evaluation(
  place: jobs.Place,
  scale: scales.Scale,
  run: str,
  column: str,
  depth: int,
) -> jobs.Job:
  task = column.split(",")[0]
  settings = {
    **model_jobs.finetuning_settings(place, scale, run, task),
    "do_train": False,
    "num_hidden_layers": depth,
  }
  for name in ("num_train_epochs", "learning_rate"):
    settings.pop(name, None)

  def read() -> dict[str, Any]:
    folder = place.path(run, f"depth_{depth}")
    value = readings.finetuning(folder, task)[task]
    return {f"{column} at {depth}": value}

  return jobs.Job(
    f"{run}-depth_{depth}",
    f"{column} at depth {depth}",
    lambda values: ["tools.run_finetuning", *jobs.as_flags(settings)],
    read,
    needs=(run,),
    cost=1e10 * depth,
  )


def _latency(place: jobs.Place, scale: scales.Scale) -> jobs.Job:
  config_file = place.path("data", "depth_latency.albert_config.json")
  output_file = place.path("data", "depth_latency.json")
  settings = {
    "albert_config_file": config_file,
    "depths": ",".join(map(str, DEPTHS)),
    "max_seq_length": scale.max_seq_length,
    "output_file": output_file,
  }

  def arguments(values: jobs.Values) -> list[str]:
    os.makedirs(os.path.dirname(config_file), exist_ok=True)
    scale.config(TABLE.rows[0].model).to_json_file(config_file)
    return ["tools.experiments.depth_latency", *jobs.as_flags(settings)]

  def read() -> dict[str, Any]:
    times = readings.object_of(output_file)
    return {f"{MILLISECONDS} at {d}": value for d, value in times.items()}

  return jobs.Job(
    "data/depth_latency",
    "latency at each depth",
    arguments,
    read,
    cost=0.0,
    uses_all_cores=True,
  )
