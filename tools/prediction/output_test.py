"""Lines of predictions: tables and JSON, files and pipes."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tools.prediction import output as prediction_output

_THIRD = np.float32(1 / 3)
_ANSWER = {
  "answer": "a\tb\nc",
  "probability": np.float32(0.75),
  "start": np.int32(2),
  "end": np.int32(7),
  "n_best_answers": ["a\tb\nc", "d", ""],
  "n_best_probabilities": np.float32([0.75, 0.25, 0]),
  "n_best_starts": np.int32([2, 9, 0]),
  "n_best_ends": np.int32([7, 10, 0]),
  "null_score_diff": np.float32(-1.5),
}
_MASKS = {
  "tokens": np.array([["sun", "sea"], ["", ""], ["ly", "s"]], object),
  "token_ids": np.int32([[5, 6], [0, 0], [7, 8]]),
  "probabilities": np.float32([[0.5, 0.25], [0, 0], [1, 0]]),
  "mask_positions": np.int32([3, -1, 4]),
}
_CASES = (
  (
    {"label": "b c", "probabilities": [_THIRD, 2 * _THIRD]},
    ("prediction", "a", "b c"),
    ["b c", "0.333333343", "0.666666687"],
    {
      "prediction": "b c",
      "probabilities": {"a": 0.333333343, "b c": 0.666666687},
    },
  ),
  ({"score": 2.5}, ("prediction",), ["2.5"], {"prediction": 2.5}),
  (
    {"swapped_probability": 0.125},
    ("prediction",),
    ["0.125"],
    {"prediction": 0.125},
  ),
  (
    {"choice": np.int32(2), "probabilities": [0, 0, 1, 0]},
    ("prediction", *"ABCD"),
    ["C", "0", "0", "1", "0"],
    {"prediction": "C", "probabilities": {"A": 0, "B": 0, "C": 1, "D": 0}},
  ),
  (
    _ANSWER,
    ("prediction", "probability", "start", "end", "null_score_diff"),
    ["a b c", "0.75", "2", "7", "-1.5"],
    {
      "prediction": "a\tb\nc",
      "probability": 0.75,
      "start": 2,
      "end": 7,
      "null_score_diff": -1.5,
      "n_best": [
        {"text": "a\tb\nc", "probability": 0.75, "start": 2, "end": 7},
        {"text": "d", "probability": 0.25, "start": 9, "end": 10},
      ],
    },
  ),
  (
    _MASKS,
    ("prediction", "probability"),
    ["sun ly", "0.5 1"],
    {
      "prediction": ["sun", "ly"],
      "masks": [
        {
          "position": 3,
          "tokens": ["sun", "sea"],
          "token_ids": [5, 6],
          "probabilities": [0.5, 0.25],
        },
        {
          "position": 4,
          "tokens": ["ly", "s"],
          "token_ids": [7, 8],
          "probabilities": [1, 0],
        },
      ],
    },
  ),
  (
    {"pooled_output": np.float32([0.5, -0.1])},
    ("embedding",),
    ["0.5 -0.100000001"],
    {"embedding": [0.5, -0.100000001]},
  ),
)


@pytest.mark.parametrize("answer, header, cells, fields", _CASES)
def test_lines(tmp_path, answer, header, cells, fields):
  layout = prediction_output.layout_of(list(answer), ("a", "b c"))
  path = tmp_path / "new" / "out.tsv"
  with prediction_output.Writer(str(path), layout, "tsv") as writer:
    writer.write("x\ty", answer)
  expected = [["id", *header], ["x y", *cells]]
  assert path.read_text() == "".join("\t".join(r) + "\n" for r in expected)
  path = tmp_path / "out.jsonl"
  with prediction_output.Writer(str(path), layout, "jsonl") as writer:
    writer.write("x\ty", answer)
    writer.write("1", answer)
  assert writer.count == 2
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  assert lines == [{"id": "x\ty", **fields}, {"id": "1", **fields}]
  assert list(lines[0]) == ["id", *fields]


def test_nothing_half_written(tmp_path, capsys):
  layout = prediction_output.layout_of(["score"])
  path = tmp_path / "out.tsv"
  path.write_text("before\n")
  writer = prediction_output.Writer(str(path), layout, "tsv")
  with pytest.raises(ZeroDivisionError), writer:
    writer.write("0", {"score": 1 / 0})
  assert path.read_text() == "before\n" and os.listdir(tmp_path) == ["out.tsv"]
  for name in ("-", ""):
    with prediction_output.Writer(name, layout, "tsv") as writer:
      writer.write("ä", {"score": 1.0})
  assert capsys.readouterr().out == "id\tprediction\nä\t1\n"
  with pytest.raises(OSError, match="is a folder: name a file in it"):
    prediction_output.Writer(str(tmp_path), layout, "tsv")
  assert os.listdir(tmp_path) == ["out.tsv"]
  with pytest.raises(ValueError, match="the outputs x, y fit no table"):
    prediction_output.layout_of(["y", "x"])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
