"""What settings refuse, and how phases and depths are read."""

from __future__ import annotations

import pytest

from official_albert.training import train_config
from official_albert.training.train_config import Phase


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
  phases = (Phase(4), Phase(3, 10, 5))
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
    Phase(3, num_layers=2),
    Phase(2, num_layers=5, same_data=True),
    Phase(4, 10, same_data=False, num_layers=5),
  )
  cfg = config(num_train_steps=9, phases=phases, eval_steps=2)
  assert [step for step in range(10) if cfg.begins_data(step)] == [0, 5]
  assert cfg.labels(0) == {"phase": 1, "depth": 2}
  assert cfg.in_phase(2).train_batch_size == 10
  # At the border, that of the shallow phase does not count.
  counts = [(s, p) for s in range(1, 10) for p in cfg.phases_at(s)]
  counts = [pair for pair in counts if cfg.keeps_best_of(*pair)]
  assert counts == [(3, 1), (4, 1), (5, 1), (5, 2), (6, 2), (8, 2), (9, 2)]
  one = config(phases=(Phase(6, num_layers=5),))
  assert one.labels(0) == {"depth": 5}


def test_a_run_without_phases_has_one():
  cfg = config(eval_steps=0)
  assert cfg.phase_ends == (6,) and cfg.in_phase(0) is cfg
  assert cfg.phases_at(0) == cfg.phases_at(6) == (0,)
  assert cfg.labels(0) == {}
  assert not any(map(cfg.keeps_best_of, range(7)))


PATIENCE = "early_stopping_evaluations"


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(train_batch_size=0), "train_batch_size must be at least 1"),
    (dict(gradient_accumulation_steps=5), "cannot be cut into 5 equal"),
    (dict(learning_rate=0.0), "learning_rate must be positive"),
    (dict(clip_norm=0.0), "clip_norm must be positive"),
    (dict(eval_steps=-1), "eval_steps must not be negative, got -1"),
    (dict(best_is="best"), "unknown best_is 'best'; choose one of lowest"),
    (
      {PATIENCE: 2, "eval_steps": 0},
      f"{PATIENCE} 2 needs evaluations during",
    ),
    (
      {PATIENCE: 2, "phases": (Phase(4), Phase(2))},
      f"{PATIENCE} 2 cannot be used with phases",
    ),
    *(
      (
        dict(layerwise_lr_decay=decay),
        rf"layerwise_lr_decay must be in \(0, 1\], got {decay}",
      )
      for decay in (0.0, -0.5, 1.5, float("nan"))
    ),
    (
      dict(random_depths=(3,), layerwise_lr_decay=0.9),
      "cannot be used with layerwise_lr_decay 0.9",
    ),
    (
      dict(random_depths=(3,), phases=(Phase(6, num_layers=3),)),
      "random_depths cannot be used with a depth schedule",
    ),
    (dict(optimizer="lamp"), "unknown optimizer 'lamp'; choose one of lamb"),
    (dict(learning_rate_decay="cosine"), "unknown learning_rate_decay 'cos"),
    (dict(num_warmup_steps=7), "num_warmup_steps 7 must be between 0 and"),
    (
      dict(phases=(Phase(4), Phase(3))),
      "the phases have 7 steps together, but num_train_steps is 6",
    ),
    (
      dict(phases=(Phase(3), Phase(3, 11, 2))),
      "train_batch_size 11 cannot be cut into 2",
    ),
    (dict(profile_steps="5"), "two steps FROM,TO such as 100,110, got '5'"),
    (dict(profile_steps="-1,2"), "got '-1,2'"),
    (dict(profile_steps="3,3"), "3,3 must be 0 <= FROM < TO <= 6"),
    (dict(profile_steps="5,7"), "profile_steps 5,7 must be"),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    config(**changes)


@pytest.mark.parametrize("name", ["steps", "num_layers", "train_batch_size"])
def test_numbers_of_a_phase_are_positive(name):
  with pytest.raises(ValueError, match=f"{name} of a phase must be .* got 0"):
    Phase(**{"steps": 1, name: 0})


