"""Decodes the scores of windows into the n best answers of each question.

A context is read in overlapping windows, and the models score starts and ends
in each. Every pair of a start and an end is a candidate unless it leaves the
context, ends before it starts, is too long, or starts at a token that another
window sees with more context. Reference: google-research/albert squad_utils.py
(accumulate_predictions_v1 and _v2, write_predictions_v1 and _v2).

Letters: N windows, n of them at a time, S sequence, K starts of a window, M
ends of each start, C candidates of all windows.
"""

from __future__ import annotations

import itertools
from typing import Mapping, NamedTuple, Optional, Protocol, Sequence

import numpy as np

from tasks.squad import answers
from tasks.squad.answers import N_BEST_SIZE

MAX_ANSWER_LENGTH = 30
# Windows that are searched at a time, which bounds the memory.
_BLOCK = 512


class Window(Protocol):
  """What decoding needs of a window, see `windows.Window`."""

  question_id: str
  context_start: int
  token_starts: Sequence[int]
  token_ends: Sequence[int]
  is_max_context: Sequence[bool]


class Spans(NamedTuple):
  """Candidates, in the order in which the original finds them.

  Attributes:
    question: <int64>[C], index of the question.
    start_char: <int64>[C].
    end_char: <int64>[C], exclusive.
    start_score: <float64>[C].
    end_score: <float64>[C].
  """

  question: np.ndarray
  start_char: np.ndarray
  end_char: np.ndarray
  start_score: np.ndarray
  end_score: np.ndarray


def decode_v1(
  windows: Sequence[Window],
  contexts: Mapping[str, str],
  start_logits: np.ndarray,
  end_logits: np.ndarray,
  n_best_size: int = N_BEST_SIZE,
  max_answer_length: int = MAX_ANSWER_LENGTH,
) -> dict[str, answers.QuestionAnswers]:
  """Returns the answers of a model for SQuAD 1.1.

  Deviation: the best starts and ends of a window are those of its context. The
  original takes them from the whole sequence and then drops those in the
  question and the padding, so that its answers depend on the padding.

  Args:
    windows: N, of all questions.
    contexts: the raw contexts of the windows' questions.
    start_logits: <float32>[N, S]; values outside of the context are ignored.
    end_logits: <float32>[N, S].
    n_best_size: maximum candidates of a question; also starts and ends of a
      window.
    max_answer_length: maximum tokens of an answer.

  Returns:
    The answers by question, in the order of the windows.

  Raises:
    ValueError: scores are not finite.
  """
  tokens = Tokens(windows, contexts)
  scores = np.stack([start_logits, end_logits])  # [2, N, S]
  ends = tokens.context_start + tokens.lengths
  position = np.arange(scores.shape[2])
  found = []
  for rows in _row_blocks(len(windows)):
    inside = (position >= tokens.context_start[rows, None]) & (
      position < ends[rows, None]
    )  # [n, S]
    top = []
    for values in scores:
      values = values[rows].astype(np.float64)
      _check_finite(values[inside])
      values[~inside] = -np.inf
      # Stable, as in the original: of equal scores the first position.
      index = np.argsort(-values, axis=1, kind="stable")[:, :n_best_size]
      top += [index, np.take_along_axis(values, index, 1)]
    start_index, start_scores, end_index, end_scores = top
    found.append(
      tokens.spans(
        rows,
        start_index,
        start_scores,
        end_index[:, None],
        end_scores[:, None],
        max_answer_length,
      )
    )
  return tokens.n_best(found, n_best_size, [None] * len(tokens.questions))


def decode_v2(
  windows: Sequence[Window],
  contexts: Mapping[str, str],
  start_top_log_probs: np.ndarray,
  start_top_index: np.ndarray,
  end_top_log_probs: np.ndarray,
  end_top_index: np.ndarray,
  cls_logits: np.ndarray,
  n_best_size: int = N_BEST_SIZE,
  max_answer_length: int = MAX_ANSWER_LENGTH,
) -> dict[str, answers.QuestionAnswers]:
  """Returns the answers and null odds of a model for SQuAD 2.0.

  Args:
    windows: N, of all questions.
    contexts: the raw contexts of the windows' questions.
    start_top_log_probs: <float32>[N, K].
    start_top_index: <int32>[N, K], positions in the sequence.
    end_top_log_probs: <float32>[N, K * M], grouped by start.
    end_top_index: <int32>[N, K * M].
    cls_logits: <float32>[N], high if the window has no answer. The null odds of
      a question are the minimum over its windows.
    n_best_size: maximum candidates of a question.
    max_answer_length: maximum tokens of an answer.

  Returns:
    The answers by question, in the order of the windows.

  Raises:
    ValueError: see `decode_v1`.
  """
  tokens = Tokens(windows, contexts)
  start = np.asarray(start_top_log_probs, np.float64)
  end = np.asarray(end_top_log_probs, np.float64)
  start_index, end_index = map(np.asarray, (start_top_index, end_top_index))
  cls_logits = np.asarray(cls_logits, np.float64)
  k = start.shape[1]
  for values in (start, end, cls_logits):
    _check_finite(values)
  found = [
    tokens.spans(
      rows,
      start_index[rows],
      start[rows],
      end_index[rows].reshape(len(rows), k, -1),
      end[rows].reshape(len(rows), k, -1),
      max_answer_length,
    )
    for rows in _row_blocks(len(windows))
  ]
  null_odds = np.full(len(tokens.questions), np.inf)
  np.minimum.at(null_odds, tokens.question, cls_logits)
  return tokens.n_best(found, n_best_size, null_odds.tolist())


