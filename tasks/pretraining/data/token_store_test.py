"""Tests of stored documents, and of those of a shard."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks.pretraining.data import token_store
from official_albert.tasks.pretraining.data.sentence_pairs import Document


def _documents(*documents):
  """Packs (ids, lengths of the segments) of each."""
  parts = [np.zeros(0, np.int32)]
  for ids, lengths in documents:
    offsets = np.cumsum([0, *lengths])
    parts.append(token_store.mark(Document(np.array(ids), offsets)))
  rows = np.zeros(len(documents), token_store.ROW)
  rows["tokens"] = [len(ids) for ids, _ in documents]
  return token_store.Documents(np.concatenate(parts), rows)


def test_documents_are_as_they_were():
  documents = [
    ([0, 2**31 - 1, 6], [2, 1]),
    ([7], [1]),
    ([8, 9, 10, 1 << 16], [1, 1, 2]),
  ]
  packed = _documents(*documents)
  assert [d.ids.tolist() for d in packed] == [ids for ids, _ in documents]
  some = packed.take(np.array([2, 0]))
  assert [d.ids[0] for d in some] == [8, 0]
  assert some[0].offsets.tolist() == [0, 1, 2, 4]
  assert len(_documents()) == 0


def test_hashes_tell_all_that_shapes_examples_and_no_spaces():
  first, other = (
    Document(np.array([5, 6, 7], dtype), np.array(offsets))
    for dtype, offsets in ((np.int32, [0, 2, 3]), (np.int64, [0, 1, 3]))
  )
  wide = Document(first.ids.astype(np.int64), first.offsets)
  hashes = [(first, 1), (other, 1), (first, 2)]
  assert len({token_store.hash_tokens(*x) for x in hashes}) == 3
  assert token_store.hash_tokens(wide, 1) == token_store.hash_tokens(first, 1)
  sentences = ["a  b", "c"], ["a", "b c"]
  assert len({token_store.hash_text(x, 1) for x in sentences}) == 1


def _texts(texts, contents=0, copies=1):
  """Returns documents of which only the hashes and the copies matter."""
  rows = np.zeros(len(texts), token_store.ROW)
  rows["text"], rows["content"], rows["copies"] = texts, contents, copies
  rows["tokens"] = 1
  return token_store.Documents(np.arange(len(rows)), rows)


def test_equal_documents_are_ordered_and_counted():
  # Two texts, one with two ways of lines, one with two weights.
  texts = np.array([9, 9, 9, 9, 7, 7], np.uint64) * np.uint64(1 << 60)
  documents = _texts(texts, [4, 3, 4, 4, 4, 5], [3, 3, 3, 3, 2, 6])
  for drop, indices, occurrences, repeats in (
    (False, [5, 4, 1, 0, 2, 3], [0, 0, 0, 0, 1, 2], [1, 0, 3, 0, 0, 0]),
    (True, [5, 1], [0, 0], [1, 3]),
  ):
    arranged = token_store.arrange(documents, drop)
    assert arranged.starts.tolist() == indices
    names = ["text", "content", "copies"]
    rows = arranged.rows
    assert rows[names].tolist() == documents.rows[indices][names].tolist()
    assert rows["occurrence"].tolist() == occurrences
    assert rows["repeats"].tolist() == repeats


def test_shards_get_each_duplicate_once_and_are_of_equal_size():
  rng = np.random.default_rng(0)
  count, num_shards = 3000, 7
  texts = rng.integers(2**64, size=count, dtype=np.uint64)
  texts[1] = texts[0]
  rows = _texts(texts, 0, rng.integers(1, 4, size=count)).rows
  shards = [
    token_store.duplicates_of(rows, index, num_shards)
    for index in range(num_shards)
  ]
  expected = [(i, d) for i in range(count) for d in range(rows["copies"][i])]
  assert sorted(sum(shards, [])) == expected
  for shard in shards:
    mean = len(expected) / num_shards
    assert abs(len(shard) - mean) < 4 * np.sqrt(mean)
    assert ((0, 0) in shard) == ((1, 0) in shard)
  # Duplicates go to shards of their own.
  for duplicate in range(9):
    found = token_store.shards_of(texts[1:], duplicate, 1 << 40)
    assert len({*found.tolist()}) == count - 1


@pytest.mark.parametrize("size", [0, 1])
def test_a_shard_may_have_no_documents(size):
  rows = _texts(np.zeros(size, np.uint64)).rows
  shards = [token_store.duplicates_of(rows, index, 2) for index in range(2)]
  assert sum(map(len, shards)) == size
