"""Splits SQuAD's questions into sequences: [CLS] question [SEP] context [SEP].

A context that is too long is split into overlapping windows. Each window stores
which characters of the context its tokens come from, so an answer is an exact
substring of the context. `serving` does the same in the graph.

Deviation: the original aligns pieces and text by their longest common
subsequence within a band of characters, and drops a question if that fails,
even in evaluation. The tokenizer's offsets need no search and drop no question.

Reference: google-research/albert squad_utils.py (convert_examples_to_features).
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from official_albert import tokenization
from official_albert.tasks.squad.examples import Recipe, SquadExample


class Window(NamedTuple):
  """A part of a context with the question before it, without padding.

  Attributes:
    context_start: the position of the first context token.
    first_token: the index of that token in the context, from 0.
    token_starts, token_ends: the characters of each context token.
    start_position, end_position: the answer's first and last token, or 0.
    is_impossible: whether the window does not contain the whole answer.
  """

  question_id: str
  input_ids: list[int]
  segment_ids: list[int]
  context_start: int
  first_token: int
  token_starts: list[int]
  token_ends: list[int]
  start_position: int
  end_position: int
  is_impossible: bool


def make_windows(
  example: SquadExample,
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  doc_stride: int = Recipe.doc_stride,
  max_query_length: int = Recipe.max_query_length,
  context: Optional[tokenization.EncodedText] = None,
) -> list[Window]:
  """Returns the windows of one question, at least one.

  Positions are those of the first answer. `doc_stride` is the number of tokens
  from the start of one window to that of the next; `context` holds the tokens
  of the context, if known.
  """
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
  count = len(context.ids)
  stride = min(space, doc_stride)  # A larger one would skip tokens.
  begins = range(0, max(count - space, 0) + stride, stride)
  head = [tokenizer.cls_id, *query, tokenizer.sep_id]
  windows = []
  for begin in begins:
    end = min(begin + space, count)
    found = answer is not None and begin <= answer[0] and answer[1] < end
    shift = len(head) - begin
    windows.append(
      Window(
        question_id=example.question_id,
        input_ids=[*head, *context.ids[begin:end], tokenizer.sep_id],
        segment_ids=[0] * len(head) + [1] * (end - begin + 1),
        context_start=len(head),
        first_token=begin,
        token_starts=context.starts[begin:end],
        token_ends=context.ends[begin:end],
        start_position=answer[0] + shift if found else 0,
        end_position=answer[1] + shift if found else 0,
        is_impossible=not found,
      )
    )
  return windows


def make_all_windows(
  examples: Iterable[SquadExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  doc_stride: int = Recipe.doc_stride,
  max_query_length: int = Recipe.max_query_length,
) -> Iterator[Window]:
  """Yields `make_windows` of all questions; tokenizes each context once."""
  encode_context = functools.cache(tokenizer.encode_with_offsets)
  for example in examples:
    yield from make_windows(
      example,
      tokenizer,
      max_seq_length,
      doc_stride,
      max_query_length,
      encode_context(example.context),
    )


def answer_tokens(
  context: tokenization.EncodedText, text: str, start: int
) -> Optional[tuple[int, int]]:
  """Returns the first and the last token of an answer.

  Characters without a token, such as zero-width spaces, use the nearest token.
  The result is None if the context has no tokens.
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
  """Returns 1 for positions without answers, after padding to `length`.

  These are the question, [SEP] and padding. It is 0 at the context's tokens and
  at [CLS], which represents "no answer".
  """
  tokens = len(window.token_starts)
  mask = [0] + [1] * (window.context_start - 1) + [0] * tokens
  return mask + [1] * (max(length, len(window.input_ids)) - len(mask))
