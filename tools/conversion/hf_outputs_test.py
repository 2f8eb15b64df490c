"""Tests of the script that runs Hugging Face models.

One test runs the real model if torch and transformers are installed; the others
replace both packages.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import shutil
import sys
import types
from unittest import mock

import numpy as np
import pytest

from tools.conversion import hf_outputs

_GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "official_albert"
_GOLDEN = _GOLDEN / "testdata" / "hf_one_group"
_BATCH = {
  "input_ids": np.array([[3, 5, 8]]),
  "input_mask": np.array([[1, 1, 0]]),
  "segment_ids": np.array([[0, 1, 1]]),
  "masked_lm_positions": np.array([[1, 0]]),
}


class _Tensor(np.ndarray):
  def long(self):
    return self

  def numpy(self):
    return np.asarray(self)


def _tensor(value):
  return np.asarray(value).view(_Tensor)


def _run(folder, arrays):
  """Runs the script and returns what it wrote."""
  batch, outputs = str(folder / "batch.npz"), str(folder / "outputs.npz")
  np.savez(batch, **arrays)
  hf_outputs.main(str(folder), batch, outputs)
  return np.load(outputs)


@pytest.fixture
def transformers(monkeypatch):
  """Replaces both packages."""
  torch = types.SimpleNamespace(
    tensor=_tensor, arange=np.arange, no_grad=contextlib.nullcontext
  )
  monkeypatch.setitem(sys.modules, "torch", torch)
  monkeypatch.setitem(sys.modules, "transformers", mock.Mock())
  return sys.modules["transformers"]


def test_outputs_at_masked_positions(tmp_path, transformers):
  shutil.copy(_GOLDEN / "pretraining" / "config.json", tmp_path)
  hidden = _tensor(np.arange(6.0).reshape(1, 3, 2))
  order = _tensor(np.array([[0.5, -0.5]]))
  model = mock.Mock()
  model.eval.return_value.return_value = {
    "hidden_states": [None, hidden],
    "prediction_logits": _tensor(np.arange(12.0).reshape(1, 3, 4)),
    "sop_logits": order,
  }
  info = {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}
  load = transformers.AlbertForPreTraining.from_pretrained
  load.return_value = (model, info)
  written = _run(tmp_path, _BATCH)
  np.testing.assert_array_equal(written["sequence_output"], hidden)
  np.testing.assert_array_equal(
    written["masked_lm_logits"], [[[4, 5, 6, 7], [0, 1, 2, 3]]]
  )
  np.testing.assert_array_equal(written["sentence_order_logits"], order)
  given = model.eval.return_value.call_args.kwargs
  for theirs, ours in (
    ("input_ids", "input_ids"),
    ("attention_mask", "input_mask"),
    ("token_type_ids", "segment_ids"),
  ):
    np.testing.assert_array_equal(given[theirs], _BATCH[ours])
  info["missing_keys"] = ["x.weight"]
  with pytest.raises(SystemExit, match=r"reports missing_keys: \['x.weight'\]"):
    _run(tmp_path, _BATCH)


@pytest.mark.skipif(
  not all(map(importlib.util.find_spec, ("torch", "transformers"))),
  reason="torch and transformers are not installed",
)
@pytest.mark.parametrize(
  "name, own, theirs",
  [
    ("pretraining", "sentence_order_logits", "sop_logits"),
    ("sequence_classification", "logits", "logits"),
    ("question_answering", "start_logits", "start_logits"),
  ],
)
def test_the_real_model(name, own, theirs, tmp_path):
  expected = np.load(_GOLDEN / name / "reference_outputs.npz")
  shutil.copytree(_GOLDEN / name, tmp_path, dirs_exist_ok=True)
  ids = expected["input_ids"]
  batch = {
    "input_ids": ids,
    "input_mask": expected["attention_mask"],
    "segment_ids": expected["token_type_ids"],
    "masked_lm_positions": np.zeros([len(ids), 1], np.int32),
  }
  written = _run(tmp_path, batch)
  np.testing.assert_allclose(written[own], expected[theirs], atol=1e-5)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
