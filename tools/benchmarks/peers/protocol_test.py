"""Tests of both sides of the protocol, with toy programs."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.testing import many_commands

_WORKLOAD = protocol.Workload({"vocab_size": 97}, 3, 13, threads=5, seed=4)
# Prints to stdout, which must not reach the benchmark. Losses are 9, 8, 7, ...
_PROGRAM = """
import os
from official_albert.tools.benchmarks.peers import protocol

def build(workload):
  print("a library's greeting")
  os.write(1, b"from below Python\\n")
  losses = iter(range(9, 4, -1))
  if workload.variant == "broken":
    raise ValueError("no such package")
  return protocol.Program(lambda: next(losses), "a toy", trace_seconds=0.25)

protocol.serve(build)
"""


def _talk(commands: str = "", **changes):
  workload = dataclasses.replace(_WORKLOAD, **changes)
  arguments = "-c", _PROGRAM, json.dumps(dataclasses.asdict(workload))
  done = many_commands.start(*arguments, input=commands)
  return done, [json.loads(line) for line in done.out.splitlines()]


def test_requests_and_answers():
  done, (timed, again) = _talk("3\n1\n")
  assert done.code == 0
  assert timed["about"] == "a toy" and timed["trace_seconds"] == 0.25
  assert timed["results"] == [9, 8, 7] and len(timed["seconds"]) == 3
  assert again["results"] == [6] and again["product_flops"] == 0
  assert 2**20 < timed["peak_bytes"] <= again["peak_bytes"] < 2**32
  assert "greeting" in done.err and "from below Python" in done.err
  done, _ = _talk("1\n", variant="broken")
  assert done.code == 1
  assert "ValueError: no such package" in done.err.splitlines()[-1]


def test_batches_follow_the_workload():
  for make in (protocol.request, protocol.training_batch):
    batch, again = make(_WORKLOAD), make(_WORKLOAD)
    for name, value in batch.items():
      np.testing.assert_array_equal(value, again[name])
      assert value.dtype == (np.float32 if "weights" in name else np.int32)
    for name in ("input_ids", "input_mask", "segment_ids"):
      assert batch[name].shape == (3, 13)
    assert set(batch["segment_ids"].ravel()) == {0, 1}
    assert batch["input_mask"].all()
  ids = protocol.request(_WORKLOAD)["input_ids"]
  assert ids.min() >= 5 and ids.max() < 97
  # 15% of 13 tokens, rounded.
  positions, labels = batch["masked_lm_positions"], batch["masked_lm_ids"]
  assert positions.shape == labels.shape == (3, 2)
  assert batch["next_sentence_labels"].shape == (3, 1)
  assert batch["masked_lm_weights"].tolist() == [[1, 1]] * 3
  assert (np.take_along_axis(batch["input_ids"], positions, 1) == 4).all()
  np.put_along_axis(batch["input_ids"], positions, labels, 1)
  np.testing.assert_array_equal(batch["input_ids"], ids)


def test_predictions_are_those_of_the_records():
  for length in range(5, 600):
    found = protocol.Workload({}, 1, length).predictions
    assert found == data.num_to_predict(length)


def _start(tmp_path, script: str, **environment):
  """Starts a shell script in place of the interpreter."""
  python = tmp_path / "python"
  python.write_text(f"#!/bin/sh\n{script}\n")
  python.chmod(0o755)
  return protocol.Peer(str(python), "tools.toy", _WORKLOAD, environment)


def _timed(loss: float, steps: int) -> protocol.Timed:
  return protocol.Timed([0.5] * steps, [loss] * steps, "a toy", 0.1, 77, 5e9)


def test_peer_sends_requests(tmp_path):
  out = tmp_path / "out"
  script = 'echo "$@" "$OMP_NUM_THREADS" "$EXTRA" >"$OUT"\n'
  for timed in (_timed(9.0, 1), _timed(8.5, 2), _timed(8.0, 2)):
    script += 'read question; echo "$question" >>$OUT\n'
    script += f"echo '{json.dumps(timed._asdict())}'\n"
  with _start(tmp_path, script, OUT=str(out), EXTRA="more") as peer:
    assert peer.warmup.results == [9.0, 8.5, 8.5]
    assert 0 < peer.start_seconds < 30
    assert peer.run(2) == _timed(8.0, 2)
    with pytest.raises(ValueError, match="exit code 0: no output"):
      peer.run(1)
  head, *questions = out.read_text().splitlines()
  assert head.startswith("-m tools.toy {") and head.endswith("5 more")
  assert '"batch_size": 3' in head
  assert questions == ["1", "2", "2"]


@pytest.mark.parametrize(
  "script, message",
  [
    ("echo 1 >&2; echo why >&2; exit 3", "ended with exit code 3: why"),
    ("kill -9 $$", "perhaps because memory ran out"),
  ],
)
def test_a_program_that_does_not_start(tmp_path, script, message):
  with pytest.raises(ValueError, match=message):
    _start(tmp_path, script)
