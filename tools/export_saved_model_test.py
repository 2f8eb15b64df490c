"""Exports by the command line: what is written, and what wrong flags say."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.
from tensorflow.python.client import pywrap_tf_session

from official_albert import tokenization
from official_albert.tools.testing import many_commands, toy_runs

_LABELS = ("bad", "good")
_TEXTS = ["the day was cold", "sunny, warm " * 9, "", "an OLD tree \u00e9"]
# Loads exports where only TensorFlow is, and tensorflow_text where asked for.
_CLIENT = """
import json, sys
for name in ("official_albert", "tasks", "tools", "sentencepiece"):
  sys.modules[name] = None
import numpy as np
import tensorflow as tf
results = []
for text, path, signature, inputs in json.loads(sys.argv[1]):
  if text:
    import tensorflow_text
  else:
    assert "tensorflow_text" not in sys.modules
  function = tf.saved_model.load(path).signatures[signature]
  dtypes = {s.name: s.dtype for s in
            function.structured_input_signature[1].values()}
  answers = function(**{n: tf.constant(v, dtypes[n])
                        for n, v in inputs.items()})
  results.append({
    n: np.char.decode(x.numpy().astype(bytes), "utf-8").tolist()
    if x.dtype == tf.string else x.numpy().tolist()
    for n, x in answers.items()})
