"""Splits SQuAD's questions into sequences: [CLS] question [SEP] context [SEP].

A context that is too long is split into overlapping windows. Each window stores
which characters of the context its tokens come from, so that an answer is exact
text of the context.

Deviation: the original aligns pieces and text by their longest common
subsequence within a band of characters, and drops a question where that fails,
even in evaluation. The tokenizer's offsets need no search and drop no question.

Letters: T tokens of a context, L of them in a window.

Reference: google-research/albert squad_utils.py (convert_examples_to_features,
_check_is_max_context).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

import numpy as np

from official_albert import tokenization
from tasks.squad import examples as examples_lib


class Window(NamedTuple):
  """A part of a context with the question before it, without padding.

  Attributes:
    question_id: of the example.
    input_ids: [CLS] question [SEP] context [SEP].
    segment_ids: 0 up to the first [SEP], then 1.
    context_start: position in `input_ids` of the first context token.
    token_starts: [L] first character in the context of each context token.
    token_ends: [L] last character, exclusive.
    is_max_context: [L] whether no other window has more context around the
      token.
    start_position: position in `input_ids` of the answer's first token, or 0.
    end_position: position of its last token, or 0.
    is_impossible: whether the window does not contain the whole answer.
  """

  question_id: str
  input_ids: list[int]
  segment_ids: list[int]
  context_start: int
  token_starts: list[int]
  token_ends: list[int]
  is_max_context: list[bool]
  start_position: int
  end_position: int
  is_impossible: bool


def make_windows(
  example: examples_lib.SquadExample,
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  doc_stride: int = 128,
  max_query_length: int = 64,
  is_training: bool = False,
  context: Optional[tokenization.EncodedText] = None,
) -> list[Window]:
  """Returns the windows of one question, at least one.

  Args:
    example: the question.
    tokenizer: that of the model.
    max_seq_length: S, the maximum tokens of a window.
    doc_stride: tokens from the begin of one window to the next.
    max_query_length: maximum tokens of the question; the rest is cut off.
    is_training: whether to check that the question can be trained on.
      Positions are those of the first answer in any case.
    context: the context's tokens, if known.

  Raises:
    ValueError: a setting leaves no space for the context, or the question
      cannot be trained on.
  """
  if doc_stride < 1 or max_query_length < 1:
    raise ValueError(
      f"doc_stride is {doc_stride} and max_query_length {max_query_length}: "
      "both must be at least 1."
    )
  if is_training:
    examples_lib.check_trainable(example)
  query = tokenizer.encode(example.question)[:max_query_length]
  space = max_seq_length - len(query) - 3
  if space < 1:
    raise ValueError(
      f"max_seq_length {max_seq_length} leaves no space for the context of "
      f"question {example.question_id!r}, whose question has {len(query)} "
      "tokens, and [CLS] and two [SEP] need three: raise max_seq_length or "
      "lower max_query_length."
    )
  if context is None:
    context = tokenizer.encode_with_offsets(example.context)
  answer = None
  if example.answers and not example.is_impossible:
    answer = answer_tokens(context, *example.answers[0])
  parts = _parts(len(context.ids), space, doc_stride)
  best = _best_window(len(context.ids), parts)
  head = [tokenizer.cls_id, *query, tokenizer.sep_id]
  windows = []
  for number, (begin, end) in enumerate(parts):
    found = answer is not None and begin <= answer[0] and answer[1] < end
    shift = len(head) - begin
    windows.append(
      Window(
        question_id=example.question_id,
        input_ids=[*head, *context.ids[begin:end], tokenizer.sep_id],
        segment_ids=[0] * len(head) + [1] * (end - begin + 1),
        context_start=len(head),
        token_starts=context.starts[begin:end],
        token_ends=context.ends[begin:end],
        is_max_context=(best[begin:end] == number).tolist(),
        start_position=answer[0] + shift if found else 0,
        end_position=answer[1] + shift if found else 0,
        is_impossible=not found,
      )
    )
  return windows


def make_all_windows(
  examples: Iterable[examples_lib.SquadExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  doc_stride: int = 128,
  max_query_length: int = 64,
  is_training: bool = False,
) -> Iterator[Window]:
  """Yields the windows of all questions; tokenizes each context once.

  Raises:
    ValueError: see `make_windows`.
  """
  contexts: dict[str, tokenization.EncodedText] = {}
  for example in examples:
    if example.context not in contexts:
      contexts[example.context] = tokenizer.encode_with_offsets(example.context)
    yield from make_windows(
      example,
      tokenizer,
      max_seq_length,
      doc_stride,
      max_query_length,
      is_training,
      contexts[example.context],
    )


def answer_tokens(
  context: tokenization.EncodedText, text: str, start: int
) -> Optional[tuple[int, int]]:
  """Returns the first and the last token of an answer.

  Args:
    context: T tokens.
    text: the answer.
    start: its first character in the context.

  Returns:
    Tokens from 0 to T - 1 that contain the answer's characters, the nearest
    ones for characters without a token (such as zero-width spaces); None if T
    is 0.
  """
  if not context.ids:
    return None
  end = start + len(text.rstrip())
  start += len(text) - len(text.lstrip())
  first = bisect.bisect_right(context.ends, start)
  last = bisect.bisect_left(context.starts, end) - 1
  first = min(first, len(context.ids) - 1)
  return first, max(first, last)


def p_mask(window: Window, length: int = 0) -> list[int]:
  """Returns 1 where no answer can be: question, [SEP] and padding.

  It is 0 at the context's tokens and at [CLS], which represents "no answer".

  Args:
    window: the window.
    length: of the result, if it is longer than the window.
  """
  tokens = len(window.token_starts)
  mask = [0] + [1] * (window.context_start - 1) + [0] * tokens
  return mask + [1] * (max(length, len(window.input_ids)) - len(mask))


def _parts(count: int, space: int, stride: int) -> list[tuple[int, int]]:
  """Returns [begin, end) of each window in a context of `count` tokens."""
  parts = [(0, min(space, count))]
  while parts[-1][1] < count:
    begin, end = parts[-1]
    # A stride larger than the window would skip tokens.
    begin += min(end - begin, stride)
    parts.append((begin, min(begin + space, count)))
  return parts


def _best_window(count: int, parts: list[tuple[int, int]]) -> np.ndarray:
  """Returns <int64>[T], the window with the most context of each token."""
  best = np.full(count, -1, np.int64)
  best_score = np.full(count, -1.0)
  for number, (begin, end) in enumerate(parts):
    left = np.arange(end - begin)
    score = np.minimum(left, left[::-1]) + 0.01 * (end - begin)
    better = score > best_score[begin:end]  # Of equal scores the first.
    best[begin:end][better] = number
    best_score[begin:end][better] = score[better]
  return best
