"""Tests of plan.py."""

from __future__ import annotations

import pytest

from tools.experiments import (
  jobs,
  model_jobs,
  own_tables,
  paper_tables,
  plan,
  scales,
)

_TINY = scales.SCALES["tiny"]
# Planning writes nothing, so nothing can be written there.
_PLACE = jobs.Place("/dev/null/out", "text.txt", "more.txt", {"MNLI": "glue"})


def _plan(table, tasks=("MNLI",), seeds=(3, 5), place=_PLACE) -> plan.Plan:
  return plan.make_plan(table, _TINY, place, tasks, seeds)


@pytest.mark.parametrize(
  "table", [*paper_tables.TABLES, *own_tables.TABLES], ids=lambda t: t.name
)
def test_each_job_stands_after_those_it_needs(table):
  planned = _plan(table)
  seen = set()
  for key, job in planned.jobs.items():
    assert key == job.key
    assert set(job.needs) <= seen
    seen.add(key)
  assert len(planned.cells) == 2 * len(table.rows)
  assert {key for cell in planned.cells for key in cell.keys} <= seen


def test_tables_share_models():
  keys = [
    {cell.model for cell in _plan(table).cells}
    for table in (
      paper_tables.TABLE_3,
      paper_tables.TABLE_4,
      paper_tables.TABLE_5,
    )
  ]
  # E 128 and 768, with everything shared or nothing, and two seeds.
  assert len(keys[0] & keys[1]) == 8
  # The base model with SOP.
  assert len(keys[0] & keys[2]) == 2


def test_seeds_have_folders_of_one_model():
  cells = _plan(paper_tables.TABLE_11).cells
  models = {cell.model.rsplit("/", 1)[0] for cell in cells}
  assert len(models) == 6
  assert {cell.model.rsplit("/", 1)[1] for cell in cells} == {
    *("seed_3", "seed_5")
  }


def test_deeper_models_need_the_shallower():
  planned = _plan(paper_tables.TABLE_11)
  first, second = planned.cells[0], planned.cells[2]
  assert (first.label, second.label) == ("1 layer", "3 layers")
  assert first.model in planned.jobs[second.model].needs


def test_the_first_seed_of_all_rows_comes_first():
  planned = _plan(paper_tables.TABLE_3)
  seeds = [key[-1] for key in planned.jobs if key.startswith("models/")]
  assert seeds == ["3"] * 8 + ["5"] * 8


def test_equal_time_is_measured(tmp_path):
  place = jobs.Place(str(tmp_path), "text.txt", "", {"MNLI": "glue"})
  planned = _plan(paper_tables.TABLE_6, place=place)
  bert = planned.cells[2]
  assert bert.label == "BERT-large"
  job = planned.jobs[bert.model]
  assert planned.cells[0].model in job.needs
  albert = planned.cells[0].model
  own, other = map(model_jobs.speed_key, (bert.model, albert))
  assert {own, other} <= set(job.needs)
  values = {
    albert: {"steps": 50},
    own: {"tokens_per_second": 70.0},
    other: {"tokens_per_second": 10.0},
  }
  assert "--num_train_steps=350" in job.arguments(values)
  assert job.cost == planned.jobs[albert].cost


def test_sentence_objectives_are_measured_on_each_other():
  planned = _plan(paper_tables.TABLE_5)
  evaluated = [key for key in planned.jobs if key.startswith("evaluations/")]
  assert len(evaluated) == 3 * 2 * 2
  assert {"data/records-none", "data/records-nsp", "data/records-sop"} <= set(
    planned.jobs
  )


def test_more_text_is_compared_on_the_same_held_out_text(tmp_path):
  place = jobs.Place(str(tmp_path), "text.txt", "more.txt", {"MNLI": "glue"})
  planned = _plan(paper_tables.TABLE_7, place=place)
  job = planned.jobs[planned.cells[2].model]
  arguments = job.arguments({})
  assert f"--input_dir={tmp_path}/data/records-sop-more" in arguments
  assert f"--eval_input_dir={tmp_path}/data/records-sop" in arguments


def test_more_text_has_to_be_there():
  place = jobs.Place("out", "text.txt", "", {"MNLI": "glue"})
  with pytest.raises(ValueError, match="--additional_input_dir"):
    _plan(paper_tables.TABLE_7, place=place)


def test_speeds_are_jobs_of_their_own():
  planned = _plan(paper_tables.TABLE_2)
  speeds = [key for key in planned.jobs if key.startswith("speed/")]
  assert len(speeds) == 6
  for cell in planned.cells:
    assert model_jobs.speed_key(cell.model) in cell.others


def test_a_row_may_have_a_share_of_the_steps(tmp_path):
  place = jobs.Place(str(tmp_path), "text.txt", "", {})
  planned = _plan(own_tables.DEPTH_SCHEDULE, place=place)
  cell = next(c for c in planned.cells if "half the steps" in c.label)
  assert "--num_train_steps=800" in planned.jobs[cell.model].arguments({})


def test_a_row_may_have_a_rate_of_its_own(tmp_path):
  place = jobs.Place(str(tmp_path), "text.txt", "", {})
  planned = _plan(own_tables.DEPTH_SCHEDULE, place=place)
  cell = next(c for c in planned.cells if "12 throughout, a third" in c.label)
  rates = [
    flag
    for flag in planned.jobs[cell.model].arguments({})
    if flag.startswith("--learning_rate=")
  ]
  assert rates == ["--learning_rate=0.001"]


def test_without_tasks_nothing_is_fine_tuned():
  planned = _plan(paper_tables.TABLE_12, tasks=())
  assert not [key for key in planned.jobs if key.startswith("tasks/")]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
