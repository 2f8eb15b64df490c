"""Test of the program: it draws a run's numbers, as a user asks for it."""

from __future__ import annotations

import json

import pytest

from official_albert import training
from tools.testing import many_commands


def test_draws_or_says_that_there_is_nothing(tmp_path):
  records = [
    {"kind": kind, "step": step, "masked_lm_loss": 7.0}
    for kind in ("train", "eval")
    for step in (1, 2)
  ]
  text = "".join(json.dumps(record) + "\n" for record in records)
  lines = []
  for name, content in (("empty", ""), ("run", text)):
    (tmp_path / name).mkdir()
    (tmp_path / name / training.METRICS_FILE).write_text(content)
    picture = tmp_path / f"{name}.png"
    line = [f"--model_dir={tmp_path / name}", f"--output_file={picture}"]
    lines.append([*line, "--unigram_entropy=6.3"])
  nothing, drawn = many_commands.run("plot_curves", lines)
  assert nothing.code == 1 and not (tmp_path / "empty.png").exists()
  assert "no training and held-out numbers to draw yet" in nothing.err
  assert (drawn.code, drawn.err) == (0, "")
  assert drawn.out == f"wrote {picture}\n"
  assert picture.read_bytes().startswith(b"\x89PNG")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
