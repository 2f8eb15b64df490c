"""Tests of what the flags of depth mean, and of what they cannot mean."""

from __future__ import annotations

import types

import pytest

from official_albert import AlbertConfig
from official_albert.training import Phase, TrainConfig
from tools.cli import depth_flags, model_depth_flag


@pytest.fixture(autouse=True)
def give(monkeypatch):
  """Sets flags, which nobody parses here; at first there is none."""

  def give(**values):
    for name, value in values.items():
      holder = types.SimpleNamespace(value=value)
      monkeypatch.setattr(depth_flags, f"_{name.upper()}", holder)

  give(schedule="", random="")
  return give


def config(**changes):
  values = dict(
    model_dir="run",
    num_train_steps=9,
    num_warmup_steps=2,
    learning_rate=0.01,
    train_batch_size=12,
  )
  return TrainConfig(**{**values, **changes})


def test_without_flags_nothing_changes():
  given = config(phases=(Phase(4), Phase(5, 6)))
  assert depth_flags.with_schedule(given) is given
  assert depth_flags.scheduled_depths(given) == ()
  assert depth_flags.scheduled_depths(config()) == ()


def test_a_stretch_is_a_phase_that_goes_on_in_the_same_data(give):
  give(schedule="2:1/3,3:1/3,5:1/3")
  scheduled = depth_flags.with_schedule(config())
  assert scheduled.phases == (
    Phase(3, num_layers=2),
    Phase(3, num_layers=3, same_data=True),
    Phase(3, num_layers=5, same_data=True),
  )
  assert scheduled.phase_ends == (3, 6, 9)
  assert depth_flags.scheduled_depths(scheduled) == (2, 3, 5)


@pytest.mark.parametrize(
  "schedule, changes, message",
  [
    ("2:1", dict(phases=(Phase(9),)), "does not go with --phase_steps"),
    ("2:0.5,5", {}, "has to be DEPTH:SHARE .* has the part '5'"),
    (
      "2:0.5,5:0.5",
      dict(early_stopping_evaluations=2),
      "does not go with phases, be they of a depth schedule",
    ),
  ],
)
def test_other_schedules_are_refused(give, schedule, changes, message):
  give(schedule=schedule)
  with pytest.raises(ValueError, match=message):
    depth_flags.with_schedule(config(**changes))


def test_random_depths(give):
  model = AlbertConfig(num_hidden_layers=5)
  given = config()
  assert depth_flags.with_random_depths(given, model) is given
  give(random="2,7,5")
  assert depth_flags.with_random_depths(given, model).random_depths == (2, 7, 5)
  groups = AlbertConfig(num_hidden_layers=5, num_hidden_groups=2)
  with pytest.raises(ValueError, match="2 groups of layers .* cannot have 2"):
    depth_flags.with_random_depths(given, groups)
  give(random="2,x")
  with pytest.raises(ValueError, match="random depths have to be whole"):
    depth_flags.with_random_depths(given, model)
  give(random="2,5", schedule="2:0.5,5:0.5")
  with pytest.raises(ValueError, match="do not go with a depth schedule"):
    depth_flags.with_random_depths(depth_flags.with_schedule(given), model)
  with pytest.raises(ValueError, match="--depth_schedule is for pretraining"):
    depth_flags.refuse_schedule()


def give_layers(monkeypatch, value):
  holder = types.SimpleNamespace(value=value)
  monkeypatch.setattr(model_depth_flag, "NUM_HIDDEN_LAYERS", holder)


def test_a_depth_for_a_model_that_shares_everything(monkeypatch):
  config = AlbertConfig(num_hidden_layers=5)
  give_layers(monkeypatch, 0)
  assert not model_depth_flag.given()
  assert model_depth_flag.at_depth(config) is config
  give_layers(monkeypatch, 7)
  assert model_depth_flag.given()
  assert model_depth_flag.at_depth(config).num_hidden_layers == 7
  give_layers(monkeypatch, -1)
  with pytest.raises(ValueError, match="num_hidden_layers must be at least 1"):
    model_depth_flag.at_depth(config)
  with pytest.raises(ValueError, match="sharing 'none' .* cannot have -1"):
    model_depth_flag.at_depth(AlbertConfig.from_preset("bert_base"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
