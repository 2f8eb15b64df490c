"""From the scores of windows to the n best answers of each question.

A question's context is read in overlapping windows. Every pair of a start and
an end that one of them offers is a candidate, unless it leaves the context,
ends before it starts, is too long, or starts at a token that another window
sees with more context. Reference: google-research/albert squad_utils.py
(accumulate_predictions_v1 and _v2, write_predictions_v1 and _v2).

Letters: N windows, S sequence, K starts of a window, M ends of each of them,
C candidates of all windows.
"""

from __future__ import annotations

import itertools
from typing import Mapping, NamedTuple, Optional, Protocol, Sequence

import numpy as np

N_BEST_SIZE = 20
MAX_ANSWER_LENGTH = 30
# Start and end of a question without any candidate.
NO_CANDIDATE_SCORE = -1e6

# Windows that are searched at a time: bounds the memory.
_BLOCK = 512


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


class Candidate(NamedTuple):
  """An answer that a question may have.

  Attributes:
    text: as it stands in the context; "" if there is no candidate.
    probability: among the candidates of the question.
    start_score: log-probability (2.0) or logit (1.1) of its first token; None
      in an ensemble, which has probabilities only.
    end_score: the same of its last token.
    start_char: where `text` starts in the context; None where nobody knows.
    end_char: where it ends, exclusive.
  """

  text: str
  probability: float
  start_score: Optional[float] = None
  end_score: Optional[float] = None
  start_char: Optional[int] = None
  end_char: Optional[int] = None

  @property
  def score(self) -> Optional[float]:
    """What candidates are ordered by: the sum of both scores."""
    if self.start_score is None or self.end_score is None:
      return None
    return self.start_score + self.end_score


class QuestionAnswers(NamedTuple):
  """What a model says to one question.

  Attributes:
    n_best: at least one candidate, the best first, no text twice.
    null_odds: high if the question has no answer; None in SQuAD 1.1.
  """

  n_best: list[Candidate]
  null_odds: Optional[float] = None

  def text(self, null_score_diff_threshold: Optional[float] = None) -> str:
    """The answer; "" if there seems to be none.

    Deviation: the answer stays where the odds are equal to the threshold; the
    original asks for less. So it is in the official search for the best
    threshold, which names the odds of the last answer that should stay.

    Args:
      null_score_diff_threshold: null odds over it mean no answer; None answers
        always.

    Raises:
      ValueError: there is a threshold, but no null odds.
    """
    if null_score_diff_threshold is not None:
      if self.null_odds is None:
        raise ValueError(
          "null_score_diff_threshold is for SQuAD 2.0: these answers have no "
          "null odds to compare it with."
        )
      if self.null_odds > null_score_diff_threshold:
        return ""
    return self.n_best[0].text


def final_texts(
  answers: Mapping[str, QuestionAnswers],
  null_score_diff_threshold: Optional[float] = None,
) -> dict[str, str]:
  """The answer to each question, see `QuestionAnswers.text`."""
  return {
    question_id: answer.text(null_score_diff_threshold)
    for question_id, answer in answers.items()
  }


