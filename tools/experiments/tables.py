"""All tables by their names, how each is planned, and table 1.

Table 1 has the paper's models at their own sizes. Its speed is of real training
steps of the real sizes, whatever the scale.
"""

from __future__ import annotations

import glob
import os
import statistics
from typing import Any, Sequence

from official_albert import modeling
from tools.experiments import (
  declaration,
  depth_inference,
  jobs,
  own_tables,
  paper_tables,
  plan,
  readings,
  scales,
)
from tools.experiments.declaration import SPEED, Row, Table

FLOPS, TOKENS = "MFLOP/token", "tokens/s"
_LENGTH, _BATCH = 128, 4
# label: preset, the paper's parameters and its speed.
_MODELS = {
  "BERT-base": ("bert_base", "108M", 4.7),
  "BERT-large": ("bert_large", "334M", 1.0),
  "ALBERT-base": ("albert_base_v1", "12M", 5.6),
  "ALBERT-large": ("albert_large_v1", "18M", 1.7),
  "ALBERT-xlarge": ("albert_xlarge_v1", "60M", 0.6),
  "ALBERT-xxlarge": ("albert_xxlarge_v1", "235M", 0.3),
}

CONFIGURATIONS = Table(
  name="1",
  title="Configurations and their speed",
  source="tables 1 and 2",
  question=(
    "How many parameters, how many operations, and how fast beside BERT-large? "
    f"Real sizes, {_BATCH} sequences of {_LENGTH} tokens a step."
  ),
  rows=tuple(
    Row(label, paper={SPEED: speed}, paper_parameters=parameters)
    for label, (_, parameters, speed) in _MODELS.items()
  ),
  columns=(FLOPS, TOKENS, SPEED),
  tasks=False,
  speed_reference="BERT-large",
)


def plan_configurations(place: jobs.Place) -> plan.Plan:
  """As `plan.make_plan`: one job a model, one after the other."""
  made, cells, before = {}, [], ""
  for label, (preset, *_) in _MODELS.items():
    job = _speed(place, preset, (before,) if before else ())
    made[job.key] = job
    cells.append(plan.Cell(label, 0, job.key, ()))
    before = job.key
  return plan.Plan(tuple(cells), made)


def _speed(place: jobs.Place, preset: str, needs: tuple[str, ...]) -> jobs.Job:
  key = f"configurations/{preset}"
  settings = {
    "preset": preset,
    "batch_size": _BATCH,
    "max_seq_length": _LENGTH,
    "precision": "mixed_bfloat16",
    "steps": 2,
    "repeats": 3,
    "output_dir": place.path(key),
  }
  config = modeling.AlbertConfig.from_preset(preset)

  def read() -> dict[str, Any]:
    [path] = glob.glob(os.path.join(glob.escape(place.path(key)), "*.json"))
    rates = readings.object_of(path)["tokens_per_second"]
    return {
      "parameters": config.parameter_count(),
      "tokens_per_second": statistics.median(rates),
      "columns": {
        FLOPS: config.forward_flops(_LENGTH) / _LENGTH / 1e6,
        TOKENS: statistics.median(rates),
      },
    }

  return jobs.Job(
    key,
    f"speed of {preset}",
    lambda values: ["tools.benchmark", "step", *jobs.as_flags(settings)],
    read,
    needs=needs,
    # A warm-up step, and those of the runs.
    cost=3.0 * config.forward_flops(_LENGTH) * _BATCH * 7,
    uses_all_cores=True,
  )


TABLES = {
  table.name: table
  for table in (
    CONFIGURATIONS,
    *paper_tables.TABLES,
    *own_tables.TABLES,
    depth_inference.TABLE,
  )
}


def make_plan(
  table: declaration.Table,
  scale: scales.Scale,
  place: jobs.Place,
  tasks: Sequence[str],
  seeds: Sequence[int],
) -> plan.Plan:
  """The jobs of a table; see `plan.make_plan`."""
  if table is CONFIGURATIONS:
    return plan_configurations(place)
  if table is depth_inference.TABLE:
    return depth_inference.make_plan(scale, place, tasks, seeds)
  return plan.make_plan(table, scale, place, tasks, seeds)