def _row_blocks(number: int) -> list[np.ndarray]:
  return [
    np.arange(first, min(first + _BLOCK, number))
    for first in range(0, number, _BLOCK)
  ]


def _check_finite(values: np.ndarray) -> None:
  if not np.isfinite(values).all():
    raise ValueError(
      "scores are infinite or not a number: the model has diverged; use an "
      "earlier checkpoint."
    )


class Tokens:
  """The context tokens of all windows, concatenated."""

  def __init__(self, windows: Sequence[Window], contexts: Mapping[str, str]):
    index: dict[str, int] = {}
    # Of each window <int64>[N].
    self.question = np.array(
      [index.setdefault(w.question_id, len(index)) for w in windows], np.int64
    )
    self.questions = list(index)
    self._contexts = contexts
    self.context_start = np.array([w.context_start for w in windows], np.int64)
    self.lengths = np.array([len(w.token_starts) for w in windows], np.int64)
    self._first = np.cumsum(self.lengths) - self.lengths

    def flat(lists, dtype) -> np.ndarray:
      # One more entry, at -1, for positions outside of the context.
      return np.fromiter(
        itertools.chain(itertools.chain.from_iterable(lists), [0]), dtype
      )

    self._starts = flat((w.token_starts for w in windows), np.int64)
    self._ends = flat((w.token_ends for w in windows), np.int64)
    self._is_max_context = flat((w.is_max_context for w in windows), np.bool_)

  def spans(
    self,
    rows: np.ndarray,
    start_index: np.ndarray,
    start_scores: np.ndarray,
    end_index: np.ndarray,
    end_scores: np.ndarray,
    max_answer_length: int,
  ) -> Spans:
    """Returns the candidates of some windows.

    Args:
      rows: <int64>[n], the windows.
      start_index: <int>[n, K], positions in the sequence.
      start_scores: <float64>[n, K].
      end_index: <int>[n, K, M] or [n, 1, M].
      end_scores: <float64>, of the same shape.
      max_answer_length: maximum tokens of an answer.
    """
    begin = self.context_start[rows, None, None]
    length = self.lengths[rows, None, None]
    # Counted from the first token of the context.
    start = start_index[:, :, None].astype(np.int64) - begin  # [n, K, 1]
    end = end_index.astype(np.int64) - begin  # [n, K or 1, M]
    in_context = (start >= 0) & (start < length)
    token = np.where(in_context, start + self._first[rows, None, None], -1)
    row, k, m = np.nonzero(
      in_context
      & self._is_max_context[token]
      & (end >= start)
      & (end < length)
      & (end - start < max_answer_length)
    )
    end_at = (row, np.minimum(k, end.shape[1] - 1), m)
    start_token = token[row, k, 0]
    end_token = self._first[rows[row]] + end[end_at]
    return Spans(
      self.question[rows[row]],
      self._starts[start_token],
      self._ends[end_token],
      start_scores[row, k],
      end_scores[end_at],
    )

  def n_best(
    self,
    found: Sequence[Spans],
    n_best_size: int,
    null_odds: Sequence[Optional[float]],
  ) -> dict[str, answers.QuestionAnswers]:
    """Returns the best candidates of each question.

    Args:
      found: the candidates of all windows, in the order of the windows.
      n_best_size: maximum candidates of a question.
      null_odds: of each question.
    """
    if not found:
      return {}
    spans = Spans(*map(np.concatenate, zip(*found)))
    # Stable: of equal scores the first.
    order = np.lexsort((-(spans.start_score + spans.end_score), spans.question))
    bounds = np.searchsorted(
      spans.question[order], np.arange(len(self.questions) + 1)
    ).tolist()
    columns = [column[order].tolist() for column in spans[1:]]
    result = {}
    for i, question_id in enumerate(self.questions):
      own = slice(bounds[i], bounds[i + 1])
      best = _n_best(
        self._contexts[question_id],
        zip(*(column[own] for column in columns)),
        n_best_size,
      )
      result[question_id] = answers.QuestionAnswers(best, null_odds[i])
    return result


def _n_best(context: str, spans, n_best_size: int) -> list[answers.Candidate]:
  """Returns the first spans with different texts, and their probabilities.

  Deviation: a span of white space only is no candidate, as "" means that there
  is no answer. A question without candidates gets "", while the original gives
  "empty" for SQuAD 1.1.

  Args:
    context: the raw text.
    spans: start_char, end_char, start_score and end_score, the best first.
    n_best_size: maximum number.
  """
  seen: dict[str, tuple[float, float, int, int]] = {}
  for start, end, start_score, end_score in spans:
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    if text and text not in seen:
      seen[text] = (start_score, end_score, start, start + len(text))
      if len(seen) == n_best_size:
        break
  if not seen:
    lowest = answers.NO_CANDIDATE_SCORE
    return [answers.Candidate("", 1.0, lowest, lowest)]
  scores = np.array([span[0] + span[1] for span in seen.values()])
  weights = np.exp(scores - scores[0])
  probabilities = (weights / weights.sum()).tolist()
  return [
    answers.Candidate(text, probability, *span)
    for (text, span), probability in zip(seen.items(), probabilities)
  ]
