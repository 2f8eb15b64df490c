"""Tests of what a training run's settings refuse."""

from __future__ import annotations

import pytest

from official_albert import train_config


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


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(train_batch_size=0), "train_batch_size must be at least 1"),
    (dict(gradient_accumulation_steps=5), "cannot be cut into 5 equal"),
    (dict(clip_norm=0.0), "clip_norm must be positive"),
    (dict(eval_steps=-1), "eval_steps must not be negative"),
    (dict(optimizer="lamp"), "unknown optimizer 'lamp'"),
    (dict(num_warmup_steps=7), "num_warmup_steps 7"),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    config(**changes)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
