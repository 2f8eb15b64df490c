"""Tests of plan.py: jobs, their commands, and what they read."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert import modeling
from tools.experiments import plan, results, scales, tables

_TINY = scales.SCALES["tiny"]
# Planning writes nothing, so the folder need not exist.
_PLACE = plan.Place(
  *("/dev/null/out", "a.txt,b.txt", "more.txt"),
  {"MNLI": "glue", "SST-2": "glue", "RACE": "race"},
)


def _plan(name, tasks=("MNLI",), seeds=(3, 5), place=_PLACE, scale=_TINY):
  return plan.make_plan(tables.TABLES[name], scale, place, tasks, seeds)


@pytest.fixture
def place(tmp_path) -> plan.Place:
  return dataclasses.replace(_PLACE, output_dir=str(tmp_path))


@pytest.mark.parametrize("name", tables.TABLES)
def test_each_job_follows_those_it_needs(name):
  planned = _plan(name)
  seen = set()
  for key, job in planned.jobs.items():
    assert key == job.key
    assert set(job.needs) <= seen
    seen.add(key)
  table = tables.TABLES[name]
  seeds = 2 if table.trains else 1
  assert [cell.label for cell in planned.cells] == [
    row.label for row in table.rows for _ in range(seeds)
  ]
  assert {key for cell in planned.cells for key in cell.keys} <= seen


def test_keys_of_models_are_stable():
  """Output folders of earlier versions have these names."""
  keys = [cell.keys[0] for cell in _plan("3").cells]
  assert keys[0] == "models/H128-L4-E32-none-sop-833725a8/seed_3"
  assert "models/H128-L4-E64-all-sop-e0ff55b9/seed_5" in keys


def _models(name, scale="tiny"):
  planned = _plan(name, tasks=(), seeds=(1,), scale=scales.SCALES[scale])
  return {cell.label: cell.keys[0] for cell in planned.cells}


@pytest.mark.parametrize("scale", ["tiny", "base"])
def test_tables_share_equal_models(scale):
  large = ("2", "6", "8", "13", "figure_1", "figure_2")
  models = {name: _models(name, scale) for name in large}
  xxlarge = models["2"]["ALBERT-xxlarge"]
  assert models["6"]["ALBERT-xxlarge"] == models["13"]["12 layers"] == xxlarge
  deep = models["13"]["24 layers"]
  assert deep == models["figure_1"]["ALBERT, H 4096"] != xxlarge
  albert, bert = models["2"]["ALBERT-large"], models["2"]["BERT-large"]
  assert models["figure_1"]["ALBERT, H 1024"] == albert
  assert models["figure_1"]["BERT, H 1024"] == bert
  assert set(models["figure_2"].values()) == {albert, bert}
  without = models["8"]["without dropout"]
  assert (without == xxlarge) == (scale == "tiny")  # base has dropout.
  small = [set(_models(name, scale).values()) for name in "345"]
  # E 128 and 768, with everything shared or nothing.
  assert len(small[0] & small[1]) == 4
  # The base model with SOP.
  assert len(small[0] & small[2]) == 1


def test_depth_schedules_share_models_of_equal_rate():
  low, both = _models("depth_schedule_low_rate"), _models("depth_schedule")
  assert len(set(low.values())) == 7
  for label in ("12 throughout", "3:0.5,6:0.25,12:0.25"):
    assert both[f"{label}, a tenth of the rate"] == low[label]
  assert len(set(low.values()) & set(both.values())) == 2


def test_all_rows_of_a_seed_precede_the_next_seed():
  planned = _plan("3")
  seeds = [key[-1] for key in planned.jobs if key.startswith("models/")]
  assert seeds == ["3"] * 8 + ["5"] * 8


def test_records_of_additional_text(place):
  planned = _plan("7", place=place)
  arguments = planned.jobs["data/records-sop-more"].arguments({})
  assert arguments[0] == "tools.create_pretraining_data"
  # Last, as document numbers decide what is held out.
  assert "--input_files=a.txt,b.txt,more.txt" in arguments
  assert "--sentence_pair=sop" in arguments
  arguments = planned.jobs[planned.cells[2].keys[0]].arguments({})
  assert f"--input_dir={place.path('data/records-sop-more')}" in arguments
  assert f"--eval_input_dir={place.path('data/records-sop')}" in arguments
  with pytest.raises(ValueError, match="--additional_input_dir"):
    _plan("7", place=dataclasses.replace(place, additional_files=""))


def test_pretraining_command(place):
  planned = _plan("11", place=place)
  first, second = planned.cells[0], planned.cells[2]
  assert (first.label, second.label) == ("1 layer", "3 layers")
  job = planned.jobs[second.keys[0]]
  assert job.needs == ("data/records-sop", first.keys[0])
  arguments = job.arguments({})
  assert arguments[0] == "tools.run_pretraining"
  for flag in (
    f"--init_checkpoint={place.path(first.keys[0])}",
    # A quarter of the steps and a third of the rate, as the models are deep.
    "--num_train_steps=400",
    "--num_warmup_steps=40",
    "--learning_rate=0.001",
    "--random_seed=3",
    "--eval_steps=50",
    "--bias_correction",
  ):
    assert flag in arguments
  file = place.path(f"{second.keys[0]}.albert_config.json")
  assert f"--albert_config_file={file}" in arguments
  config = modeling.AlbertConfig.from_json_file(file)
  assert config.num_hidden_layers == 3
  # Forward and twice that backward, 400 updates of 32 sequences.
  assert job.cost == 3 * 400 * 32 * config.forward_flops(64)


@pytest.mark.parametrize(
  "row, flag",
  [
    ("12 throughout, half the steps", "--num_train_steps=800"),
    ("12 throughout, a third of the rate", "--learning_rate=0.001"),
    ("3:0.5,12:0.5", "--depth_schedule=3:0.5,12:0.5"),
  ],
)
def test_rows_have_steps_rates_and_flags_of_their_own(place, row, flag):
  planned = _plan("depth_schedule", place=place)
  cell = next(cell for cell in planned.cells if cell.label == row)
  assert flag in planned.jobs[cell.keys[0]].arguments({})


def test_equal_time_follows_from_measured_speeds(place):
  planned = _plan("6", place=place)
  albert, bert = planned.cells[0].keys[0], planned.cells[2].keys[0]
  job = planned.jobs[bert]
  own, other = map(plan.speed_key, (bert, albert))
  assert {albert, own, other} <= set(job.needs)
  values = {
    albert: {"steps": 50},
    own: {"tokens_per_second": 70.0},
    other: {"tokens_per_second": 10.0},
  }
  assert "--num_train_steps=350" in job.arguments(values)
  assert job.cost == planned.jobs[albert].cost


def test_speed_is_measured_alone_and_once_per_model(place):
  planned = _plan("2", place=place)
  speeds = [job for key, job in planned.jobs.items() if key[:6] == "speed/"]
  assert len(speeds) == 6
  for cell in planned.cells:
    assert plan.speed_key(cell.keys[0]) in cell.keys
  assert all(job.uses_all_cores for job in speeds)
  arguments = speeds[0].arguments({})
  for flag in (
    *("--steps_per_loop=20", "--eval_steps=0"),
    "--save_checkpoints_steps=120",
  ):
    assert flag in arguments


def test_pairs_are_evaluated_on_each_other(place):
  planned = _plan("5", place=place)
  evaluated = [key for key in planned.jobs if key.startswith("evaluations/")]
  assert len(evaluated) == 3 * 2 * 2
  assert {"data/records-none", "data/records-nsp", "data/records-sop"} <= set(
    planned.jobs
  )
  arguments = planned.jobs[evaluated[0]].arguments({})
  assert not [flag for flag in arguments if flag.startswith("--distribution")]
  on_tpu = _plan("5", place=place, scale=scales.SCALES["base"])
  job = next(j for k, j in on_tpu.jobs.items() if k[:12] == "evaluations/")
  assert "--distribution=tpu" in job.arguments({})


def test_finetuning_has_the_flags_of_scale_and_task(place):
  planned = _plan("3", tasks=("RACE",), place=place)
  model = planned.cells[0].keys[0]
  key = f"tasks/{model[len('models/') :].replace('/', '-')}-race"
  job = planned.jobs[key]
  assert job.needs == (model,)
  arguments = job.arguments({})
  for flag in (
    *("--task=race", "--data_dir=race", "--nodo_predict", "--random_seed=3"),
    *("--max_seq_length=128", "--max_qa_length=48"),
    f"--init_checkpoint={place.path(model)}",
  ):
    assert flag in arguments
  without = _plan("3", tasks=()).jobs
  assert not [key for key in without if key.startswith("tasks/")]


def test_steps_are_split_to_fit_into_memory(place):
  def job(device_bytes):
    scale = dataclasses.replace(_TINY, device_bytes=device_bytes)
    planned = _plan("3", place=place, scale=scale)
    return planned.jobs[planned.cells[0].keys[0]]

  arguments = job(1 << 25).arguments({})
  assert [f for f in arguments if f.startswith("--gradient_accumulation_step")]
  assert "does not fit" in job(1000).note
  with pytest.raises(ValueError, match="GiB per device .* does not fit"):
    job(1000).arguments({})


def test_presets_are_measured_by_the_benchmark(place, tmp_path):
  planned = _plan("1", place=place)
  assert all(job.uses_all_cores for job in planned.jobs.values())
  arguments = planned.jobs["configurations/bert_large"].arguments({})
  assert arguments[:3] == ["tools.benchmark", "step", "--preset=bert_large"]
  values = {}
  for rate, (key, job) in enumerate(planned.jobs.items(), 2):
    folder = tmp_path / key
    folder.mkdir(parents=True)
    rates = {"tokens_per_second": [3.0 * rate, 2.0 * rate, 7.0 * rate]}
    (folder / "step.json").write_text(json.dumps(rates))
    values[key] = job.read()
  rows = results.collect(tables.TABLES["1"], planned.cells, values, ())
  by_label = {row.row.label: row for row in rows}
  # BERT-large has a rate of 3, ALBERT-xxlarge of 7.
  assert by_label["BERT-large"].values["speed"] == [1.0]
  assert by_label["ALBERT-xxlarge"].values["speed"] == [7 / 3]
  assert by_label["ALBERT-xxlarge"].values["tokens/s"] == [21.0]
  # Sharing saves parameters, not operations.
  base = by_label["ALBERT-base"]
  assert base.parameters == 11_683_584
  bert = by_label["BERT-base"].values["MFLOP/token"][0]
  assert base.values["MFLOP/token"][0] == pytest.approx(bert, rel=0.01)


_DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


@pytest.fixture
def depths(place) -> plan.Plan:
  return _plan("depth_inference", ("MNLI", "SST-2"), place=place)


def test_one_model_is_measured_at_all_depths(depths):
  models = [key for key in depths.jobs if key.startswith("models/")]
  assert len(models) == 2
  # For each seed and task: as tuned and after two kinds of more steps.
  evaluations = [key for key in depths.jobs if "-depth_" in key]
  assert len(evaluations) == 2 * 2 * 3 * len(_DEPTHS)


def test_commands_of_depths(depths):
  def arguments(suffix):
    jobs = depths.jobs.items()
    return next(j for k, j in jobs if k.endswith(suffix)).arguments({})

  for flag in ("--nodo_train", "--num_hidden_layers=16", "--task=sst2"):
    assert flag in arguments("sst2-random_depths-depth_16")
  more = arguments("random_depths")
  assert "--num_train_steps=300" in more
  assert not [flag for flag in more if flag.startswith("--num_train_epochs")]


def test_rows_have_the_values_of_their_depth(depths, tmp_path):
  key = next(key for key in depths.jobs if key.endswith("mnli-depth_3"))
  folder = tmp_path / key.removesuffix("-depth_3") / "depth_3"
  folder.mkdir(parents=True)
  metrics = {"dev_matched": {"accuracy": 0.25}}
  (folder / "eval_results.json").write_text(json.dumps(metrics))
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "depth_latency.json").write_text('{"3": 1.5}')
  values = {k: depths.jobs[k].read() for k in (key, "data/depth_latency")}
  table = tables.TABLES["depth_inference"]
  rows = results.collect(table, depths.cells, values, ("MNLI",))
  found = {row.row.label: row.values for row in rows}
  assert found["3 layers"] == {"MNLI": [25.0], "ms": [1.5]}
  assert not found["4 layers"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
