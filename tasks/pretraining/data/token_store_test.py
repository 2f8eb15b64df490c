"""Tests of the token store, and of how documents are split."""

from __future__ import annotations

import os

import numpy as np
import pytest

from official_albert.tasks.pretraining.data import token_store


def _documents(vocab_size, *documents):
  """Packs (ids, lengths of the segments) of each."""
  ends = [[len(ids), len(lengths)] for ids, lengths in documents]
  first = [ids[0] for ids, _ in documents]
  return token_store.Documents(
    np.array(
      [i for ids, _ in documents for i in ids], token_store.id_dtype(vocab_size)
    ),
    np.array([n for _, lengths in documents for n in lengths], np.int32),
    np.cumsum(np.array(ends, np.int64).reshape(-1, 2), axis=0),
    np.array([[1000 + n, 2**64 - n] for n in first], np.uint64).reshape(-1, 2),
    np.array([3 * n for n in first], np.int32),
  )


def _write(folder, vocab_size, *documents):
  """Writes chunks: the first document, no document, each other as a part."""
  os.makedirs(folder)
  paths = [token_store.chunk_path(folder, number) for number in range(3)]
  chunks = [documents[:1]], [()], [[d] for d in documents[1:]]
  for path, parts in zip(paths, chunks):
    parts = [_documents(vocab_size, *part) for part in parts]
    token_store.write_chunk(path, token_store.concatenate(parts))
  return token_store.TokenStore(paths, vocab_size)


@pytest.mark.parametrize("vocab_size", [97, 1 << 16, (1 << 16) + 1])
@pytest.mark.parametrize("open_chunks", [1, 256])
def test_stored_documents_are_read_back(
  tmp_path, monkeypatch, vocab_size, open_chunks
):
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
  hashes, copies, tokens = store.columns()
  assert tokens.tolist() == [3, 1, 4]
  assert copies.tolist() == [15, 21, 24]
  assert hashes.tolist() == [
    [1005, 2**64 - 5],
    [1007, 2**64 - 7],
    [1008, 2**64 - 8],
  ]
  expected_offsets = [[0, 2, 3], [0, 1], [0, 1, 2, 4]]
  for found in (store, _documents(vocab_size, *documents)):
    assert [d.ids.tolist() for d in found] == [ids for ids, _ in documents]
    assert [d.offsets.tolist() for d in found] == expected_offsets


def test_damaged_chunks_are_refused(tmp_path):
  _write(tmp_path / "store", 97, ([5, 6, 7], [2, 1]), ([8, 9], [1, 1]))
  path = tmp_path / "store" / "chunk-00000"
  content = path.read_bytes()
  for damaged in (content[:-1], content + b"xx"):
    path.write_bytes(damaged)
    with pytest.raises(OSError, match="chunk-00000 is damaged: remove .*store"):
      token_store.map_chunk(str(path), 97)


def test_hashes_of_tokens_tell_all_that_shapes_examples():
  documents = _documents(97, ([5, 6, 7], [2, 1]), ([5, 6, 7], [1, 2]))
  wide = _documents(1 << 17, ([5, 6, 7], [2, 1]))
  first = token_store.hash_tokens(documents[0], 1)
  assert first == token_store.hash_tokens(wide[0], 1)
  others = [(documents[1], 1), (documents[0], 2)]
  assert first not in [token_store.hash_tokens(*other) for other in others]


def _split(texts, share, seed=1, kind="sop"):
  """Returns the numbers of the documents of each split."""
  if isinstance(texts, int):
    texts = map(str, range(texts))
  hashes = [(token_store.hash_text([x], seed), len(x)) for x in texts]
  splits = token_store.split_documents(
    "a", np.array(hashes, np.uint64), np.ones(len(hashes)), share, kind
  )
  return {name: sorted(x.numbers.tolist()) for name, x in splits.items()}


