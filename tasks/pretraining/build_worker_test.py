"""Tests of what a worker makes of texts and documents."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tasks.pretraining import build_worker, examples, token_store

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
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(line for text in texts for line in text),
    model_writer=model,
    vocab_size=40,
    pad_id=0,
    unk_id=1,
    bos_id=-1,
    eos_id=-1,
    control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    hard_vocab_limit=False,
    minloglevel=2,
  )
  path = tmp_path / "tokenizer.model"
  path.write_bytes(model.getvalue())
  job = build_worker.Job(
    spm_model_file=str(path),
    do_lower_case=True,
    settings=examples.ExampleSettings(
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
    for ids, lengths in build_worker.tokenize(texts).documents:
      store.append(ids, lengths)
  np.save(job.split_file("some"), np.array(numbers))


def test_tokenize(job, texts):
  result = build_worker.tokenize([*texts[:2], [" ", "​"], ["", texts[2][0]]])
  encode = job.tokenizer.encode
  expected = [[encode(line) for line in text] for text in texts[:2]]
  expected += [[], [encode(texts[2][0])]]
  for (ids, lengths), segments in zip(result.documents, expected):
    assert ids.tolist() == [i for segment in segments for i in segment]
    assert lengths.tolist() == [len(segment) for segment in segments]
  every_id = np.concatenate([ids for ids, _ in result.documents])
  assert result.piece_counts.shape == (job.vocabulary.size,)
  assert result.piece_counts.sum() == len(every_id)
  assert result.piece_counts[every_id[0]] == (every_id == every_id[0]).sum()


def test_make(job, texts):
  _store(job, texts, [1, 3, 5])
  made = build_worker.make(build_worker.Unit("some", 0, 0, 3))
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


def test_examples_do_not_depend_on_how_the_work_is_cut(job, texts):
  _store(job, texts, [0, 1, 3, 5])
  whole = build_worker.make(build_worker.Unit("some", 0, 0, 4))
  parts = [
    build_worker.make(build_worker.Unit("some", 0, *ends))
    for ends in ((0, 1), (1, 3), (3, 4))
  ]
  assert whole.records == [record for part in parts for record in part.records]
  assert whole.keys.tolist() == [key for part in parts for key in part.keys]
  again = build_worker.make(build_worker.Unit("some", 1, 0, 4))
  assert not set(again.records) & set(whole.records)


def test_dropped_chunks_are_counted(job):
  _store(job, [["cat"], ["the cat sat"]], [0, 1])
  made = build_worker.make(build_worker.Unit("some", 0, 0, 1))
  assert (made.records, made.counts.dropped_chunks) == ([], 1)
  made = build_worker.make(build_worker.Unit("some", 0, 0, 2))
  assert (len(made.records), len(made.keys)) == (1, 1)
  assert made.counts.dropped_chunks == 1


def test_job_can_be_sent_to_other_processes(job):
  assert pickle.loads(pickle.dumps(job)) == job


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
