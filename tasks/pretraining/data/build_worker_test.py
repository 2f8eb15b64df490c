"""Tests of the work that worker processes do."""

from __future__ import annotations

import dataclasses
import os
import pickle

import numpy as np
import pytest
import tensorflow as tf

import tfrecords
from official_albert.testing import toy_vocabulary
from tasks.pretraining.data import (
  build_worker,
  documents,
  example_settings,
  external_sort,
  pieces,
  token_store,
)

_WORDS = "the cat sat on a mat and dogs ran under old trees".split()


@pytest.fixture(scope="module")
def texts():
  """Six documents of two to twelve sentences of toy words."""
  rng = np.random.default_rng(0)
  return [
    [" ".join(rng.choice(_WORDS, size=5)) for _ in range(2 * number)]
    for number in range(1, 7)
  ]


@pytest.fixture
def job(tmp_path, texts):
  model = toy_vocabulary.train((line for text in texts for line in text), 40)
  path = tmp_path / "tokenizer.model"
  path.write_bytes(model)
  job = build_worker.Job(
    spm_model_file=str(path),
    do_lower_case=True,
    settings=example_settings.ExampleSettings(
      max_seq_length=31, max_predictions_per_seq=5
    ),
    random_seed=3,
    folder=str(tmp_path),
  )
  build_worker.set_job(job)
  yield job
  build_worker.set_job(None)


def _store(job, texts, numbers):
  """Tokenizes, and makes documents `numbers` the split "some"."""
  os.mkdir(job.store_folder)
  path = token_store.chunk_path(job.store_folder, 0)
  made = build_worker.tokenize_texts(job, texts)
  token_store.write_chunk(path, [made], job.vocabulary.size)
  np.save(job.split_file("some"), np.array(numbers))


def _make(job, unit):
  return build_worker.make_examples(job, job.split(unit.split), unit)


def test_tokenize(job, texts):
  empty = [" ", "\u200b"]
  made = build_worker.tokenize_texts(
    job, [empty, *texts[:2], empty, ["", texts[2][0]], ["."], empty]
  )
  encode = job.tokenizer.encode
  expected = [[encode(line) for line in text] for text in texts[:2]]
  expected += [[encode(texts[2][0])], [encode(".")]]
  rows = [row for segments in expected for row in segments]
  assert made.ids.tolist() == [i for row in rows for i in row]
  assert made.lengths.tolist() == [len(row) for row in rows]
  assert made.segments.tolist() == [len(segments) for segments in expected]
  assert made.ids.dtype == np.uint16
  assert (made.lengths.dtype, made.segments.dtype) == (np.int32, np.int32)
  for nothing in ([], [empty]):
    made = build_worker.tokenize_texts(job, nothing)
    assert [part.tolist() for part in made] == [[], [], []]
    assert made.ids.dtype == np.uint16


def test_tokenize_a_block(job):
  data = b'{"text": "the cat. sat."}\n{"text": " "}\n'
  made, outcome = build_worker.tokenize(
    documents.Block("a.jsonl", 7, data, ends_file=True)
  )
  assert made.segments.tolist() == [2]
  assert outcome == (1, documents.Skipped(), "a.jsonl")
  with pytest.raises(ValueError, match="a.jsonl, line 9, is not JSON"):
    build_worker.tokenize(
      documents.Block("a.jsonl", 7, data + b"{\n", ends_file=False)
    )


def test_make_examples(job, texts):
  _store(job, texts, [1, 3, 5])
  made = _make(job, build_worker.Unit("some", 0, 0, 3))
  count = len(made.records)
  assert count == made.counts.instances > 3
  assert made.keys.shape == (count,)
  assert made.keys.min() >= 0
  assert len(set(made.keys.tolist())) == count
  assert made.counts.predictions > 0
  example = tf.train.Example.FromString(made.records[0])
  sizes = {
    name: len(feature.int64_list.value or feature.float_list.value)
    for name, feature in example.features.feature.items()
  }
  assert sizes == {feature.name: feature.length for feature in job.schema}


