"""Which spans of the contexts may be answers, and the best of each question.

Every pair of a start and an end that a window offers is a candidate, unless it
leaves the context, ends before it starts, is too long, or starts at a token
that another window sees with more context. Reference: google-research/albert
squad_utils.py (write_predictions_v1 and _v2).

Letters: N windows, n of them at a time, K starts of a window, M ends of each of
them, C candidates of all windows.
"""

from __future__ import annotations

import itertools
from typing import Mapping, NamedTuple, Optional, Protocol, Sequence

import numpy as np

from tasks.squad import answers


class Window(Protocol):
  """What is read of a window.

  Attributes:
    question_id: of the question that it belongs to.
    context_start: position in the sequence of its first context token.
    token_starts: of each context token, where it starts in the raw context, in
      characters.
    token_ends: where it ends, exclusive.
    is_max_context: of each context token, whether no other window of the
      question sees it with more context.
  """

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


class Tokens:
  """The context tokens of all windows, one after the other."""

  def __init__(self, windows: Sequence[Window], contexts: Mapping[str, str]):
    index: dict[str, int] = {}
    # Of each window <int64>[N].
    self.question = np.array(
      [index.setdefault(w.question_id, len(index)) for w in windows], np.int64
    )
    self.questions = list(index)
    unknown = [q for q in index if q not in contexts]
    silent = [q for q in contexts if q not in index]
    if unknown or silent:
      raise ValueError(
        f"question {(unknown + silent)[0]} has "
        f"{'no context' if unknown else 'a context, but no window'}: contexts "
        "must be those of the questions that the windows are of."
      )
    self._contexts = contexts
    self.context_start = np.array([w.context_start for w in windows], np.int64)
    self.lengths = np.array([len(w.token_starts) for w in windows], np.int64)
    self._first = np.cumsum(self.lengths) - self.lengths

    def flat(lists, dtype) -> np.ndarray:
      # The last one stands for whatever is not in the context.
      return np.fromiter(
        itertools.chain(itertools.chain.from_iterable(lists), [0]), dtype
      )

    self._starts = flat((w.token_starts for w in windows), np.int64)
    self._ends = flat((w.token_ends for w in windows), np.int64)
    self._is_max_context = flat((w.is_max_context for w in windows), np.bool_)
    sizes = {len(a) for a in (self._starts, self._ends, self._is_max_context)}
    if len(sizes) > 1:
      raise ValueError(
        "token_starts, token_ends and is_max_context of a window must be of "
        "one length."
      )

  def spans(
    self,
    rows: np.ndarray,
    start_index: np.ndarray,
    start_scores: np.ndarray,
    end_index: np.ndarray,
    end_scores: np.ndarray,
    max_answer_length: int,
  ) -> Spans:
    """The candidates of some windows.

    Args:
      rows: <int64>[n], which windows.
      start_index: <int>[n, K], positions in the sequence.
      start_scores: <float64>[n, K].
      end_index: <int>[n, K, M] or [n, 1, M].
      end_scores: <float64>, of the same shape.
      max_answer_length: tokens of an answer, at most.
    """
    begin = self.context_start[rows, None, None]
    length = self.lengths[rows, None, None]
    # Counted from the first token of the context.
    start = start_index[:, :, None].astype(np.int64) - begin  # [n, K, 1]
    end = end_index.astype(np.int64) - begin  # [n, K or 1, M]
    starts_here = (start >= 0) & (start < length)
    token = np.where(starts_here, start + self._first[rows, None, None], -1)
    row, k, m = np.nonzero(
      starts_here
      & self._is_max_context[token]
      & (end >= start)
      & (end < length)
      & (end - start < max_answer_length)
    )
    m_of = (row, np.minimum(k, end.shape[1] - 1), m)
    start_token = token[row, k, 0]
    end_token = self._first[rows[row]] + end[m_of]
    return Spans(
      self.question[rows[row]],
      self._starts[start_token],
      self._ends[end_token],
      start_scores[row, k],
      end_scores[m_of],
    )

  def n_best(
    self,
    found: Sequence[Spans],
    n_best_size: int,
    null_odds: Sequence[Optional[float]],
  ) -> dict[str, answers.QuestionAnswers]:
    """The best candidates of each question, by its id.

    Args:
      found: the candidates of all windows, in their order.
      n_best_size: candidates of a question, at most.
      null_odds: of each question.
    """
    if not found:
      return {}
    spans = Spans(*map(np.concatenate, zip(*found)))
    # Stable: of equal scores the one that was found first.
    order = np.lexsort((-(spans.start_score + spans.end_score), spans.question))
    bounds = np.searchsorted(
      spans.question[order], np.arange(len(self.questions) + 1)
    ).tolist()
    columns = [column[order].tolist() for column in spans[1:]]
    result = {}
    for i, question_id in enumerate(self.questions):
      here = slice(bounds[i], bounds[i + 1])
      best = _n_best(
        self._contexts[question_id],
        zip(*(column[here] for column in columns)),
        n_best_size,
      )
      result[question_id] = answers.QuestionAnswers(best, null_odds[i])
    return result


def _n_best(context: str, spans, n_best_size: int) -> list[answers.Candidate]:
  """The first spans with different texts, and their probabilities.

  Deviation: a span without a letter (a piece that only starts a word) is no
  candidate, as "" says that there is no answer. A question without a candidate
  gets "", too, where the original answers "empty" to those of SQuAD 1.1.

  Args:
    context: the raw text.
    spans: start_char, end_char, start_score and end_score, the best first.
    n_best_size: how many.
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
