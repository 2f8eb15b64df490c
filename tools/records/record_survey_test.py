"""Tests reading and counting records, and what breaks each of their rules."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tfrecords
from official_albert.tasks.pretraining import data, record_rules
from official_albert.tfrecords import reader_test
from official_albert.tools.cli import printing
from official_albert.tools.records import record_survey
from official_albert.tools.testing import toy_data, toy_runs

_SCHEMA = tfrecords.pretraining_schema(11, 3)
_UNMASKED = tuple(f for f in _SCHEMA if not f.name.startswith("masked_lm_"))
# BERT's.
_NO_BOUNDARY = tuple(f for f in _SCHEMA if f.name != "token_boundary")


class _Tokenizer:
  vocab_size = 50
  pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
  # Of the ids from 5 on, odd ones start a word; <unk> does, too.
  word_start_table = (np.arange(50) % 2 > 0) & (np.arange(50) != 3)


def record(number, **changes):
  """[CLS] 5 6 7 [SEP] 9 [MASK] 12 [SEP] _ _; labels 6, 11 + number."""
  return {
    "input_ids": [2, 5, 6, 7, 3, 9, 4, 12, 3, 0, 0],
    "input_mask": [1] * 9 + [0] * 2,
    "segment_ids": [0] * 5 + [1] * 4 + [0] * 2,
    "token_boundary": [1, 1, 0, 1, 1, 1, 1 - number % 2, 0, 1, 0, 0],
    "masked_lm_positions": [2, 6, 0],
    "masked_lm_ids": [6, 11 + number, 0],
    "masked_lm_weights": np.float32([1, 1, 0]),
    "next_sentence_labels": [number % 2],
    **changes,
  }


def _write(folder, name, records, schema=_SCHEMA):
  return reader_test.write_records(folder / name, schema, records)


def write_examples(path, *examples):
  """Writes any features, or bytes."""
  with tf.io.TFRecordWriter(str(path)) as file:
    for example in examples:
      if not isinstance(example, bytes):
        proto = tf.train.Example()
        for name, values in example.items():
          feature = proto.features.feature[name]
          is_float = name == "masked_lm_weights"
          kind = feature.float_list if is_float else feature.int64_list
          kind.value.extend(values)
        example = proto.SerializeToString()
      file.write(example)


def _manifest(shards, **settings):
  return tfrecords.Manifest(
    task="pretraining",
    max_seq_length=11,
    max_predictions_per_seq=3,
    features=_SCHEMA,
    tokenizer=tfrecords.TokenizerInfo("0" * 64, 50, True),
    settings=settings,
    random_seed=1,
    splits={"train": tfrecords.Split(tuple(shards), {})},
  )


def _survey(folder, manifest):
  line = printing.ProgressLine(io.StringIO())
  (name,) = manifest.splits
  return record_survey.survey(str(folder), manifest, name, _Tokenizer(), line)


def test_all_files_are_counted(tmp_path, monkeypatch):
  monkeypatch.setattr(record_survey, "_BATCH", 2)
  shards = [
    _write(tmp_path, "a", map(record, range(3))),
    _write(tmp_path, "b", []),
    _write(tmp_path, "c", [record(0), record(1)]),
  ]
  survey = _survey(tmp_path, _manifest(shards))
  assert list(survey.shards) == shards
  found = survey.statistics
  assert (found["instances"], found["tokens"]) == (5, 45)
  assert (found["label_1_share"], found["kept_share"]) == (2 / 5, 5 / 10)
  # Only the manifest knows about the documents and what was truncated.
  assert not found.keys() & {"documents", "truncated_share"}


@pytest.fixture
def of_files(tmp_path):
  """Returns a function from names to the manifest of files without one."""
  tokenizer = toy_runs.write_tokenizer(str(tmp_path))
  return lambda *names: record_survey.manifest_of_files(
    [str(tmp_path / name) for name in names], [], tokenizer
  )


@pytest.mark.parametrize("schema", [_SCHEMA, _UNMASKED, _NO_BOUNDARY])
def test_files_without_a_manifest(tmp_path, of_files, schema):
  example = record(1)
  if schema == _UNMASKED:
    example["input_ids"] = [2, 5, 6, 7, 3, 9, 12, 12, 3, 0, 0]
  for name, count in (("a", 3), ("c", 1)):
    _write(tmp_path, name, [example] * count, schema)
  manifest = of_files("a", "c")
  assert manifest.features == schema
  survey = _survey(tmp_path, manifest)
  assert [shard.records for shard in survey.shards] == [3, 1]
  masked = survey.statistics.get("predictions", 0)
  assert masked == (0 if schema == _UNMASKED else 8)


@pytest.mark.parametrize(
  ("examples", "message"),
  [
    ((), "the features of the first are none"),
    ((b"\x07",), "the features of the first are none"),
    # Its only feature is named by the byte 0xff.
    ((b"\x0a\x05\x0a\x03\x0a\x01\xff",), "a has no pretraining records"),
    # Neither masks nor words: nothing could be learned.
    (
      ({f.name: [1] for f in _UNMASKED if f.name != "token_boundary"},),
      "features of the first are 'input_ids', 'input_mask', 'next_sent",
    ),
  ],
)
def test_files_that_are_no_pretraining_records(
  tmp_path, of_files, examples, message
):
  write_examples(tmp_path / "a", *examples)
  with pytest.raises(ValueError, match=message):
    of_files("a")


@pytest.mark.parametrize(
  ("bad", "message"),
  [
    (
      record(0, input_ids=[1] * 8),
      "one of the records 2 to 3 .* not fit the schema: .*input_",
    ),
    (b"\x07\xff", "one of the records 2 to 3 .* not fit the schema: "),
    (b"\x07" * 999, "not fit the schema: .{1,120}$"),
    (record(0, masked_lm_ids=[6, 3, 0]), "record 3 .* has input_ids 4 at"),
  ],
)
def test_record_that_does_not_fit_is_named(tmp_path, monkeypatch, bad, message):
  monkeypatch.setattr(record_survey, "_BATCH", 2)
  path = str(tmp_path / "a")
  good = record(0, extra=[1])  # Other features are ignored.
  write_examples(path, good, good, good, bad, good)
  manifest = _manifest([tfrecords.Shard("a", 0, 0)])
  with pytest.raises(ValueError, match=f"^{path}.*{message}"):
    _survey(tmp_path, manifest)


def test_whole_words_are_checked_if_the_settings_require_it(tmp_path):
  # 5 6 is a word, of which 6 is to be predicted.
  shards = [_write(tmp_path, "a", [record(0)])]
  assert _survey(tmp_path, _manifest(shards)).records == 1
  with pytest.raises(ValueError, match="masked like the rest of its word"):
    _survey(tmp_path, _manifest(shards, do_whole_word_mask=True))


def _features(count=1, row=0, **changes):
  """Returns `count` records; `changes` of one row may be by position."""
  features = {
    name: np.tile(np.array(value), (count, 1))
    for name, value in record(0).items()
  }
  for name, change in changes.items():
    if isinstance(change, dict):
      for at, value in change.items():
        features[name][row, at] = value
    else:
      features[name][row] = change
  return features


_NO_MASKS = {
  "masked_lm_weights": [0.0] * 3,
  "masked_lm_positions": [0] * 3,
  "masked_lm_ids": [0] * 3,
}


def _problem(features, whole_words=False):
  return record_rules.find_problem(features, _Tokenizer(), whole_words)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"input_mask": {3: 0}}, "input_mask 0 at position 3: it must be at least"),
    ({"input_mask": [1] * 4 + [0] * 7}, "input_mask 1 at position 0"),
    ({"input_ids": {1: 50}}, "input_ids 50 at position 1: it must be a piece"),
    ({"input_ids": {1: -1}}, "input_ids -1 at position 1"),
    ({"input_ids": {10: 5}}, "input_ids 5 at position 10"),
    ({"next_sentence_labels": [2]}, "next_sentence_labels 2 at position 0"),
    ({"masked_lm_weights": {0: 0.5}}, "weights 0.5 at position 0"),
    ({"masked_lm_weights": [0, 1, 0]}, "weights 0.0 at position 0"),
    ({"masked_lm_positions": {2: 1}}, "masked_lm_positions 1 at position 2"),
    ({"masked_lm_ids": {2: 1}}, "masked_lm_ids 1 at position 2"),
    ({"masked_lm_positions": {1: 8}}, "masked_lm_positions 8 at position 1"),
    ({"masked_lm_positions": {0: 0}}, "masked_lm_positions 0 at position 0"),
    ({"masked_lm_positions": {1: 99}}, "masked_lm_positions 99 at position 1"),
    ({"masked_lm_positions": [6, 6, 0]}, "masked_lm_positions 6 at position 1"),
    ({"masked_lm_ids": {1: 50}}, "masked_lm_ids 50 at position 1"),
    ({"input_ids": {0: 5}}, r"input_ids 5 at position 0: .* of \[CLS\] A"),
    ({"input_ids": {8: 12}}, "input_ids 12 at position 8"),
    ({"input_ids": {3: 3}}, "input_ids 3 at position 4"),
    ({"masked_lm_ids": {1: 4}}, "input_ids 4 at position 6"),
    ({"input_ids": {5: 0}}, "input_ids 0 at position 5"),
    ({"input_ids": {4: 9, 7: 3}}, "input_ids 3 at position 7"),
    ({"segment_ids": {4: 1}}, "segment_ids 1 at position 4: it must be 1 for"),
    ({"segment_ids": {9: 1}}, "segment_ids 1 at position 9"),
    ({"token_boundary": {7: 1}}, "token_boundary 1 at position 7"),
    ({"token_boundary": {4: 0}}, "token_boundary 0 at position 4"),
    ({"token_boundary": {10: 1}}, "token_boundary 1 at position 10"),
    ({}, None),
    ({**_NO_MASKS, "input_ids": {6: 11}}, None),
    # The original decides by the text of an unknown piece.
    ({"input_ids": {7: 1}, "token_boundary": {7: 0}}, None),
    ({"input_ids": {7: 1}, "token_boundary": {7: 1}}, None),
    ({"input_ids": {7: 1}, "token_boundary": {7: 2}}, "token_boundary 2 at"),
  ],
)
def test_each_rule(changes, message, row=2):
  found = _problem(_features(3, row=row, **changes))
  assert (found and found[0]) == (message and row)
  assert not message or re.search(message, found[1])


@pytest.mark.parametrize(
  ("positions", "ids", "place"),
  [
    ([2, 6, 7], [6, 11, 12], 1),
    ([1, 2, 6], [5, 6, 11], 6),
    ([1, 2, 3], [5, 6, 7], None),
  ],
)
def test_partly_masked_words_are_wrong_only_with_whole_words(
  positions, ids, place
):
  # 5 6 is a word, and so is 11 12.
  features = _features(
    masked_lm_positions=positions,
    masked_lm_ids=ids,
    masked_lm_weights=[1.0] * 3,
    input_ids={6: 11},
  )
  assert _problem(features) is None
  problem = _problem(features, whole_words=True)
  assert bool(problem) == bool(place)
  assert not place or f"at position {place}: it must be masked" in problem[1]


def test_the_first_invalid_record_is_named():
  features = _features(2, input_ids={6: 11})
  for name in _NO_MASKS:
    del features[name]
  row, message = _problem(features)
  assert row == 1 and "input_ids 4 at position 6" in message
  features = _features(4, row=3, input_ids={1: 50})
  features["masked_lm_weights"][2, 0] = 7
  features["input_ids"][1, 0] = 5
  row, message = _problem(features)
  assert row == 1 and "input_ids 5 at position 0" in message
  features["input_mask"][0, 2] = 0
  assert _problem(features)[0] == 0


def test_drawn_masks_do_not_depend_on_what_is_read_at_once(
  tmp_path, monkeypatch
):
  toy_data.write_corpus(str(tmp_path / "corpus.txt"))
  tokenizer = toy_runs.write_tokenizer(str(tmp_path))
  settings = data.ExampleSettings(max_seq_length=24, masking="dynamic")
  toy_runs.write_records(str(tmp_path), "r", 24, 0.2, examples=settings)
  folder = str(tmp_path / "r")
  manifest, found = record_survey.read_manifest(folder), []
  for batch in (256, 4):
    monkeypatch.setattr(record_survey, "_BATCH", batch)
    batches = record_survey.read_batches(folder, manifest, "train", tokenizer)
    found.append(np.concatenate([x["masked_lm_positions"] for _, x in batches]))
  np.testing.assert_array_equal(*found)
