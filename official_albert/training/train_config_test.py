"""Tests of what a training run's settings refuse."""

from __future__ import annotations

import pytest

from official_albert.training import train_config


def config(**changes):
  values = dict(
    model_dir="run",
    num_train_steps=6,
    num_warmup_steps=2,
    learning_rate=0.01,
    train_batch_size=12,
  )
  return train_config.TrainConfig(**{**values, **changes})


def test_the_optimizer_has_the_schedule():
  optimizer = config(optimizer="adamw", weight_decay=0.1).make_optimizer()
  assert not optimizer.layer_adaptation
  assert float(optimizer.learning_rate(1)) == pytest.approx(0.005)


def test_phases_share_all_but_their_batches():
  phases = (train_config.Phase(4), train_config.Phase(3, 10, 5))
  cfg = config(num_train_steps=7, phases=phases, eval_steps=3)
  assert cfg.phase_ends == (4, 7)
  assert [cfg.phase_after(step) for step in (0, 3, 4, 6, 7)] == [0, 0, 1, 1, 1]
  at = [cfg.phases_at(step) for step in (0, 3, 4, 5, 7)]
  assert at == [(0,), (0,), (0, 1), (1,), (1,)]
  batches = [
    (c.train_batch_size, c.gradient_accumulation_steps, c.num_train_steps)
    for c in map(cfg.in_phase, (0, 1))
  ]
  assert batches == [(12, 1, 7), (10, 5, 7)]
  assert [step for step in range(8) if cfg.keeps_best_of(step)] == [3, 4, 6, 7]


def test_phases_of_a_depth_schedule():
  phases = (
    train_config.Phase(3, num_layers=2),
    train_config.Phase(2, num_layers=5, same_data=True),
    train_config.Phase(4, 10, same_data=False, num_layers=5),
  )
  cfg = config(num_train_steps=9, phases=phases, eval_steps=2)
  assert [step for step in range(10) if cfg.begins_data(step)] == [0, 5]
  assert cfg.labels(0) == {"phase": 1, "depth": 2}
  assert cfg.in_phase(2).train_batch_size == 10
  # At the border, that of the shallow phase does not count.
  counts = [(s, p) for s in range(1, 10) for p in cfg.phases_at(s)]
  counts = [pair for pair in counts if cfg.keeps_best_of(*pair)]
  assert counts == [(3, 1), (4, 1), (5, 1), (5, 2), (6, 2), (8, 2), (9, 2)]
  one = config(phases=(train_config.Phase(6, num_layers=5),))
  assert one.labels(0) == {"depth": 5}
  assert config().labels(0) == {}


def test_without_phases_there_is_one():
  cfg = config(eval_steps=0)
  assert cfg.phase_ends == (6,) and cfg.in_phase(0) is cfg
  assert cfg.phases_at(0) == cfg.phases_at(6) == (0,)
  assert not any(map(cfg.keeps_best_of, range(7)))


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(train_batch_size=0), "train_batch_size must be at least 1"),
    (dict(gradient_accumulation_steps=5), "cannot be cut into 5 equal"),
    (dict(clip_norm=0.0), "clip_norm must be positive"),
    (dict(eval_steps=-1), "eval_steps must not be negative"),
    (dict(best_is="best"), "unknown best_is 'best'; choose one of lowest"),
    (
      dict(early_stopping_evaluations=-1),
      "early_stopping_evaluations must not be negative, got -1",
    ),
    (
      dict(early_stopping_evaluations=2, eval_steps=0),
      "early_stopping_evaluations 2 needs evaluations during",
    ),
    (
      dict(
        early_stopping_evaluations=2,
        phases=(train_config.Phase(4), train_config.Phase(2)),
      ),
      "early_stopping_evaluations 2 cannot be used with phases",
    ),
    (dict(layerwise_lr_decay=0.0), "layerwise_lr_decay must be in"),
    (dict(random_depths=(3, 0)), "random_depths must be at least 1"),
    (
      dict(random_depths=(3,), layerwise_lr_decay=0.9),
      "cannot be used with layerwise_lr_decay 0.9",
    ),
    (
      dict(random_depths=(3,), phases=(train_config.Phase(6, num_layers=3),)),
      "random_depths cannot be used with a depth schedule",
    ),
    (dict(optimizer="lamp"), "unknown optimizer 'lamp'"),
    (dict(num_warmup_steps=7), "num_warmup_steps 7"),
    (
      dict(phases=(train_config.Phase(4), train_config.Phase(3))),
      "the phases have 7 steps together, but num_train_steps is 6",
    ),
    (
      dict(phases=(train_config.Phase(3), train_config.Phase(3, 11, 2))),
      "train_batch_size 11 cannot be cut into 2",
    ),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    config(**changes)


def test_a_phase_without_steps_is_refused():
  with pytest.raises(ValueError, match="steps of a phase must be at least 1"):
    train_config.Phase(0)
  with pytest.raises(ValueError, match="num_layers of a phase must .* got 0"):
    train_config.Phase(1, num_layers=0)
  with pytest.raises(ValueError, match="train_batch_size of a phase"):
    train_config.Phase(1, 0)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
