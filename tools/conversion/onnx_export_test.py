"""Tests of ONNX files: outputs of each head, sizes, errors, other processes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
import tensorflow as tf

import official_albert
from official_albert import AlbertConfig, inference, serving
from official_albert.inference import source as source_lib
from official_albert.tasks import trained_run
from official_albert.tasks.pretraining import serving as pretraining_serving
from official_albert.tools.conversion import export_check
from official_albert.tools.testing import many_commands, toy_runs

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from official_albert.tools.conversion import onnx_export

_PAGE = pathlib.Path(__file__).parents[2] / "docs/tflite_onnx.md"
_TASKS = {
  "classification": "text_classification",
  "regression": "text_regression",
  "multi_label": "text_multi_label",
  "multiple_choice": "race",
  "squad1": "squad_v1",
  "squad2": "squad_v2",
  "embedding": "text_embedding",
}


def config(**changes):
  """Returns sizes that all differ, with weights whose layers matter."""
  sizes = {
    "vocab_size": 97,
    "embedding_size": 10,
    "hidden_size": 21,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
    "num_attention_heads": 3,
    "intermediate_size": 33,
    "max_position_embeddings": 47,
    "initializer_range": 0.3,
  }
  return AlbertConfig(**{**sizes, **changes})


def make_source(head, **changes):
  """Returns a random model of a head, with biases that are not 0."""
  tf.keras.utils.set_random_seed(3)
  settings = {
    name: changes.pop(name)
    for name in ("pooling", "normalize")
    if name in changes
  }
  classes = {"classification": 3, "multi_label": 5, "token_classification": 4}
  classes = classes.get(head, 1)
  model = inference.make_model(head, config(**changes), classes, settings)
  for variable in model.trainable_variables:
    if not variable.numpy().any():
      variable.assign(tf.random.normal(variable.shape, stddev=0.3))
  if head == "regression":
    model.classifier.set_target_scale([55.0, 0.75], keep_outputs=False)
  if head == "none":
    module = serving.ServedEncoder(model, None, 19)
  elif head == "pretraining":
    module = pretraining_serving.ServedPretraining(model, None, 19)
  elif head == "token_classification":
    module = serving.ServedLogits(model, None, 19)
    module.kind = head
  else:
    labels = [str(i) for i in range(classes)] if classes > 1 else None
    settings |= {"labels": labels, "max_qa_length": 11}
    run = trained_run.TrainedRun("run", _TASKS[head], 0, settings, None)
    module = source_lib.make_served(run, model, None, 19)
  return serving.Source(module, head, "x", None)


def open_file(folder):
  """Returns a session of a file that ONNX's checker accepts."""
  path = os.path.join(folder, "model.onnx")
  onnx.checker.check_model(path, full_check=True)
  return onnxruntime.InferenceSession(path)


