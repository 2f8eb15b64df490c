"""Tests of how documents and records travel between the steps.

Whole pipelines are in beam_builder_test.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tasks.pretraining.data import beam_elements, data_statistics


@pytest.mark.parametrize("vocab_size", [97, (1 << 16) + 1])
def test_documents_of_a_chunk_come_back(vocab_size):
  dtype = np.uint16 if vocab_size == 97 else np.int32
  chunk = beam_elements.Chunk(
    3,
    1,
    np.array([5, 96, 6, 7, 8, 9], dtype).tobytes(),
    np.array([2, 1, 1, 2], np.int32).tobytes(),
    np.array([2, 1, 1], np.int32).tobytes(),
  )
  assert chunk.num_documents == 3
  documents = chunk.documents(vocab_size)
  assert [d.ids.tolist() for d in documents] == [[5, 96, 6], [7], [8, 9]]
  assert [d.offsets.tolist() for d in documents] == [[0, 2, 3], [0, 1], [0, 2]]


def test_chunk_without_documents():
  chunk = beam_elements.Chunk(0, 0, b"", b"", b"")
  assert (chunk.num_documents, chunk.documents(97)) == (0, [])


def test_records_come_back():
  records = [b"abc", b"", b"d"]
  packed = beam_elements.Records.pack((1, 7), np.array([9, 8, 7]), records)
  assert packed.unpack() == records
  assert np.frombuffer(packed.keys, np.int64).tolist() == [9, 8, 7]
  assert beam_elements.Records((0,), b"", b"", b"").unpack() == []


def test_sum_leaves_its_parts_alone():
  parts = [
    data_statistics.ExampleCounts(np.array([1, 2]), instances=n, tokens=10 * n)
    for n in (3, 5)
  ]
  total = beam_elements.add_up(iter(parts))
  assert (total.instances, total.tokens) == (8, 80)
  assert total.ngrams.tolist() == [2, 4]
  assert (parts[0].instances, parts[0].ngrams.tolist()) == (3, [1, 2])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
