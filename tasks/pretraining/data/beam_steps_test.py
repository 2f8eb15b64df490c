"""Tests of single steps; whole pipelines are in beam_builder_test.py."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from tasks.pretraining.data import (
  build_worker,
  data_statistics,
  dataset_builder,
  documents,
  external_sort,
)

if __name__ == "__main__" and not importlib.util.find_spec("apache_beam"):
  raise SystemExit(0)  # Bazel runs this file itself, where no one skips it.
pytest.importorskip("apache_beam")

from tasks.pretraining.data import beam_steps


def _plan(**changes):
  settings = dataset_builder.BuildSettings(
    "a.txt", "data", "toy.model", **changes
  )
  job = build_worker.Job("toy.model", True, settings.examples, 1, "there")
  return beam_steps.Plan(settings, job, b"")


def test_documents_are_numbered_over_all_files():
  # (file, chunk, documents, bytes), as they may arrive; file 1 holds nothing.
  counts = [(2, 0, 5, 60), (0, 1, 2, 20), (0, 0, 3, 40)]
  order = beam_steps.put_in_order(
    counts, _plan(heldout_share=0.3, dupe_factor=1), num_files=3
  )
  assert [first.tolist() for first in order.first_numbers] == [[0, 3], [], [5]]
  assert 1 <= len(order.heldout_numbers) < 10
  assert order.num_buckets == {"train": 1, "heldout": 1}


def test_buckets_grow_with_the_text_and_its_duplicates():
  counts = [(0, 0, 5, 1 << 26)]  # 2^25 tokens, 2^28 bytes of records.
  order = beam_steps.put_in_order(counts, _plan(dupe_factor=3), num_files=1)
  assert order.num_buckets == {"train": 16}
  assert order.heldout_numbers.tolist() == []


def test_no_text():
  with pytest.raises(ValueError, match="no text in a.txt"):
    beam_steps.put_in_order([(0, 0, 0, 0)], _plan(), num_files=1)


def test_bucket_is_sorted_and_dealt_to_shards_by_rank():
  def pack(first, keys, records):
    packed = external_sort.Records.pack(np.array(keys), records)
    return beam_steps.Part(first, packed)

  parts = [
    pack((1, 0), [7, 5], [b"d", b"b"]),
    pack((0, 4), [5, 9], [b"a", b"e"]),
    pack((0, 9), [5], [b"A"]),
  ]
  # Two records come before, four behind: 11 in 3 shards of 4, 4 and 3.
  sizes = {("train", 0): 2, ("train", 1): 5, ("train", 3): 4, ("heldout", 0): 9}
  dealt = beam_steps.sort_bucket(
    (("train", 1), parts), sizes, _plan(num_shards=3)
  )
  assert [
    (key, part.first, part.records.unpack()[1]) for key, part in dealt
  ] == [
    (("train", 0), (2,), [b"a", b"A"]),
    (("train", 1), (4,), [b"b", b"d", b"e"]),
  ]


@pytest.mark.parametrize("vocab_size", [97, (1 << 16) + 1])
def test_documents_of_a_chunk_come_back(vocab_size):
  dtype = np.uint16 if vocab_size == 97 else np.int32
  chunk = beam_steps.Chunk(
    3,
    1,
    np.array([5, 96, 6, 7, 8, 9], dtype).tobytes(),
    np.array([2, 1, 1, 2], np.int32).tobytes(),
    np.array([2, 1, 1], np.int32).tobytes(),
  )
  assert chunk.num_documents == 3
  documents = chunk.unpack(vocab_size).unpack()
  assert [d.ids.tolist() for d in documents] == [[5, 96, 6], [7], [8, 9]]
  assert [d.offsets.tolist() for d in documents] == [[0, 2, 3], [0, 1], [0, 2]]


def test_chunk_without_documents():
  chunk = beam_steps.Chunk(0, 0, b"", b"", b"")
  assert (chunk.num_documents, chunk.unpack(97).unpack()) == (0, [])


def test_result_has_the_order_of_the_manifest(tmp_path):
  counts = data_statistics.ExampleCounts(np.array([2, 1]), instances=3)
  text = data_statistics.TextCounts(4, 9, np.array([0, 7]))
  beam_steps.write_result(
    None,
    _plan(heldout_share=0.1),
    str(tmp_path / "result.json"),
    [("train", 1, {"n": 1}), ("heldout", 0, {"n": 2}), ("train", 0, {"n": 0})],
    {"heldout": counts, "train": counts},
    {"heldout": text, "train": text},
    [(1, documents.Skipped(1, ["b"])), (0, documents.Skipped(2, ["a", "A"]))],
  )
  value = json.loads((tmp_path / "result.json").read_text())
  assert list(value) == ["train", "heldout", "skipped"]
  assert value["skipped"] == {"count": 3, "named": ["a", "A", "b"]}
  assert value["train"]["shards"] == [{"n": 0}, {"n": 1}]
  assert value["train"]["text"] == [4, 9, [0, 7]]
  assert value["heldout"]["counts"]["ngrams"] == [2, 1]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
