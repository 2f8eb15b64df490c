"""The numbers of each depth are measured."""

from __future__ import annotations

import json

import pytest

from official_albert.tools.experiments import depth
from official_albert.tools.testing import toy_runs


def test_numbers_of_each_depth(tmp_path):
  runs = [str(tmp_path / name) for name in ("one", "other")]
  for run in runs:
    toy_runs.write_finetuned(run, "text_classification", ("0", "1"))
  (tmp_path / "dev.tsv").write_text("sentence\tlabel\nsun\t0\nrain\t1\na\t0\n")
  output = str(tmp_path / "out")
  table = str(tmp_path / "dev.tsv")
  depth.main(["depth", output, table, f"both={runs[0]},{runs[1]}"])
  with open(f"{output}.json", encoding="utf-8") as file:
    points = json.load(file)["both"]
  layers = [point["mean number of layers"] for point in points]
  assert layers[:3] == [[2, 2], [1, 1], [2, 2]]
  assert all(1 <= x == y <= 2 for x, y in layers)
  assert points[0]["accuracy in percent"] == points[2]["accuracy in percent"]
  assert [x["exit_layer"] for x in points[1:3]] == [1, 2]
  assert points[3]["exit_threshold"] == 0.55


@pytest.mark.parametrize(
  "text, named, message",
  [
    ("sentence\tlabel\nsun\t0\n", "run", "give OUT, a table, and NAME=RUN for"),
    ("sentence\tlabel\n", "a=run", "dev.tsv must have a heading and rows of"),
    ("sentence\tlabel\nsun\n", "a=run", "dev.tsv must have a heading and rows"),
  ],
)
def test_wrong_arguments(tmp_path, text, named, message):
  table = tmp_path / "dev.tsv"
  table.write_text(text)
  with pytest.raises(ValueError, match=message):
    depth.main(["depth", str(tmp_path / "out"), str(table), named])
