"""Exports by the command line: what is written, and what wrong flags say."""

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
from tensorflow.python.client import pywrap_tf_session

from official_albert import tokenization
from official_albert.inference import source as source_lib
from official_albert.tools.finetuning import predictions as predictions_lib
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
  result = subprocess.run(
    [sys.executable, "-I", "-c", _CLIENT, json.dumps(requests)],
    cwd="/",
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
    check=False,
  )
  assert (result.returncode, result.stderr) == (0, "")
  return json.loads(result.stdout.split("RESULT")[1])


def read_record(exported):
  return json.loads(pathlib.Path(exported, "assets", "export.json").read_text())


def packed(folder, *texts):
  """Ids and segments of one example, by the Python tokenizer."""
  tokenizer = tokenization.open_tokenizer(f"{folder}/tokenizer.model")
  ids = [tokenizer.encode(text) for text in texts]
  return tokenization.pack_pair(ids[0], ids[1] if ids[1:] else None, 24, 2, 3)


def run_unchecked(path, signature, **inputs):
  """As a server's session does: no shape is compared with the signature's."""
  with tf.compat.v1.Session(graph=tf.Graph()) as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], path)
    found = loaded.signature_def[signature]

    def place(info):
      return session.graph.get_tensor_by_name(info.name)._as_tf_output()

    return pywrap_tf_session.TF_SessionRun_wrapper(
      session._session,
      None,
      {place(found.inputs[name]): value for name, value in inputs.items()},
      [place(info) for info in found.outputs.values()],
      [],
      None,
    )


def test_exports_of_the_command_line(tmp_path):
  """Four kinds at once: loading TensorFlow takes longest."""
  sst2, race, encoder, squad = (
    str(tmp_path / name) for name in ("sst2", "race", "encoder", "squad")
  )
  model = toy_runs.write_finetuned(sst2, "sst2", _LABELS)
  toy_runs.write_finetuned(race, "race", max_qa_length=9)
  toy_runs.write_pretrained(encoder)
  toy_runs.write_finetuned(squad, "squad_v2")
  out = str(tmp_path / "exports")
  results = many_commands.run(
    "export_saved_model",
    [
      [f"--model_dir={sst2}", f"--export_dir={out}/sst2/1"],
      [
        f"--model_dir={race}",
        f"--export_dir={out}/race/1",
        "--model_name=race",
        "--signatures=text",
        "--warmup_batch_sizes=",
      ],
      [
        f"--model_dir={encoder}",
        f"--export_dir={out}/encoder",
        "--head=encoder",
        "--signatures=ids",
        "--max_seq_length=19",
        "--precision=bfloat16",
        "--warmup_seq_lengths=",
      ],
      [
        *(f"--model_dir={squad}", f"--export_dir={out}/squad"),
        "--warmup_seq_lengths=9",
      ],
    ],
  )
  for result in results:
    assert (result.code, result.err) == (0, ""), result.err
  assert results[0].out == f"exported {sst2}/model.ckpt-1 to {out}/sst2/1\n"
  record = read_record(f"{out}/sst2/1")
  assert record["kind"] == "classification"
  assert record["labels"] == list(_LABELS)
  assert (tmp_path / "exports/sst2/1/assets/labels.txt").read_text() == (
    "bad\ngood\n"
  )
  assert read_record(f"{out}/race/1")["signatures"] == ["choose"]
  assert read_record(f"{out}/encoder")["task"] == "encoder"
  name = "batching_parameters.txt"
  documented = pathlib.Path(__file__).parents[1] / "docs/serving/cpu" / name
  written = tmp_path / "exports/sst2/1/assets.extra" / name
  assert written.read_text() == documented.read_text()
  # The limit on SQuAD's windows is for a batch.
  assert name not in os.listdir(f"{out}/squad/assets.extra")

  rows = [packed(sst2, text) for text in _TEXTS]
  example = tf.train.Example()
  values = example.features.feature["input_ids"].int64_list.value
  values.extend(rows[0][0])
  ids, segments = packed(sst2, "the day", "was cold")
  by_ids = {
    "input_ids": [ids],
    "input_mask": [[1] * len(ids)],
    "segment_ids": [segments],
  }
  options = {
    "passage": ["the day was cold"],
    "question": ["the old _"],
    "options": [["tree", "house", "sea", "day"]],
  }
  asked = {"context": options["passage"], "question": ["was it cold?"]}
  encoded, classified, pair, chosen, spans = serve(
    # First, as nothing must have loaded tensorflow_text before it.
    (False, f"{out}/encoder", "serving_default", by_ids),
    (True, f"{out}/sst2/1", "serving_default", {"text": _TEXTS}),
    (True, f"{out}/sst2/1", "ids", by_ids),
    (True, f"{out}/race/1", "choose", options),
    (True, f"{out}/squad", "answer", asked),
  )
  assert spans["answer"] == [
    "the day was cold"[spans["start"][0] : spans["end"][0]]
  ]
  for i, (row, row_segments) in enumerate(rows):
    features = {"input_ids": [row], "segment_ids": [row_segments]}
    features = {name: tf.constant(x) for name, x in features.items()}
    logits = model(features, training=False)["logits"][0].numpy()
    np.testing.assert_allclose(classified["logits"][i], logits, atol=1e-5)
    assert classified["label"][i] == _LABELS[int(logits.argmax())]
  features = {name: tf.constant(x) for name, x in by_ids.items()}
  logits = model(features, training=False)["logits"]
  np.testing.assert_allclose(pair["logits"], logits, atol=1e-5)
  assert np.shape(encoded["sequence_output"]) == (1, len(ids), 24)
  assert sum(chosen["probabilities"][0]) == pytest.approx(1, abs=1e-5)

  for signature, inputs in (
    ("classify", {"text": np.array([["sun", "rain"]], object)}),
    ("classify", {"text": np.array("sun", object)}),
    ("ids", {name: np.array(x, np.int32)[0] for name, x in by_ids.items()}),
  ):
    with pytest.raises(Exception, match="but its number of axes is"):
      run_unchecked(f"{out}/sst2/1", signature, **inputs)


