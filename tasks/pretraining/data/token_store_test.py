"""Tests of the token store, and of the documents of splits and shards."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks.pretraining.data import token_store


def _documents(vocab_size, *documents):
  """Packs (ids, lengths of the segments) of each."""
  rows = np.zeros(len(documents), token_store.ROW)
  for row, (ids, lengths) in zip(rows, documents):
    row["tokens"], row["segments"] = len(ids), len(lengths)
    row["text"], row["copies"] = 2**64 - ids[0], 3 * ids[0]
  dtype = token_store.id_dtype(vocab_size)
  return token_store.Documents(
    np.array([i for ids, _ in documents for i in ids], dtype),
    np.array([n for _, lengths in documents for n in lengths], np.int32),
    rows,
  )


@pytest.mark.parametrize("vocab_size", [97, 1 << 16, (1 << 16) + 1])
def test_stored_documents_are_read_back(tmp_path, vocab_size):
  high = vocab_size - 1
  documents = [
    ([5, high, 6], [2, 1]),
    ([7], [1]),
    ([8, 9, 10, high], [1, 1, 2]),
  ]
  folder = str(tmp_path)
  for part in (documents[:1], (), documents[1:]):
    sizes = token_store.append(folder, _documents(vocab_size, *part))
  # A process was killed while it appended another one.
  token_store.append(folder, _documents(vocab_size, documents[0]))
  (tmp_path / "rows").write_bytes((tmp_path / "rows").read_bytes()[:-3])
  token_store.cut_off(folder, sizes)
  store = token_store.open_documents(folder, vocab_size)
  assert store.rows.tolist() == _documents(vocab_size, *documents).rows.tolist()
  assert [d.ids.tolist() for d in store] == [ids for ids, _ in documents]
  some = store.take(np.array([2, 0]))
  assert [d.ids[0] for d in some] == [8, 5]
  assert some[0].offsets.tolist() == [0, 1, 2, 4]
  (tmp_path / "ids").write_bytes(b"")
  with pytest.raises(OSError, match="tokens in .* are damaged: remove it"):
    token_store.cut_off(folder, sizes)


def test_hashes_tell_all_that_shapes_examples_and_no_spaces():
  documents = _documents(97, ([5, 6, 7], [2, 1]), ([5, 6, 7], [1, 2]))
  wide = _documents(1 << 17, ([5, 6, 7], [2, 1]))
  first = token_store.hash_tokens(documents[0], 1)
  assert first == token_store.hash_tokens(wide[0], 1)
  others = [(documents[1], 1), (documents[0], 2)]
  assert first not in [token_store.hash_tokens(*other) for other in others]
  sentences = ["a  b", "c"], ["a", "b c"]
  assert len({token_store.hash_text(x, 1) for x in sentences}) == 1


def _texts(texts, contents=0, copies=1):
  """Returns documents of which only the hashes and the copies matter."""
  rows = np.zeros(len(texts), token_store.ROW)
  rows["text"], rows["content"], rows["copies"] = texts, contents, copies
  rows["tokens"] = 1
  return token_store.Documents(np.arange(len(rows)), np.ones(0), rows)


def _indices(documents):
  return documents.starts[:, 0].tolist()


def _split(texts, share, seed=1, least=1):
  """Returns the indices of the documents of each split."""
  if isinstance(texts, int):
    texts = map(str, range(texts))
  hashes = [token_store.hash_text([text], seed) for text in texts]
  splits = token_store.split_documents("a", _texts(hashes), share, least)
  return {name: sorted(_indices(split)) for name, split in splits.items()}


def test_equal_documents_are_ordered_and_counted():
  # Three texts, one with two ways of lines, one with two weights.
  texts = np.array([9, 2, 9, 9, 9, 7, 7], np.uint64) * np.uint64(1 << 60)
  documents = _texts(texts, [4, 1, 3, 4, 4, 4, 5], [3, 3, 3, 3, 3, 2, 6])
  for drop, indices, occurrences, repeats in (
    (False, [6, 5, 2, 0, 3, 4], [0, 0, 0, 0, 1, 2], [1, 0, 3, 0, 0, 0]),
    (True, [6, 2], [0, 0], [1, 3]),
  ):
    splits = token_store.split_documents("a", documents, 0.1, 1, drop)
    rows, heldout = splits["train"].rows, splits["heldout"]
    assert _indices(splits["train"]) == indices
    names = ["text", "content", "copies"]
    assert rows[names].tolist() == documents.rows[indices][names].tolist()
    assert rows["occurrence"].tolist() == occurrences
    assert rows["repeats"].tolist() == repeats
    assert _indices(heldout) == [1]
    assert heldout.rows[["copies", "repeats"]].tolist() == [(1, 0)]


def test_shards_get_each_duplicate_once_and_are_of_equal_size():
  rng = np.random.default_rng(0)
  count, num_shards = 3000, 7
  documents = _texts(
    rng.integers(2**64, size=count, dtype=np.uint64),
    rng.integers(2**64, size=count, dtype=np.uint64),
    rng.integers(1, 4, size=count),
  )
  documents.rows["text"][1:3] = documents.rows["text"][0]
  documents.rows[2] = documents.rows[1]
  split = token_store.arrange(documents)
  shards = [[*split.of_shard(index, num_shards)] for index in range(num_shards)]
  rows, indices = split.rows, _indices(split)
  expected = [(i, d) for i in range(count) for d in range(rows["copies"][i])]
  assert sorted(sum(shards, [])) == expected
  for number, shard in enumerate(shards):
    mean = len(expected) / num_shards
    assert abs(len(shard) - mean) < 4 * np.sqrt(mean)
    # A part of the documents gives the same, as for Beam.
    own = sorted({indices[place] for place, _ in shard})
    part = token_store.arrange(documents.take(np.array(own)))
    found, same = (
      {(x.rows["content"][i], x.rows["occurrence"][i], d) for i, d in pairs}
      for x, pairs in (
        (split, shard),
        (part, part.of_shard(number, num_shards)),
      )
    )
    assert found == same and len(found) == len(shard)
  # Duplicates go to shards of their own.
  texts = np.unique(rows["text"])
  for duplicate in range(9):
    found = token_store.shards_of(texts, duplicate, 1 << 40)
    assert len({*found.tolist()}) == len(texts)


def test_splits_depend_on_the_seed_and_not_on_other_documents():
  fewer, more = _split(500, 0.1), _split(5000, 0.1)
  assert sorted(more["train"] + more["heldout"]) == list(range(5000))
  error = np.sqrt(0.1 * 0.9 / 5000)
  assert abs(len(more["heldout"]) / 5000 - 0.1) <= 4 * error
  assert fewer["heldout"] == [n for n in more["heldout"] if n < 500]
  assert _split(500, 0.1, seed=2)["heldout"] != fewer["heldout"]
  assert set(fewer["heldout"]) < set(_split(500, 0.3)["heldout"])
  # So Beam can hold out a document without the others.
  bound = token_store.heldout_bound(0.1)
  hashes = [token_store.hash_text([str(n)], 1) for n in range(500)]
  assert fewer["heldout"] == [n for n in range(500) if hashes[n] < bound]
  # Equal texts are together.
  twice = [f" {n % 500}\n" for n in range(1000)]
  together = sorted(fewer["heldout"] + [n + 500 for n in fewer["heldout"]])
  assert _split(twice, 0.1)["heldout"] == together


@pytest.mark.parametrize("share", [1e-9, 0.999999])
@pytest.mark.parametrize(
  ("least", "texts"), [(1, "aaa"), (2, "abbbb"), (2, "a")]
)
def test_each_split_gets_its_minimum_or_is_refused(share, least, texts):
  with pytest.raises(ValueError, match="documents by blank lines, or use "):
    _split(texts, share, least=least)
  splits = _split(9, share, least=least)
  small, large = sorted(map(len, splits.values()))
  assert (small, large) == (least, 9 - least)
  assert (len(splits["heldout"]) == small) == (share < 0.5)
