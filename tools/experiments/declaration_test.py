"""Tests of declaration.py."""

from __future__ import annotations

import pytest

from tools.experiments import declaration
from tools.experiments.declaration import Row


def _table(*rows, **changes) -> declaration.Table:
  return declaration.Table("t", "title", "source", "question?", rows, **changes)


def test_rows_are_found_by_their_labels():
  table = _table(Row("a"), Row("b", starts_from="a"), compare={"b": "a"})
  assert table.row("b").starts_from == "a"


@pytest.mark.parametrize(
  "rows, changes, message",
  [
    ([Row("a"), Row("a")], {}, "two rows called 'a'"),
    ([Row("a", starts_from="b"), Row("b")], {}, "does not stand above it"),
    ([Row("a")], {"compare": {"a": "b"}}, "'b', which is no row"),
    ([Row("a")], {"paper_says": {"c": 1}}, "'c', which is no row"),
  ],
)
def test_contradictions_are_refused(rows, changes, message):
  with pytest.raises(ValueError, match=message):
    _table(*rows, **changes)


def test_the_average_takes_the_mean_of_f1_and_exact_match():
  row = Row("a", paper={"SQuAD1.1": (90.0, 80.0), "MNLI": 75.0})
  assert declaration.paper_average(row, ["SQuAD1.1", "MNLI"]) == 80.0
  assert declaration.paper_average(row, ["MNLI"]) == 75.0


@pytest.mark.parametrize("columns", [[], ["MNLI", "RACE"]])
def test_there_is_no_average_of_what_the_paper_has_not(columns):
  row = Row("a", paper={"MNLI": 75.0})
  assert declaration.paper_average(row, columns) is None


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
