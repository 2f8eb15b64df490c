"""Tests of the measurement of a few lines of Python."""

from __future__ import annotations

import re

import pytest

from official_albert import AlbertConfig
from official_albert.testing import toy_models
from official_albert.tools.benchmarks import comparison, first_answer
from official_albert.tools.testing import toy_runs


@pytest.mark.heavy
def test_our_own_lines(tmp_path, monkeypatch, capsys):
  # The peers' environments take minutes to create.
  systems = (comparison.OURS, "export", "export in C++")
  monkeypatch.setattr(first_answer, "_SYSTEMS", dict.fromkeys(systems))
  own = {
    task: {name: snippets[name] for name in systems if name in snippets}
    for task, snippets in first_answer.SNIPPETS.items()
  }
  monkeypatch.setattr(first_answer, "SNIPPETS", own)
  pieces = toy_runs.write_tokenizer(str(tmp_path)).vocab_size
  config = toy_models.config(pieces, 64)
  monkeypatch.setattr(AlbertConfig, "from_preset", lambda preset: config)
  model = f"{tmp_path}/tokenizer.model"
  first_answer.run("albert_tiny", model, 2, str(tmp_path))
  rows = re.findall(
    r"^\| (\w+) +\| ([\w +]+?) +\| (\d) ", capsys.readouterr().out, re.M
  )
  assert rows == [
    ("fill_mask", "official_albert", "3"),
    ("fill_mask", "export", "4"),
    ("fill_mask", "export in C++", "4"),
    ("embed", "official_albert", "3"),
    ("fit", "official_albert", "6"),
  ]
