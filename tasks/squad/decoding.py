"""From the scores of windows to the n best answers of each question.

A question's context is read in overlapping windows; the models score starts and
ends in each. Reference: google-research/albert squad_utils.py
(accumulate_predictions_v1 and _v2, write_predictions_v1 and _v2).

Letters: N windows, S sequence, K starts of a window, M ends of each of them.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from tasks.squad import answers, candidate_spans

N_BEST_SIZE = 20
MAX_ANSWER_LENGTH = 30

# Windows that are searched at a time: bounds the memory.
_BLOCK = 512


def decode_v1(
  windows: Sequence[candidate_spans.Window],
  contexts: Mapping[str, str],
  start_logits: np.ndarray,
  end_logits: np.ndarray,
  n_best_size: int = N_BEST_SIZE,
  max_answer_length: int = MAX_ANSWER_LENGTH,
) -> dict[str, answers.QuestionAnswers]:
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
  tokens = candidate_spans.Tokens(windows, contexts)
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
  return tokens.n_best(found, n_best_size, [None] * len(tokens.questions))


def decode_v2(
  windows: Sequence[candidate_spans.Window],
  contexts: Mapping[str, str],
  start_top_log_probs: np.ndarray,
  start_top_index: np.ndarray,
  end_top_log_probs: np.ndarray,
  end_top_index: np.ndarray,
  cls_logits: np.ndarray,
  n_best_size: int = N_BEST_SIZE,
  max_answer_length: int = MAX_ANSWER_LENGTH,
) -> dict[str, answers.QuestionAnswers]:
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
  tokens = candidate_spans.Tokens(windows, contexts)
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
  return tokens.n_best(found, n_best_size, null_odds.tolist())


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
