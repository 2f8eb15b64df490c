"""The fuzzer sees each kind of failure, and the targets have none."""

from __future__ import annotations

import os
import signal
import time

import pytest
from hypothesis import strategies as st

from official_albert.tools.testing import fuzz, mutations

_VALID = b"some valid text"


def _call(folder: str, content: bytes) -> None:
  path = os.path.join(folder, "file")
  if content == b"refused":
    raise ValueError(f"{path} is refused.")
  if content == b"nameless":
    raise ValueError("the file is refused.")
  if content == b"long":
    raise ValueError(f"{path}: {'x' * 300}")
  if content == b"left":
    with open(f"{path}.new", "w", encoding="utf-8"):
      raise ValueError(f"{path} is refused.")
  if content == b"traceback":
    raise TypeError
  if content == b"slow":
    time.sleep(60)
  if content == b"memory":
    bytearray(4 << 30)
  if content == b"crash":
    os.abort()


def _refuse_zeros(folder: str, content: bytes) -> None:
  if b"\0" in content:
    raise TypeError


# Of the area `test`, which is this module.
TARGETS = (
  *(
    fuzz.Target(
      name,
      lambda folder: [_VALID],
      lambda valid, name=name: st.sampled_from([valid, name.encode()]),
      _call,
      "file",
    )
    for name in "refused nameless long left traceback slow memory crash".split()
  ),
  fuzz.Target(
    "zeros",
    lambda folder: [_VALID],
    mutations.damaged_bytes,
    _refuse_zeros,
    "file",
  ),
)


@pytest.mark.parametrize(
  "name, kind",
  {
    "nameless": "a message without the file",
    "long": "a long message",
    "left": "left behind: file.new",
    "traceback": "TypeError",
    "slow": "Timeout",
    "memory": "MemoryError",
    "crash": f"exit code {-signal.SIGABRT}",
  }.items(),
)
def test_failures(name, kind):
  with pytest.raises(fuzz.InputFailed, match=kind) as failure:
    fuzz.run(f"test.{name}", 9, 0)
  assert failure.value.content == name.encode()


def test_inputs_are_counted():
  answer = fuzz.run("test.refused", 9, 0)
  assert answer.startswith("test.refused: 1 accepted, 1 refused")


def test_inputs_are_shrunk():
  with pytest.raises(fuzz.InputFailed) as failure:
    fuzz.run("test.zeros", 100, 3)
  # One edit, which puts a zero into the text or in place of a part of it.
  rest = failure.value.content.split(b"\0")
  assert len(rest) == 2
  assert _VALID.startswith(rest[0]) and _VALID.endswith(rest[1])


# Of each area, targets that read much in a few seconds.
_QUICK = """checkpoints.archive checkpoints.forged_index records.manifest
records.shard requests.pairs texts.corpus texts.glue_stsb texts.records
texts.squad tokenizers.sentencepiece tokenizers.wordpiece""".split()


@pytest.mark.parametrize("name", _QUICK)
def test_target(name):
  fuzz.run(name, 30, 0)


@pytest.mark.heavy
def test_all_targets_with_many_inputs():
  for name in fuzz.find():
    fuzz.run(name, 200, 1)
