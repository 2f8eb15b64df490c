"""Tests of the comparison of served models."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from official_albert.tools.benchmarks import comparison, serving
from official_albert.tools.testing import toy_runs

YES = ("yes", "no")


def _result(name, answer=0.25):
  return comparison.Result(name, [1.0], [], 3 * 2**29, [answer])


def test_answers_must_agree():
  ours = _result(comparison.OURS)
  near = _result("hf_eager", 0.2501)
  failed = comparison.Result("hf_half", failure="no memory")
  serving.check_answers([ours, near, failed], 1e-3)
  for answer in (0.252, float("nan")):
    with pytest.raises(ValueError, match="hf_sdpa computes something else"):
      serving.check_answers([ours, near, _result("hf_sdpa", answer)], 1e-3)


@pytest.mark.heavy
def test_everything_without_peers(tmp_path, monkeypatch, capsys):
  # The peers' environments take minutes to create.
  monkeypatch.setattr(
    comparison, "make_environment", lambda *unused: sys.executable
  )
  monkeypatch.setattr(serving, "SYSTEMS", {})
  monkeypatch.setattr(serving, "_BATCH_SIZES", (3,))
  monkeypatch.setattr(serving, "_ALL_BATCH_SIZES", (2,))
  monkeypatch.setattr(serving, "_LENGTHS", (9,))
  monkeypatch.setattr(serving, "_CLIENTS_SECONDS", 0.1)
  out = tmp_path / "out"
  out.mkdir()
  toy_runs.write_tokenizer(str(tmp_path))
  serving.run(
    *("albert_tiny", 11, "float32", 2, 2),
    *(f"{tmp_path}/tokenizer.model", str(tmp_path), str(out)),
  )
  assert sorted(os.listdir(tmp_path / "out")) == [
    "serving-float32-3.png",
    "serving-float32.json",
    "serving-float32.md",
    "serving-float32.png",
  ]
  report = (tmp_path / "out" / "serving-float32.md").read_text()
  printed = capsys.readouterr().out
  assert printed.startswith("albert_tiny, 3 x 11 tokens, float32, ")
  # The program has printed the machine.
  assert report.split("\n\n", 1)[1].split() == printed.split()
  assert report.count("\n| official_albert | ") == 1
  # Five numbers of clients, each with and without batches.
  lines = report.splitlines()
  clients = [
    x for x in lines if x.endswith(" |") and x.split(" | ")[1].strip() in YES
  ]
  assert len(clients) == 10
  # The last word may have several pieces.
  tokens = int(re.search(r"A raw text of (\d+) tokens takes ", report)[1])
  assert 11 <= tokens < 30
  points = json.loads((tmp_path / "out" / "serving-float32.json").read_text())
  assert [(point["axis"], point["value"]) for point in points] == [
    ("batch size, S 11", 2),
    ("length, B 8", 9),
  ]
  assert all(rate > 0 for p in points for rate in p["tokens_per_second"])
