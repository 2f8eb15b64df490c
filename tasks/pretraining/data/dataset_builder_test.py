"""Tests of datasets from text to shards; kills are in restart_test.py."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import os

import pytest

from official_albert import tfrecords
from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining.data import dataset_builder
from official_albert.tfrecords import reader

_NSP = {"examples": data.ExampleSettings(sentence_pair="nsp")}
_WORDS = "mat dogs ran under old trees while birds sang"
_EXAMPLES = data.ExampleSettings(max_seq_length=29, max_predictions_per_seq=5)


@pytest.fixture
def build(make_settings):
  """Returns a function that builds a dataset with some settings."""
  return lambda output_dir, **changes: dataset_builder.build_dataset(
    make_settings(output_dir, **changes)
  )


def test_manifest_describes_the_folder(corpus, built):
  folder, manifest = built
  assert tfrecords.read_manifest(str(folder)) == manifest
  assert sorted(os.listdir(folder)) == [
    "dataset.json",
    "heldout-00000-of-00002.tfrecord",
    "heldout-00001-of-00002.tfrecord",
    "tokenizer.model",
    *(f"train-0000{n}-of-00005.tfrecord" for n in range(5)),
  ]
  model = (corpus / "toy.model").read_bytes()
  assert (folder / "tokenizer.model").read_bytes() == model
  assert manifest.tokenizer.sha256 == hashlib.sha256(model).hexdigest()
  expected = {
    **dataclasses.asdict(_EXAMPLES),
    "input_files": ["a.txt", "b.txt.gz"],
    "input_weights": [1.0, 1.0],
    "do_lower_case": True,
    "sentence_splitter": f"sentencex {importlib.metadata.version('sentencex')}",
    "dupe_factor": 3,
    "heldout_share": 0.2,
    "mask_id": 4,
    "special_ids": [0, 1, 2, 3, 4],
  }
  assert expected.items() <= manifest.settings.items()
  counts = [s.statistics["documents"] for s in manifest.splits.values()]
  assert sum(counts) == 37


def test_statistics_match_the_records(built):
  train = built[1].split("train")
  found, many = train.statistics, train.records
  dataset = reader.read_dataset(str(built[0]), "train", many, training=False)
  (batch,) = dataset.as_numpy_iterator()
  counted = data.summarize_examples(data.count_examples(batch, mask_id=4))
  assert counted.items() <= found.items() and counted["instances"] == many
  # What is not truncated, or a single word, is in the examples.
  text = 3 * found["text_tokens"]  # The duplicates.
  in_examples = found["tokens"] - 3 * found["instances"]
  assert found["truncated_share"] == pytest.approx(1 - in_examples / text)
  assert 0 < found["truncated_share"] < 1 / 2


def test_same_bytes_for_any_workers_and_pieces(
  build, hash_files, tmp_path, request
):
  settings = {"examples": dataclasses.replace(_EXAMPLES, sentence_pair="nsp")}
  build(tmp_path / "whole", num_workers=2, **settings)
  request.getfixturevalue("small_pieces")
  build(tmp_path / "cut", **settings)
  assert hash_files(tmp_path / "cut") == hash_files(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["sop", "nsp"])
def test_same_shards_for_any_order_of_the_documents(
  build, hash_files, tmp_path, kind
):
  texts = [f"{w} the cat\nsat on a {w}" for w in _WORDS.split()]
  # The same text in other lines is another document.
  texts += [texts[0], texts[0], texts[0].replace("\n", " ")]
  found = []
  for name, order in (("a", texts), ("b", texts[::-1])):
    path = tmp_path / f"{name}.txt"
    path.write_text("\n\n".join(order))
    manifest = build(
      tmp_path / name,
      input_files=str(path),
      examples=dataclasses.replace(_EXAMPLES, sentence_pair=kind),
      num_shards=2,
      num_heldout_shards=1,
    )
    hashes = hash_files(tmp_path / name)
    del hashes["dataset.json"]
    found.append((hashes, manifest.splits))
  assert found[0] == found[1]
  counts = [x.statistics["duplicate_documents"] for x in found[0][1].values()]
  assert sorted(counts) == [0, 3]


def test_duplicates_are_dropped_and_weights_multiply(build, tmp_path):
  words = "the cat sat on a mat and dogs ran".split()
  texts = [f"{word} sat on\na mat under {word}" for word in words]
  (tmp_path / "a.txt").write_text("\n\n".join(texts))
  (tmp_path / "b.txt").write_text("\n\n".join(texts[:2]))
  (tmp_path / "c.txt").write_text("\n\n".join(texts[:1] * 3))
  common = {
    "heldout_share": 0.0,
    "dupe_factor": 2,
    "examples": dataclasses.replace(
      _EXAMPLES, masking="dynamic", short_seq_prob=0.0
    ),
  }
  for names, drop, documents, examples in (
    ("a.txt,{0}/b.txt", False, 11, 2 * 11),
    ("a.txt,{0}/b.txt", True, 9, 2 * 9),
    ("a.txt:2,{0}/b.txt:0.5", False, 11, 4 * 9 + 1 * 2),
    ("c.txt", True, 1, 2),
  ):
    manifest = build(
      tmp_path / f"{names[:8]}{drop}",
      input_files=f"{tmp_path}/{names.format(tmp_path)}",
      drop_duplicates=drop,
      **common,
    )
    found = manifest.split("train").statistics
    assert found["duplicate_documents"] == 2
    assert list(manifest.splits) == ["train"]
    assert (found["documents"], found["instances"]) == (documents, examples)
  with pytest.raises(ValueError, match="a.txt has the weight 0.4.*factor=3"):
    build(tmp_path / "x", input_files=f"{tmp_path}/a.txt:0.4", **common)


@pytest.mark.parametrize(
  ("text", "changes", "message"),
  [
    ("", {}, "a.txt holds no document: use a file with text"),
    ("\u200b", {}, "there is no text in .*a.txt'"),
    ("the cat\nsat", {}, "the 0 train documents of .*a.txt' give no exam"),
    ("the cat\nsat", {"heldout_share": 0.0, **_NSP}, "a shard has only one"),
    ("the cat", {"spm_model_file": "nowhere"}, "no SentencePiece model file"),
    ("the cat", {"input_files": "a:0"}, "weight of a is 0, but must be above"),
    ("the cat", {"dupe_factor": 0}, "dupe_factor is 0, but must be from 1"),
  ],
)
def test_bad_input_is_refused_and_leaves_nothing(
  build, tmp_path, text, changes, message
):
  path = tmp_path / "a.txt"
  path.write_text(text)
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    build(tmp_path / "data", **{"input_files": str(path), **changes})
  assert os.listdir(tmp_path) == ["a.txt"]
