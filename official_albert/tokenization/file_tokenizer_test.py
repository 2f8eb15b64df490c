"""Tests of packing against truncation token by token."""

from __future__ import annotations

import pytest

from official_albert.tokenization import file_tokenizer

CLS, SEP = 2, 3


def pop_one_by_one(a, b, available):
  a, b = list(a), list(b)
  while len(a) + len(b) > available:
    (a if len(a) > len(b) else b).pop()
  return a, b


def test_every_small_case_equals_truncation_token_by_token():
  for length_a in range(12):
    for length_b in range(12):
      for available in range(2, 25):
        a, b = range(100, 100 + length_a), range(200, 200 + length_b)
        left_a, left_b = pop_one_by_one(a, b, available)
        ids, segments = file_tokenizer.pack_pair(a, b, available + 3, CLS, SEP)
        case = (length_a, length_b, available)
        assert ids == [CLS, *left_a, SEP, *left_b, SEP], case
        assert segments == [0] * (len(left_a) + 2) + [1] * (len(left_b) + 1)
  packed = file_tokenizer.pack_pair([11, 12, 13], None, 4, CLS, SEP)
  assert packed == ([CLS, 11, 12, SEP], [0, 0, 0, 0])


@pytest.mark.parametrize(
  "second, length, needed", [(None, 2, 3), ([21], 4, 5), ([], 0, 5)]
)
def test_too_small_maximum_length_is_refused(second, length, needed):
  with pytest.raises(ValueError, match=f"is {length}, but .* need {needed}:"):
    file_tokenizer.pack_pair([11], second, length, CLS, SEP)
  file_tokenizer.pack_pair([11], second, needed, CLS, SEP)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
