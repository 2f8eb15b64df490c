"""Compares our ONNX files with those that torch exports of the same weights.

Hugging Face's environment needs `onnx` and `onnxscript`, and is a folder or a
link in PEERS_DIR, as `official_albert_huggingface`.
"""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from official_albert import inference
from official_albert.tools.conversion import conversion

onnxruntime = pytest.importorskip("onnxruntime")

from official_albert.tools.conversion import onnx_export

pytestmark = pytest.mark.heavy

_TORCH_NAMES = {
  "input_ids": "input_ids",
  "attention_mask": "input_mask",
  "token_type_ids": "segment_ids",
}
# Sizes of batches; the graphs are exported with another one.
_SHAPES = ((3, 7), (5, 19), (1, 2))
# Writes a random model, its outputs for each batch, and ONNX files by both
# exporters of torch.
_PROGRAM = """
import json, sys, numpy as np, torch, transformers
name, folder, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
config = transformers.AlbertConfig(
  vocab_size=97, embedding_size=10, hidden_size=21, num_hidden_layers=4,
  num_attention_heads=3, intermediate_size=33, max_position_embeddings=47,
  **settings)
model = getattr(transformers, name)(config).eval()
torch.manual_seed(5)
with torch.no_grad():
  for key, value in model.named_parameters():
    is_scale = key.lower().endswith(("layernorm.weight", "layer_norm.weight"))
    value.copy_(float(is_scale) + 0.3 * torch.randn(value.shape))
model.save_pretrained(f"{folder}/hf")
batches = dict(np.load(f"{folder}/batches.npz"))
count = len(batches) // 3
names = ["input_ids", "attention_mask", "token_type_ids"]
outputs = {}
for i in range(count):
  batch = {x: torch.tensor(batches[f"{x}-{i}"]) for x in names}
  with torch.no_grad():
    for key, value in model(**batch).items():
      outputs[f"{key}-{i}"] = value.numpy()
np.savez(f"{folder}/outputs.npz", **outputs)
keys = [key[:-2] for key in outputs if key.endswith("-0")]
example = {x: torch.ones(4, 11, dtype=torch.long) for x in names}
axes = {0: "batch", 1: "length"}
model.config.return_dict = False
for dynamo in (False, True):
  shapes = {"dynamic_axes": {x: axes for x in names}}
  if dynamo:
    shapes = {"dynamic_shapes": {x: axes for x in names}}
  torch.onnx.export(
    model, kwargs=example, f=f"{folder}/{dynamo}.onnx", input_names=names,
    output_names=keys, opset_version=18, dynamo=dynamo, **shapes)
"""


def _run(path, features):
  session = onnxruntime.InferenceSession(str(path))
  names = [output.name for output in session.get_outputs()]
  return dict(zip(names, session.run(names, features)))


@pytest.mark.parametrize(
  "name, settings, task, ours",
  [
    (
      *("AlbertForSequenceClassification", {"num_labels": 3}),
      *("text_classification", {"logits": "logits"}),
    ),
    (
      *("AlbertForSequenceClassification", {"num_labels": 1}),
      *("text_regression", {"logits": "logits"}),
    ),
    (
      *("AlbertForTokenClassification", {"num_labels": 5}),
      *("", {"logits": "logits"}),
    ),
    (
      *("AlbertForPreTraining", {"hidden_act": "gelu", "num_hidden_groups": 2}),
      *("", {"prediction_logits": "masked_lm_logits"}),
    ),
    (
      *("AlbertForQuestionAnswering", {"inner_group_num": 2}),
      *("", {x: x for x in ("start_logits", "end_logits")}),
    ),
  ],
)
def test_files_of_torch_have_the_same_outputs(
  name, settings, task, ours, tmp_path, peer_python
):
  python, rng, batches = (
    peer_python("huggingface"),
    np.random.default_rng(4),
    {},
  )
  for i, shape in enumerate(_SHAPES):
    lengths = rng.integers(1, shape[1] + 1, (shape[0], 1))
    lengths[0] = shape[1]
    mask = np.arange(shape[1]) < lengths
    batches[f"input_ids-{i}"] = rng.integers(0, 97, shape)
    batches[f"attention_mask-{i}"] = mask.astype(np.int64)
    batches[f"token_type_ids-{i}"] = np.sort(rng.integers(0, 2, shape))
  np.savez(tmp_path / "batches.npz", **batches)
  line = [python, "-c", _PROGRAM, name, str(tmp_path), json.dumps(settings)]
  done = subprocess.run(line, capture_output=True, text=True)
  assert not done.returncode, done.stderr[-2000:]
  conversion.convert(
    "official_albert", str(tmp_path / "hf"), str(tmp_path / "own")
  )
  source = inference.open_source(
    str(tmp_path / "own"), with_texts=False, task=task
  )
  onnx_export.write_folder(source, str(tmp_path / "onnx"))
  expected = np.load(tmp_path / "outputs.npz")
  for i, (rows, length) in enumerate(_SHAPES):
    theirs = {x: batches[f"{x}-{i}"] for x in _TORCH_NAMES}
    own = {_TORCH_NAMES[x]: value for x, value in theirs.items()}
    if "masked_lm_logits" in ours.values():
      own["masked_lm_positions"] = np.tile(np.arange(length), (rows, 1))
    found = _run(tmp_path / "onnx/model.onnx", own)
    exported = [_run(tmp_path / f"{x}.onnx", theirs) for x in (False, True)]
    assert {*found} == {*ours.values()}
    for key, own_key in ours.items():
      exact = expected[f"{key}-{i}"]
      assert i or np.std(exact) > 0.01
      values = [found[own_key], *(x[key] for x in exported)]
      if exact.shape[:2] == (rows, length):  # Ours has no values of padding.
        is_token = theirs["attention_mask"] > 0
        exact, *values = (x[is_token] for x in (exact, *values))
      errors = [float(np.abs(value - exact).max()) for value in values]
      # Measured: 1.9e-6.
      assert max(errors) < 1e-5, (key, errors)
