"""Tests of the corpus on disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tasks.pretraining import token_store


def _write(folder, vocab_size, *documents):
  with token_store.TokenStoreWriter(folder, vocab_size) as store:
    for ids, lengths in documents:
      store.append(np.array(ids), np.array(lengths))
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


def test_empty_store(tmp_path):
  store = _write(str(tmp_path / "store"), 97)
  assert (len(store), store.num_segments) == (0, 0)


def test_failure_leaves_no_table(tmp_path):
  folder = str(tmp_path / "store")
  writer = token_store.TokenStoreWriter(folder, 97)
  with pytest.raises(RuntimeError, match="stop"), writer:
    raise RuntimeError("stop")
  assert "documents.npy" not in os.listdir(folder)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
