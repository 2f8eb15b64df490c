"""Tests of all exports for TF Serving: their operations, and silent loading."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_albert.testing import toy_task
from official_albert.tools.testing import many_commands, toy_runs

_TEXT_OPS = (
  pathlib.Path(__file__).parent / "testdata" / "serving_2.15.1_text_ops.txt"
)
_LABELS = ("bad", "good")
_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the day was ##s a b c , ."
_TASKS = {
  "sst2": {"labels": _LABELS},
  "stsb": {},
  "race": {"max_qa_length": 9},
  "squad_v2": {},
}
# Prints those of the operations on the command line that have a kernel for CPUs
# without tensorflow_text.
_WITH_KERNEL = """
import sys
from tensorflow.python.framework import kernels
for name in sys.argv[1:]:
  found = kernels.get_registered_kernels_for_op(name).kernel
  if {"CPU", "DEFAULT"} & {kernel.device_type for kernel in found}:
    print(name)
"""
_OF_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_LOAD = """
import sys
import tensorflow as tf
import tensorflow_text
example = tf.train.Example()
example.features.feature["input_ids"].int64_list.value.extend([1] * 4)
texts = {"examples": example.SerializeToString()}
for path in sys.argv[1:]:
  model = tf.saved_model.load(path)
  for call in model.signatures.values():
    rows = {}
    for name, spec in call.structured_input_signature[1].items():
      value = 1 if spec.dtype == tf.int32 else texts.get(name, "[MASK] a")
      rows[name] = tf.fill([size or 3 for size in spec.shape], value)
    call(**rows)
  if hasattr(model, "tokenize"):
    model(["a"])
    tokens = model.tokenize(["a"])
    model.bert_pack_inputs([tokens, tokens])
"""
# Lines about the libraries of CUDA and the instructions of the processor.
_MACHINE = r".*(cuda|cuDNN|cuFFT|cuBLAS|TensorRT|cpu_feature_guard|oneDNN).*\n"


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> list[str]:
  """The folders of SavedModels of each kind."""
  path = str(tmp_path_factory.mktemp("exports"))
  for task, settings in _TASKS.items():
    toy_runs.write_finetuned(f"{path}/{task}", task, **settings)
  toy_runs.write_pretrained(f"{path}/masks", hidden_act="gelu_erf")
  toy_runs.write_pretrained(f"{path}/words", hidden_act="relu")
  toy_runs.use_wordpiece(f"{path}/words", _PIECES)
  # The signatures around the encoder are those of float32 in bfloat16.
  low = ["--precision=bfloat16"]
  lines = {
    **{name: (name, []) for name in (*_TASKS, "words", "masks")},
    "masks_bfloat16": ("masks", low),
    "squad_v2_bfloat16": ("squad_v2", low),
    "encoder": ("masks", [*low, "--head=encoder", "--signatures=ids"]),
  }
  folders = {name: f"{path}/exports/{name}" for name in lines}
  done = many_commands.run(
    "export_saved_model",
    [
      [f"--model_dir={path}/{run}", f"--export_dir={folders[name]}", *more]
      for name, (run, more) in lines.items()
    ],
  )
  done += many_commands.run(
    "publish_hub_module",
    [
      [
        *(f"--input={path}/{run}", f"--output_dir={path}/hub_{run}"),
        *("--handle=my-team/toy", "--license=mit", "--seq_length=17"),
      ]
      for run in ("masks", "words")
    ],
  )
  assert [result.err for result in done] == [""] * len(done)
  modules = pathlib.Path(path).glob("hub_*/**/saved_model.pb")
  found = [*folders.values(), *(str(file.parent) for file in modules)]
  assert len(found) == len(lines) + 4
  return found


def _graphs(folder: str) -> list:
  """Returns the nodes of the graph and of each function."""
  content = pathlib.Path(folder, "saved_model.pb").read_bytes()
  graph = (
    saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
  )
  return [graph.node, *(f.node_def for f in graph.library.function)]


@pytest.mark.heavy
@pytest.mark.skipif(
  not tf.__version__.startswith("2.15."), reason="the list is of 2.15.1"
)
def test_tf_serving_has_all_operations(exports):
  lines = _TEXT_OPS.read_text().splitlines()
  text_ops = {line for line in lines if not line.startswith("#")}
  used = {
    folder: {node.op for nodes in _graphs(folder) for node in nodes}
    for folder in exports
  }
  names = sorted(set().union(*used.values()))
  done = many_commands.start("-I", "-c", _WITH_KERNEL, *names)
  with_kernel = {*done.out.split()}
  assert with_kernel and not with_kernel & (text_ops | _OF_PYTHON), done.err
  # Placeholders are fed.
  known = with_kernel | text_ops | {"Placeholder"}
  unknown = {folder: sorted(ops - known) for folder, ops in used.items()}
  assert not any(unknown.values()), unknown
  # Each kind of tokenizer was there, and ids need none.
  assert {
    "FastWordpieceTokenizeWithOffsets",
    "SentencepieceTokenizeOp",
    "SentencepieceTokenizeWithOffsetsOp",
  } < set(names)
  assert any(not ops & text_ops for ops in used.values())


@pytest.mark.heavy
def test_loading_and_the_first_calls_are_silent(exports):
  """TensorFlow warns of custom gradients that were not saved."""
  for folder in exports:
    for nodes in _graphs(folder):
      custom = [n.name for n in nodes if "_gradient_op_type" in n.attr]
      assert not custom, folder
  done = subprocess.run(
    [sys.executable, "-I", "-c", _LOAD, *exports],
    cwd="/",
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"},
    capture_output=True,
    text=True,
    check=True,
  )
  errors = re.sub(_MACHINE, "", toy_task.without_notices(done.stderr))
  assert (done.stdout, errors) == ("", "")
