"""Checkpoints are whole or absent, whatever is killed, damaged or full."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, files, runs
from official_albert.testing import toy_task
from official_albert.training import checkpoint_manager as checkpoints


class _Killed(BaseException):
  pass


def model_of(value):
  model = toy_task.ToyTask().build_model()
  model.set_weights([np.full_like(w, value) for w in model.get_weights()])
  return model


def value_of(model):
  (value,) = {float(w.flat[0]) for w in model.get_weights()}
  return value


def manager(folder, model, **trackables):
  return checkpoints.CheckpointManager(
    str(folder), 2, model=model, **trackables
  )


def restored(folder, model):
  return manager(folder, model).restore_latest()


def no_space(*args, **kwargs):
  raise tf.errors.ResourceExhaustedError(None, None, "No space left")


def test_a_run_resumes_from_its_own_checkpoint(tmp_path):
  model, seen = model_of(3), tf.Variable(0, dtype=tf.int64)
  first = manager(tmp_path, model, examples_seen=seen)
  assert first.restore_latest() == ""
  seen.assign(41)
  for step in (9, 10, 11):
    first.save(step)
  kept = sorted(p.name for p in tmp_path.glob("*.index"))
  assert kept == ["model.ckpt-10.index", "model.ckpt-11.index"]
  # A killed save has left this.
  (tmp_path / "model.ckpt-12_temp").mkdir()
  (tmp_path / "model.ckpt-12_temp" / "part").write_text("half")
  (tmp_path / "checkpoint.tmp0123").touch()
  other, seen_again = model_of(0), tf.Variable(0, dtype=tf.int64)
  second = manager(tmp_path, other, examples_seen=seen_again)
  message = second.restore_latest()
  assert message == f"resumed from {tmp_path}/model.ckpt-11"
  assert (value_of(other), int(seen_again)) == (3, 41)
  assert not [*tmp_path.glob("*_temp"), *tmp_path.glob("*.tmp*")]


@pytest.mark.parametrize("before, length", [((), None), ((9,), 0), ((9,), -1)])
def test_values_of_a_killed_save_are_removed(tmp_path, before, length):
  for step in (*before, 10):
    manager(tmp_path, model_of(step)).save(step)
  # Killed after the values were moved out of the temporary folder.
  (tmp_path / "checkpoint").unlink()
  (tmp_path / "model.ckpt-10_temp").mkdir()
  index = tmp_path / "model.ckpt-10.index"
  whole = index.read_bytes()
  index.unlink()
  if length is not None:
    index.write_bytes(whole[:length])
  model = model_of(0)
  second = manager(tmp_path, model)
  message = second.restore_latest()
  assert message.endswith("model.ckpt-9") if before else message == ""
  assert not [p.name for p in tmp_path.iterdir() if "-10" in p.name]
  second.save(10)
  assert restored(tmp_path, model_of(0)).endswith("model.ckpt-10")


def test_copies_of_checkpoints_are_the_users(tmp_path):
  """They are neither read, renamed nor removed."""
  first = manager(tmp_path, model_of(1))
  copies = [tmp_path / "model.ckpt-1.bak.index", tmp_path / "model.ckpt-1-old"]
  copies += [tmp_path / "model.ckpt-1.index.bak", tmp_path / "checkpoint.bak"]
  for copy in copies:
    copy.write_text("mine")
  for step in (1, 2, 3):
    first.save(step)
  (tmp_path / "model.ckpt-1_temp").mkdir()  # A killed save of it.
  _truncate(tmp_path / "model.ckpt-3.index")
  assert "model.ckpt-2, because" in restored(tmp_path, model_of(0))
  assert runs.find_prefix(str(tmp_path)).endswith("model.ckpt-2")
  assert all(copy.read_text() == "mine" for copy in copies)


def _truncate(path):
  path.write_bytes(path.read_bytes()[:100])


def _flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 0xFF
  path.write_bytes(bytes(data))


@pytest.mark.parametrize("harm", [_truncate, _flip, pathlib.Path.unlink])
@pytest.mark.parametrize("part", ["data-00000-of-00001", "index"])
def test_the_checkpoint_before_a_damaged_one_is_restored(tmp_path, harm, part):
  manager(tmp_path, model_of(1)).save(1)
  manager(tmp_path, model_of(2)).save(2)
  harm(tmp_path / f"model.ckpt-2.{part}")
  model = model_of(0)
  second = manager(tmp_path, model)
  message = second.restore_latest()
  assert "model.ckpt-1, because model.ckpt-2 cannot be read" in message
  assert value_of(model) == 1
  # The run continues and saves the same step again.
  second.save(2)
  assert "model.ckpt-2" in restored(tmp_path, model_of(0))
  for step in (1, 2):
    harm(tmp_path / f"model.ckpt-{step}.{part}")
  with pytest.raises(ValueError, match="all 2 are damaged"):
    restored(tmp_path, model_of(0))


def test_a_checkpoint_of_a_bucket_that_cannot_be_reached_is_kept(
  tmp_path, monkeypatch
):
  manager(tmp_path, model_of(1)).save(1)
  manager(tmp_path, model_of(2)).save(2)

  def forbidden(self, path):
    message = "Error executing an HTTP request: HTTP response code 403"
    message += "\n\t when reading gs://bucket/model.ckpt-2.index"
    raise tf.errors.OpError(None, None, message, 2)

  model, there = model_of(0), [True]
  second = manager(tmp_path, model)
  with monkeypatch.context() as patched:
    patched.setattr(tf.train.Checkpoint, "restore", forbidden)
    patched.setattr(files, "exists", lambda path: there.pop())
    with pytest.raises(tf.errors.OpError, match="code 403"):
      second.restore_latest()
  assert not there
  assert second.restore_latest().endswith("model.ckpt-2")


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path, monkeypatch):
  saver = manager(tmp_path, model_of(1))
  saver.save(1)
  (tmp_path / "model.ckpt-2_temp").mkdir()
  with monkeypatch.context() as patched:
    for name in ("_write", "write", "save"):
      patched.setattr(tf.train.Checkpoint, name, no_space)
    with pytest.raises(OSError, match="step 2 was not.*No space left"):
      saver.save(2)
  assert "ckpt-1" in restored(tmp_path, model_of(0))
  assert not list(tmp_path.glob("*_temp*"))


def test_workers_restore_the_checkpoint_of_the_chief(tmp_path, monkeypatch):
  for step in (5, 6):
    manager(tmp_path, model_of(step)).save(step)
  monkeypatch.setattr(distribution, "is_chief", lambda strategy: False)
  # Not the newest in the folder.
  monkeypatch.setattr(distribution, "from_chief", lambda *_: 5)
  model = model_of(0)
  follower = manager(tmp_path, model)
  assert follower.restore_latest() == f"resumed from {tmp_path}/model.ckpt-5"
  assert value_of(model) == 5
  monkeypatch.setattr(distribution, "from_chief", lambda *_: 8)
  with pytest.raises(OSError, match="a folder that all workers share"):
    follower.restore_latest()


# The best checkpoint.


def read_weights(folder):
  """Returns the step and the value of the best weights."""
  record = runs.read_best(str(folder))
  model = model_of(-1)
  path = runs.find_prefix(str(folder), runs.BEST)
  tf.train.Checkpoint(model=model).read(path).assert_existing_objects_matched()
  return record["step"], value_of(model)


def offer(
  folder, step, loss, phase=1, metric="loss", value=None, best_is="lowest"
):
  """Offers weights that are all `value`, by default the step."""
  model = model_of(step if value is None else value)
  cfg = toy_task.config(folder, best_metric=metric, best_is=best_is)
  best = checkpoints.BestCheckpoint(cfg, model)
  return best.offer(step, phase, {"loss": loss, "a_loss": loss / 2, "x": 1.0})


def names(folder):
  return sorted(path.name for path in (folder / "best").iterdir())


def test_only_the_best_is_kept(tmp_path):
  assert runs.read_best(str(tmp_path)) is None
  taken = [offer(tmp_path, s, v) for s, v in ((2, 5.0), (4, 3.0), (6, 4.0))]
  assert taken == [True, True, False]
  assert read_weights(tmp_path) == (4, 4.0)
  prefix = "model.ckpt-4"
  parts = [f"{prefix}.data-00000-of-00001", f"{prefix}.index"]
  assert names(tmp_path) == ["best.json", *parts]
  assert json.loads((tmp_path / "best" / "best.json").read_text()) == {
    **{"step": 4, "phase": 1, "metric": "loss", "best_is": "lowest"},
    "values": {"loss": 3.0, "a_loss": 1.5, "x": 1.0},
    "checkpoint": prefix,
  }
  # Only weights, of two layers.
  path = str(tmp_path / "best" / prefix)
  stored = [n for n, _ in tf.train.list_variables(path) if "VARIABLE" in n]
  assert len(stored) == 4
  # Repeated after a kill, an evaluation changes nothing.
  before = (tmp_path / "best" / "best.json").read_bytes()
  assert not offer(tmp_path, 4, 3.0)
  assert (tmp_path / "best" / "best.json").read_bytes() == before


@pytest.mark.parametrize(
  "best_is, values, taken",
  [
    ("highest", (0.5, 0.4, 0.7, 0.7), [True, False, True, False]),
    # A correlation with constant predictions is NaN; any number is better.
    ("highest", (np.nan, np.nan, -9.0, np.nan), [True, False, True, False]),
    ("lowest", (np.nan, np.nan, -9.0, np.nan), [True, False, True, False]),
  ],
)
def test_ties_and_nan_are_no_improvement(tmp_path, best_is, values, taken):
  offers = zip((2, 4, 6, 8), values)
  assert [offer(tmp_path, s, v, best_is=best_is) for s, v in offers] == taken
  assert read_weights(tmp_path) == (6, 6.0)
  # A record of the other direction does not count.
  other = {"lowest": "highest", "highest": "lowest"}[best_is]
  assert offer(tmp_path, 10, 0.9, best_is=other)


def test_another_phase_or_metric_starts_anew(tmp_path):
  offer(tmp_path, 2, 5.0)
  # At a boundary: the same weights on longer sequences.
  assert offer(tmp_path, 2, 6.0, phase=2)
  assert read_weights(tmp_path) == (2, 2.0)
  assert not offer(tmp_path, 4, 6.5, phase=2)
  assert offer(tmp_path, 6, 7.0, phase=2, metric="a_loss")
  assert read_weights(tmp_path) == (6, 6.0)


@pytest.mark.parametrize("step", [2, 4])
@pytest.mark.parametrize("moment", ["write", "record", "removal"])
def test_a_kill_leaves_a_whole_best_checkpoint(
  tmp_path, monkeypatch, moment, step
):
  offer(tmp_path, 2, 5.0, value=5)

  def kill(*args, **kwargs):
    raise _Killed

  def half(self, prefix):
    (tmp_path / "best" / "model.ckpt-4_temp").mkdir()
    for part in ("index", "data-00000-of-00001"):
      pathlib.Path(f"{prefix}.{part}").write_text("half")
    raise _Killed

  with monkeypatch.context() as patched:
    if moment == "write":
      patched.setattr(tf.train.Checkpoint, "write", half)
    elif moment == "record":
      patched.setattr(os, "replace", kill)
    else:
      patched.setattr(os, "remove", kill)
    with pytest.raises(_Killed):
      offer(tmp_path, step, 4.0, value=4)
  committed = moment == "removal"
  assert read_weights(tmp_path) == ((step, 4.0) if committed else (2, 5.0))
  # The next evaluation is compared as if nothing had happened.
  assert offer(tmp_path, 6, 4.5) is not committed
  assert not any("temp" in n or ".tmp" in n for n in names(tmp_path))
  assert len([n for n in names(tmp_path) if n.endswith(".index")]) == 1


def test_a_run_from_scratch_forgets_the_best_of_another(tmp_path):
  offer(tmp_path, 2, 0.0)
  (tmp_path / "best" / "notes.txt").write_text("mine")
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path, eval_steps=3))
  record = runs.read_best(str(tmp_path))
  assert record["values"]["loss"] > 0 and record["step"] in (3, 6)
  assert "notes.txt" in names(tmp_path)


def test_an_unknown_metric_is_refused_before_the_first_step(tmp_path):
  task = toy_task.ToyTask()
  cfg = toy_task.config(tmp_path, eval_steps=3, best_metric="share_loss")
  with pytest.raises(ValueError, match="one of loss, first_loss, second_loss"):
    toy_task.run(task, cfg)
  assert task.starts == []
