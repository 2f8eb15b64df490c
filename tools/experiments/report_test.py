"""Tests of report.py: tables and pictures beside the paper's numbers."""

from __future__ import annotations

import json

from official_albert.tools.experiments import report, tables

_ROWS = {
  "no additional data": {
    "parameters": [1_234_567] * 2,
    "MLM loss": [4.5, 4.25],
    "MLM": [25.0, 26.5],
    "SST-2": [80.0, 81.0],
    "SQuAD1.1": [60.0, 50.0],
    "curve": [[(8, 5.0)]] * 2,
  },
  # It has run once.
  "with additional data": {"MLM loss": [4.125], "SST-2": [82.0]},
}


def test_numbers_are_beside_the_papers(tmp_path):
  table, tasks = tables.TABLES["7"], ["SQuAD1.1", "SST-2"]
  text = report.write(table, tasks, _ROWS, "1,600 steps", str(tmp_path))
  assert text == (tmp_path / "table_7.md").read_text()
  lines = [[x.strip() for x in line.split("|")] for line in text.splitlines()]
  assert lines[0] == ["## 7: More data"] and lines[-1] == ["(1,600 steps)"]
  header, _, first, second = (line[1:-1] for line in lines[2:6])
  # The paper has no numbers on held-out text.
  assert header == [
    *("", "parameters", "paper's", "MLM loss", "MLM", "SQuAD1.1", "paper"),
    *("SST-2", "paper", "Avg", "paper"),
  ]
  assert first == [
    *("no additional data", "1.23M", "12M", "4.375 (4.250 to 4.500)"),
    *("25.8 (25.0 to 26.5)", "55.0 (50.0 to 60.0)", "85.8"),
    *("80.5 (80.0 to 81.0)", "90.3", "67.8 (65.5 to 70.0)", "88.0"),
  ]
  assert second[1:5] == ["", "12M", "4.125", ""] and second[7] == "82.0"
  assert second[5:7] == ["", "85.2"] and second[9:] == ["", "89.0"]
  record = json.loads((tmp_path / "table_7.json").read_text())
  assert record["rows"]["with additional data"] == {
    "MLM loss": [4.125],
    "SST-2": [82.0],
  }
  assert (tmp_path / "table_7.png").read_bytes().startswith(b"\x89PNG")
