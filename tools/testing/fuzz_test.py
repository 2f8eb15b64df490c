"""The fuzzer sees each kind of failure, and the areas have none."""

from __future__ import annotations

import os
import pathlib
import signal

import pytest
from hypothesis import strategies as st

from official_albert.tools.testing import fuzz, mutations

_AREAS = sorted(
  path.stem.removeprefix("fuzz_")
  for path in pathlib.Path(__file__).parent.glob("fuzz_*.py")
  if path != pathlib.Path(__file__)
)
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
    signal.raise_signal(signal.SIGALRM)
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
    "refused": "",
    "nameless": "a message without the file",
    "long": "a long message",
    "left": "left behind: file.new",
    "traceback": "TypeError",
    "slow": "no answer within 20 s",
    "memory": "MemoryError",
    "crash": f"the process ended with exit code {-signal.SIGABRT}",
  }.items(),
)
def test_kinds_of_answers(name, kind):
  report = fuzz.run(f"test.{name}", 2, 0)
  assert report.inputs == 2
  if not kind:
    assert (report.refused, report.failures) == (1, {})
    return
  ((found, failure),) = report.failures.items()
  assert found.endswith(kind) and failure.content == name.encode()


def test_inputs_are_shrunk_and_depend_on_the_seed():
  first, again, other = (
    fuzz.run("test.zeros", 100, seed) for seed in (3, 3, 4)
  )
  assert first.accepted == again.accepted != other.accepted
  ((_, failure),) = first.failures.items()
  assert failure.count == 100 - first.accepted > 1
  # One edit, which puts a zero into the text or in place of a part of it.
  assert failure.content.count(b"\0") == 1
  rest = failure.content.split(b"\0")
  assert _VALID.startswith(rest[0]) and _VALID.endswith(rest[1])


# Of each area, targets that read much in a few seconds.
_QUICK = {
  "builds": ["unfinished"],
  "checkpoints": ["archive", "forged_index"],
  "flags": ["convert_checkpoint", "run_pretraining"],
  "records": ["manifest", "shard"],
  "requests": ["pairs"],
  "runs": ["config", "log"],
  "texts": ["corpus", "glue_stsb", "records", "squad"],
  "tokenizers": ["sentencepiece", "wordpiece"],
}


@pytest.mark.parametrize("area", _AREAS)
def test_area(area):
  for name in _QUICK[area]:
    assert fuzz.run(f"{area}.{name}", 30, 0).failures == {}, name


@pytest.mark.heavy
@pytest.mark.parametrize("area", _AREAS)
def test_area_with_many_inputs(area):
  for report in fuzz.run_all([f"{area}."], 1_500, 1):
    assert report.failures == {}, report.target
