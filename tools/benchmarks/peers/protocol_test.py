"""Tests of both sides of the protocol, with toy programs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.testing import many_commands

# Prints to stdout, which must not reach the benchmark. Losses are 9, 8, 7, ...
_PROGRAM = """
import os
from official_albert.tools.benchmarks.peers import protocol

def build(workload):
  print("a library's greeting")
  os.write(1, b"from below Python\\n")
  losses = iter(range(9, -9, -1))
  if workload.variant == "broken":
    raise ValueError("no such\\n   package")
  return protocol.Program(
    lambda: next(losses), {"toy": "1.2"}, "a toy", None, 0.25
  )

protocol.serve(build)
"""


def _talk(commands: str = "", **workload):
  done = many_commands.start(
    "-c", _PROGRAM, json.dumps(workload), input=commands
  )
  return done, [json.loads(line) for line in done.out.splitlines()]


def test_requests_and_answers():
  done, (ready, timed, again) = _talk("3\n1\n")
  assert done.code == 0
  assert ready["versions"] == {"toy": "1.2"} and ready["about"] == "a toy"
  assert ready["trace_seconds"] == 0.25 and 0 < ready["build_seconds"] < 9
  assert timed["losses"] == [9, 8, 7]
  assert len(timed["seconds"]) == len(timed["cpu_seconds"]) == 3
  assert again["losses"] == [6]
  assert 2**20 < ready["start_bytes"] <= again["peak_bytes"] < 2**32
  assert again["product_flops"] == 0
  assert "greeting" in done.err and "from below Python" in done.err


@pytest.mark.parametrize(
  "commands, workload, message",
  [
    ("", {"variant": "broken"}, "ValueError: no such package"),
    ("", {"speed": 3}, "unexpected keyword argument 'speed'"),
    ("99\n", {}, "StopIteration"),
  ],
)
def test_failures_are_answered(commands, workload, message):
  done, answers = _talk(commands, **workload)
  assert done.code == 1
  assert message in answers[-1]["error"]
  assert "Traceback" in done.err


def test_batches_follow_the_workload():
  workload = protocol.Workload(3, 13, vocab_size=97, seed=4)
  for make in (protocol.request, protocol.training_batch):
    batch, again = make(workload), make(workload)
    for name, value in batch.items():
      np.testing.assert_array_equal(value, again[name])
      assert value.dtype == (np.float32 if "weights" in name else np.int32)
    for name in ("input_ids", "input_mask", "segment_ids"):
      assert batch[name].shape == (3, 13)
    assert set(batch["segment_ids"].ravel()) == {0, 1}
    assert batch["input_mask"].all()
  ids = protocol.request(workload)["input_ids"]
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
    found = protocol.Workload(max_seq_length=length).predictions
    assert found == data.num_to_predict(length)


_READY = dict(
  build_seconds=1.0,
  trace_seconds=0.5,
  versions={"toy": "1"},
  about="a toy",
  start_bytes=1234,
)
_WARMUP, _TIMED = (
  dict(
    seconds=[0.5, 1.5],
    cpu_seconds=[0.75, 1.75],
    losses=[loss, 7.0],
    peak_bytes=77,
    product_flops=5e9,
  )
  for loss in (9.0, 8.0)
)
# A shell script, which starts faster than an interpreter.
_SHELL = f"""#!/bin/sh
echo '{json.dumps(_READY)}'
read first
echo '{json.dumps(_WARMUP)}'
"""


def _start(tmp_path, text, **environment):
  """Starts the script `text` in place of the interpreter."""
  python = tmp_path / "python"
  python.write_text(text)
  python.chmod(0o755)
  return protocol.Peer(
    str(python),
    "tools.toy",
    protocol.Workload(batch_size=3, threads=5),
    environment,
  )


def test_peer_sends_requests(tmp_path):
  text = _SHELL + (
    'echo "$@" "$OMP_NUM_THREADS" "$EXTRA" >"$OUT"\n'
    'read question; echo "$first $question" >>$OUT\n'
    f"echo '{json.dumps(_TIMED)}'\n"
    "read question || echo over >>$OUT\n"
  )
  out = tmp_path / "out"
  with _start(tmp_path, text, OUT=str(out), EXTRA="more") as process:
    assert process.ready == protocol.Ready(**_READY)
    assert process.warmup == protocol.Timed(**_WARMUP)
    assert process.run(2) == protocol.Timed(**_TIMED)
  lines = out.read_text().splitlines()
  assert lines[0].startswith("-m tools.toy {") and lines[0].endswith("5 more")
  assert '"batch_size": 3' in lines[0]
  assert lines[1:] == ["3 2", "over"]


@pytest.mark.parametrize(
  "text, message",
  [
    ('echo \'{"error": "no torch"}\'', "tools.toy failed: no torch"),
    ("echo 1 >&2; echo why >&2; exit 3", "ended with exit code 3: why"),
    ("exit 4", "exit code 4: no output"),
    ("kill -9 $$", "perhaps because memory ran out"),
  ],
)
def test_a_program_that_does_not_start(tmp_path, text, message):
  with pytest.raises(ValueError, match=message):
    _start(tmp_path, f"#!/bin/sh\n{text}\n")


def test_a_program_that_ends_early(tmp_path):
  process = _start(tmp_path, _SHELL + "echo bad step >&2; exit 1\n")
  assert not process.has_failed
  with process, pytest.raises(ValueError, match="exit code 1: bad step"):
    process.run(3)
  assert process.has_failed