@pytest.mark.parametrize(
  "schedule, steps, parts",
  [
    ("3:0.5,6:0.25,12:0.25", 1000, ((3, 500), (6, 250), (12, 250))),
    # Borders at 2.333 and 4.667, then the end.
    ("2:1/3,5:1/3,3:1/3", 7, ((2, 2), (5, 3), (3, 2))),
    # In floats, 0.1 + 0.2 is more than 0.3.
    ("1:0.1,2:0.2,3:0.7", 10, ((1, 1), (2, 2), (3, 7))),
    ("2:0.333,4:0.333,8:0.333", 30, ((2, 10), (4, 10), (8, 10))),
    ("12:1", 9, ((12, 9),)),
  ],
)
def test_depth_schedules(schedule, steps, parts):
  assert train_config.parse_depth_schedule(schedule, steps) == parts


@pytest.mark.parametrize(
  "schedule, message",
  [
    ("", "has to be DEPTH:SHARE"),
    ("3", "has the part '3'"),
    ("3:0.5:1,6:0.5", "has the part '3:0.5:1'"),
    ("x:1", "has the part 'x:1'"),
    ("3:1/0", "has the part '3:1/0'"),
    ("3:0.5,", "has the part ''"),
    ("0:0.5,6:0.5", "a depth is at least 1"),
    ("3:-0.5,6:1.5", "a share more than 0"),
    ("3:0.5,6:0.4", "add up to 0.9, but have to add up to 1"),
    ("3:0.01,6:0.99", "gives depth 3 less than one of 20 steps"),
    ("3:0.99,6:0.01", "gives depth 6 less than one of 20 steps"),
  ],
)
def test_wrong_depth_schedules_are_refused(schedule, message):
  with pytest.raises(ValueError, match="depth schedule .*" + message) as error:
    train_config.parse_depth_schedule(schedule, 20)
  assert "\n" not in str(error.value)


def test_depths_to_draw_from():
  assert train_config.parse_depths("5,5,2") == (5, 5, 2)
  for text in ("", "3,", "0,6", "3;6", "-2"):
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
      train_config.parse_depths(text)


# The choice of a rate.


def test_the_default_rate_follows_the_square_root_of_the_batch():
  rate, lines = train_config.choose_learning_rate(None, 4096, "lamb")
  assert rate == 0.00176  # Exactly.
  assert lines == [
    "learning rate 0.00176 = 0.00176 * sqrt(4096 / 4096), LAMB's square-root "
    "rule"
  ]
  rate, lines = train_config.choose_learning_rate(None, 256, "lamb")
  assert rate == 0.00044 == train_config.scaled_learning_rate(256)
  assert lines[0].startswith("learning rate 0.00044 = 0.00176 * sqrt(256 /")
  with pytest.raises(ValueError, match="at least 1 example, got 0"):
    train_config.scaled_learning_rate(0)


@pytest.mark.parametrize(
  "given, note",
  [
    (0.00044 * 3.99, None),
    (0.00044 / 3.99, None),
    (0.00176 * 1.01, "4.04 times over"),
    (0.0001, "4.4 times under"),
    # Refused later.
    (0.0, None),
    (-1.0, None),
  ],
)
def test_a_rate_far_from_the_rule_is_noted(given, note):
  rate, lines = train_config.choose_learning_rate(given, 256, "lamb")
  assert rate == given and len(lines) == 1 + bool(note)
  assert lines[0].endswith(
    "as given, batch 256; the square-root rule 0.00176 * sqrt(256 / 4096) is "
    "0.00044"
  )
  if note:
    assert note in lines[1] and "--learning_rate=0.00044" in lines[1]


def test_the_rule_is_not_one_for_adamw():
  assert train_config.choose_learning_rate(1.0, 32, "adamw") == (
    1.0,
    ["learning rate 1 as given, batch 32; the square-root rule is LAMB's"],
  )
  rate, (line,) = train_config.choose_learning_rate(None, 1024, "adamw")
  assert rate == 0.00088
  assert "is not one for adamw: give --learning_rate" in line


@pytest.mark.parametrize(
  "papers, hidden_size, rate",
  [
    (2e-5, 24, 3e-4),
    (2e-5, 128, 3e-4),
    (2e-5, 256, 1.5e-4),
    (2e-5, 767, 5e-5),
    (6e-5, 767, 6e-5),
    (2e-5, 768, 2e-5),
    (2e-5, 4096, 2e-5),
  ],
)
def test_small_models_are_fine_tuned_at_a_higher_rate(
  papers, hidden_size, rate
):
  found, reason = train_config.for_finetuning(papers, hidden_size)
  assert found == rate
  if hidden_size < 768:
    assert f"hidden_size {hidden_size}; {papers:g} is for 768" in reason
  else:
    assert reason == "the default for hidden_size 768 and more"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
