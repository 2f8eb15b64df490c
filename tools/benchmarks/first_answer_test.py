"""Tests of the measurement of a few lines of Python."""

from __future__ import annotations

import re

import pytest

from tools.benchmarks import comparison, first_answer
from tools.testing import toy_runs


@pytest.mark.heavy
def test_our_own_lines(tmp_path, monkeypatch, capsys):
  # The peers' environments take minutes to create.
  monkeypatch.setattr(first_answer, "_SYSTEMS", {comparison.OURS: None})
  own = {
    task: {comparison.OURS: snippets[comparison.OURS]}
    for task, snippets in first_answer.SNIPPETS.items()
  }
  monkeypatch.setattr(first_answer, "SNIPPETS", own)
  toy_runs.write_tokenizer(str(tmp_path))
  model = f"{tmp_path}/tokenizer.model"
  first_answer.run("albert_tiny", model, 2, str(tmp_path))
  rows = re.findall(
    r"^\| (\w+) +\| official_albert \| (\d) ", capsys.readouterr().out, re.M
  )
  assert rows == [("fill_mask", "3"), ("embed", "3"), ("fit", "6")]