print("RESULT" + json.dumps(results))
"""


def serve(*requests):
  """Answers of exports in a process without our code, in their order."""
  env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
  done = many_commands.start("-I", "-c", _CLIENT, json.dumps(requests), env=env)
  assert (done.code, done.err) == (0, "")
  return json.loads(done.out.split("RESULT")[1])


def read_record(exported):
  return json.loads(pathlib.Path(exported, "assets", "export.json").read_text())


def packed(folder, *texts):
  """Returns one example as a request of ids, by the Python tokenizer."""
  tokenizer = tokenization.open_tokenizer(f"{folder}/tokenizer.model")
  features = tokenizer(*([text] for text in texts), max_seq_length=24)
  return {name: x.tolist() for name, x in features.items()}


def run_unchecked(path, signature, **inputs):
  """As a server's session does: no shape is compared with the signature's."""
  with tf.compat.v1.Session(graph=tf.Graph()) as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], path)
    found = loaded.signature_def[signature]

    def place(info):
      return session.graph.get_tensor_by_name(info.name)._as_tf_output()

    answers = pywrap_tf_session.TF_SessionRun_wrapper(
      session._session,
      None,
      {place(found.inputs[name]): value for name, value in inputs.items()},
      [place(info) for info in found.outputs.values()],
      [],
      None,
    )
    return dict(zip(found.outputs, answers))


def test_exports_of_the_command_line(tmp_path):
  sst2, encoder = str(tmp_path / "sst2"), str(tmp_path / "encoder")
  model = toy_runs.write_finetuned(sst2, "sst2", _LABELS)
  toy_runs.write_pretrained(encoder)
  out = str(tmp_path / "exports")
  results = many_commands.run(
    "export_saved_model",
    [
      [
        *(f"--model_dir={sst2}", f"--export_dir={out}/sst2/1"),
        "--depth_signatures",
      ],
      [
        *(f"--model_dir={encoder}", f"--export_dir={out}/encoder"),
        *("--head=encoder", "--signatures=ids"),
        *("--max_seq_length=19", "--precision=bfloat16"),
      ],
    ],
  )
  for result in results:
    assert result.err == ""
  assert results[0].out == f"exported {sst2}/model.ckpt-1 to {out}/sst2/1\n"
  record = read_record(f"{out}/sst2/1")
  assert record["kind"] == "classification"
  assert record["labels"] == list(_LABELS)
  assert (tmp_path / "exports/sst2/1/assets/labels.txt").read_text() == (
    "bad\ngood\n"
  )
  assert read_record(f"{out}/encoder")["task"] == "encoder"
  ids = packed(sst2, "the day", "was cold")
  depths = {"exit_layer": [1], "exit_threshold": [0.0]}
  encoded, classified, pair, first, ids_first = serve(
    # First, as nothing must have loaded tensorflow_text before it.
    (False, f"{out}/encoder", "serving_default", ids),
    (True, f"{out}/sst2/1", "serving_default", {"text": _TEXTS}),
    (True, f"{out}/sst2/1", "ids", ids),
    (
      True,
      f"{out}/sst2/1",
      "classify_at_depth",
      {"text": _TEXTS[:1], **depths},
    ),
    (True, f"{out}/sst2/1", "ids_at_depth", {**ids, **depths}),
  )
  for i, text in enumerate(_TEXTS):
    features = {k: tf.constant(x) for k, x in packed(sst2, text).items()}
    logits = model(features, training=False)["logits"][0].numpy()
    np.testing.assert_allclose(classified["logits"][i], logits, atol=1e-5)
    assert classified["label"][i] == _LABELS[int(logits.argmax())]
  features = {name: tf.constant(x) for name, x in ids.items()}
  logits = model(features, training=False)["logits"]
  np.testing.assert_allclose(pair["logits"], logits, atol=1e-5)
  logits = model(features, num_layers=1)["logits"]
  np.testing.assert_allclose(ids_first["logits"], logits, atol=1e-5)
  assert first["exit_layer"] == ids_first["exit_layer"] == [1]
  assert np.shape(encoded["sequence_output"])[::2] == (1, 24)

  path, axes = f"{out}/sst2/1", "but its number of axes is"
  arrays = {name: np.array(x, np.int32) for name, x in ids.items()}

  def at_depth(layer, threshold=0):
    layers = np.array(layer, np.int32)
    thresholds = np.array([threshold], np.float32)
    return {**arrays, "exit_layer": layers, "exit_threshold": thresholds}

  for signature, inputs, message in (
    ("classify", {"text": np.array([["sun", "rain"]], object)}, axes),
    ("ids", {name: x[0] for name, x in arrays.items()}, axes),
    ("ids", {**arrays, "input_ids": arrays["input_ids"] + 90}, "from 0 to 46"),
    ("ids_at_depth", at_depth([3]), "exit_layer must have a value from 0 to 2"),
    ("ids_at_depth", at_depth([1, 1]), "exit_layer must have a value from 0"),
    ("ids_at_depth", at_depth(1), axes),
    ("ids_at_depth", at_depth([1], 2), "exit_threshold must have a value from"),
  ):
    with pytest.raises(Exception, match=message):
      run_unchecked(path, signature, **inputs)
  # The same kernels, but a graph that is optimized separately.
  for signature, inputs, expected in (
    ("classify", {"text": np.array(_TEXTS, object)}, classified),
    ("ids", arrays, pair),
  ):
    answers = run_unchecked(path, signature, **inputs)
    np.testing.assert_allclose(
      answers["logits"], expected["logits"], rtol=0, atol=1e-6
    )


def test_refusals_are_one_sentence(tmp_path):
  toy_runs.write_finetuned(str(tmp_path / "run"), "sst2", _LABELS)
  cases = {
    f"--export_dir={tmp_path}/run": "/run exists and is not empty: choose a",
    f"--model_dir={tmp_path}/none": "no checkpoint at",
    "--max_seq_length=-3": "is -3, but must be at least 1",
    "--max_seq_length=41": "41 exceeds the model's 40 position embed",
    "--quantization=int8": "no effect with --format=saved_model",
    "--format=tflite --signatures=ids": "--signatures has no effect with",
    "--format=tflite --max_seq_length=9": "--max_seq_length has no effect",
    "--format=onnx --sequence_length=9": "--sequence_length has no effect",
    "--checkpoint=best": "keeps no best checkpoint",
    "--format=tflite --top_k=3": "--top_k has no effect with --format=tflite",
    "--top_k=3": "top_k is for models that fill masks, but ",
  }
  folders = [f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/new"]
  many_commands.check_refusals(
    "export_saved_model",
    [([*folders, *more.split()], named) for more, named in cases.items()],
  )
  assert os.listdir(tmp_path) == ["run"]
