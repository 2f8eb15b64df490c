"""Tests of plan.py: jobs, their commands, and what they read."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from official_albert import modeling
from official_albert.tools.experiments import plan, results, scales, tables

_TINY, _BASE = scales.SCALES["tiny"], scales.SCALES["base"]


@pytest.fixture
def place(tmp_path) -> plan.Place:
  tasks = {"MNLI": "glue", "SST-2": "glue", "RACE": "race", "SQuAD1.1": "sq"}
  return plan.Place(str(tmp_path), "a.txt,b.txt", "more.txt", tasks)


def _plan(name, place, tasks=("MNLI",), seeds=(3, 5), scale=_TINY):
  return plan.make_plan(tables.TABLES[name], scale, place, tasks, seeds)


def _arguments(planned, label):
  """The command that trains the first seed of a row."""
  key = next(cell.keys[0] for cell in planned.cells if cell.label == label)
  return planned.jobs[key].arguments({})


@pytest.mark.parametrize("name", tables.TABLES)
def test_each_job_follows_those_it_needs(name, place):
  planned = _plan(name, place)
  seen = set()
  for key, job in planned.jobs.items():
    assert key == job.key
    assert set(job.needs) <= seen
    seen.add(key)
  table = tables.TABLES[name]
  seeds = 2 if table.trains else 1
  assert [cell.label for cell in planned.cells] == [
    row.label for row in table.rows if row.runs for _ in range(seeds)
  ]
  assert {key for cell in planned.cells for key in cell.keys} <= seen
  # All rows of a seed precede the next seed.
  order = [key[-1] for key in planned.jobs if key.startswith("models/")]
  assert order == sorted(order)


@pytest.mark.parametrize("scale", scales.SCALES.values(), ids=lambda s: s.name)
@pytest.mark.parametrize("name", tables.TABLES)
def test_no_model_is_twice_in_a_table(name, scale):
  """Except for rows that measure one model at several depths."""
  found = []
  for row in tables.TABLES[name].rows:
    if row.preset or not row.runs or row.num_applied_layers:
      continue
    config = scale.config(row.model)
    if config.num_hidden_groups == config.num_hidden_layers:
      # One layer in each group.
      config = dataclasses.replace(config, num_hidden_groups=1, sharing="none")
    data = row.sentence_pair, row.more_data, row.training, row.starts_from
    steps = row.equal_time or scale.steps_of(name, row.share)
    found.append((config, data, steps))
  assert not [x for i, x in enumerate(found) if x in found[:i]]


def test_records_of_additional_text(place):
  planned = _plan("7", place)
  arguments = planned.jobs["data/records-sop-more"].arguments({})
  assert arguments[0] == "official_albert.tools.create_pretraining_data"
  # Last, as document numbers decide what is held out.
  assert "--input_files=a.txt,b.txt,more.txt" in arguments
  assert "--sentence_pair=sop" in arguments
  arguments = _arguments(planned, "with additional data")
  assert f"--input_dir={place.path('data/records-sop-more')}" in arguments
  assert f"--eval_input_dir={place.path('data/records-sop')}" in arguments


def test_pretraining_command(place):
  planned = _plan("11", place)
  first, second = planned.cells[0], planned.cells[2]
  assert (first.label, second.label) == ("1 layer", "3 layers")
  job = planned.jobs[second.keys[0]]
  assert job.needs == ("data/records-sop", first.keys[0])
  arguments = job.arguments({})
  assert arguments[0] == "official_albert.tools.run_pretraining"
  file = place.path(f"{second.keys[0]}.albert_config.json")
  assert {
    f"--init_checkpoint={place.path(first.keys[0])}",
    # A quarter of the steps, as the models are deep.
    "--num_train_steps=400",
    "--num_warmup_steps=40",
    "--random_seed=3",
    "--eval_steps=50",
    "--bias_correction=True",
    f"--albert_config_file={file}",
  } <= set(arguments)
  # It has the weights of the other model.
  neighbors = "--init_neighbor_attention=True"
  assert neighbors not in arguments
  assert neighbors in planned.jobs[first.keys[0]].arguments({})
  config = modeling.AlbertConfig.from_json_file(file)
  assert config.num_hidden_layers == 3
  # Forward and twice that backward, 400 updates of 32 sequences.
  assert job.cost == 3 * 400 * 32 * config.forward_flops(64)


def test_equal_time_follows_from_measured_speeds(place):
  planned = _plan("6", place)
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


@pytest.mark.parametrize("scale", [_TINY, _BASE], ids=lambda s: s.name)
def test_evaluations_of_the_sentence_objectives_run_on_the_scales_device(
  place, scale
):
  jobs = _plan("5", place, scale=scale).jobs
  job = next(j for key, j in jobs.items() if key.startswith("evaluations/"))
  on_tpu = "--distribution=tpu" in job.arguments({})
  assert on_tpu == (scale is _BASE)


def test_models_are_evaluated_on_the_texts_of_tasks(place, tmp_path):
  planned = _plan("task_texts", place)
  jobs = planned.jobs
  models = {key for key in jobs if key.startswith("models/")}
  assert models == {k for k in _plan("5", place).jobs if k in models}
  [text] = [key for key in jobs if key.startswith("data/text-s")]
  assert {
    "official_albert.tools.gather_corpus",
    *("--task=squad_v1", "--data_dir=sq"),
    f"--output_file={place.path(text)}",
  } == set(jobs[text].arguments({}))
  records = jobs["data/records-nsp-squad_v1"]
  assert text in records.needs
  # All of the text is held out from training.
  assert {
    *("--heldout_share=0", "--sentence_pair=nsp", "--max_seq_length=64"),
    f"--input_files={place.path(text)}",
  } <= set(records.arguments({}))
  model = planned.cells[0].keys[0]
  key = next(k for k in planned.cells[0].keys if k.endswith("nsp-squad_v1"))
  assert {model, "data/records-nsp", records.key} == set(jobs[key].needs)
  assert {
    *("--mode=evaluate", f"--model_dir={place.path(model)}"),
    f"--input_dir={place.path('data/records-nsp')}",
    f"--eval_input_dir={place.path(records.key)}",
  } <= set(jobs[key].arguments({}))
  # Records of --masking=dynamic, whose order is drawn when they are read.
  for pair, share in (("nsp", 0.375), ("sop", 0.0)):
    folder = tmp_path / "data" / f"records-{pair}-squad_v1"
    folder.mkdir(parents=True)
    manifest = {
      "settings": {"masking": "dynamic"},
      "splits": {"train": {"statistics": {"label_1_share": share}}},
    }
    (folder / "dataset.json").write_text(json.dumps(manifest))
  metrics = {"sentence_order_accuracy": 0.75, "masked_lm_loss": 5.0}
  values = {}
  for pair in ("nsp", "sop"):
    job = jobs[key.replace("nsp-squad", f"{pair}-squad")]
    file = place.path(f"{job.key}.metrics.json")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "w") as opened:
      json.dump({**metrics, "masked_lm_accuracy": 0.125}, opened)
    values[job.key] = job.read()
  table = tables.TABLES["task_texts"]
  row, *_ = results.collect(table, planned.cells, values, ())
  assert row.values == {
    "SQuAD1.1 MLM": [12.5],
    "SQuAD1.1 NSP": [75.0],
    "SQuAD1.1 SOP": [75.0],
    # The share of the more frequent label.
    "SQuAD1.1 NSP chance": [62.5],
    "SQuAD1.1 SOP chance": [50.0],
  }


def test_finetuning_has_the_flags_of_scale_and_task(place):
  planned = _plan("3", place, tasks=("RACE",))
  model, key = planned.cells[0].keys
  assert key == f"tasks/{model[len('models/') :].replace('/', '-')}-race"
  job = planned.jobs[key]
  assert job.needs == (model,)
  assert {
    *(
      "--task=race",
      "--data_dir=race",
      "--do_predict=False",
      "--random_seed=3",
    ),
    *("--max_seq_length=128", "--max_qa_length=48"),
    # The weights that were evaluated, whether or not they are the best.
    f"--init_checkpoint={place.path(model)}/model.ckpt-50",
  } <= set(job.arguments({model: {"steps": 50}}))


def test_steps_are_split_to_fit_into_memory(place):
  def job(device_bytes):
    scale = dataclasses.replace(
      scales.SCALES["small"], device_bytes=device_bytes
    )
    planned = _plan("3", place, scale=scale)
    return planned.jobs[planned.cells[0].keys[0]]

  arguments = job(1 << 29).arguments({})
  assert [f for f in arguments if f.startswith("--gradient_accumulation_step")]
  assert "does not fit" in job(1000).note
  with pytest.raises(ValueError, match="GiB per device .* does not fit"):
    job(1000).arguments({})


def test_presets_are_measured_by_the_benchmark(place, tmp_path):
  planned = _plan("1", place)
  assert all(job.uses_all_cores for job in planned.jobs.values())
  key = "configurations/bert_large"
  job = planned.jobs[key]
  arguments = job.arguments({})
  assert arguments[0] == "official_albert.tools.benchmark"
  assert arguments[1:3] == ["step", "--preset=bert_large"]
  (tmp_path / key).mkdir(parents=True)
  rates = json.dumps({"tokens_per_second": [3.0, 2.0, 7.0]})
  (tmp_path / key / "step.json").write_text(rates)
  rows = results.collect(
    tables.TABLES["1"], planned.cells, {key: job.read()}, ()
  )
  (row,) = (row for row in rows if row.row.label == "BERT-large")
  assert row.values["speed"] == [1.0] and row.values["tokens/s"] == [3.0]


def test_one_model_is_measured_at_all_depths(place, tmp_path):
  planned = _plan("depth_inference", place, ("MNLI", "SST-2"))
  jobs = planned.jobs
  assert len([key for key in jobs if key.startswith("models/")]) == 2
  # For each seed and task: as tuned and after two kinds of more steps.
  assert len([k for k in jobs if "-depth_" in k]) == 2 * 2 * 3 * 9

  def arguments(suffix):
    return next(j for k, j in jobs.items() if k.endswith(suffix)).arguments({})

  assert {"--do_train=False", "--num_hidden_layers=16", "--task=sst2"} <= set(
    arguments("sst2-random_depths-depth_16")
  )
  more = arguments("random_depths")
  assert "--num_train_steps=300" in more
  assert not [flag for flag in more if flag.startswith("--num_train_epochs")]
  # 10,000 examples, and 300 steps of 32 sequences of the same length.
  (tuned, *_), (further, *_) = (
    [job.cost for key, job in jobs.items() if key.endswith(f"sst2{ending}")]
    for ending in ("", "-random_depths")
  )
  assert further / tuned == pytest.approx(300 * 32 / 10_000)
  key = next(key for key in jobs if key.endswith("mnli-depth_3"))
  folder = tmp_path / key.removesuffix("-depth_3") / "depth_3"
  folder.mkdir(parents=True)
  metrics = {"dev_matched": {"accuracy": 0.25}}
  (folder / "eval_results.json").write_text(json.dumps(metrics))
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "depth_latency.json").write_text('{"3": 1.5}')
  values = {k: jobs[k].read() for k in (key, "data/depth_latency")}
  values[key.removesuffix("-depth_3")] = {"MNLI": 30.0, "MNLI chance": 35.0}
  table = tables.TABLES["depth_inference"]
  rows = results.collect(table, planned.cells, values, ("MNLI",))
  found = {row.row.label: row.values for row in rows}
  assert found["3 layers"] == {
    **{"MNLI": [25.0], "ms": [1.5], "MNLI chance": [35.0]}
  }
  assert found["4 layers"] == {"MNLI chance": [35.0]}


def test_layers_are_compared_on_a_sentence_of_each_document(place, tmp_path):
  text = tmp_path / "text.txt"
  text.write_text("One.\nTwo.\nThree.\n\nFour.\nFive.\n")
  place = dataclasses.replace(place, input_files=str(text))
  for _ in range(2):
    with open(place.write_sentences()) as file:
      assert file.read() == "Two.\nFive.\n"
    # Written once: all models see the same.
    text.write_text("Six.\n")
