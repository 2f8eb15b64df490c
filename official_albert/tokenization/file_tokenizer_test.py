"""Tests of packing against truncation token by token, and of calls."""

from __future__ import annotations

import pytest

from official_albert.testing import toy_models
from official_albert.tokenization import file_tokenizer

CLS, SEP = 2, 3


class Table(list):
  """Like a DataFrame of pandas, whose iteration yields the columns' names."""

  ndim = 2


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


@pytest.fixture
def tokenizer(tmp_path):
  return toy_models.wordpiece(tmp_path, "the", "mill", "river", ".")


def test_a_call_truncates_only_to_a_given_length_and_pads(tokenizer):
  long = "the mill " * 300
  assert tokenizer(long)["input_ids"].shape == (1, 602)
  inputs = tokenizer([long, "Mill."], ["the river", ""], max_seq_length=6)
  assert inputs["input_ids"].tolist() == [
    [2, 5, 6, 3, 5, 3],
    [2, 6, 8, 3, 3, 0],
  ]
  a, b = tokenizer.encode(long), tokenizer.encode("the river")
  packed = file_tokenizer.pack_pair(a, b, 6, CLS, SEP)
  assert packed[0] == inputs["input_ids"][0].tolist()
  assert inputs["input_mask"].tolist() == [[1] * 6, [1] * 5 + [0]]
  assert inputs["segment_ids"].tolist() == [[0] * 4 + [1] * 2, [0] * 4 + [1, 0]]
  padded = tokenizer("mill", max_seq_length=5, padding="max_length")
  assert padded["input_ids"].tolist() == [[2, 6, 3, 0, 0]]
  # A generator, and the content of the file instead of its path.
  again = type(tokenizer)(tokenizer.content)
  assert again.sha256 == tokenizer.sha256 and again.model_file == ""
  inputs = again(text for text in ("the", "mill"))
  assert inputs["input_ids"].tolist() == [[2, 5, 3], [2, 6, 3]]


@pytest.mark.parametrize(
  "arguments, error, message",
  [
    ({"texts": ["the", float("nan")]}, TypeError, r"texts\[1\] is nan, but"),
    ({"texts": [["the", "mill"]]}, TypeError, r"texts\[0\] is \['the', 'mill'"),
    ({"texts": 7}, TypeError, "a list of texts, not 7"),
    ({"texts": {"the"}}, TypeError, "a list of texts, not {'the'}"),
    ({"texts": {"a": "the"}}, TypeError, "a list of texts, not {'a'"),
    ({"texts": Table(["text"])}, TypeError, r"a list of texts, not \['text'"),
    (
      {"texts": ["the"], "texts_b": ["mill", "river"]},
      ValueError,
      "1 texts and 2 second texts",
    ),
    ({"texts": "the", "max_seq_length": 2}, ValueError, "is 2, but .* need 3:"),
    ({"texts": "the", "padding": "longer"}, ValueError, "padding is 'longer'"),
    (
      {"texts": "the", "padding": "max_length"},
      ValueError,
      "needs max_seq_length",
    ),
  ],
)
def test_a_call_refuses_other_things(tokenizer, arguments, error, message):
  with pytest.raises(error, match=message):
    tokenizer(**arguments)


def test_bucket_lengths():
  lengths = file_tokenizer.bucket_lengths
  assert lengths(1) == (1,)
  assert lengths(50) == (16, 24, 32, 48, 50)
  assert lengths(512) == (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
