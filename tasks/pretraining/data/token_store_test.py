"""Tests of the corpus on disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tasks.pretraining.data import token_store


def _documents(vocab_size, *documents):
  """Packs (ids, lengths of the segments) of each."""
  ends = [[len(ids), len(lengths)] for ids, lengths in documents]
  return token_store.Documents(
    np.array(
      [i for ids, _ in documents for i in ids], token_store.id_dtype(vocab_size)
    ),
    np.array([n for _, lengths in documents for n in lengths], np.int32),
    np.cumsum(np.array(ends, np.int64).reshape(-1, 2), axis=0),
  )


def _write(folder, vocab_size, *documents):
  """Writes chunks: the first document, no document, each other as a part."""
  os.makedirs(folder)
  for number, parts in enumerate(
    ([documents[:1]], [()], [[d] for d in documents[1:]])
  ):
    token_store.write_chunk(
      token_store.chunk_path(folder, number),
      [_documents(vocab_size, *part) for part in parts],
    )
  return token_store.TokenStore(folder, vocab_size)


@pytest.mark.parametrize("vocab_size", [97, 1 << 16, (1 << 16) + 1])
@pytest.mark.parametrize("open_chunks", [1, 256])
def test_documents_come_back(tmp_path, monkeypatch, vocab_size, open_chunks):
  monkeypatch.setattr(token_store, "_MAX_OPEN_CHUNKS", open_chunks)
  high = vocab_size - 1
  documents = [
    ([5, high, 6], [2, 1]),
    ([7], [1]),
    ([8, 9, 10, high], [1, 1, 2]),
  ]
  folder = str(tmp_path / "store")
  store = _write(folder, vocab_size, *documents)
  assert len(store) == 3
  assert store.token_counts().tolist() == [3, 1, 4]
  expected_offsets = [[0, 2, 3], [0, 1], [0, 1, 2, 4]]
  for found in (store, _documents(vocab_size, *documents)):
    assert [d.ids.tolist() for d in found] == [ids for ids, _ in documents]
    assert [d.offsets.tolist() for d in found] == expected_offsets
  split = token_store.Split(store, np.array([10, 12]), first_number=10)
  assert [d.ids[0] for d in split] == [5, 8]
  size = os.path.getsize(token_store.chunk_path(folder, 0))
  assert size == 16 + 16 + 2 * 4 + 3 * (2 if vocab_size <= 1 << 16 else 4)


def _split(num_documents, share, seed=1, kind="sop"):
  return {
    name: numbers.tolist()
    for name, numbers in token_store.split_documents(
      num_documents, share, seed, kind
    ).items()
  }


def test_no_share_no_split():
  assert _split(3, 0.0) == {"train": [0, 1, 2]}


def test_each_document_is_on_one_side_and_about_the_share_is_held_out():
  splits = _split(5000, 0.1)
  assert sorted(splits["train"] + splits["heldout"]) == list(range(5000))
  assert splits["train"] == sorted(splits["train"])
  error = np.sqrt(0.1 * 0.9 / 5000)
  assert abs(len(splits["heldout"]) / 5000 - 0.1) <= 4 * error


def test_choice_depends_on_the_seed_and_not_on_later_documents():
  fewer, more = _split(500, 0.1), _split(5000, 0.1)
  assert fewer["heldout"] == [n for n in more["heldout"] if n < 500]
  assert _split(500, 0.1, seed=2)["heldout"] != fewer["heldout"]
  assert set(fewer["heldout"]) < set(_split(500, 0.3)["heldout"])


@pytest.mark.parametrize("share", [1e-9, 0.999999])
@pytest.mark.parametrize(("kind", "least"), [("sop", 1), ("nsp", 2)])
def test_each_side_gets_what_it_needs(share, kind, least):
  splits = _split(9, share, kind=kind)
  small, large = sorted(map(len, splits.values()))
  assert (small, large) == (least, 9 - least)
  assert (len(splits["heldout"]) == small) == (share < 0.5)


@pytest.mark.parametrize(
  ("count", "share", "kind", "message"),
  [
    (0, 0.0, "sop", "the input files have no text"),
    (1, 0.1, "sop", "is 1, too few to hold some of them"),
    (3, 0.1, "nsp", "is 3, too few to hold some of them"),
    (1, 0.0, "nsp", "there is only one: separate"),
  ],
)
def test_too_few_documents(count, share, kind, message):
  with pytest.raises(ValueError, match=message):
    _split(count, share, kind=kind)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