def test_run_has_the_examples_and_is_made_once(
  job, texts, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(build_worker, "_BATCH_BYTES", 1000)
  _store(job, texts, [1, 3, 5])
  unit = build_worker.Unit("some", 0, 0, 3)
  made = _make(job, unit)
  path = tmp_path / "run"
  run = build_worker.Run(unit, str(path), 4)
  finished = build_worker.make_run(run)
  assert finished.counts.to_json() == made.counts.to_json()
  buckets = external_sort.bucket_of(made.keys, 4)
  assert finished.bucket_records.tolist() == np.bincount(buckets).tolist()
  assert finished.first_bucket == 0
  order = np.argsort(made.keys)
  assert list(external_sort.read_sorted([str(path)], 0, 4)) == [
    made.records[place] for place in order
  ]
  inode = path.stat().st_ino
  external_sort.discard(str(path), 3, 4)
  again = build_worker.make_run(run)
  assert path.stat().st_ino == inode
  assert again.counts.to_json() == made.counts.to_json()
  assert again.bucket_records.tolist() == finished.bucket_records.tolist()
  assert again.first_bucket == 3
  assert capsys.readouterr().err == ""
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)
  assert build_worker.make_run(run).first_bucket == 0
  assert capsys.readouterr().err == (
    f"{path} is damaged or incomplete: it is made again.\n"
  )


@pytest.mark.parametrize("changes", [{}, {"sentence_pair": "nsp"}])
def test_estimated_bytes_are_near_the_real_ones(job, texts, changes):
  settings = dataclasses.replace(job.settings, **changes)
  job = dataclasses.replace(job, settings=settings)
  _store(job, texts, range(len(texts)))
  split = job.split("some")
  made = build_worker.make_examples(
    job, split, build_worker.Unit("some", 0, 0, len(texts))
  )
  real = sum(map(len, made.records))
  estimated = job.estimate_bytes(job.store.token_counts()).sum()
  assert real < estimated < 4 * real


@pytest.mark.parametrize(
  ("sizes", "limit", "expected"),
  [
    ([3, 3, 3, 3], 6, [(0, 2), (2, 4)]),
    ([9, 1, 9], 6, [(0, 1), (1, 3)]),
    ([1], 6, [(0, 1)]),
    ([1, 1], 1, [(0, 1), (1, 2)]),
  ],
)
def test_cut(sizes, limit, expected):
  assert build_worker.cut(np.array(sizes), limit) == expected


def test_examples_do_not_depend_on_how_the_work_is_cut(job, texts):
  _store(job, texts, [0, 1, 3, 5])
  whole = _make(job, build_worker.Unit("some", 0, 0, 4))
  parts = [
    _make(job, build_worker.Unit("some", 0, *ends))
    for ends in ((0, 1), (1, 3), (3, 4))
  ]
  assert whole.records == [record for part in parts for record in part.records]
  assert whole.keys.tolist() == [key for part in parts for key in part.keys]
  again = _make(job, build_worker.Unit("some", 1, 0, 4))
  assert not set(again.records) & set(whole.records)


def test_dropped_chunks_are_counted(job):
  _store(job, [["cat"], ["the cat sat"]], [0, 1])
  made = _make(job, build_worker.Unit("some", 0, 0, 1))
  assert (made.records, made.counts.dropped_chunks) == ([], 1)
  made = _make(job, build_worker.Unit("some", 0, 0, 2))
  assert (len(made.records), len(made.keys)) == (1, 1)
  assert made.counts.dropped_chunks == 1


@pytest.mark.parametrize(
  ("bucket", "skip", "size", "expected"),
  [(0, 2, 4, slice(2, 6)), (2, 1, 3, slice(9, 12)), (4, 0, 0, slice(0))],
)
def test_write_shard(job, tmp_path, bucket, skip, size, expected):
  keys = np.arange(12) * (1 << 59) + 5  # 4 x 2^59 a bucket, 3 buckets.
  records = [b"%d" % number for number in range(12)]
  paths = [str(tmp_path / name) for name in ("odd", "even")]
  for path, part in zip(paths, (slice(1, None, 2), slice(None, None, 2))):
    external_sort.write_run(path, keys[part][::-1], records[part][::-1], 4)
  path = str(tmp_path / "a.tfrecord")
  entry = build_worker.write_shard(
    build_worker.ShardTask(path, paths, 4, bucket, skip, size)
  )
  assert list(tfrecords.read_records(path)) == records[expected]
  assert entry == {
    "file": "a.tfrecord",
    "records": size,
    "bytes": os.path.getsize(path),
  }
  assert pieces.find_piece(path) == entry
  os.truncate(path, 1)
  assert pieces.find_piece(path) is None


def test_job_can_be_sent_to_other_processes(job):
  assert pickle.loads(pickle.dumps(job)) == job


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
