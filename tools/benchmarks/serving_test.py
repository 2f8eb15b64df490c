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
    *("albert_tiny", 11, "float32", ["c_api", "tflite", "tflite_int8"], 2, 2),
    *(f"{tmp_path}/tokenizer.model", str(tmp_path), str(out)),
  )
  names = [
    f"serving-albert_tiny-{n}x11-float32.{x}"
    for n in (1, 8)
    for x in ("json", "md")
  ]
  assert sorted(os.listdir(out)) == names
  one, eight = (json.loads((out / x).read_text()) for x in names[::2])
  found = [result["system"] for result in one["results"]]
  assert found == ["saved_model", "c_api", "tflite", "tflite_int8"]
  found = [result["system"] for result in eight["results"]]
  assert found == ["saved_model", "c_api"]
  peaks = {x["system"]: x["peak_bytes"] for x in one["results"]}
  # LiteRT and the C library are measured without TensorFlow's Python.
  assert peaks["tflite"] < 2**28 and peaks["c_api"] < 0.9 * peaks["saved_model"]
  for result in (*one["results"], *eight["results"]):
    assert not result["failure"] and min(result["tokens_per_second"]) > 0
    assert 2**24 < result["peak_bytes"] < 2**32
