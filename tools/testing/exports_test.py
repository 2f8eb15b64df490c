"""Tests of exports as other programs run them.

These are a session, which TF Serving loads them into, and saved_model_cli.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.

from official_albert.tools.testing import many_commands, toy_runs

_TEXTS = ["the sunny day", "", "a cold house by the sea", "größe 東京"]
_IDS = {
  "input_ids": [[2, 5, 9, 3], [2, 7, 3, 0]],
  "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
  "segment_ids": [[0, 0, 1, 1], [0, 0, 0, 0]],
}
# An id of 99, where there are 47.
_BAD = {**_IDS, "input_ids": [[2, 5, 99, 3], [2, 7, 3, 0]]}
# Imports tensorflow_text first, whose operations are in the exports.
_CLI = """
import contextlib, json, sys
import tensorflow_text
from tensorflow.python.tools import saved_model_cli
for arguments in json.loads(sys.argv[1]):
  sys.argv = ["saved_model_cli", *arguments]
  with contextlib.suppress(SystemExit):
    saved_model_cli.main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("exports")
  toy_runs.write_finetuned(
    str(path / "run"), "text_classification", ("bad", "good", "so so")
  )
  for result in many_commands.run(
    "export_saved_model",
    [
      [
        f"--model_dir={path}/run",
        f"--export_dir={path}/{name}/1",
        f"--signatures={signatures}",
      ]
      for name, signatures in (("text", "all"), ("ids", "ids"))
    ],
  ):
    assert result.code == 0, result.err
  return path


def _decoded(outputs):
  return {
    name: [t.decode() for t in x] if x.dtype == object else x
    for name, x in outputs.items()
  }


def assert_like_python(folder, signature, inputs, results):
  """Checks that results are those of the signature in Python's TensorFlow."""
  loaded = tf.saved_model.load(f"{folder}/1")
  dtype = tf.string if "text" in inputs else tf.int32
  expected = loaded.signatures[signature](
    **{name: tf.constant(x, dtype) for name, x in inputs.items()}
  )
  assert set(results) == set(expected)
  for name, value in expected.items():
    if value.dtype == tf.string:
      assert results[name] == [text.decode() for text in value.numpy()]
    else:
      # The same kernels, but graphs that are optimized separately.
      np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-6)


def test_a_session_answers_and_refuses(folder):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tags = ["serve"]
    meta = tf.compat.v1.saved_model.load(session, tags, f"{folder}/text/1")

    def run(name, inputs):
      signature = meta.signature_def[name]
      feeds = {signature.inputs[k].name: x for k, x in inputs.items()}
      fetches = {k: x.name for k, x in signature.outputs.items()}
      outputs = session.run(fetches, feeds)
      return _decoded(outputs)

    results = [run("classify", {"text": _TEXTS}), run("ids", _IDS)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[0\] \[99\]"):
      run("ids", _BAD)
  assert_like_python(folder / "text", "classify", {"text": _TEXTS}, results[0])
  assert_like_python(folder / "text", "ids", _IDS, results[1])


def test_saved_model_cli(folder):
  where = ["--dir", f"{folder}/text/1", "--tag_set", "serve"]
  texts = "text=['a cold house by the sea', 'größe']"
  commands = [
    ["run", *where, "--signature_def", "classify", "--input_exprs", texts],
    ["show", *where, "--signature_def", "ids"],
  ]
  done = many_commands.start("-c", _CLI, json.dumps(commands))
  assert done.code == 0, done.err
  loaded = tf.saved_model.load(f"{folder}/text/1")
  expected = loaded.signatures["classify"](
    tf.constant(["a cold house by the sea", "größe"])
  )
  assert f"key label:\n{expected['label'].numpy()}\n" in done.out
  assert "Result for output key probabilities:\n[[" in done.out
  for name in ("input_ids", "input_mask", "segment_ids"):
    shown = f"inputs['{name}'] tensor_info:\n      dtype: DT_INT32"
    assert shown in done.out
  assert "shape: (-1, 3)" in done.out
