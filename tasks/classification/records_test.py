"""Tests of texts as records."""

from __future__ import annotations

import numpy as np
import pytest

import tfrecords
from official_albert import tokenization
from tasks.classification import records
from tasks.common import TextExample

_CLS, _SEP = 2, 3
_WORDS = "a b c d e".split()
_EXAMPLES = [
  TextExample("0", "a b", None, "no"),
  TextExample("1", "c", "d e a", "yes"),
  TextExample("2", "e", "b", "no"),
  TextExample("3", "d d", None, None),
  TextExample("4", "", "a", "maybe"),
]
_LABELS = ("no", "maybe", "yes")


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]
  path.write_text("\n".join(pieces))
  return tokenization.WordPieceTokenizer(path)


def ids_of(text):
  specials = {"(": _CLS, ")": _SEP}
  return [specials.get(char) or 5 + _WORDS.index(char) for char in text]


# Pairs and single texts have to stay together across blocks.
@pytest.mark.parametrize("block", [512, 2])
def test_features(tokenizer, monkeypatch, block):
  monkeypatch.setattr(records, "_BLOCK", block)
  found = list(records.make_features(_EXAMPLES, tokenizer, 9, _LABELS))
  texts = ["(ab)", "(c)dea)", "(e)b)", "(dd)", "()a)"]
  assert [f["input_ids"] for f in found] == [ids_of(text) for text in texts]
  assert [f["segment_ids"] for f in found] == [
    [0, 0, 0, 0],
    [0, 0, 0, 1, 1, 1, 1],
    [0, 0, 0, 1, 1],
    [0, 0, 0, 0],
    [0, 0, 1, 1],
  ]
  assert [f["example_id"] for f in found] == [0, 1, 2, 3, 4]
  assert [f["label_ids"] for f in found] == [0, 2, 0, 0, 1]


def test_the_longer_text_of_a_pair_is_cut(tokenizer):
  example = TextExample("0", "a b", "c d e a")
  (features,) = records.make_features([example], tokenizer, 7, _LABELS)
  assert features["input_ids"] == ids_of("(ab)cd)")


def test_a_regression_keeps_the_number(tokenizer):
  examples = [TextExample("0", "a", None, " 2.75"), TextExample("1", "a")]
  found = records.make_features(examples, tokenizer, 7, None)
  assert [f["label_ids"] for f in found] == [2.75, 0]


def build(tmp_path, tokenizer, labels=_LABELS, examples=_EXAMPLES, **settings):
  source = tmp_path / "source.tsv"
  source.write_text("text")
  return records.build_records(
    str(tmp_path / "cache"),
    "toy",
    "dev",
    examples,
    [str(source)],
    tokenizer,
    9,
    labels,
    **settings,
  )


def read(folder, count):
  dataset = tfrecords.read_dataset(
    folder, "dev", count, shuffle=False, repeat=False
  )
  return next(iter(dataset))


def test_records_of_classes_and_of_numbers(tmp_path, tokenizer):
  notes = []
  folder = build(tmp_path, tokenizer, note=notes.append, columns={"text": "x"})
  assert notes == [f"5 dev records of toy in {folder}"]
  rows = read(folder, 5)
  assert rows["label_ids"].numpy().tolist() == [0, 2, 0, 0, 1]
  assert rows["label_ids"].dtype == np.int32
  assert rows["input_ids"].shape == [5, 9]
  settings = tfrecords.read_manifest(folder).settings
  assert settings == {"labels": list(_LABELS), "columns": {"text": "x"}}

  numbers = [TextExample("0", "a", None, "1.5"), TextExample("1", "b")]
  rows = read(build(tmp_path, tokenizer, None, numbers), 2)
  assert rows["label_ids"].numpy().tolist() == [1.5, 0]
  assert rows["label_ids"].dtype == np.float32


def test_what_makes_other_records(tmp_path, tokenizer):
  folders = {
    build(tmp_path, tokenizer),
    build(tmp_path, tokenizer),
    build(tmp_path, tokenizer, _LABELS[::-1]),
    build(tmp_path, tokenizer, number=5),
    build(tmp_path, tokenizer, number=4),
  }
  assert len(folders) == 4


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
