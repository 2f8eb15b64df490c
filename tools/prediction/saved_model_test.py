"""SavedModels by the names of their signatures: text as it is, or ids."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tools.prediction import saved_model as prediction_saved_model
from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow
from tools.testing import prediction_toy_models as toys

_TEXTS = ["a cold dark day by the sea " * 3, "the", "größe 東京", "old tree"]


def predict(backend, rows):
  found = [InputRow("x, line 1", str(i), cells) for i, cells in enumerate(rows)]
  return [said for _, said in prediction_stream.predict(backend, found, 2, 9)]


def texts(rows=_TEXTS):
  return [{"text": text} for text in rows]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  path = tmp_path_factory.mktemp("saved")
  for kind in toys.KINDS:
    toys.write(str(path / kind), kind)
  toys.write(str(path / "bare"), ids_only=True)
  return path


def test_text_and_ids_say_the_same(folders):
  text = prediction_saved_model.SavedModelBackend(str(folders / "classify"))
  ids = prediction_saved_model.SavedModelBackend(str(folders / "bare"))
  named = prediction_saved_model.SavedModelBackend(
    str(folders / "classify"), "ids"
  )
  assert text.roles == ids.roles == named.roles == ("text",)
  assert text.layout.header == ids.layout.header == ("prediction", *toys.LABELS)
  toy = text._model.signatures["classify"]
  expected = toy(tf.constant(_TEXTS))
  for backend in (text, ids, named):
    said = predict(backend, texts())
    assert [answer["label"] for answer in said] == [
      label.decode() for label in expected["label"].numpy()
    ]
    np.testing.assert_allclose(
      [answer["logits"] for answer in said], expected["logits"], rtol=1e-5
    )
  # Tokens there, characters here.
  assert ids.parts({"text": "the old tree"})[0].length < 12
  assert text.parts({"text": "the old tree"})[0].length == 12


def test_all_kinds(folders):
  def run(kind, rows):
    backend = prediction_saved_model.SavedModelBackend(str(folders / kind))
    lines = [backend.layout.cells(said) for said in predict(backend, rows)]
    return backend.roles, lines

  roles, scores = run("score", texts())
  assert roles == ("text",) and len(scores) == 4 and len(scores[0]) == 1
  _, vectors = run("encode", texts())
  first = [cells[0].split()[0] for cells in vectors]
  np.testing.assert_allclose(np.float32(first), np.ravel(scores), rtol=1e-6)
  roles, choices = run(
    "choose",
    [
      {"passage": "p", "question": "the day", "options": list(options)}
      for options in (("warm", "cold", "sea", "old"), ("a", "b", "c", "d"))
    ],
  )
  assert roles == ("question", "passage", "options")
  for letter, *probabilities in choices:
    assert letter == "ABCD"[int(np.argmax(probabilities))]
  roles, answers = run(
    "answer",
    [
      {"question": "who", "context": "größer als"},
      {"question": "?", "context": "abcdefg"},
    ],
  )
  assert roles == ("question", "context")
  assert answers == [["öße", 0.75, 2, 5, -2.0], ["", 0.75, 0, 0, 3.0]]


def test_refusals(folders, tmp_path):
  def refused(folder, message, signature="", error=ValueError):
    with pytest.raises(error, match=message):
      prediction_saved_model.SavedModelBackend(str(folder), signature)

  refused(tmp_path, "is not the folder of a SavedModel", error=OSError)
  refused(folders / "classify", "it has classify, ids, serving_default", "x")
  refused(folders / "answer", "answers come from text", "ids")
  info = folders / "bare" / "assets" / "export.json"
  kept = json.loads(info.read_text())
  info.write_text(json.dumps({**kept, "tokenizer": None}))
  refused(folders / "bare", "was exported without a tokenizer: put")
  del kept["lower_case"]
  info.write_text(json.dumps(kept))
  refused(folders / "bare", r"KeyError: 'lower_case'\): export again")
  info.write_text("{")
  refused(folders / "bare", "export.json is not what .*JSON.*: export again")
  info.unlink()
  refused(folders / "bare", "have no export.json that says .*: export it again")
  module = tf.Module()
  module.f = tf.function(
    lambda examples: {"label": examples},
    input_signature=[tf.TensorSpec([None], tf.string, "examples")],
  )
  tf.saved_model.save(module, str(tmp_path / "new"), {"examples": module.f})
  refused(tmp_path / "new", "takes examples, which no table has", "examples")


_RECORD = {
  "kind": "classification",
  "task": "sst2",
  "signatures": ["classify", "ids", "examples"],
  "serving_default": "classify",
  "labels": ["bad", "good"],
  "max_seq_length": 24,
  "tokenizer": {"file": "vocab.txt", "kind": "wordpiece", "sha256": "0"},
  "lower_case": False,
  "settings": {"inputs": ["text"]},
}


def make(folder, record):
  (folder / "assets").mkdir(parents=True)
  (folder / "saved_model.pb").write_bytes(b"")
  text = record if isinstance(record, str) else json.dumps(record)
  (folder / "assets" / "export.json").write_text(text)
  return str(folder)


def test_what_an_export_says(tmp_path):
  path = make(tmp_path / "1", _RECORD)
  export = prediction_saved_model.read_export(path)
  assert export.kind == "classification" and export.labels == ("bad", "good")
  assert export.signatures == ("classify", "ids", "examples")
  assert export.default_signature == "classify"
  assert export.tokenizer_file == f"{path}/assets/vocab.txt"
  assert (export.tokenizer_kind, export.lower_case) == ("wordpiece", False)
  assert export.settings["inputs"] == ["text"]
  bare = {**_RECORD, "tokenizer": None, "lower_case": None, "labels": []}
  export = prediction_saved_model.read_export(make(tmp_path / "2", bare))
  assert (export.tokenizer_file, export.labels) == (None, ())


def test_other_folders_are_refused(tmp_path):
  with pytest.raises(
    FileNotFoundError, match="no folder of tools.export_saved"
  ):
    prediction_saved_model.read_export(str(tmp_path))
  path = tmp_path / "other"
  path.mkdir()
  (path / "saved_model.pb").write_bytes(b"")
  with pytest.raises(FileNotFoundError, match="export.json does not exist"):
    prediction_saved_model.read_export(str(path))
  for number, record in enumerate(
    ("{", "[]", {**_RECORD, "labels": 3}, {"kind": "x"})
  ):
    with pytest.raises(ValueError, match="not what .* writes .*: export again"):
      prediction_saved_model.read_export(make(tmp_path / str(number), record))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
