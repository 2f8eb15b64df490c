"""Tests that TensorFlow's C++ loader computes what Python's computes."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.

from tools.benchmarks import c_api_loader
from tools.testing import many_commands, toy_runs

_ROOT = pathlib.Path(__file__).parents[2]
_TEXTS = ["the sunny day", "", "a cold house by the sea", "größe 東京"]
_IDS = {
  "input_ids": [[2, 5, 9, 3], [2, 7, 3, 0]],
  "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
  "segment_ids": [[0, 0, 1, 1], [0, 0, 0, 0]],
}
# Several models in one process, and what Python has imported in the end.
_SCRIPT = """
import json, sys
from tools.benchmarks import c_api_loader
results = []
for folder, libraries, signature, inputs in json.loads(sys.argv[1]):
  with c_api_loader.CApiModel(folder, libraries) as model:
    for name, values in [(signature, inputs)] * 2:
      outputs = model.run(name, values)
    results.append({k: c_api_loader.to_json(v) for k, v in outputs.items()})
print(json.dumps([results, "tensorflow" in sys.modules]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("c_api")
  toy_runs.write_finetuned(
    str(path / "run"), "text_classification", ("bad", "good", "so so")
  )
  for result in many_commands.run(
    "export_saved_model",
    [
      [
        f"--model_dir={path}/run",
        f"--export_dir={path}/{name}",
        f"--signatures={signatures}",
      ]
      for name, signatures in (("text", "all"), ("ids", "ids"))
    ],
  ):
    assert result.code == 0, result.err
  return path


def _run(*arguments):
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    # What the loader sets by itself.
    env={k: v for k, v in os.environ.items() if "TF_CPP" not in k},
  )


def assert_like_python(folder, signature, inputs, results):
  loaded = tf.saved_model.load(str(folder))
  dtype = tf.string if "text" in inputs else tf.int32
  expected = loaded.signatures[signature](
    **{name: tf.constant(x, dtype) for name, x in inputs.items()}
  )
  assert set(results) == set(expected)
  for name, value in expected.items():
    if value.dtype == tf.string:
      texts = [text.decode() for text in value.numpy()]
      assert results[name] == texts
    else:
      # The same kernels, but graphs that are optimized one by one.
      np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-6)


def test_like_python_without_python(folder):
  # Without the operations of tensorflow_text first: they stay in a process.
  cases = [
    (str(folder / "ids"), [], "serving_default", _IDS),
    (str(folder / "text"), None, "classify", {"text": _TEXTS}),
    (str(folder / "text"), [], "classify", {"text": []}),
  ]
  done = _run("-c", _SCRIPT, json.dumps(cases))
  assert done.returncode == 0, done.stderr
  results, has_python = json.loads(done.stdout)
  assert done.stderr == "" and not has_python
  assert_like_python(folder / "ids", "ids", _IDS, results[0])
  assert_like_python(folder / "text", "classify", {"text": _TEXTS}, results[1])
  assert results[2] == {"label": [], "probabilities": [], "logits": []}


def test_command_line(folder):
  program = "tools.benchmarks.c_api_loader"
  done = _run("-m", program, f"--saved_model_dir={folder}/text")
  assert (done.returncode, done.stderr) == (0, "")
  signatures = json.loads(done.stdout)
  names = ["classify", "examples", "ids", "serving_default"]
  assert sorted(signatures) == names
  assert signatures["classify"]["inputs"] == {
    "text": {"dtype": "string", "shape": [-1]}
  }
  assert signatures["ids"]["outputs"]["logits"] == {
    "dtype": "float32",
    "shape": [-1, 3],
  }
  refused = _run(
    *("-m", program, f"--saved_model_dir={folder}/text", "--op_libraries=none")
  )
  assert refused.returncode == 1 and "Op type not registered" in refused.stderr


def test_refusals_are_one_sentence(folder):
  bad = json.dumps({**_IDS, "input_ids": [[2, 5, 99, 3], [2, 7, 3, 0]]})
  cases = [
    (["--signature=ids", f"--inputs={bad}"], "input_ids must be from 0 to"),
    (["--signature=nothing", "--inputs={}"], "has classify, examples, ids, se"),
    (["--inputs={}"], "serving_default takes text, not nothing."),
    (["--inputs=[1]"], "--inputs must be a JSON object"),
    (["--inputs={"], "--inputs is not JSON"),
    (['--inputs={"text": [3]}'], "3 is not text"),
    (["--saved_model_dir=/nowhere"], "/nowhere is not the folder of a Saved"),
  ]
  results = many_commands.run(
    "benchmarks.c_api_loader",
    [[f"--saved_model_dir={folder}/text", *more] for more, _ in cases],
  )
  for result, (_, message) in zip(results, cases):
    assert result.code == 1
    assert message in result.err and result.err.count("\n") == 1
    assert "[[" not in result.err and result.out == ""


@pytest.mark.parametrize(
  "value, dtype, message",
  [
    ([1.5], 3, "a number is out of range"),
    (["5"], 3, "'5' is not a number"),
    ([[1], [1, 2]], 3, "lists of equal length"),
    ([1], 21, "not supported here"),
  ],
)
def test_wrong_values(value, dtype, message):
  with pytest.raises(ValueError, match=message) as error:
    c_api_loader.to_array("x", value, dtype)
  assert "'x'" in str(error.value)


def test_values():
  array = c_api_loader.to_array("x", [[1, 0], [1, 1]], 3)
  assert array.dtype == np.int32 and array.tolist() == [[1, 0], [1, 1]]
  texts = c_api_loader.to_array("x", ["ä", b"\xff\0", "\ud83d"], 7)
  assert texts.tolist() == [b"\xc3\xa4", b"\xff\0", b"?"]
  assert c_api_loader.dtype_name(14) == "bfloat16"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
