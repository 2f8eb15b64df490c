"""Tests of tags of a run and of its export, which split texts in the graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import official_albert
from official_albert.inference import source as source_lib
from official_albert.tasks.tagging import examples as examples_lib
from official_albert.tasks.tagging import tags as tags_lib
from official_albert.tools.testing import toy_runs

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
  assert found == [loaded.tag(text) for text in _TEXTS] and found[1] == []
  for ours, theirs in zip(found, export.tag(_TEXTS), strict=True):
    assert [(x.start, x.end, x.label) for x in ours] == [
      (x.start, x.end, x.label) for x in theirs
    ]
    np.testing.assert_allclose(
      [x.probability for x in ours], [x.probability for x in theirs], rtol=1e-5
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
