"""Tests of the token store and of external sorting."""

from __future__ import annotations

import os

import numpy as np
import pytest

from official_albert.tasks.pretraining.data import external_sort, token_store


def _documents(vocab_size, *documents):
  """Packs (ids, lengths of the segments) of each."""
  ends = [[len(ids), len(lengths)] for ids, lengths in documents]
  return token_store.Documents(
    np.array(
      [i for ids, _ in documents for i in ids], token_store.id_dtype(vocab_size)
    ),
    np.array([n for _, lengths in documents for n in lengths], np.int32),
    np.cumsum(np.array(ends, np.int64).reshape(-1, 2), axis=0),
    np.array([1000 + ids[0] for ids, _ in documents], np.uint64),
  )


def _write(folder, vocab_size, *documents):
  """Writes chunks: the first document, no document, each other as a part."""
  os.makedirs(folder)
  paths = [token_store.chunk_path(folder, number) for number in range(3)]
  chunks = [documents[:1]], [()], [[d] for d in documents[1:]]
  for path, parts in zip(paths, chunks):
    parts = [_documents(vocab_size, *part) for part in parts]
    token_store.write_chunk(path, parts)
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
  assert store.token_counts().tolist() == [3, 1, 4]
  assert store.hashes().tolist() == [1005, 1007, 1008]
  expected_offsets = [[0, 2, 3], [0, 1], [0, 1, 2, 4]]
  for found in (store, _documents(vocab_size, *documents)):
    assert [d.ids.tolist() for d in found] == [ids for ids, _ in documents]
    assert [d.offsets.tolist() for d in found] == expected_offsets
  split = token_store.Split(store, np.array([10, 12]), first_number=10)
  assert [d.ids[0] for d in split] == [5, 8]
  size = os.path.getsize(token_store.chunk_path(folder, 0))
  assert size == 16 + 16 + 8 + 2 * 4 + 3 * (2 if vocab_size <= 1 << 16 else 4)


def _split(texts, share, seed=1, kind="sop"):
  if isinstance(texts, int):
    texts = map(str, range(texts))
  hashes = [token_store.hash_text([text], seed) for text in texts]
  splits = token_store.split_documents(
    "a", np.array(hashes, np.uint64), share, kind
  )
  return {name: numbers.tolist() for name, numbers in splits.items()}


def test_splits_depend_on_the_seed_and_not_on_other_documents():
  fewer, more = _split(500, 0.1), _split(5000, 0.1)
  assert sorted(more["train"] + more["heldout"]) == list(range(5000))
  assert more["train"] == sorted(more["train"])
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


def _records(count):
  rng = np.random.default_rng(0)
  keys = rng.integers(1 << external_sort.KEY_BITS, size=count)
  return keys, [f"{key}:{'x' * (key % 50)}".encode() for key in keys.tolist()]


def _write_runs(folder, num_buckets, keys, records, step):
  """Writes runs of `step` records and returns their paths."""
  paths = []
  for start in range(0, max(1, len(records)), step):
    part = slice(start, start + step)
    paths.append(str(folder / f"run-{start:05d}"))
    external_sort.write_run(paths[-1], keys[part], records[part], num_buckets)
  return paths


@pytest.mark.parametrize("num_buckets", [1, 2, 16])
@pytest.mark.parametrize(("count", "step"), [(500, 70), (500, 500), (0, 1)])
def test_records_are_sorted_by_key(tmp_path, num_buckets, count, step):
  keys, records = _records(count)
  expected = [records[i] for i in np.argsort(keys)]
  paths = _write_runs(tmp_path, num_buckets, keys, records, step)
  assert list(external_sort.read_sorted(paths, 0, num_buckets)) == expected
  counts = sum(external_sort.count_records(path) for path in paths)
  assert counts.sum() == count
  if num_buckets > 1:
    rest = external_sort.read_sorted(paths, 1, num_buckets)
    assert list(rest) == expected[counts[0] :]


def test_discarded_buckets_free_their_space(tmp_path):
  keys, records = _records(800)
  expected = [records[i] for i in np.argsort(keys)]
  (path,) = _write_runs(tmp_path, 8, keys, records, step=800)
  first = int(external_sort.count_records(path)[:3].sum())
  before = os.path.getsize(path)
  for end in (3, 1):  # The second has nothing to do.
    external_sort.discard(path, end)
    # The keys are uniform: about 5/8 are left.
    assert 0.55 < os.path.getsize(path) / before < 0.7
    assert external_sort.is_intact(path)
    assert external_sort.holds(path, 3) and not external_sort.holds(path, 2)
  assert list(external_sort.read_sorted([path], 3, 8)) == expected[first:]
  external_sort.discard(path, 8)
  assert os.path.getsize(path) == 0
  assert external_sort.holds(path, 8) and external_sort.is_intact(path)
  assert external_sort.count_records(path).sum() == 800


def test_damage_is_found(tmp_path):
  keys, records = _records(300)
  (path,) = _write_runs(tmp_path, 4, keys, records, step=300)
  assert external_sort.is_intact(path)
  content = (tmp_path / "run-00000").read_bytes()
  flipped = bytearray(content)
  flipped[-9] ^= 1  # The first bucket is the last in the file.
  for damaged in (flipped, content[:-1]):
    (tmp_path / "run-00000").write_bytes(damaged)
    assert not external_sort.is_intact(path)
    assert list(external_sort.read_sorted([path], 1, 4))
    with pytest.raises(OSError, match="run-00000 is damaged"):
      list(external_sort.read_sorted([path], 0, 4))
  os.remove(path)
  assert not external_sort.is_intact(path)


def test_plan():
  assert external_sort.plan(0, 1) == (1 << 22, 1)
  assert external_sort.plan((1 << 22) + 1, 1) == (1 << 22, 2)
  assert external_sort.plan(1 << 22, 40) == (1 << 22, 64)
  # 2^34 and 2^18 bytes: runs and buckets of 2^26.
  assert external_sort.plan(1 << 34, 1) == (1 << 26, 1 << 8)
  assert external_sort.plan(1 << 40, 1) == (1 << 27, 1 << 13)
