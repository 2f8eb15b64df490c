"""Tests of the script that runs Hugging Face models, without their packages."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import types
from unittest import mock

import numpy as np
import pytest

from official_albert import checkpoints
from official_albert.tools.conversion import conversion, hf_outputs


class _Tensor(np.ndarray):
  def long(self):
    return self

  def double(self):
    return self.astype(np.float64)

  def numpy(self):
    return np.asarray(self)


def _tensor(value):
  return np.asarray(value).view(_Tensor)


def test_outputs_at_masked_positions(tmp_path, monkeypatch):
  torch = types.SimpleNamespace(
    tensor=_tensor, arange=np.arange, no_grad=contextlib.nullcontext
  )
  transformers, model = mock.Mock(), mock.Mock()
  monkeypatch.setitem(sys.modules, "torch", torch)
  monkeypatch.setitem(sys.modules, "transformers", transformers)
  model.double.return_value = model.float.return_value = model
  model.return_value = {
    "hidden_states": [None, _tensor(np.arange(6.0).reshape(1, 3, 2))],
    "prediction_logits": _tensor(np.arange(12.0).reshape(1, 3, 4)),
    "sop_logits": _tensor([[0.5, -0.5]]),
  }
  model.albert.pooler = lambda x: x * _tensor([10.0, 1.0])
  info = {"missing_keys": [], "unexpected_keys": ["x"], "mismatched_keys": []}
  load = transformers.AlbertForPreTraining.from_pretrained
  load.return_value = (model, info)
  batch = {
    "input_ids": np.array([[3, 5, 8]]),
    "input_mask": np.array([[1, 1, 0]]),
    "segment_ids": np.array([[0, 1, 1]]),
    "masked_lm_positions": np.array([[1, 0]]),
  }
  paths = [str(tmp_path / f"{name}.npz") for name in ("batch", "outputs")]
  np.savez(paths[0], **batch)
  hf_outputs.main("folder", "AlbertForPreTraining", *paths)
  assert load.call_args.kwargs["use_safetensors"] is True
  # One run in float64, then one in float32.
  done = [name for name, _, _ in model.mock_calls]
  assert done == ["eval", "double", "", "float", ""]
  found = {name: x[0].tolist() for name, x in np.load(paths[1]).items()}
  assert found == {
    "sequence_output": [[[0, 1], [2, 3], [4, 5]]],
    "masked_lm_logits": [[[4, 5, 6, 7], [0, 1, 2, 3]]],
    "sentence_order_logits": [[0.5, -0.5]],
    "pooled_before_tanh": [[0, 1]],
  }
  names = ("input_ids", "attention_mask", "token_type_ids")
  for name, value in zip(names, batch.values()):
    np.testing.assert_array_equal(model.call_args.kwargs[name], value)
  info["missing_keys"] = ["x.weight"]
  with pytest.raises(SystemExit, match=r"lacks weights: \['x.weight'\]"):
    hf_outputs.main("folder", "AlbertForPreTraining", *paths)


# Runs with transformers. The statistics are those of trained models: a channel
# 12 times as large as the others, and keys whose bias is 12.
_WRITE = """
import sys, torch, transformers
name, folder, settings = sys.argv[1], sys.argv[2], eval(sys.argv[3])
has_pooler = settings.pop("add_pooling_layer", True)
config = transformers.AlbertConfig(
  vocab_size=97, embedding_size=16, hidden_size=64, num_hidden_layers=4,
  num_attention_heads=4, intermediate_size=256, **settings)
options = {} if has_pooler else {"add_pooling_layer": False}
model = getattr(transformers, name)(config, **options)
torch.manual_seed(5)
with torch.no_grad():
  for name, value in model.named_parameters():
    random = torch.randn(value.shape)
    if "LayerNorm.weight" in name or "layer_norm.weight" in name:
      value.copy_(1 + random / 5)
    elif value.ndim > 1 and "embeddings" not in name:
      value.copy_(random / value.shape[-1] ** 0.5)
    else:
      value.copy_(random / 20)
    if "full_layer_layer_norm" in name:
      value[3] = 12
    if name.endswith("key.bias"):
      value.mul_(240)
model.save_pretrained(folder)
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
  "name, settings",
  [
    ("AlbertModel", {}),
    ("AlbertModel", {"add_pooling_layer": False}),
    ("AlbertForPreTraining", {"hidden_act": "gelu"}),
    ("AlbertForMaskedLM", {"num_hidden_groups": 2}),
    ("AlbertForSequenceClassification", {"num_labels": 3}),
    ("AlbertForSequenceClassification", {"num_labels": 1}),
    ("AlbertForMultipleChoice", {"inner_group_num": 2}),
    ("AlbertForQuestionAnswering", {}),
  ],
)
def test_proofs_with_transformers(name, settings, tmp_path):
  """Right conversions pass, both ways; other functions do not."""
  peers = os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers")
  python = os.path.expanduser(f"{peers}/official_albert_huggingface/bin/python")
  if not os.path.exists(python):
    pytest.skip("tools.benchmark peers creates the environment")
  first, own, back = (str(tmp_path / x) for x in ("first", "own", "back"))
  subprocess.run(
    [python, "-c", _WRITE, name, first, repr(settings)], check=True
  )
  report = conversion.convert("official_albert", first, own, hf_python=python)
  again = conversion.convert("hf", own, back, hf_python=python)
  assert report["proofs"].keys() == again["proofs"].keys() != set()

  def are_refused(folder, **changes):
    hf, ours = map(checkpoints.read_checkpoint, (first, own))
    hf.source, ours.config = folder, dataclasses.replace(ours.config, **changes)
    proofs = conversion.compare_outputs(hf, ours, python, [])
    assert proofs.keys() == report["proofs"].keys()
    return any(error > allowed for error, allowed in proofs.values())

  assert not are_refused(first)
  is_exact = settings.get("hidden_act") == "gelu"
  assert are_refused(first, hidden_act="gelu" if is_exact else "gelu_erf")
  changed = shutil.copytree(first, tmp_path / "changed")
  values = json.loads((changed / "config.json").read_text())
  values["layer_norm_eps"] = 1e-5
  (changed / "config.json").write_text(json.dumps(values))
  assert are_refused(str(changed))
