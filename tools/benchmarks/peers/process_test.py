"""Tests of the benchmark's side of the protocol, with made-up programs."""

from __future__ import annotations

import json

import pytest

from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol

_READY = dict(
  losses=[9.0, 8.5],
  build_seconds=1.0,
  trace_seconds=0.5,
  first_step_seconds=0.25,
  versions={"toy": "1"},
  about="a toy",
  peak_bytes=12345,
)
# Written with the shell, so that a test takes no interpreter's start.
_HEAD = f"#!/bin/sh\necho '{json.dumps(_READY)}'\n"


def _start(tmp_path, text, environment=None):
  """`text` takes the place of the interpreter, arguments and all."""
  python = tmp_path / "python"
  python.write_text(text)
  python.chmod(0o755)
  return peer_process.PeerProcess(
    str(python),
    "tools.toy",
    peer_protocol.Workload(batch_size=3, threads=5),
    environment,
  )


def test_questions_and_answers(tmp_path):
  text = _HEAD + (
    'echo "$@" "$OMP_NUM_THREADS" "$EXTRA" >"$OUT"\n'
    'read question; echo "$question" >>$OUT\n'
    'echo \'{"seconds": [0.5, 1.5], "losses": [8, 7], "peak_bytes": 77}\'\n'
    'read question; echo "$question" >>$OUT; echo \'{"flops": 5e9}\'\n'
    "read question || echo over >>$OUT\n"
  )
  out = tmp_path / "out"
  with _start(tmp_path, text, {"OUT": str(out), "EXTRA": "more"}) as process:
    assert process.ready == peer_protocol.Ready(**_READY)
    assert process.run(2) == peer_protocol.Timed([0.5, 1.5], [8, 7], 77)
    assert process.product_flops(4) == 5e9
  lines = out.read_text().splitlines()
  assert lines[0].startswith("-m tools.toy {") and lines[0].endswith("5 more")
  assert '"batch_size": 3' in lines[0]
  assert lines[1:] == ["run 2", "product 4", "over"]


@pytest.mark.parametrize(
  "text, message",
  [
    ('echo \'{"error": "no torch"}\'', "tools.toy failed: no torch"),
    ("echo hello", "does not speak the benchmark's protocol: 'hello'"),
    ("echo 1 >&2; echo why >&2; exit 3", "ended with exit code 3: why"),
    ("exit 4", "exit code 4: it said nothing"),
    ("kill -9 $$", "perhaps for want of memory"),
  ],
)
def test_a_program_that_does_not_start(tmp_path, text, message):
  with pytest.raises(ValueError, match=message):
    _start(tmp_path, f"#!/bin/sh\n{text}\n")


def test_a_program_that_ends_early(tmp_path):
  process = _start(tmp_path, _HEAD + "echo bad step >&2; exit 1\n")
  with process, pytest.raises(ValueError, match="exit code 1: bad step"):
    process.run(3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