def test_max_seq_length_is_the_length_of_a_tflite_file(tmp_path):
  toy_runs.write_finetuned(str(tmp_path / "run"), "sst2", _LABELS)
  folders = [f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/new"]
  (done,) = many_commands.run(
    "export_saved_model", [[*folders, "--format=tflite", "--max_seq_length=5"]]
  )
  assert done.code == 0, done.err
  record = json.loads((tmp_path / "new" / "export.json").read_text())
  assert record["sequence_length"] == 5


_EXAM = {
  "text": "the day was cold",
  "text_a": "sunny, warm",
  "text_b": "the old tree",
  "passage": "the day was cold",
  "question": "the old _",
  "options": ["tree", "house", "sea", "day"],
}


@pytest.mark.heavy
def test_several_models_as_one(tmp_path, monkeypatch):
  """The export averages as tools.ensemble does, for models of any size."""
  sizes = ({}, {"hidden_size": 14, "num_hidden_layers": 3, "embedding_size": 8})
  tasks = {"sst2": _LABELS, "stsb": None, "race": None}
  for number, changes in enumerate(sizes):
    for name, value in changes.items():
      monkeypatch.setitem(toy_runs.SIZES, name, value)
    for task, labels in tasks.items():
      folder = f"{tmp_path}/{task}/seed_{number}"
      options = {"max_qa_length": 9} if task == "race" else {}
      toy_runs.write_finetuned(folder, task, labels, seed=number, **options)
  out = f"{tmp_path}/exports"
  results = many_commands.run(
    "export_saved_model",
    [
      [f"--model_dir={tmp_path}/{task}/seed_*", f"--export_dir={out}/{task}"]
      for task in tasks
    ],
  )
  assert not any(result.code for result in results), results
  record = read_record(f"{out}/sst2")
  assert record["checkpoint"] == "seed_0/model.ckpt-1, seed_1/model.ckpt-1"
  assert (record["kind"], record["labels"]) == ("classification", list(_LABELS))
  rows = tmp_path / "rows.jsonl"
  rows.write_text(json.dumps(_EXAM) + "\n")
  models = {
    "0": f"--model_dir={tmp_path}/TASK/seed_0",
    "1": f"--model_dir={tmp_path}/TASK/seed_1",
    "one": f"--saved_model_dir={out}/TASK",
  }
  predictions = many_commands.run(
    "predict",
    [
      [
        *(f"--input_file={rows}", model.replace("TASK", task)),
        f"--output_file={tmp_path}/{name}/{task}.probabilities.tsv",
      ]
      for task in tasks
      for name, model in models.items()
    ],
  )
  assert [result.code for result in predictions] == [0] * 9, predictions
  for task in tasks:
    *members, served = (
      predictions_lib.read_predictions(str(tmp_path / name), task)
      for name in models
    )
    expected = predictions_lib.average_predictions(
      dict(zip("01", members)), task
    )
    assert served.labels == expected.labels
    np.testing.assert_allclose(served.values, expected.values, atol=1e-6)
    assert np.abs(members[0].values - expected.values).max() > 1e-3


def test_models_that_cannot_be_averaged(tmp_path):
  write = toy_runs.write_finetuned
  write(f"{tmp_path}/a", "sst2", _LABELS)
  write(f"{tmp_path}/task", "text_classification", _LABELS)
  write(f"{tmp_path}/labels", "sst2", _LABELS[::-1])
  write(f"{tmp_path}/length", "sst2", _LABELS, max_seq_length=23)
  write(f"{tmp_path}/pieces", "sst2", _LABELS)
  toy_runs.write_tokenizer(f"{tmp_path}/pieces", seed=6)
  write(f"{tmp_path}/squad", "squad_v1")
  toy_runs.write_pretrained(f"{tmp_path}/masks")
  for name, message in (
    ("task", "cannot be averaged: they differ in task."),
    ("labels", "cannot be averaged: they differ in labels"),
    ("length", "cannot be averaged: they differ in max_seq_length"),
    ("pieces", "is not the tokenizer that the model"),
    ("squad", "squad/model.ckpt-1 is exported as squad1, but only classificat"),
    ("masks", "masks/model.ckpt-1 is exported as pretraining, but only"),
    ("a", "a/model.ckpt-1 would be averaged with itself: give each model once"),
  ):
    paths = f"{tmp_path}/a", f"{tmp_path}/{name}"
    with pytest.raises(ValueError, match=message):
      source_lib.average(list(map(source_lib.open_source, paths)))


def test_refusals_are_one_sentence(tmp_path):
  toy_runs.write_finetuned(str(tmp_path / "run"), "sst2", _LABELS)
  cases = {
    f"--export_dir={tmp_path}/run": "/run exists and is not empty: choose a",
    f"--model_dir={tmp_path}/none": "no checkpoint at",
    "--warmup_batch_sizes=1,x": "is a list of numbers such as 1,8, not",
    "--warmup_seq_lengths=0": "warmup_seq_lengths must be at least 1",
    "--model_name=a/b": "model_name 'a/b' must be of letters",
    "--max_seq_length=-3": "is -3, but must be at least 1",
    "--max_seq_length=41": "41 exceeds the model's 40 position embed",
    "--quantization=int8": "no effect with --format=saved_model",
    "--format=tflite --signatures=ids": "--signatures has no effect with",
    "--format=tflite --sequence_length=7 --max_seq_length=9": "one setting wi",
    "--checkpoint=best": "keeps no best checkpoint",
    f"--model_dir={tmp_path}/run,{tmp_path}/no*": "no checkpoint at",
    f"--model_dir={tmp_path}/run,{tmp_path}/run": "averaged with itself",
    "--format=tflite --top_k=3": "--top_k has no effect with --format=tflite",
    "--signatures=ids --top_k=3": "no effect with --signatures=ids, which ret",
    "--top_k=3": "that fill masks, but the export is of sst2: leave it out",
  }
  folders = [f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/new"]
  many_commands.check_refusals(
    "export_saved_model",
    [([*folders, *more.split()], named) for more, named in cases.items()],
  )
  assert os.listdir(tmp_path) == ["run"]
