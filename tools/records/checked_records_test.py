"""Tests of reading whole splits: what is compared with the manifest."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest

import tfrecords
from tools.cli import progress_line
from tools.records import checked_records, record_survey

_SCHEMA = tfrecords.pretraining_schema(9, 2)


class _Tokenizer:
  vocab_size = 50
  pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
  word_start_table = np.arange(50) > 4

  def id_to_piece(self, id):
    return f"piece {id}"


def _record(number, **changes):
  """[CLS] 5 [MASK] [SEP] 7 8 [SEP], with 6 + number behind the mask."""
  return {
    "input_ids": [2, 5, 4, 3, 7, 8, 3, 0, 0],
    "input_mask": [1] * 7 + [0] * 2,
    "segment_ids": [0] * 4 + [1] * 3 + [0] * 2,
    "token_boundary": [1] * 7 + [0] * 2,
    "masked_lm_positions": [2, 0],
    "masked_lm_ids": [6 + number, 0],
    "masked_lm_weights": np.float32([1, 0]),
    "next_sentence_labels": [number % 2],
    **changes,
  }


def _write(folder, name, records):
  with tfrecords.ShardWriter(str(folder / name), _SCHEMA) as shard:
    for record in records:
      shard.write(record)
  return shard.result


def _folder(folder, shards, statistics=None):
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=9,
    max_predictions_per_seq=2,
    features=_SCHEMA,
    tokenizer=tfrecords.TokenizerInfo("0" * 64, 50, True),
    settings={"do_whole_word_mask": True},
    random_seed=1,
    splits={"train": tfrecords.Split(tuple(shards), statistics or {})},
  )
  tfrecords.write_manifest(str(folder), manifest)
  return checked_records.read_splits(str(folder))["train"]


def _survey(split, line=None):
  return checked_records.survey(
    "train",
    split,
    _Tokenizer(),
    line or progress_line.ProgressLine(io.StringIO()),
  )


@pytest.fixture
def shards(tmp_path):
  return [
    _write(tmp_path, "a", [_record(0), _record(1), _record(2)]),
    _write(tmp_path, "b", []),
    _write(tmp_path, "c", [_record(3)]),
  ]


def test_whole_split(tmp_path, shards):
  split = _folder(tmp_path, shards, {"instances": 4, "documents": 7})
  survey = _survey(split)
  assert survey.records == [3, 0, 1]
  assert survey.counts.instances == 4
  assert (split.length, split.has_masks) == (9, True)
  assert not split._replace(schema=_SCHEMA[:4]).has_masks
  shown = list(checked_records.first_examples(split, _Tokenizer(), 4))
  assert [r["masked_lm_ids"][0] for r in shown] == [6, 7, 8, 9]
  assert not list(checked_records.first_examples(split, _Tokenizer(), 0))


def test_files_without_a_manifest(tmp_path, shards):
  paths = [str(tmp_path / name) for name in "ac"]
  survey = _survey(checked_records.of_files(paths))
  assert survey.records == [3, 1]


def test_problem_is_named_by_file_and_record(tmp_path, shards, monkeypatch):
  monkeypatch.setattr(record_survey, "_BATCH", 2)
  bad = _record(1, masked_lm_ids=[3, 0])
  shards[0] = _write(tmp_path, "a", [_record(0)] * 3 + [bad])
  with pytest.raises(ValueError) as error:
    _survey(_folder(tmp_path, shards))
  assert str(error.value) == (
    f"{tmp_path}/a, record 3 (counted from 0), has 3 times [SEP], not 2."
  )


def test_whole_words_are_checked_if_the_settings_require_it(tmp_path, shards):
  tokenizer = _Tokenizer()
  tokenizer.word_start_table = np.arange(50) != 6  # Goes on with the 5.
  tokenizer.word_start_table[:5] = False
  record = _record(0, token_boundary=[1, 1, 0, 1, 1, 1, 1, 0, 0])
  shards[0] = _write(tmp_path, "a", [record])
  split = _folder(tmp_path, [shards[0]])
  with pytest.raises(ValueError, match="masked in part"):
    next(checked_records.checked_batches(split.paths[0], split, tokenizer))
  without = dataclasses.replace(split.manifest, settings={})
  split = split._replace(manifest=without)
  next(checked_records.checked_batches(split.paths[0], split, tokenizer))


def test_manifest_with_another_count(tmp_path, shards):
  shards[2] = dataclasses.replace(shards[2], records=2)
  with pytest.raises(ValueError, match="c has 1 records, but .* says 2"):
    _survey(_folder(tmp_path, shards))


def test_manifest_with_other_statistics(tmp_path, shards):
  split = _folder(tmp_path, shards, {"instances": 4, "label_1_share": 0.75})
  with pytest.raises(
    ValueError,
    match=r"says label_1_share 0.75, but its records have 0.5 \(split 'train'",
  ):
    _survey(split)


def test_progress_grows(tmp_path, shards):
  class Line:
    shown = []

    def show(self, phase, fraction, tokens, details):
      self.shown.append((phase, fraction, tokens, details))

  _survey(_folder(tmp_path, shards), Line())
  sizes = [shard.bytes for shard in shards]
  assert Line.shown == [
    ("checking train", sizes[0] / sum(sizes), 21, "3 records, file 1 of 3"),
    ("checking train", 1.0, 28, "4 records, file 3 of 3"),
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
