"""Tests of when the progress line is shown and what it says."""

from __future__ import annotations

import io

import pytest

from tools.cli import progress_line


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def test_log_file_gets_a_line_every_ten_seconds():
  now, stream = [100.0], io.StringIO()
  line = progress_line.ProgressLine(stream, lambda: now[0])
  for seconds, fraction, tokens in ((5, 0.5, 70), (12, 0.75, 7070), (15, 1, 0)):
    now[0] = 100.0 + seconds
    line.show("making", fraction, tokens, f"{seconds} documents")
  line.close()
  # The phase began with its first report, 7 seconds ago; what was done then
  # says nothing of the speed.
  assert stream.getvalue() == (
    "making: 12 documents, 1,000 tokens/s, 0:00:07 left\n"
  )


def test_terminal_line_is_rewritten_and_ended():
  now, stream = [0.0], _Terminal()
  line = progress_line.ProgressLine(stream, lambda: now[0])
  line.show("a", 0.0, 0, "nothing yet")
  now[0] = 2.0
  line.show("a", 0.5, 3000, "a long detail")
  now[0] = 4.0
  line.show("a", 0.8, 4000, "short")
  line.close()
  line.close()
  assert stream.getvalue() == (
    "\ra: a long detail, 1,500 tokens/s, 0:00:02 left"
    "\ra: short, 1,000 tokens/s, 0:00:01 left        \n"
  )


def test_each_phase_has_its_own_clock_and_line():
  now, stream = [0.0], _Terminal()
  line = progress_line.ProgressLine(stream, lambda: now[0])
  line.show("a", 0.0, 0, "x")
  now[0] = 9.0
  line.show("a", 0.0, 0, "x")
  now[0] = 50.0
  line.show("b", 0.0, 0, "y")
  now[0] = 52.0
  line.show("b", 0.5, 10, "z")
  assert stream.getvalue() == ("\ra: x\n\rb: y\rb: z, 5 tokens/s, 0:00:02 left")


def test_format_seconds():
  assert progress_line.format_seconds(3723.9) == "1:02:03"
  assert progress_line.format_seconds(0) == "0:00:00"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