def compare(source, session, batch, length, atol):
  """Compares both for sequences of all lengths, the last one of one token."""
  rng = np.random.default_rng(length)
  module = source.module
  sizes = {"B": batch, "S": length, "P": 4}
  features = {}
  for name, axes in module.plain_inputs.items():
    shape = [sizes.get(axis) or int(axis) for axis in axes.split()]
    features[name] = np.zeros(shape, np.int64)
  shape = features["input_ids"].shape
  tokens = rng.integers(1, length + 1, (*shape[:-1], 1))
  tokens[-1] = 1
  if "masked_lm_positions" in features:
    features["masked_lm_positions"] = rng.integers(0, tokens, [batch, 4])
  mask = (np.arange(length) < tokens).astype(np.int64)
  features["input_ids"] = rng.integers(0, module.config.vocab_size, shape)
  if batch == 5:  # Holes, and a sequence without tokens.
    mask[..., 2:4], mask[0] = 0, 0
  features["input_mask"] = mask
  segments = mask * (np.arange(length) > tokens // 3)
  most = module.config.type_vocab_size - 1
  features["segment_ids"] = np.minimum(segments, most)
  exact = module.plain_outputs(
    {name: tf.constant(x, tf.int32) for name, x in features.items()}
  )
  names = [output.name for output in session.get_outputs()]
  assert sorted(names) == sorted(exact)
  for name, found in zip(names, session.run(names, features)):
    expected = exact[name].numpy()
    if expected.shape[:2] == mask.shape:  # The file has no values of padding.
      computed = mask[:, ::-1].cumsum(1)[:, ::-1] > 0
      computed |= ~computed.any(1, keepdims=True)
      if name == "sequence_output":
        assert not found[~computed].any()
      expected, found = expected[computed], found[computed]
    np.testing.assert_allclose(found, expected, 1e-5, atol, err_msg=name)


@pytest.mark.parametrize(
  "head, changes",
  [
    ("none", {"sharing": "none", "hidden_act": "linear"}),
    ("none", {"embedding_size": 21, "hidden_act": "tanh"}),
    ("none", {"type_vocab_size": 1}),
    ("pretraining", {"sharing": "attention", "hidden_act": "relu"}),
    ("pretraining", {"always_project_embedding": True, "embedding_size": 21}),
    ("classification", {"hidden_act": "gelu_erf", "sharing": "ffn"}),
    ("classification", {"adapter_rank": 5}),
    ("none", {"adapter_rank": 5}),
    ("multi_label", {}),
    ("regression", {}),
    ("multiple_choice", {}),
    ("token_classification", {}),
    ("squad1", {}),
    ("squad2", {}),
    ("embedding", {"pooling": "mean"}),
    ("embedding", {"pooling": "max", "normalize": False}),
    ("embedding", {"pooling": "cls", "hidden_act": "relu"}),
    ("embedding", {"pooling": "pooler", "adapter_rank": 5}),
  ],
)
def test_outputs_equal_those_of_tensorflow(tmp_path, head, changes):
  source = make_source(head, **changes)
  onnx_export.write_folder(source, str(tmp_path / "new"))
  session = open_file(tmp_path / "new")
  for batch, length in ((3, 7), (5, 19), (2, 47), (1, 1)):
    compare(source, session, batch, length, 1e-5)
  for each in session.get_inputs():
    assert each.type == "tensor(int64)"
  assert session.get_inputs()[0].shape == (
    ["B", 4, "S"] if head == "multiple_choice" else ["B", "S"]
  )


# Runs in the environment of the benchmark's runtimes.
_OPENVINO = """
import sys
import numpy as np, onnxruntime, openvino
sizes, rng = {"B": 3, "S": 19, "P": 4}, np.random.default_rng(1)
for path in sys.argv[1:]:
  session = onnxruntime.InferenceSession(path)
  features = {
    x.name: rng.integers(0, 2, [sizes.get(axis, axis) for axis in x.shape])
    for x in session.get_inputs()
  }
  features["input_ids"] = rng.integers(5, 97, features["input_ids"].shape)
  lengths = rng.integers(1, 20, [*features["input_mask"].shape[:-1], 1])
  features["input_mask"] = (np.arange(19) < lengths).astype(np.int64)
  hint = {"INFERENCE_PRECISION_HINT": "f32"}
  found = openvino.compile_model(path, "CPU", hint)(features)
  outputs = zip(session.get_outputs(), session.run(None, features))
  for output, expected in outputs:
    name = output.name
    np.testing.assert_allclose(found[name], expected, 1e-5, 1e-5, err_msg=path)
"""


@pytest.mark.heavy
def test_openvino_answers_every_head(tmp_path, peer_python):
  python, paths = peer_python("runtimes"), []
  for head in (*_TASKS, "none", "pretraining", "token_classification"):
    changes = {"pooling": "mean"} if head == "embedding" else {}
    folder = os.path.join(tmp_path, head)
    onnx_export.write_folder(make_source(head, **changes), folder)
    paths.append(os.path.join(folder, "model.onnx"))
  assert len(paths) == 10
  subprocess.run([python, "-c", _OPENVINO, *paths], check=True)


@pytest.mark.parametrize(
  "quantization, bytes_per_weight, tolerance",
  [("none", 4, 1e-5), ("float16", 2, 0.01), ("int8", 1, 0.2)],
)
@pytest.mark.parametrize("rank", [0, 5])
def test_shared_weights_are_stored_once(
  tmp_path, capfd, quantization, bytes_per_weight, tolerance, rank
):
  sizes = {"embedding_size": 48, "hidden_size": 96, "intermediate_size": 384}
  one_set = {"num_hidden_groups": 1, "inner_group_num": 1}
  source = make_source(
    "pretraining",
    **sizes,
    **one_set,
    vocab_size=997,
    num_hidden_layers=12,
    initializer_range=0.1,
    adapter_rank=rank,
  )
  capfd.readouterr()
  onnx_export.write_folder(source, str(tmp_path / "new"), quantization)
  assert capfd.readouterr() == ("", "")
  weights = source.module.config.parameter_count()
  size = os.path.getsize(tmp_path / "new/model.onnx")
  # Twelve layers have 12 * 2 KB of operations, or a third more in int8, where
  # each of the 120 products with adapters has eight operations.
  most = 300_000 if rank and quantization == "int8" else 130_000
  assert 0 < size - bytes_per_weight * weights < most
  assert bytes_per_weight * weights > 130_000
  compare(source, open_file(tmp_path / "new"), 3, 23, tolerance)


def test_failed_exports_leave_nothing(tmp_path, monkeypatch):
  source = make_source("classification")
  target = str(tmp_path / "new")
  with monkeypatch.context() as patch:
    patch.setitem(export_check.TOLERANCES, "int8", 1e-9)
    with pytest.raises(ValueError, match="logits .* differs .* than int8"):
      onnx_export.write_folder(source, target, "int8")
  with monkeypatch.context() as patch:
    patch.setattr(onnx_export, "_MAX_BYTES", 9_999)
    with pytest.raises(ValueError, match="weights have .*holds only 9,999"):
      onnx_export.write_folder(source, target)
  source.module.kind = "poetry"
  with pytest.raises(ValueError, match="no graph of poetry: give --head=enc"):
    onnx_export.write_folder(source, target)
  assert not os.listdir(tmp_path)


# Only these packages: no TensorFlow, and nothing of this one.
_CLIENT = """
import sys
for name in ("official_albert", "tasks", "tools", "tensorflow", "onnx"):
  sys.modules[name] = None
import json
page, texts = json.load(sys.stdin)
exec(page)
answers = [classify(text) for text in texts]
print(json.dumps([[label, odds.tolist()] for label, odds in answers]))
"""


def test_the_python_of_the_page(tmp_path):
  toy_runs.write_finetuned(
    str(tmp_path / "run"), "text_classification", ("bad", "good", "fair")
  )
  source = source_lib.open_source(
    str(tmp_path / "run"), with_texts=False, max_seq_length=11
  )
  onnx_export.write_folder(source, str(tmp_path / "portable"))
  assert sorted(os.listdir(tmp_path / "portable")) == [
    *("albert_config.json", "export.json", "labels.txt"),
    *("model.onnx", "tokenizer.model"),
  ]
  page = _PAGE.read_text("utf-8")
  shared, code, _ = re.findall(r"```python\n(.*?)```", page, re.S)
  page = (shared + code).replace('"portable"', f'"{tmp_path}/portable"')
  texts = ["A cold  d\u00e1y", "", "day 1, day 22, house, sea, a warm day"]
  done = many_commands.start(
    "-I", "-c", _CLIENT, input=json.dumps([page, texts])
  )
  assert (done.code, done.err) == (0, ""), done.err
  model = official_albert.load(str(tmp_path / "run"), max_seq_length=11)
  for (label, odds), text in zip(json.loads(done.out), texts, strict=True):
    answer = model.classify(text)
    assert label == answer.label
    np.testing.assert_allclose(
      odds, list(answer.probabilities.values()), atol=1e-5
    )


def test_the_command(tmp_path):
  toy_runs.write_finetuned(
    str(tmp_path / "run"), "text_pair_classification", ("a", "b")
  )
  line = [f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/new"]
  (written,) = many_commands.run(
    "export_saved_model", [[*line, "--format=onnx", "--quantization=float16"]]
  )
  assert written.err == "" and f"exported {tmp_path}/run" in written.out
  record = json.loads((tmp_path / "new/export.json").read_text())
  assert (record["format"], record["precision"]) == ("onnx", "float16")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package(tmp_path, package):
  code = (
    "import runpy, sys\n"
    f"sys.modules[{package!r}] = None\n"
    f"sys.argv = ['export', '--format=onnx', '--model_dir={tmp_path}/none',\n"
    f"            '--export_dir={tmp_path}/new']\n"
    "runpy.run_module('tools.export_saved_model', run_name='__main__')"
  )
  done = many_commands.start("-c", code)
  assert done.code == 1
  last = done.err.strip().splitlines()[-1]
  assert f"--format=onnx needs {package}: python -m pip install" in last
