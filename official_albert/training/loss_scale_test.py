"""The scale halves, grows, is resumed, and changes no result.

The gradients of the toy task overflow float16 from scales of 2^14 to 2^17 on,
from batch to batch; tests that want no overflow start at 2^12.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import run_logs
from official_albert.testing import toy_task
from official_albert.training import (
  loss_scale,
  objective,
  optimization,
  train_step,
)


@pytest.fixture(autouse=True)
def float16(monkeypatch):
  monkeypatch.setattr(loss_scale, "INITIAL", 2.0**12)
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


def records(folder):
  return run_logs.read_metrics(str(folder), "train")


def scale_of(folder):
  state = toy_task.saved(folder)
  key = "loss_scale/{}/.ATTRIBUTES/VARIABLE_VALUE"
  return state[key.format("value")], state[key.format("finite_steps")]


def test_overflow_halves_the_scale_and_skips_the_update(tmp_path, monkeypatch):
  monkeypatch.setattr(loss_scale, "INITIAL", 2.0**18)
  cfg = toy_task.config(
    tmp_path, steps_per_loop=1, save_checkpoints_steps=1, keep_checkpoint_max=9
  )
  _, weights, log = toy_task.run(toy_task.ToyTask(), cfg)
  logged = records(tmp_path)
  skipped = [r["skipped_updates"] for r in logged]
  assert skipped[0] == 1 and skipped[-1] == 0 and set(skipped) == {0, 1}
  assert [r["loss_scale"] for r in logged] == [
    2.0 ** (18 - sum(skipped[: k + 1])) for k in range(6)
  ]
  assert "skipped updates 1" in log and "loss scale 1.311e+05" in log
  # A skipped step has no loss and no norm, but a rate; the others have all.
  for record in logged:
    for name in ("loss", "first_loss", "share", "gradient_norm"):
      assert (name in record) is (record["skipped_updates"] == 0)
  np.testing.assert_allclose(
    [r["learning_rate"] for r in logged],
    [float(optimization.optimizer_of(cfg).learning_rate(k)) for k in range(6)],
    rtol=1e-6,
  )
  # Weights and moments change only in the steps that are not skipped.
  states = [
    {
      name: x
      for name, x in toy_task.saved(tmp_path, step).items()
      if x.dtype == np.float32 and "loss_scale" not in name
    }
    for step in range(1, 7)
  ]
  assert any(".OPTIMIZER_SLOT" in name for name in states[0])
  for before, after, skip in zip(states, states[1:], skipped[1:]):
    changed = any(np.any(before[name] != after[name]) for name in before)
    assert changed == (skip == 0)
  assert all(np.isfinite(w).all() for w in weights)


@pytest.mark.parametrize(
  "growth_steps, largest, scale",
  [(4, 2.0**24, (2.0**13, 2)), (1, 2.0**14, (2.0**14, 0))],
)
def test_the_scale_grows_up_to_a_limit(
  tmp_path, monkeypatch, growth_steps, largest, scale
):
  monkeypatch.setattr(loss_scale, "GROWTH_STEPS", growth_steps)
  monkeypatch.setattr(loss_scale, "_LARGEST", largest)
  trainer = []
  for seed in (1, 2):  # Runs that share a trainer start with the same scale.
    cfg = toy_task.config(tmp_path / str(seed), seed=seed)
    toy_task.run(toy_task.ToyTask(), cfg, trainer)
    assert scale_of(cfg.model_dir) == scale


def test_an_overflow_in_one_of_three_micro_batches_skips_the_update(tmp_path):
  runs = []
  for parts in (1, 3):
    cfg = toy_task.config(
      tmp_path / str(parts), gradient_accumulation_steps=parts
    )
    runs.append(toy_task.run(toy_task.ToyTask(poison_at=36), cfg)[1])
    assert scale_of(tmp_path / str(parts)) == (2.0**11, 2)
  for a, b in zip(*runs):
    # Products over 12 or 4 rows end in float16, 0.05% a rounding, of which
    # Adam's first steps see the sign and size: up to a learning rate of 0.01.
    np.testing.assert_allclose(a, b, atol=1e-3)


def test_the_scale_changes_no_gradient():
  """A power of two changes exponents only; float16 rounds the smallest away."""
  task = toy_task.ToyTask()
  batch, model = next(iter(task.train_dataset(12, 0))), task.build_model()
  cfg = toy_task.config("unused")
  norms = []
  for scale in (None, loss_scale.LossScale()):
    optimizer = optimization.optimizer_of(cfg)
    optimizer.prepare(model)
    step = train_step.make_train_step(task, model, optimizer, cfg, scale)
    # The first step's rate is 0, so the weights stay what they are.
    results = tf.function(step, autograph=False)(batch)
    norms.append(float(results["gradient_norm"].total))
  np.testing.assert_allclose(*norms, rtol=2e-3)


def test_a_scale_below_one_is_a_divergence(tmp_path):
  task = toy_task.ToyTask()
  task.x[:] = np.inf
  cfg = toy_task.config(
    tmp_path, num_train_steps=20, steps_per_loop=20, save_checkpoints_steps=20
  )
  with pytest.raises(
    objective.Divergence,
    match="between steps 0 and 20 .*loss_scale 0.5, skipped_updates 20",
  ):
    toy_task.run(task, cfg)
  assert tf.train.latest_checkpoint(str(tmp_path)) is None


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_other_precisions_have_no_scale(tmp_path, precision):
  tf.keras.mixed_precision.set_global_policy(precision)
  _, _, log = toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  assert not [name for name in toy_task.saved(tmp_path) if "loss_scale" in name]
  assert "loss scale" not in log and "skipped" not in log
  assert not any("skipped_updates" in record for record in records(tmp_path))
  # A run cannot change between float16 and others.
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  with pytest.raises(ValueError, match="float16's loss scale"):
    toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
