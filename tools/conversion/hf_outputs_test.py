"""Tests of the script that runs Hugging Face models, without their packages."""

from __future__ import annotations

import contextlib
import shutil
import sys
import types
from unittest import mock

import numpy as np
import pytest

from official_albert.testing import toy_models
from official_albert.tools.conversion import hf_outputs

_GOLDEN = toy_models.GOLDEN / "hf_one_group"


class _Tensor(np.ndarray):
  def long(self):
    return self

  def numpy(self):
    return np.asarray(self)


def _tensor(value):
  return np.asarray(value).view(_Tensor)


def _run(folder, batch):
  """Runs the script and returns what it wrote."""
  np.savez(folder / "batch.npz", **batch)
  files = [str(folder / f"{name}.npz") for name in ("batch", "outputs")]
  hf_outputs.main(str(folder), "AlbertForPreTraining", *files)
  return np.load(files[1])


def test_outputs_at_masked_positions(tmp_path, monkeypatch):
  torch = types.SimpleNamespace(
    tensor=_tensor, arange=np.arange, no_grad=contextlib.nullcontext
  )
  transformers, model = mock.Mock(), mock.Mock()
  monkeypatch.setitem(sys.modules, "torch", torch)
  monkeypatch.setitem(sys.modules, "transformers", transformers)
  shutil.copy(_GOLDEN / "pretraining" / "config.json", tmp_path)
  model.eval.return_value.return_value = {
    "hidden_states": [None, _tensor(np.arange(6.0).reshape(1, 3, 2))],
    "prediction_logits": _tensor(np.arange(12.0).reshape(1, 3, 4)),
    "sop_logits": _tensor([[0.5, -0.5]]),
  }
  model.albert.pooler = lambda x: x * _tensor([10.0, 1.0])
  # Not what the folder asks for: its class could run code.
  config = tmp_path / "config.json"
  config.write_text('{"architectures": ["Evil"]}')
  info = {"missing_keys": [], "unexpected_keys": ["x"], "mismatched_keys": []}
  load = transformers.AlbertForPreTraining.from_pretrained
  load.return_value = (model, info)
  batch = {
    "input_ids": np.array([[3, 5, 8]]),
    "input_mask": np.array([[1, 1, 0]]),
    "segment_ids": np.array([[0, 1, 1]]),
    "masked_lm_positions": np.array([[1, 0]]),
  }
  written = _run(tmp_path, batch)
  assert written["sequence_output"].tolist() == [[[0, 1], [2, 3], [4, 5]]]
  assert written["masked_lm_logits"].tolist() == [[[4, 5, 6, 7], [0, 1, 2, 3]]]
  assert written["sentence_order_logits"].tolist() == [[0.5, -0.5]]
  assert written["pooled_before_tanh"].tolist() == [[0, 1]]
  assert "pooled_output" not in written
  assert load.call_args.kwargs["use_safetensors"] is True
  assert not transformers.Evil.called and not transformers.Evil.method_calls
  given = model.eval.return_value.call_args.kwargs
  names = ("input_ids", "attention_mask", "token_type_ids")
  for name, value in zip(names, batch.values()):
    np.testing.assert_array_equal(given[name], value)
  info["missing_keys"] = ["x.weight"]
  with pytest.raises(SystemExit, match=r"reports missing_keys: \['x.weight'\]"):
    _run(tmp_path, batch)
