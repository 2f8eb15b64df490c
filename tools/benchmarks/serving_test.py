"""Tests of the comparison of served models."""

from __future__ import annotations

import json
import os

import pytest

from official_albert.tools.benchmarks import serving, turns
from official_albert.tools.testing import toy_runs


def _result(name, answer=0.25):
  return turns.Result(name, [1.0], results=[answer])


def test_answers_must_agree():
  ours, near = _result("saved_model"), _result("hf_eager", 0.2501)
  failed = turns.Result("hf_sdpa", failure="no memory")
  serving.check_answers(
    [ours, near, failed, _result("tflite_int8", 0.254)], 1e-3
  )
  for answer in (0.252, float("nan")):
    with pytest.raises(ValueError, match="hf_sdpa computes something else"):
      serving.check_answers([ours, near, _result("hf_sdpa", answer)], 1e-3)


@pytest.mark.heavy
def test_everything_without_peers(tmp_path):
  toy_runs.write_tokenizer(str(tmp_path))
  out = tmp_path / "out"
  out.mkdir()
  serving.run(
    *("albert_tiny", 11, "float32", ["tflite", "tflite_int8"], 2, 2),
    *(f"{tmp_path}/tokenizer.model", str(out)),
  )
  names = [
    f"serving-albert_tiny-{n}x11-float32.{x}"
    for n in (1, 8)
    for x in ("json", "md")
  ]
  assert sorted(os.listdir(out)) == names
  one, eight = (
    {x["system"]: x for x in json.loads((out / name).read_text())["results"]}
    for name in names[::2]
  )
  assert list(one) == ["saved_model", "tflite", "tflite_int8"]
  assert list(eight) == ["saved_model"]
  # LiteRT is measured without TensorFlow's Python.
  assert one["tflite"]["peak_bytes"] < 2**28
  for result in (*one.values(), *eight.values()):
    assert not result["failure"] and min(result["tokens_per_second"]) > 0
    assert 2**24 < result["peak_bytes"] < 2**32
