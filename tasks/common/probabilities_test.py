"""Tests of writing and reading tables of probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks.common import probabilities

LABELS = ("no", "maybe", "yes")
HEADER = "id\tprediction\ta\tb\n"


def table(values=((0.5, 0.25, 0.25), (0.125, 0.125, 0.75)), **changes):
  parts = {"ids": ("q 1", "2"), "labels": LABELS, "values": np.array(values)}
  return probabilities.ProbabilityTable(**{**parts, **changes})


def test_file_format(tmp_path):
  path = tmp_path / "t.tsv"
  probabilities.write_probabilities(str(path), table())
  assert path.read_bytes() == (
    b"id\tprediction\tno\tmaybe\tyes\n"
    b"q 1\tno\t0.5\t0.25\t0.25\n"
    b"2\tyes\t0.125\t0.125\t0.75\n"
  )
  numbers = table(labels=(), values=np.float32([3.1415927, -2e-9]))
  probabilities.write_probabilities(str(path), numbers)
  assert path.read_text() == (
    "id\tprediction\nq 1\t3.14159274\n2\t-1.99999994e-09\n"
  )
  again = probabilities.read_probabilities(str(path))
  np.testing.assert_array_equal(np.float32(again.values), numbers.values)
  assert (again.ids, again.labels) == (numbers.ids, ())


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "", "1"])
def test_ids_that_no_table_can_have(name):
  with pytest.raises(ValueError, match="the dev id .* rename it"):
    probabilities.check_ids("dev", ["1", name])


@pytest.mark.parametrize(
  "text",
  [
    "",
    "index\tprediction\n0\t1\n",
    HEADER,
    HEADER + "1\ta\t1\n",
    HEADER + "1\ta\t1\t0\n2\ta\t1\n",
    HEADER + "1\ta\t1\t0\n2\ta\tx\t0\n",
    HEADER + "1\ta\tnan\t0\n",
    "id\tprediction\n0\n",
  ],
)
def test_invalid_files(tmp_path, text):
  path = tmp_path / "t.tsv"
  path.write_text(text)
  with pytest.raises(ValueError, match=f"^{path} is ") as error:
    probabilities.read_probabilities(str(path))
  assert len(str(error.value).replace(str(path), "")) < 300
