"""Tests of tags of a run and of its export, which split texts in the graph."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

import official_albert
from official_albert import tokenization, training
from official_albert.inference import source as source_lib
from official_albert.tasks.tagging import examples as examples_lib
from official_albert.tasks.tagging import tags as tags_lib
from official_albert.tools.conversion import conversion
from official_albert.tools.testing import toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_RELEASED = _ROOT.parent / "shared" / "data" / "tokenizer" / "30k-clean.model"
_LABELS = ("O", "B-a", "I-a", "B-b", "I-b")
_TEXTS = [
  "the sunny sea was cold , the old rain was warm and wet .",
  "",
  "Straße é ﬁ½ 😀 我在 \u200b the",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp("run")
  path = str(folder / "run")
  toy_runs.write_finetuned(path, "token_classification", _LABELS, 12)
  toy_runs.write_export(str(folder / "1"), path)
  return path, str(folder / "1")


def test_an_export_tags_like_the_run(run):
  loaded, export = map(official_albert.load, run)
  assert loaded.methods == ("embed", "tag") and loaded.labels == _LABELS
  found = loaded.tag(_TEXTS)
  alone = [loaded.tag(text) for text in _TEXTS]
  assert found[1] == []
  for ours, *others in zip(found, export.tag(_TEXTS), alone, strict=True):
    for theirs in others:
      assert [(x.start, x.end, x.label) for x in ours] == [
        (x.start, x.end, x.label) for x in theirs
      ]
      np.testing.assert_allclose(
        *([x.probability for x in spans] for spans in (ours, theirs)), rtol=1e-5
      )
  for text, spans in zip(_TEXTS, found):
    assert all(text[x.start : x.end] == x.text for x in spans)


def test_windows_in_the_graph_equal_those_of_the_data(run):
  module = source_lib.open_source(run[0]).module
  tokenizer = module.text_layer.tokenizer
  encoded = [tokenizer.encode_with_offsets(text) for text in _TEXTS]
  windows = list(examples_lib.make_windows(encoded, tokenizer, 12))
  ids = module.text_layer.tokenize_with_offsets(tf.constant(_TEXTS)).ids
  features, is_own = module.make_windows(ids)
  assert len(windows) > 3
  for i, window in enumerate(windows):
    mask = features["input_mask"][i].numpy() > 0
    assert features["input_ids"][i].numpy()[mask].tolist() == window.input_ids
    own = [1 + piece - window.begin for piece in window.own]
    assert np.flatnonzero(is_own[i]).tolist() == own
  # The tags are those of the model for these windows.
  batch = {name: x.numpy() for name, x in features.items()}
  logits = module.model(batch, training=False)["logits"].numpy()
  best = [_LABELS[i] for i in logits[is_own.numpy()].argmax(-1)]
  outputs = module.text_function("tag")[1](text=tf.constant(_TEXTS))
  tags = [x.decode() for row in outputs["tags"].numpy() for x in row if x]
  assert tags == best
  words = tags_lib.split_words(_TEXTS[0])
  pieces = tags_lib.first_pieces(encoded[0].starts, encoded[0].ends, words)
  assert all(is_own for _, is_own in pieces)


def test_too_many_windows_are_refused(run):
  loaded = official_albert.load(run[0])
  with pytest.raises(ValueError, match="at most 256 windows in total"):
    loaded.tag("sea " * 3000)


# Words that both sides find: letters between spaces.
_PLAIN = [
  "the queen of Denmark visits a small museum in northern Italy this Monday",
  "two engineers from Toronto met Maria Lopez at the old railway station",
  "heavy rain stopped the second match between Brazil and Japan last night",
]
_PIPELINE = """
import json, sys, transformers
_, folder, *texts = sys.argv
tag = transformers.pipeline(
  "token-classification", folder, aggregation_strategy="first")
found = [
  [(x["start"], x["end"], x["entity_group"], float(x["score"])) for x in spans]
  for spans in tag(texts)
]
print(json.dumps(found))
"""


@pytest.mark.heavy
@pytest.mark.parametrize("version", ["", "_5"])
def test_transformers_tags_the_same(
  version, tmp_path, monkeypatch, peer_python
):
  """The spans of words that both sides find.

  In transformers, a piece has the space before it, words end only at spaces and
  at bare "▁", and the score of a span is the mean of the first pieces of words.
  """
  python = peer_python(f"huggingface{version}")
  if not _RELEASED.exists():
    pytest.skip(f"there is no {_RELEASED}")

  def copy_released(folder):
    shutil.copyfile(_RELEASED, f"{folder}/tokenizer.model")
    return tokenization.open_tokenizer(f"{folder}/tokenizer.model", "", True)

  monkeypatch.setattr(toy_runs, "write_tokenizer", copy_released)
  run, hf = f"{tmp_path}/run", f"{tmp_path}/hf"
  model = toy_runs.write_finetuned(run, "token_classification", _LABELS, 40)
  # Otherwise, all pieces have the same tag.
  tokenizer = tokenization.open_tokenizer(f"{run}/tokenizer.model", "", True)
  ids = tf.constant([tokenizer.encode(" ".join(_PLAIN))[:38]])
  features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
  mean = tf.reduce_mean(model(features)["logits"], [0, 1])
  kernel, bias = model.classifier.get_weights()
  model.classifier.set_weights([20 * kernel, 20 * (bias - mean)])
  training.CheckpointManager(run, 1, model=model).save(2)
  conversion.convert("hf", run, hf, hf_python=python)
  done = subprocess.run(
    [python, "-c", _PIPELINE, hf, *_PLAIN], capture_output=True, text=True
  )
  assert not done.returncode, done.stderr[-2000:]
  found = json.loads(done.stdout.splitlines()[-1])
  spans, compared = official_albert.load(run).tag(_PLAIN), 0
  for text, mine, theirs in zip(_PLAIN, spans, found, strict=True):
    entities = [x for x in theirs if x[2] != "O"]
    compared += len(entities)
    assert [(x.start, x.end, x.label) for x in mine] == [
      (start + (text[start] == " "), end, label)
      for start, end, label, _ in entities
    ]
    np.testing.assert_allclose(
      [x.probability for x in mine], [x[3] for x in entities], atol=1e-5
    )
  assert compared > 12
  assert any(" " in x.text for row in spans for x in row)
