"""Tests of the rate that a run gets and of what is said about it."""

from __future__ import annotations

import pytest

from official_albert.training import learning_rate


def test_unset_is_the_rule_and_the_papers_rate_at_its_batch():
  rate, lines = learning_rate.choose_learning_rate(None, 4096, "lamb")
  assert rate == 0.00176  # Exactly.
  assert lines == [
    "learning rate 0.00176 = 0.00176 * sqrt(4096 / 4096), LAMB's square-root "
    "rule"
  ]
  rate, lines = learning_rate.choose_learning_rate(None, 256, "lamb")
  assert rate == 0.00044
  assert lines[0].startswith("learning rate 0.00044 = 0.00176 * sqrt(256 /")


@pytest.mark.parametrize("given", [0.00044, 0.00044 * 3.99, 0.00044 / 3.99])
def test_a_rate_near_the_rule_gets_no_note(given):
  rate, lines = learning_rate.choose_learning_rate(given, 256, "lamb")
  assert rate == given and len(lines) == 1
  assert lines[0].endswith(
    "as given, batch 256; the square-root rule 0.00176 * sqrt(256 / 4096) is "
    "0.00044"
  )


@pytest.mark.parametrize(
  "given, text",
  [(0.00176 * 1.01, "4.04 times over"), (0.0001, "4.4 times under")],
)
def test_a_rate_far_from_the_rule_gets_one_note_with_its_value(given, text):
  rate, lines = learning_rate.choose_learning_rate(given, 256, "lamb")
  assert rate == given and len(lines) == 2
  assert text in lines[1] and "--learning_rate=0.00044" in lines[1]


def test_adamw_is_told_whose_rule_it_is():
  rate, lines = learning_rate.choose_learning_rate(1.0, 32, "adamw")
  assert rate == 1.0
  assert lines == [
    "learning rate 1 as given, batch 32; the square-root rule is LAMB's"
  ]
  rate, lines = learning_rate.choose_learning_rate(None, 1024, "adamw")
  assert rate == 0.00088 and len(lines) == 1
  assert "is not one for adamw: give --learning_rate" in lines[0]


@pytest.mark.parametrize("given", [0.0, -1.0])
def test_a_rate_that_is_refused_later_does_not_fail_here(given):
  assert learning_rate.choose_learning_rate(given, 64, "lamb")[0] == given


@pytest.mark.parametrize(
  "hidden_size, rate",
  [
    (24, 3e-4),
    (128, 3e-4),
    (200, 1.9e-4),
    (256, 1.5e-4),
    (312, 1.2e-4),
    (767, 5e-5),
    (768, 2e-5),
    (4096, 2e-5),
  ],
)
def test_small_models_are_fine_tuned_at_a_higher_rate(hidden_size, rate):
  found, reason = learning_rate.for_finetuning(2e-5, hidden_size)
  assert found == rate
  if hidden_size < 768:
    assert f"hidden_size {hidden_size}; 2e-05 is for 768" in reason
  else:
    assert reason == "the default for hidden_size 768 and more"


def test_no_default_is_below_the_papers():
  assert learning_rate.for_finetuning(6e-5, 767)[0] == 6e-5


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
