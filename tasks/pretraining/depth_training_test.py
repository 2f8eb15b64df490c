"""Tests of training at several depths of a model with dropout, and resuming."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_albert import run_logs, runs, training
from official_albert.tasks.pretraining import task as task_lib
from official_albert.testing import toy_task
from official_albert.training import Phase

DEEP = 5
SCHEDULE = (Phase(3, num_layers=2), Phase(4, num_layers=DEEP, same_data=True))


@pytest.fixture(scope="module")
def data(unmasked):
  """Returns a folder of records and a deep model that fits them."""
  folder, config = unmasked
  return folder, dataclasses.replace(
    config,
    num_hidden_layers=DEEP,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
  )


def train(data, model_dir, schedule=(), stop=None, recompute=False, **changes):
  """Makes seven updates; returns the last evaluation and the log.

  With `stop`, the data of a phase ends after that many updates.
  """
  folder, albert_config = data
  task = task_lib.PretrainingTask(
    albert_config, folder, seed=3, recompute_activations=recompute
  )
  tasks = [task]
  if schedule:
    tasks = task_lib.at_depths(task, [phase.num_layers for phase in schedule])
  for index, updates in (stop or {}).items():
    whole = tasks[index].train_dataset
    tasks[index].train_dataset = (
      lambda *arguments, whole=whole, updates=updates: whole(*arguments).take(
        updates
      )
    )
  values = dict(
    num_train_steps=7,
    phases=schedule,
    num_warmup_steps=1,
    train_batch_size=6,
    eval_batch_size=4,
    eval_steps=2,
    save_checkpoints_steps=1,
    keep_checkpoint_max=20,
  )
  config = toy_task.config(model_dir, **{**values, **changes})
  last, _, log = toy_task.run(tasks, config)
  return last, log


def assert_same(a, b, step):
  expected = toy_task.saved(a, step)
  assert len(expected) > 50
  np.testing.assert_equal(toy_task.saved(b, step), expected)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
  """Returns the folder, last evaluation and log of an uninterrupted run."""
  folder = tmp_path_factory.mktemp("whole")
  return (folder, *train(data, folder, SCHEDULE))


@pytest.mark.heavy
def test_a_phase_computes_what_a_model_of_its_depth_does(data, whole, tmp_path):
  """A model of the depth resumes the run at the border of the phases.

  So weights, moments, examples seen and dropout masks continue.
  """
  folder, config = data
  begin = 0
  for phase in SCHEDULE:
    model_dir = tmp_path / str(phase.num_layers)
    model_dir.mkdir()
    if begin:
      for path in whole[0].glob(f"model.ckpt-{begin}.*"):
        shutil.copy(path, model_dir)
    shallow = dataclasses.replace(config, num_hidden_layers=phase.num_layers)
    train((folder, shallow), model_dir)
    begin += phase.steps
    assert_same(whole[0], model_dir, begin)
    own, ours = (
      {r["step"]: r["loss"] for r in run_logs.read_metrics(str(f), "train")}
      for f in (model_dir, whole[0])
    )
    assert own[begin] == ours[begin]


@pytest.mark.heavy
def test_reports_name_the_depth_and_the_best_is_at_full_depth(data, whole):
  folder, last, _ = whole
  held_out = run_logs.read_metrics(str(folder), "eval")
  assert [(r["step"], r["phase"], r["depth"]) for r in held_out] == [
    (0, 1, 2),
    (2, 1, 2),
    (3, 1, 2),
    (3, 2, 5),
    (4, 2, 5),
    (6, 2, 5),
    (7, 2, 5),
  ]
  # The same weights at two depths.
  assert held_out[2]["loss"] != held_out[3]["loss"]
  assert held_out[2]["loss"] == pytest.approx(held_out[3]["loss"], rel=0.1)
  assert held_out[-1]["loss"] == last["loss"]
  best = runs.read_best(str(folder))
  full = [r for r in held_out if r["depth"] == DEEP]
  assert best["phase"] == 2
  assert best["values"]["loss"] == min(r["loss"] for r in full)
  per_sequence = {
    r["step"]: r["model_flops_per_second"] / r["sequences_per_second"]
    for r in run_logs.read_metrics(str(folder), "train")
  }
  for step, depth in ((1, 2), (3, 2), (4, 5), (7, 5)):
    shallow = dataclasses.replace(data[1], num_hidden_layers=depth)
    assert per_sequence[step] == pytest.approx(
      shallow.pretraining_flops(29, 4), rel=1e-6
    )


@pytest.mark.heavy
@pytest.mark.parametrize(
  "stop, resumed_at",
  [
    ({0: 2}, 2),  # Within the first phase.
    ({1: 0}, 3),  # Right after the switch.
    ({1: 2}, 5),  # Within the second phase.
  ],
)
def test_a_killed_run_resumes_to_the_bit(
  data, whole, tmp_path, stop, resumed_at
):
  folder, last, _ = whole
  with pytest.raises(tf.errors.OutOfRangeError):
    train(data, tmp_path, SCHEDULE, stop)
  again, log = train(data, tmp_path, SCHEDULE)
  assert f"resumed from {tmp_path}/model.ckpt-{resumed_at}" in log
  assert again == last
  assert_same(folder, tmp_path, 7)
  assert runs.read_best(str(folder)) == runs.read_best(str(tmp_path))


@pytest.mark.heavy
@pytest.mark.parametrize(
  "settings", [{}, dict(xla=True), dict(gradient_accumulation_steps=3)]
)
def test_an_update_at_a_random_depth_is_that_of_a_model_of_this_depth(
  data, tmp_path, settings
):
  folder, albert_config = data
  depths = (2, 3, DEEP)
  random = tmp_path / "random"
  _, log = train(data, random, random_depths=depths, **settings)
  assert "each step at a random depth of 2, 3, 5" in log
  held_out = run_logs.read_metrics(str(random), "eval")
  assert {r.get("depth") for r in held_out} == {None}
  config = toy_task.config("run", random_depths=depths, seed=12345)
  drawn = [
    depths[int(training.draw_depth(config, np.int64(n), config.seed))]
    for n in range(7)
  ]
  assert len(set(drawn)) == 3
  for depth in depths:
    step = drawn.index(depth)
    alone = tmp_path / str(depth)
    alone.mkdir()
    for path in random.glob(f"model.ckpt-{step}.*"):
      shutil.copy(path, alone)
    config = dataclasses.replace(albert_config, num_hidden_layers=depth)
    with pytest.raises(tf.errors.OutOfRangeError):
      train((folder, config), alone, stop={0: 1}, **settings)
    assert_same(random, alone, step + 1)


@pytest.mark.heavy
@pytest.mark.parametrize(
  "settings",
  [dict(recompute=True, gradient_accumulation_steps=3), dict(xla=True)],
)
def test_schedules_with_recomputation_micro_batches_or_xla(
  data, tmp_path, settings
):
  plain = train(data, tmp_path / "plain", **settings)[0]
  one = (Phase(7, num_layers=DEEP),)
  assert train(data, tmp_path / "one", one, **settings)[0] == plain
  scheduled = train(data, tmp_path / "scheduled", SCHEDULE, **settings)[0]
  with pytest.raises(tf.errors.OutOfRangeError):
    train(data, tmp_path / "parts", SCHEDULE, {1: 1}, **settings)
  assert train(data, tmp_path / "parts", SCHEDULE, **settings)[0] == scheduled
  assert scheduled != plain
