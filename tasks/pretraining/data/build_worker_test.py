"""Tests of hashes, and of the documents that splits and shards get."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining.data import build_worker, documents


@pytest.fixture
def tokenize(make_settings):
  """Returns a function that tokenizes texts with some settings."""

  def run(texts, **changes):
    job = build_worker.Job(make_settings("unused", **changes))
    block = documents.Block("", 1, "\n\n".join(texts).encode())
    return [*job.tokenize(block)]

  return run


def test_hashes_tell_all_that_shapes_examples_and_no_spaces(tokenize):
  texts = ["the cat  sat\non a mat", "the cat\nsat on a mat"]
  first, other = tokenize(texts)
  (again,) = tokenize(texts[:1], dupe_factor=4)
  assert first.text == other.text == again.text
  assert len({x.content for x in (first, other, again)}) == 3


def test_splits_depend_on_the_seed_and_not_on_other_documents(tokenize):
  def heldout(texts, share=0.1, seed=1):
    found = tokenize(texts, heldout_share=share, random_seed=seed)
    assert {x.copies for x in found if x.is_heldout} == {1}
    assert {x.copies for x in found if not x.is_heldout} == {3}
    return {number for number, x in enumerate(found) if x.is_heldout}

  numbers = [(n % 70, n // 70) for n in range(4900)]
  texts = [f"cat {'mat ' * a}\nsat {'on ' * b}" for a, b in numbers]
  more, fewer = heldout(texts), heldout(texts[:500])
  error = np.sqrt(0.1 * 0.9 / 4900)
  assert abs(len(more) / 4900 - 0.1) <= 4 * error
  assert fewer == {n for n in more if n < 500}
  assert heldout(texts[:500], seed=2) != fewer < heldout(texts[:500], 0.3)
  # Equal texts are together, whatever their lines are.
  again = [x.replace("\n", " ") for x in texts[:500]]
  assert heldout(texts[:500] + again) == fewer | {n + 500 for n in fewer}


def test_shards_get_each_duplicate_once_and_are_of_equal_size():
  texts, num_shards = np.random.default_rng(0).integers(2**63, size=3000), 7
  duplicates = np.arange(3)
  shards = [build_worker.shards_of(texts, d, num_shards) for d in duplicates]
  counts = np.bincount(np.concatenate(shards))
  assert len(counts) == num_shards
  mean = 9000 / num_shards
  assert (abs(counts - mean) < 4 * np.sqrt(mean)).all()
  together = [build_worker.shards_of(x, duplicates, num_shards) for x in texts]
  np.testing.assert_array_equal(np.transpose(together), shards)
  # Duplicates go to shards of their own.
  found = build_worker.shards_of(texts[0], np.arange(999), 1 << 40)
  assert len({*found.tolist()}) == 999


def test_equal_documents_get_other_examples(tokenize, make_settings):
  one, two = "the cat sat\non a mat", "dogs ran\nunder old trees"
  # The same text in other lines is another document.
  found = tokenize([one, two, one.replace("\n", " "), one, one])
  examples = data.ExampleSettings(max_seq_length=29, masking="dynamic")
  job = build_worker.Job(make_settings("unused", examples=examples))
  made, counts, _ = job.make_examples(found, 0, 1)
  assert (counts["duplicate_documents"], counts["documents"]) == (3, 5)
  assert len({key for key, _ in made}) == len(made) == 15
