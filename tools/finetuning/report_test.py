"""Tests of the report of each class."""

from __future__ import annotations

import json

import numpy as np
import pytest

from official_albert.tools.finetuning import report

_LABELS = ("accuracy", "$b$", "never", "Ω")
_GOLD = np.array([0, 0, 0, 1, 1, 3, 3])
_PREDICTED = np.array([0, 0, 1, 1, 0, 3, 3])


def test_classes(tmp_path):
  report.write(str(tmp_path), "dev", _LABELS, _GOLD, _PREDICTED)
  values, text, figure = sorted(tmp_path.iterdir())
  assert [x.name for x in (values, text, figure)] == [
    "classification_report.dev.json",
    "classification_report.dev.txt",
    "confusion_matrix.dev.png",
  ]
  found = json.loads(values.read_text())
  assert [*found["classes"]] == list(_LABELS)
  third = pytest.approx(2 / 3)
  assert found["classes"]["accuracy"] == {
    **dict.fromkeys(("precision", "recall", "f1"), third),
    "support": 3,
  }
  assert found["classes"]["never"] == dict(
    precision=0, recall=0, f1=0, support=0
  )
  # A row is a correct class.
  assert found["confusion_matrix"] == [
    [2, 1, 0, 0],
    [1, 1, 0, 0],
    [0, 0, 0, 0],
    [0, 0, 0, 2],
  ]
  lines = text.read_text().splitlines()
  cells = [cell.strip() for cell in lines[2].split("|")]
  assert cells[1:-1] == ["accuracy", *["0.6667"] * 3, "3"]
  assert figure.read_bytes().startswith(b"\x89PNG")


def test_several_labels(tmp_path):
  gold = np.array([[1, 0], [1, 1], [0, 0]], np.float32)
  decided = np.array([[True, True], [False, True], [False, False]])
  report.write(str(tmp_path), "test", ("x", "y"), gold, decided)
  assert {x.suffix for x in tmp_path.iterdir()} == {".json", ".txt"}
  found = json.loads((tmp_path / "classification_report.test.json").read_text())
  assert found["classes"]["x"] == {
    "precision": 1,
    "recall": 0.5,
    "f1": pytest.approx(2 / 3),
    "support": 2,
  }
  # Without and with the label.
  assert found["confusion_matrix"] == [[[1, 0], [1, 1]], [[1, 1], [0, 1]]]
  shares = dict(precision=2 / 3, recall=2 / 3, f1=2 / 3, support=3)
  assert found["all"] == pytest.approx(shares)
  text = (tmp_path / "classification_report.test.txt").read_text()
  cells = [x.strip() for x in text.splitlines()[-1].split("|")]
  assert cells[1:-1] == ["all", *["0.6667"] * 3, "3"]


def test_one_label_on_its_own_is_not_two_classes(tmp_path):
  gold = np.array([[True], [True], [False]])
  for count, precision in ((3, 1), (0, 0)):
    one = gold[:count], gold[:count]
    report.write(str(tmp_path), "dev", ("x",), *one)
    path = tmp_path / "classification_report.dev.json"
    found = json.loads(path.read_text())["classes"]["x"]
    assert (
      found["precision"] == precision and found["support"] == count * 2 // 3
    )


def test_many_classes(tmp_path):
  labels = [f"class {i}" for i in range(77)]
  gold = np.arange(77)
  report.write(str(tmp_path), "dev", labels, gold, gold[::-1])
  found = json.loads((tmp_path / "classification_report.dev.json").read_text())
  assert found["classes"]["class 38"]["f1"] == 1
