"""Tests of the best checkpoint: which it is, and that it is always whole."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import DIRECTIONS, best_checkpoint
from official_albert.training import checkpoint_manager as checkpoints


def model_of(value):
  model = toy_task.ToyTask().build_model()
  model.set_weights([np.full_like(w, value) for w in model.get_weights()])
  return model


def read_weights(folder):
  """What whoever exports would read."""
  record = best_checkpoint.read_best(str(folder))
  model = model_of(-1)
  path = best_checkpoint.best_prefix(str(folder), record)
  checkpoints.warm_start(model, path)
  values = {float(w.flat[0]) for w in model.get_weights()}
  assert len(values) == 1
  return record["step"], values.pop()


def offer(
  folder, step, loss, phase=1, metric="loss", value=None, best_is="lowest"
):
  """Offers weights that are all `value`, by default the step."""
  model = model_of(step if value is None else value)
  best = best_checkpoint.BestCheckpoint(str(folder), model, metric, best_is)
  return best.offer(step, phase, {"loss": loss, "a_loss": loss / 2, "x": 1.0})


def names(folder):
  return sorted(path.name for path in (folder / "best").iterdir())


def test_the_lowest_loss_is_kept_and_alone(tmp_path):
  assert best_checkpoint.read_best(str(tmp_path)) is None
  taken = [offer(tmp_path, s, v) for s, v in ((2, 5.0), (4, 3.0), (6, 4.0))]
  assert taken == [True, True, False]
  assert read_weights(tmp_path) == (4, 4.0)
  assert names(tmp_path) == [
    "best.json",
    "checkpoint",
    "model.ckpt-4.data-00000-of-00001",
    "model.ckpt-4.index",
  ]
  record = best_checkpoint.read_best(str(tmp_path))
  assert record["values"] == {"loss": 3.0, "a_loss": 1.5, "x": 1.0}
  # The folder can be given as --init_checkpoint.
  model = model_of(0)
  checkpoints.warm_start(model, str(tmp_path / "best"))
  assert model.get_weights()[0].flat[0] == 4.0


def test_the_highest_is_kept_where_that_is_the_best(tmp_path):
  taken = [
    offer(tmp_path, step, value, best_is="highest")
    for step, value in ((2, 0.5), (4, 0.4), (6, 0.7), (8, 0.7))
  ]
  assert taken == [True, False, True, False]
  assert read_weights(tmp_path) == (6, 6.0)
  assert best_checkpoint.read_best(str(tmp_path))["best_is"] == "highest"
  # Judged the other way, none of before counts.
  assert offer(tmp_path, 10, 0.9)


@pytest.mark.parametrize("best_is", DIRECTIONS)
def test_any_number_is_better_than_none(tmp_path, best_is):
  """A correlation with constant predictions is no number."""
  offers = ((2, np.nan), (4, np.nan), (6, -9.0), (8, np.nan))
  taken = [offer(tmp_path, s, v, best_is=best_is) for s, v in offers]
  assert taken == [True, False, True, False]
  assert read_weights(tmp_path) == (6, 6.0)


def test_a_record_from_before_there_were_directions(tmp_path):
  offer(tmp_path, 2, 5.0)
  path = tmp_path / "best" / "best.json"
  record = json.loads(path.read_text())
  assert record.pop("best_is") == "lowest"
  path.write_text(json.dumps(record))
  assert not offer(tmp_path, 4, 6.0)
  assert offer(tmp_path, 6, 4.0)


def test_evaluations_since_the_best_one(tmp_path):
  def since(step, metric="loss", best_is="lowest"):
    best = best_checkpoint.BestCheckpoint(
      str(tmp_path), model_of(0), metric, best_is
    )
    return best.evaluations_since(step, 5)

  assert since(20) == 0
  offer(tmp_path, 10, 3.0)
  assert [since(s) for s in (5, 10, 14, 15, 19, 25)] == [0, 0, 0, 1, 1, 3]
  assert since(25, "a_loss") == since(25, best_is="highest") == 0


def test_only_weights_are_stored(tmp_path):
  offer(tmp_path, 2, 5.0)
  path = tf.train.latest_checkpoint(str(tmp_path / "best"))
  stored = [n for n, _ in tf.train.list_variables(path) if "VARIABLE" in n]
  assert len(stored) == 4  # Two layers, no optimizer.


def test_the_same_evaluation_again_changes_nothing(tmp_path):
  offer(tmp_path, 2, 5.0)
  before = (tmp_path / "best" / "best.json").read_bytes()
  assert not offer(tmp_path, 2, 5.0)
  assert (tmp_path / "best" / "best.json").read_bytes() == before


def test_another_phase_or_metric_starts_anew(tmp_path):
  offer(tmp_path, 2, 5.0)
  # Of one step, at the border: the same weights on longer sequences.
  assert offer(tmp_path, 2, 6.0, phase=2)
  assert read_weights(tmp_path) == (2, 2.0)
  assert not offer(tmp_path, 4, 6.5, phase=2)
  assert offer(tmp_path, 6, 7.0, phase=2, metric="a_loss")
  assert read_weights(tmp_path) == (6, 6.0)
  with pytest.raises(ValueError, match="'b_loss' .* one of loss, a_loss"):
    offer(tmp_path, 8, 1.0, metric="b_loss")


def test_other_weights_of_the_same_step(tmp_path):
  """As after a rollback; the files in use are never written over."""
  for loss in (5.0, 4.0, 3.0):
    offer(tmp_path, 2, loss, value=loss)
    assert read_weights(tmp_path) == (2, loss)
    assert len(names(tmp_path)) == 4


class _Killed(BaseException):
  pass


@pytest.mark.parametrize("moment", ["write", "record", "list", "removal"])
def test_a_kill_leaves_a_whole_one(tmp_path, monkeypatch, moment):
  offer(tmp_path, 2, 5.0)

  def kill(*args, **kwargs):
    if moment == "write":
      (tmp_path / "best" / "model.ckpt-4_temp").mkdir()
      (tmp_path / "best" / "model.ckpt-4.index").write_text("half")
    raise _Killed

  with monkeypatch.context() as patched:
    if moment == "write":
      patched.setattr(tf.train.Checkpoint, "write", kill)
    elif moment == "record":
      patched.setattr(os, "replace", kill)
    elif moment == "list":
      patched.setattr(tf.compat.v1.train, "update_checkpoint_state", kill)
    else:
      patched.setattr(tf.io.gfile, "remove", kill)
    with pytest.raises(_Killed):
      offer(tmp_path, 4, 4.0)
  committed = moment in ("list", "removal")
  assert read_weights(tmp_path) == ((4, 4.0) if committed else (2, 2.0))
  # The next evaluation is judged as if nothing had happened.
  assert offer(tmp_path, 6, 4.5) is not committed
  assert read_weights(tmp_path)[0] == (4 if committed else 6)
  assert not any("temp" in n or ".tmp" in n for n in names(tmp_path))
  assert len([n for n in names(tmp_path) if n.endswith(".index")]) == 1


def test_a_kill_while_the_same_step_is_written(tmp_path, monkeypatch):
  offer(tmp_path, 2, 5.0, value=5.0)

  def kill(self, prefix):
    for name in ("index", "data-00000-of-00001"):
      with open(f"{prefix}.{name}", "w") as file:
        file.write("half")
    raise _Killed

  with monkeypatch.context() as patched:
    patched.setattr(tf.train.Checkpoint, "write", kill)
    with pytest.raises(_Killed):
      offer(tmp_path, 2, 4.0)
  assert read_weights(tmp_path) == (2, 5.0)


def test_a_full_disk_is_one_sentence_and_keeps_the_one_before(
  tmp_path, monkeypatch
):
  offer(tmp_path, 2, 5.0)

  def fail(*args, **kwargs):
    (tmp_path / "best" / "model.ckpt-4_temp").mkdir()
    raise tf.errors.ResourceExhaustedError(None, None, "No space left")

  monkeypatch.setattr(tf.train.Checkpoint, "write", fail)
  with pytest.raises(OSError, match="best checkpoint, of step 4, .*No space"):
    offer(tmp_path, 4, 4.0)
  assert read_weights(tmp_path) == (2, 2.0)
  assert len(names(tmp_path)) == 4


def test_a_run_from_scratch_forgets_the_best_of_another(tmp_path):
  offer(tmp_path, 2, 0.0)
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path, eval_steps=3))
  record = best_checkpoint.read_best(str(tmp_path))
  assert record["values"]["loss"] > 0 and record["step"] in (3, 6)


def test_an_unknown_metric_is_refused_before_the_first_step(tmp_path):
  task = toy_task.ToyTask()
  cfg = toy_task.config(tmp_path, eval_steps=3, best_metric="share_loss")
  with pytest.raises(ValueError, match="one of loss, first_loss, second_loss"):
    toy_task.run(task, cfg)
  assert task.starts == []


def test_without_evaluations_none_is_kept(tmp_path):
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path, eval_steps=0))
  assert best_checkpoint.read_best(str(tmp_path)) is None
  assert not (tmp_path / "best").exists()


def test_the_evaluation_that_a_kill_prevented_is_made_up_for(tmp_path):
  """Saved at step 3, killed before it was evaluated."""
  cfg = toy_task.config(tmp_path, eval_steps=3)
  task = toy_task.ToyTask()
  evaluated, make = [], task.eval_dataset

  class Once:
    def __init__(self, data):
      self.data, self.element_spec = data, data.element_spec

    def __iter__(self):
      evaluated.append(None)
      if len(evaluated) == 2:
        raise _Killed
      return iter(self.data)

  task.eval_dataset = lambda size: Once(make(size))
  with pytest.raises(_Killed):
    toy_task.run(task, cfg)
  assert (tmp_path / "model.ckpt-3.index").exists()
  assert not (tmp_path / "best").exists()
  # The first task, whose losses fall, improves from step to step.
  task = toy_task.ToyTask()
  task.train_dataset_of = task.train_dataset
  task.train_dataset = lambda *args: task.train_dataset_of(*args).take(1)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(task, cfg)
  assert best_checkpoint.read_best(str(tmp_path))["step"] == 3


def test_a_broken_record_is_named(tmp_path):
  offer(tmp_path, 2, 5.0)
  path = tmp_path / "best" / "best.json"
  assert json.loads(path.read_text())["checkpoint"] == "model.ckpt-2"
  path.write_text("{")
  with pytest.raises(ValueError, match="best.json is not valid JSON"):
    best_checkpoint.read_best(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