def decode_v1(
  windows: Sequence[Window],
  contexts: Mapping[str, str],
  start_logits: np.ndarray,
  end_logits: np.ndarray,
  n_best_size: int = N_BEST_SIZE,
  max_answer_length: int = MAX_ANSWER_LENGTH,
) -> dict[str, QuestionAnswers]:
  """Answers of the model for SQuAD 1.1.

  Deviation: the best starts and ends of a window are those of its context. The
  original takes them from the whole sequence and drops those in the question
  and in the padding afterwards, so that its answers depend on how long the
  sequences were padded.

  Args:
    windows: N, of all questions.
    contexts: the raw context of each question that has windows, no others.
    start_logits: <float32>[N, S]; what is behind a window does not count.
    end_logits: <float32>[N, S].
    n_best_size: candidates of a question; also starts and ends of a window.
    max_answer_length: tokens of an answer, at most.

  Returns:
    The answers by question, in the order of the windows.

  Raises:
    ValueError: the arrays and the windows do not fit, scores are not finite, or
      a question has no window or no context.
  """
  tokens = _Tokens(windows, contexts)
  scores = [np.asarray(start_logits), np.asarray(end_logits)]
  _check_shapes(len(windows), start_logits=scores[0], end_logits=scores[1])
  if scores[0].shape != scores[1].shape:
    raise ValueError(
      f"start_logits {list(scores[0].shape)} and end_logits "
      f"{list(scores[1].shape)} must have the same shape."
    )
  ends = tokens.context_start + tokens.lengths
  if len(windows) and ends.max() > scores[0].shape[1]:
    raise ValueError(
      f"a window has {ends.max()} positions, but the scores have "
      f"{scores[0].shape[1]}: they are of other windows."
    )
  found = []
  for first in range(0, len(windows), _BLOCK):
    rows = np.arange(first, min(first + _BLOCK, len(windows)))
    position = np.arange(scores[0].shape[1])
    inside = (position >= tokens.context_start[rows, None]) & (
      position < ends[rows, None]
    )  # [n, S]
    top = []
    for values in scores:
      values = values[rows].astype(np.float64)
      _check_finite(values[inside])
      values[~inside] = -np.inf
      # Stable: of equal scores the first position, as in the original.
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
  return tokens.answers(found, n_best_size, [None] * len(tokens.questions))


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
) -> dict[str, QuestionAnswers]:
  """Answers and null odds of the model for SQuAD 2.0.

  Args:
    windows: N, of all questions.
    contexts: the raw context of each question that has windows, no others.
    start_top_log_probs: <float32>[N, K].
    start_top_index: <int32>[N, K], positions in the sequence.
    end_top_log_probs: <float32>[N, K * M], start by start.
    end_top_index: <int32>[N, K * M].
    cls_logits: <float32>[N], high if the window has no answer. A question's
      null odds are the lowest of its windows.
    n_best_size: candidates of a question.
    max_answer_length: tokens of an answer, at most.

  Returns:
    The answers by question, in the order of the windows.

  Raises:
    ValueError: as `decode_v1`.
  """
  tokens = _Tokens(windows, contexts)
  start = np.asarray(start_top_log_probs, np.float64)
  end = np.asarray(end_top_log_probs, np.float64)
  start_index, end_index = (
    np.asarray(start_top_index),
    np.asarray(end_top_index),
  )
  cls_logits = np.asarray(cls_logits, np.float64)
  _check_shapes(len(windows), start_top_log_probs=start, end_top_log_probs=end)
  k = start.shape[1]
  if (
    start_index.shape != start.shape
    or end_index.shape != end.shape
    or cls_logits.shape != (len(windows),)
    or not k
    or end.shape[1] % k
  ):
    raise ValueError(
      f"the scores do not fit each other: starts {list(start.shape)} at "
      f"{list(start_index.shape)}, ends {list(end.shape)} at "
      f"{list(end_index.shape)}, [CLS] {list(cls_logits.shape)}; they must be "
      "[N, K], [N, K * M] and [N]."
    )
  for values in (start, end, cls_logits):
    _check_finite(values)
  found = []
  for first in range(0, len(windows), _BLOCK):
    rows = np.arange(first, min(first + _BLOCK, len(windows)))
    found.append(
      tokens.spans(
        rows,
        start_index[rows],
        start[rows],
        end_index[rows].reshape(len(rows), k, -1),
        end[rows].reshape(len(rows), k, -1),
        max_answer_length,
      )
    )
  null_odds = np.full(len(tokens.questions), np.inf)
  np.minimum.at(null_odds, tokens.question, cls_logits)
  return tokens.answers(found, n_best_size, null_odds.tolist())


def _check_shapes(number: int, **arrays: np.ndarray) -> None:
  for name, array in arrays.items():
    if array.ndim != 2 or len(array) != number:
      raise ValueError(
        f"{name} {list(array.shape)} must have a row for each of the {number} "
        "windows."
      )


def _check_finite(values: np.ndarray) -> None:
  if not np.isfinite(values).all():
    raise ValueError(
      "scores are infinite or not a number: the model is broken; take an "
      "earlier checkpoint."
    )


class _Spans(NamedTuple):
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


class _Tokens:
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
  ) -> _Spans:
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
    return _Spans(
      self.question[rows[row]],
      self._starts[start_token],
      self._ends[end_token],
      start_scores[row, k],
      end_scores[m_of],
    )

  def answers(
    self,
    found: Sequence[_Spans],
    n_best_size: int,
    null_odds: Sequence[Optional[float]],
  ) -> dict[str, QuestionAnswers]:
    """The best candidates of each question, by its id.

    Args:
      found: the candidates of all windows, in their order.
      n_best_size: candidates of a question, at most.
      null_odds: of each question.
    """
    if not found:
      return {}
    spans = _Spans(*map(np.concatenate, zip(*found)))
    # Stable: of equal scores the one that was found first.
    order = np.lexsort((-(spans.start_score + spans.end_score), spans.question))
    bounds = np.searchsorted(
      spans.question[order], np.arange(len(self.questions) + 1)
    ).tolist()
    columns = [column[order].tolist() for column in spans[1:]]
    result = {}
    for i, question_id in enumerate(self.questions):
      here = slice(bounds[i], bounds[i + 1])
      n_best = _n_best(
        self._contexts[question_id],
        zip(*(column[here] for column in columns)),
        n_best_size,
      )
      result[question_id] = QuestionAnswers(n_best, null_odds[i])
    return result


def _n_best(context: str, spans, n_best_size: int) -> list[Candidate]:
  """The first spans with different texts, and their probabilities.

  Deviation: a span without a letter (a piece that only starts a word) is no
  candidate, as "" says that there is no answer. A question without a candidate
  gets "", too, where the original answers "empty" to those of SQuAD 1.1.

  Args:
    context: the raw text.
    spans: start_char, end_char, start_score and end_score, the best first.
    n_best_size: how many.
  """
  seen: dict[str, Candidate] = {}
  for start, end, start_score, end_score in spans:
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    if text and text not in seen:
      seen[text] = Candidate(
        text, 0.0, start_score, end_score, start, start + len(text)
      )
      if len(seen) == n_best_size:
        break
  if not seen:
    return [Candidate("", 1.0, NO_CANDIDATE_SCORE, NO_CANDIDATE_SCORE)]
  n_best = list(seen.values())
  weights = np.exp(np.array([c.score for c in n_best]) - n_best[0].score)
  return [
    candidate._replace(probability=probability)
    for candidate, probability in zip(
      n_best, (weights / weights.sum()).tolist()
    )
  ]
