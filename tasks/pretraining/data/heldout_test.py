"""Tests of which documents are held out."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.pretraining.data import heldout


def _split(num_documents, share, seed=1, kind="sop"):
  return {
    name: numbers.tolist()
    for name, numbers in heldout.split_documents(
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
