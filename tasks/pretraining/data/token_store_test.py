"""Tests of the corpus on disk."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tasks.pretraining.data import token_store


def _documents(*documents):
  """Packs (ids, lengths of the segments) of each."""
  return token_store.Documents(
    np.array([i for ids, _ in documents for i in ids]),
    np.array([n for _, lengths in documents for n in lengths]),
    np.array([len(lengths) for _, lengths in documents]),
  )


def _write(folder, vocab_size, *documents):
  with token_store.TokenStoreWriter(folder, vocab_size) as store:
    store.append(_documents(*documents[:1]))
    store.append(_documents(*documents[1:]))  # May be none.
  return token_store.TokenStore(folder, vocab_size)


@pytest.mark.parametrize("vocab_size", [97, 1 << 16, (1 << 16) + 1])
def test_documents_come_back(tmp_path, vocab_size):
  high = vocab_size - 1
  store = _write(
    str(tmp_path / "store"),
    vocab_size,
    ([5, high, 6], [2, 1]),
    ([7], [1]),
    ([8, 9, 10, high], [1, 1, 2]),
  )
  assert len(store) == 3
  assert store.num_segments == 6
  assert store.token_counts.tolist() == [3, 1, 4]
  assert [d.ids.tolist() for d in store] == [
    [5, high, 6],
    [7],
    [8, 9, 10, high],
  ]
  assert [d.offsets.tolist() for d in store] == [
    [0, 2, 3],
    [0, 1],
    [0, 1, 2, 4],
  ]
  with pytest.raises(IndexError, match="document 3 of 3"):
    store[3]

  split = token_store.Split(store, np.array([0, 2]))
  assert [d.ids[0] for d in split] == [5, 8]
  assert len(split) == 2


def test_ids_take_two_bytes_where_they_can(tmp_path):
  folder = str(tmp_path / "store")
  _write(folder, 30000, ([5, 6, 7], [3]))
  assert os.path.getsize(os.path.join(folder, "ids.bin")) == 6


def test_goes_on_after_the_documents_that_are_kept(tmp_path):
  folder = str(tmp_path / "store")
  documents = [([5, 6, 7], [2, 1]), ([8], [1]), ([9, 10], [1, 1])]
  with token_store.TokenStoreWriter(folder, 97) as store:
    store.append(_documents(*documents[:2]))
    state = json.loads(json.dumps(store.state()))
    store.append(_documents(([1, 1], [2])))
  # A kill may leave half a row.
  with open(os.path.join(folder, "documents.bin"), "ab") as file:
    file.write(b"half")
  assert token_store.is_intact(folder, state)
  with token_store.TokenStoreWriter(folder, 97, state) as store:
    store.append(_documents(documents[2]))
    state = store.state()
  assert token_store.is_intact(folder, state)
  again = token_store.TokenStore(folder, 97)
  whole = _write(str(tmp_path / "whole"), 97, *documents)
  assert [d.ids.tolist() for d in again] == [d.ids.tolist() for d in whole]
  assert [d.offsets.tolist() for d in again] == [
    d.offsets.tolist() for d in whole
  ]
  for name in os.listdir(folder):
    ours = (tmp_path / "store" / name).read_bytes()
    assert ours == (tmp_path / "whole" / name).read_bytes()
  assert np.flatnonzero(again.count_pieces(97)).tolist() == list(range(5, 11))


@pytest.mark.parametrize(
  "name", ["ids.bin", "segment_lengths.bin", "documents.bin"]
)
def test_store_that_was_changed_is_not_intact(tmp_path, name):
  folder = str(tmp_path / "store")
  with token_store.TokenStoreWriter(folder, 97) as store:
    store.append(_documents(([5, 6, 7], [2, 1])))
    one = store.state()
    store.append(_documents(([8], [1])))
    two = store.state()
  assert token_store.is_intact(folder, two)
  path = tmp_path / "store" / name
  path.write_bytes(path.read_bytes()[:-1])
  assert token_store.is_intact(folder, one)
  assert not token_store.is_intact(folder, two)
  path.write_bytes(b"\1" + path.read_bytes()[1:])
  assert not token_store.is_intact(folder, one)
  path.unlink()
  assert not token_store.is_intact(folder, one)


def test_pieces_are_counted_part_by_part(tmp_path, monkeypatch):
  monkeypatch.setattr(token_store, "_COUNT_AT_ONCE", 3)
  store = _write(str(tmp_path / "store"), 7, ([5, 6, 5, 1, 5], [5]), ([1], [1]))
  assert store.count_pieces(7).tolist() == [0, 2, 0, 0, 0, 3, 1]


def test_empty_store(tmp_path):
  store = _write(str(tmp_path / "store"), 97)
  assert (len(store), store.num_segments) == (0, 0)


def test_failure_leaves_no_table(tmp_path):
  folder = str(tmp_path / "store")
  writer = token_store.TokenStoreWriter(folder, 97)
  with pytest.raises(RuntimeError, match="stop"), writer:
    raise RuntimeError("stop")
  assert "documents.npy" not in os.listdir(folder)


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


def test_too_few_documents():
  with pytest.raises(ValueError, match="is 1, too few to hold some of them"):
    _split(1, 0.1)
  with pytest.raises(ValueError, match="is 3, too few to hold some of them"):
    _split(3, 0.1, kind="nsp")
  with pytest.raises(ValueError, match="there is only one: separate"):
    _split(1, 0.0, kind="nsp")
  assert _split(1, 0.0) == {"train": [0]}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
