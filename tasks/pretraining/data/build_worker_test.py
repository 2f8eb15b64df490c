"""Tests of what a worker makes of texts and documents."""

from __future__ import annotations

import hashlib
import pathlib
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
  vocab_size = job.vocabulary.size
  with token_store.TokenStoreWriter(job.store_folder, vocab_size) as store:
    store.append(build_worker.tokenize_texts(job, texts))
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


def test_make(job, texts):
  _store(job, texts, [1, 3, 5])
  unit = build_worker.Unit("some", 0, 0, 3, num_buckets=4)
  made = _make(job, unit)
  count = len(made.records)
  assert count == made.counts.instances > 3
  assert made.keys.shape == (count,)
  assert made.keys.min() >= 0
  assert len(set(made.keys.tolist())) == count
  assert made.counts.predictions > 0
  same, parts, counts = build_worker.make(unit)
  assert (same, counts.instances) == (unit, count)
  assert parts == tfrecords.pack_key(made.keys, made.records, 4)
  example = tf.train.Example.FromString(made.records[0])
  sizes = {
    name: len(feature.int64_list.value or feature.float_list.value)
    for name, feature in example.features.feature.items()
  }
  assert sizes == {feature.name: feature.length for feature in job.schema}


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


def test_write_shards(job, tmp_path):
  keys = np.arange(12) * (1 << 58) + 5
  records = [b"%d" % number for number in range(12)]
  folder = str(tmp_path / "sort")
  with tfrecords.ExternalSort(folder, 4) as sort:
    sort.add(tfrecords.pack_key(keys[::-1], records[::-1], 4))
    state = sort.state()
  paths = [str(tmp_path / name) for name in "abc"]
  written = build_worker.write_shards(
    build_worker.Shards(folder, state, 2, paths, [4, 3, 0])
  )
  assert [list(tfrecords.read_records(path)) for path in paths] == [
    records[2:6],
    records[6:9],
    [],
  ]
  for path, entry in zip(paths, written):
    content = pathlib.Path(path).read_bytes()
    assert entry["sha256"] == hashlib.sha256(content).hexdigest()
    assert entry["shard"]["bytes"] == len(content)
  assert [entry["shard"]["records"] for entry in written] == [4, 3, 0]


def test_job_can_be_sent_to_other_processes(job):
  assert pickle.loads(pickle.dumps(job)) == job


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