def test_equal_documents_are_numbered_and_counted():
  # Two texts, the second with two ways of lines.
  hashes = np.array([[9, 4], [2, 1], [9, 3], [9, 4], [9, 4], [7, 4]], np.uint64)
  hashes[:, 0] *= np.uint64(1 << 60)
  for drop, numbers, occurrences in (
    (False, [5, 2, 0, 3, 4], [0, 0, 0, 1, 2]),
    (True, [5, 2], [0, 0]),
  ):
    copies = np.arange(3, 9)
    splits = token_store.split_documents("a", hashes, copies, 0.1, "sop", drop)
    found = splits["train"]
    assert found.numbers.tolist() == numbers
    assert found.occurrences.tolist() == occurrences
    assert found.copies.tolist() == [3 + number for number in numbers]
    assert found.tokens.tolist() == [hashes[n, 1] for n in numbers]
    assert (found.duplicates, splits["heldout"].duplicates) == (3, 0)
    assert splits["heldout"].numbers.tolist() == [1]
    assert splits["heldout"].copies.tolist() == [1]


def test_shards_get_each_duplicate_once_and_are_of_equal_size():
  rng = np.random.default_rng(0)
  count, num_shards = 3000, 7
  tokens = rng.integers(2**64, size=count, dtype=np.uint64)
  tokens[1] = tokens[0]
  occurrences = np.zeros(count, np.int64)
  occurrences[1] = 1
  copies = rng.integers(1, 4, size=count)
  numbers = rng.permutation(count)
  split = token_store.Split(numbers, tokens, occurrences, copies, 0)
  shards = [split.of_shard(index, num_shards) for index in range(num_shards)]
  found = [(place, item[-1]) for shard in shards for place, *item in shard]
  expected = [(i, d) for i in range(count) for d in range(copies[i])]
  assert sorted(found) == expected
  for shard in shards:
    mean = len(found) / num_shards
    assert abs(len(shard) - mean) < 4 * np.sqrt(mean)
    for place, token, occurrence, _ in shard:
      assert (token, occurrence) == (tokens[place], occurrences[place])
    first = [numbers[place] for place, *_, copy in shard if not copy]
    assert first == sorted(first)
  # Equal documents and duplicates go to shards of their own.
  for duplicate in range(9):
    found = token_store.shards_of(tokens, occurrences, duplicate, 1 << 40)
    assert len({*found.tolist()}) == count


def test_splits_depend_on_the_seed_and_not_on_other_documents():
  fewer, more = _split(500, 0.1), _split(5000, 0.1)
  assert sorted(more["train"] + more["heldout"]) == list(range(5000))
  error = np.sqrt(0.1 * 0.9 / 5000)
  assert abs(len(more["heldout"]) / 5000 - 0.1) <= 4 * error
  assert fewer["heldout"] == [n for n in more["heldout"] if n < 500]
  assert _split(500, 0.1, seed=2)["heldout"] != fewer["heldout"]
  assert set(fewer["heldout"]) < set(_split(500, 0.3)["heldout"])


def test_a_text_stays_in_its_split_and_equal_ones_are_together():
  texts = [str(number) for number in range(500)]
  before = {texts[n] for n in _split(texts, 0.1)["heldout"]}
  more = ["new", *texts, *texts, *(f" {text}\n" for text in texts)]
  after = _split(more, 0.1)
  assert {more[n].strip() for n in after["heldout"]} - {"new"} == before
  assert not before & {more[n].strip() for n in after["train"]}
  sentences = ["a  b", "c"], ["a", "b c"]
  assert len({token_store.hash_text(x, 1) for x in sentences}) == 1


@pytest.mark.parametrize("share", [1e-9, 0.5, 0.999999])
@pytest.mark.parametrize(("kind", "texts"), [("sop", "aaa"), ("nsp", "abbbb")])
def test_too_few_different_texts_are_refused(share, kind, texts):
  with pytest.raises(
    ValueError, match="too few different texts.*heldout_share"
  ):
    _split(texts, share, kind=kind)


@pytest.mark.parametrize("share", [1e-9, 0.999999])
@pytest.mark.parametrize(("kind", "least"), [("sop", 1), ("nsp", 2)])
def test_each_split_gets_its_minimum(share, kind, least):
  splits = _split(9, share, kind=kind)
  small, large = sorted(map(len, splits.values()))
  assert (small, large) == (least, 9 - least)
  assert (len(splits["heldout"]) == small) == (share < 0.5)
