"""Tests of leading and following, with the chief's word put in by hand.

multi_worker_test has the same with real workers.
"""

from __future__ import annotations

import pytest
import tensorflow as tf

from official_albert import distribution
from official_albert.training import checkpoint_manager as checkpoints
from official_albert.training import shared_checkpoints


@pytest.fixture
def said(monkeypatch):
  """What the chief says; followers hear the last of it."""
  words = []

  def from_chief(strategy, number):
    if strategy == "chief":
      words.append(number)
    return words[-1]

  # Of the room, and where the room has it from.
  monkeypatch.setattr(distribution, "from_chief", from_chief)
  monkeypatch.setattr(
    "official_albert.distribution.multi_worker.from_chief", from_chief
  )
  return words


def _chief(folder, value):
  return shared_checkpoints.ChiefManager(
    "chief", str(folder), 3, variable=tf.Variable(value)
  )


def _follower(folder):
  variable = tf.Variable(0)
  manager = shared_checkpoints.FollowingManager(
    "worker", str(folder), variable=variable
  )
  return manager, variable


def test_followers_read_what_the_chief_chose(tmp_path, said):
  model = tf.keras.Sequential()
  chief = _chief(tmp_path, 7)
  assert "scratch" in chief.initialize(model, "")
  assert said == [-1]
  follower, variable = _follower(tmp_path)
  assert follower.initialize(model, "") == "no checkpoint yet"
  assert follower.latest is None
  path = chief.save(5)
  assert follower.save(5) == path == follower.latest == chief.latest
  assert said == [-1, 0]
  chief = _chief(tmp_path, 0)
  chief.initialize(model, "")
  assert said[-1] == 5
  follower, variable = _follower(tmp_path)
  assert follower.initialize(model, "") == f"resumed from {path}"
  assert int(variable) == 7
  assert follower.latest == path


def test_a_follower_looks_at_nothing_but_the_chosen_one(tmp_path, said):
  chief = _chief(tmp_path, 7)
  chief.save(5)
  chief.save(6)
  said.append(5)
  follower, variable = _follower(tmp_path)
  follower.restore_latest()
  assert follower.latest.endswith("model.ckpt-5")


def test_a_folder_that_is_not_shared(tmp_path, said):
  said.append(5)
  follower, _ = _follower(tmp_path)
  with pytest.raises(OSError, match="a folder that all workers share"):
    follower.restore_latest()


def test_one_process_has_a_manager_of_the_plain_kind(tmp_path):
  strategy = distribution.make_strategy("one_device")
  manager = shared_checkpoints.make_manager(
    strategy, str(tmp_path), 2, variable=tf.Variable(1)
  )
  assert type(manager) is checkpoints.CheckpointManager


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
