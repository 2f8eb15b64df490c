"""Tests of tables of probabilities: round trips, errors and means."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tasks.common import probability_table

LABELS = ("no", "maybe", "yes")


def table(values=((0.5, 0.25, 0.25), (0.125, 0.125, 0.75)), **changes):
  parts = {"ids": ("q 1", "2"), "labels": LABELS, "values": np.array(values)}
  return probability_table.ProbabilityTable(**{**parts, **changes})


def test_file_format(tmp_path):
  path = tmp_path / f"dev{probability_table.PROBABILITIES_SUFFIX}"
  probability_table.write_probabilities(str(path), table())
  assert path.read_bytes() == (
    b"id\tprediction\tno\tmaybe\tyes\n"
    b"q 1\tno\t0.5\t0.25\t0.25\n"
    b"2\tyes\t0.125\t0.125\t0.75\n"
  )
  assert os.listdir(tmp_path) == [path.name]


def test_float32_round_trip_is_exact(tmp_path):
  logits = np.random.default_rng(3).normal(0, 4, [97, 3]).astype(np.float32)
  exp = np.exp(logits)
  values = exp / exp.sum(axis=1, keepdims=True)
  ids = tuple(map(str, range(97)))
  written = table(ids=ids, values=values)
  path = str(tmp_path / "t.tsv")
  probability_table.write_probabilities(path, written)
  again = probability_table.read_probabilities(path)
  assert (again.ids, again.labels) == (ids, LABELS)
  np.testing.assert_array_equal(again.values.astype(np.float32), values)
  assert again.predictions == [LABELS[i] for i in values.argmax(axis=1)]


def test_regression_table(tmp_path):
  path = tmp_path / "t.tsv"
  numbers = np.array([3.1415927, -2e-9], np.float32)
  probability_table.write_probabilities(
    str(path), table(labels=(), values=numbers)
  )
  assert path.read_text() == (
    "id\tprediction\nq 1\t3.14159274\n2\t-1.99999994e-09\n"
  )
  again = probability_table.read_probabilities(str(path))
  np.testing.assert_array_equal(again.values.astype(np.float32), numbers)
  assert again.labels == ()


def test_ties_after_rounding(tmp_path):
  # Equal in nine digits: when read again, the first label wins.
  close = np.array([[0.4, 0.2, 0.4 + 1e-12], [0.1, 0.1, 0.8]])
  path = str(tmp_path / "t.tsv")
  probability_table.write_probabilities(path, table(close))
  assert table(close).predictions == ["yes", "yes"]
  assert probability_table.read_probabilities(path).predictions == ["no", "yes"]


def test_unicode_line_separators_in_labels(tmp_path):
  # str.splitlines splits at each of these.
  labels = ("ja\u2028", "nö\x0b", "是\x85")
  path = str(tmp_path / "t.tsv")
  probability_table.write_probabilities(path, table(labels=labels))
  assert probability_table.read_probabilities(path).labels == labels


@pytest.mark.parametrize(
  "changes, message",
  [
    pytest.param({"labels": ("a\tb", "b", "c")}, "label 'a\\\\tb'", id="tab"),
    pytest.param(
      {"labels": ("a\n", "b", "c")}, "contains a tab or a", id="line"
    ),
    pytest.param(
      {"labels": ("a", "b\r", "c")}, "contains a tab or a", id="return"
    ),
    pytest.param({"labels": ("a", "b", "a")}, "'a' occurs twice", id="twice"),
    pytest.param(
      {"labels": ("a", "", "c")}, "label '' is not a non-empty text", id="empty"
    ),
    pytest.param({"ids": ("1", "1")}, "id '1' occurs twice", id="ids"),
    pytest.param({"ids": (1, 2)}, "id 1 is not a non-empty text", id="number"),
    pytest.param({"ids": ("1",)}, "1 ids and 3 labels", id="rows"),
    pytest.param({"labels": ("a", "b")}, "2 ids and 2 labels", id="columns"),
    pytest.param({"labels": ()}, "2 ids and 0 labels", id="regression"),
    pytest.param(
      {"values": [[0.5, 0.5, 0], [0.5, 0.5, 0.5]]},
      r"row 2 \(id '2'\): 0.5, 0.5, 0.5 are not probabilities",
      id="sum",
    ),
    pytest.param(
      {"values": [[1.5, -0.5, 0], [1, 0, 0]]}, "row 1 .* are not", id="range"
    ),
    pytest.param(
      {"values": [[1, 0, 0], [np.nan, 0, 0]]}, "row 2 .* are not", id="nan"
    ),
    pytest.param(
      {"labels": (), "values": [1, np.inf]}, "row 2 .* not finite", id="inf"
    ),
  ],
)
def test_invalid_tables(changes, message):
  with pytest.raises(ValueError, match=message):
    table(**changes)


HEADER = "id\tprediction\ta\tb\n"


@pytest.mark.parametrize(
  "text, message",
  [
    pytest.param("", "first line must begin with id and pred", id="empty"),
    pytest.param("index\tprediction\n", "first line must", id="header"),
    pytest.param(HEADER, "no rows below the header", id="no_rows"),
    pytest.param(HEADER + "1\ta\t0.9", "the last line has no end", id="cut"),
    pytest.param(HEADER + "1\ta\t1\n", "row 1: 3 columns instead", id="short"),
    pytest.param(
      HEADER + "1\ta\t1\t0\n2\ta\tx\t0\n", "row 2: could not.*'x'", id="number"
    ),
    pytest.param(
      HEADER + "1\tc\t1\t0\n",
      "row 1: the prediction 'c' is not a lab",
      id="label",
    ),
    pytest.param(
      HEADER + "1\tb\t0.6\t0.4\n", "row 1: .* not the most prob", id="best"
    ),
    pytest.param(
      HEADER + "1\ta\t1\t0\n1\ta\t1\t0\n", ": the id '1' occurs", id="twice"
    ),
    pytest.param(
      HEADER + "1\ta\t1\t1\n", ": row 1 .* with the sum 1", id="sum"
    ),
  ],
)
def test_invalid_files(tmp_path, text, message):
  path = tmp_path / "t.tsv"
  path.write_text(text)
  with pytest.raises(ValueError, match=message) as error:
    probability_table.read_probabilities(str(path))
  assert str(error.value).startswith(str(path))


def test_failed_writes_leave_nothing(tmp_path):
  path = tmp_path / "t.tsv"
  with pytest.raises(ValueError, match="has no rows"):
    probability_table.write_probabilities(
      str(path), table(ids=(), labels=(), values=np.zeros([0]))
    )
  with pytest.raises(OSError):
    probability_table.write_probabilities(
      str(tmp_path / "none" / "t.tsv"), table()
    )
  path.mkdir()  # It cannot be replaced by a file.
  with pytest.raises(OSError):
    probability_table.write_probabilities(str(path), table())
  assert os.listdir(tmp_path) == ["t.tsv"]


def test_average():
  tables = {
    "A": table([[0.5, 0.375, 0.125], [0, 0, 1]]),
    "B": table([[0.0, 0.375, 0.625], [0, 1, 0]]),
    "C": table([[0.25, 0.75, 0.0], [0, 0, 1]]),
  }
  mean = probability_table.average_probabilities(tables)
  np.testing.assert_allclose(
    mean.values, [[0.25, 0.5, 0.25], [0, 1 / 3, 2 / 3]], atol=1e-15
  )
  assert mean.predictions == ["maybe", "yes"]
  numbers = {
    name: table(labels=(), values=values)
    for name, values in {"A": [1.0, 5.0], "B": [2.0, 2.0]}.items()
  }
  assert probability_table.average_probabilities(numbers).predictions == [
    "1.5",
    "3.5",
  ]


@pytest.mark.parametrize(
  "changes, message",
  [
    pytest.param(
      {"ids": ("q 1", "3")}, "row 2 is '3' in one and '2' in the", id="ids"
    ),
    pytest.param(
      {"labels": ("yes", "maybe", "no")}, "label 1 is 'yes' in", id="labels"
    ),
    pytest.param(
      {"ids": ("q 1",), "values": [[1, 0, 0]]},
      "one has 1 rows and the other 2",
      id="fewer",
    ),
    pytest.param(
      {"labels": (), "values": [1, 2]},
      "one has 0 labels and the other 3",
      id="regression",
    ),
  ],
)
def test_average_of_different_tables(changes, message):
  tables = {"A": table(), "B": table(**changes)}
  with pytest.raises(ValueError, match=message) as error:
    probability_table.average_probabilities(tables)
  assert str(error.value).startswith("B and A cannot be averaged: ")
  with pytest.raises(ValueError, match="no tables"):
    probability_table.average_probabilities({})


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
