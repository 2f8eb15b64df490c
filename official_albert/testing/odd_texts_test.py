"""Texts in a wild order hold what they are asked to hold."""

from __future__ import annotations

import pytest

from official_albert.testing import odd_texts


def test_letters_lengths_and_seeds():
  texts = odd_texts.make("ab", 300, 5, lambda rng: "")
  assert len(texts) == 300 and set("".join(texts)) == {"a", "b"}
  assert {len(text) for text in texts} == set(range(25))
  assert texts == odd_texts.make("ab", 300, 5, lambda rng: "")
  assert texts != odd_texts.make("ab", 300, 7, lambda rng: "")


def test_letters_from_outside():
  texts = odd_texts.make("ab", 300, 5, lambda rng: rng.choice(["", "z"]))
  with_one = [text for text in texts if "z" in text]
  assert 100 < len(with_one) < 200
  assert all(text.count("z") == 1 for text in with_one)
  # Not always at the end.
  assert len({text.index("z") for text in with_one}) > 9


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
