"""Tests of the measurements of records, on a tiny corpus."""

from __future__ import annotations

import re
import sys

import pytest

from official_albert.tools.benchmarks import data
from official_albert.tools.testing import toy_data, toy_runs

_CODE = """
import os, time
pid = os.fork()
if not pid:
  memory = bytearray(b"x") * 2**27
  time.sleep(0.5)
  os._exit(0)
os.waitpid(pid, 0)
"""


def _run(monkeypatch, code: str) -> data.ProgramRun:
  line = [sys.executable, "-c", code]
  monkeypatch.setattr(data.child_programs, "command", lambda *unused: line)
  return data.run_program("ours")


def test_a_program_is_measured_and_its_failure_reported(monkeypatch):
  ran = _run(monkeypatch, _CODE)
  assert 0.5 < ran.seconds < 60
  # That of the second process, without this one, which has more.
  assert 2**27 < ran.peak_bytes < 2**28
  with pytest.raises(ValueError, match="ours failed; see its message above"):
    _run(monkeypatch, "raise OSError")


@pytest.mark.heavy
def test_records_are_made_and_read(tmp_path, monkeypatch, capfd):
  monkeypatch.setattr(data, "_READ_SECONDS", 0.1)
  toy_runs.write_tokenizer(str(tmp_path))
  toy_data.write_corpus(str(tmp_path / "corpus.txt"))
  data.run(f"{tmp_path}/corpus.txt", f"{tmp_path}/tokenizer.model", 32, 2, 1)
  printed = capfd.readouterr().out
  made = re.findall(
    r"^\| (static|dynamic) +\| ([12]) +\| ([\d,]+) ", printed, re.M
  )
  assert [row[:2] for row in made] == [
    *(("static", "1"), ("static", "2"), ("dynamic", "1"), ("dynamic", "2"))
  ]
  # Of the same text.
  assert all(500 < int(tokens.replace(",", "")) < 5000 for *_, tokens in made)
  assert made[0][2] == made[1][2] and made[2][2] == made[3][2]
  read = re.findall(
    r"^\| (static|dynamic) +\| [\d.]+ +\| [\d,]+ +\|$", printed, re.M
  )
  assert read == ["static", "dynamic"]
