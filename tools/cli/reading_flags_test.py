"""Tests of the flags of reading, parsed as a program does."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tasks.pretraining import data

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = """
import sys
from absl import flags
from tools.cli import reading_flags
flags.FLAGS(sys.argv)
print(reading_flags.reader_settings())
"""


def _run(*arguments):
  return subprocess.run(
    [sys.executable, "-c", _PROGRAM, *arguments],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def test_defaults_are_those_of_the_library():
  assert _run().stdout.strip() == str(data.ReaderSettings())


def test_flags_reach_the_settings():
  done = _run(
    "--split_sentences", "--sentence_language=de", "--skip_bad_documents"
  )
  assert done.stdout.strip() == str(
    data.ReaderSettings(
      split_sentences=True, sentence_language="de", skip_bad_documents=True
    )
  )


def test_no_language():
  done = _run("--sentence_language=German")
  assert done.returncode != 0
  assert "sentence_language is 'German', but must be an ISO code" in done.stderr


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
