"""The official metrics of SQuAD 1.1 and SQuAD 2.0, in percent.

They equal those of evaluate-v1.1.py and evaluate-v2.0.py, including the
differences between the two. Answers are compared in lower case, without ASCII
punctuation and the articles a, an, the; the best of a question's gold answers
counts.

Gold answers map question ids to the texts of the answers; the list is empty for
a question of SQuAD 2.0 without an answer.
"""

from __future__ import annotations

import collections
import re
import string
from typing import Any, Iterable, Mapping, Optional, Sequence

import numpy as np

from tasks.squad import answers as answers_lib

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Gold = Mapping[str, Sequence[str]]


def gold_answers(examples: Iterable[Any]) -> dict[str, list[str]]:
  """Returns the gold answers of `SquadExample`s."""
  return {e.question_id: [text for text, _ in e.answers] for e in examples}


def normalize_answer(text: str) -> str:
  """Returns the words that are compared, separated by spaces."""
  text = text.lower().translate(_NO_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def evaluate_v1(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
  """Scores answers like evaluate-v1.1.py.

  Args:
    gold: at least one text for each question.
    predictions: answers by question; those to other questions are ignored.

  Returns:
    `exact_match` and `f1`, in percent of all questions. A question without a
    prediction scores 0; `missing` is their number if there are any.

  Raises:
    ValueError: there is no question, or one has no gold answer.
  """
  _check_not_empty(gold)
  exact = f1 = 0.0
  missing = 0
  for question_id, texts in gold.items():
    if not texts:
      raise ValueError(
        f"question {question_id} has no gold answer, as in SQuAD 2.0: evaluate "
        "it as squad_v2."
      )
    if question_id not in predictions:
      missing += 1
      continue
    answer = normalize_answer(predictions[question_id])
    golds = [normalize_answer(text) for text in texts]
    exact += answer in golds
    f1 += max(_f1(answer.split(), gold.split()) for gold in golds)
  values = {
    "exact_match": 100.0 * exact / len(gold),
    "f1": 100.0 * f1 / len(gold),
  }
  return {**values, "missing": missing} if missing else values


def evaluate_v2(
  gold: Gold,
  predictions: Mapping[str, str],
  null_odds: Optional[Mapping[str, float]] = None,
  null_score_diff_threshold: Optional[float] = None,
) -> dict[str, float]:
  """Scores answers like evaluate-v2.0.py.

  Deviation: the default threshold of the script is 1.0, for probabilities.
  evaluate_v2 of google-research/albert compares logits with it, so that
  questions with odds over 1 count as unanswered. Here the default is none.

  Deviation: a threshold keeps answers with odds <= threshold, as in the script.
  The original searches for the best threshold by that rule and then applies <,
  which drops the answer that made the threshold the best.

  Args:
    gold: the texts of each question's answers; empty if it has none.
    predictions: answers by question, "" for none; those to other questions are
      ignored. The best thresholds assume answers without any threshold applied.
    null_odds: high where a question seems to have no answer.
    null_score_diff_threshold: predictions with higher odds count as "".

  Returns:
    The script's values, in percent: `exact`, `f1` and `total` (a number of
    questions), also with `HasAns_` and `NoAns_` if there are such questions.
    With null odds `best_exact` and `best_f1`, the best for any threshold, and
    `best_exact_thresh` and `best_f1_thresh`, the first such threshold in the
    order of the odds. As in the script, equal odds are passed one by one in the
    order of `null_odds`, and 0 represents a threshold below all odds; see
    `best_null_threshold`.

  Raises:
    ValueError: there is no question, or one has no prediction or null odds.
  """
  exact, f1 = _raw_scores(gold, predictions)
  final = [exact, f1]
  if null_odds is not None:
    _check_odds(gold, null_odds)
    if null_score_diff_threshold is not None:
      final = [
        {
          question_id: float(not gold[question_id])
          if null_odds[question_id] > null_score_diff_threshold
          else score
          for question_id, score in scores.items()
        }
        for scores in final
      ]
  values = _means(*final, list(gold))
  for name, has_answer in (("HasAns", True), ("NoAns", False)):
    ids = [q for q, texts in gold.items() if bool(texts) == has_answer]
    if ids:
      part = _means(*final, ids)
      values.update({f"{name}_{key}": value for key, value in part.items()})
  if null_odds is not None:
    for name, scores in (("exact", exact), ("f1", f1)):
      best, threshold = _official_best(gold, predictions, scores, null_odds)
      values[f"best_{name}"] = best
      values[f"best_{name}_thresh"] = threshold
  return values


def best_null_threshold(
  gold: Gold,
  predictions: Mapping[str, str],
  null_odds: Mapping[str, float],
  metric: str = "f1",
) -> float:
  """Returns the threshold with which `evaluate_v2` gives the highest score.

  It equals `best_f1_thresh` except where applying the latter would not give
  `best_f1`: here equal odds are kept or dropped together, a threshold that
  drops every answer is below negative odds too, and an answer of articles and
  punctuation only is correct where there is none.

  Args:
    gold: see `evaluate_v2`.
    predictions: see `evaluate_v2`.
    null_odds: see `evaluate_v2`.
    metric: `exact` or `f1`.

  Returns:
    The lowest such threshold: one of the odds, or at most 0 to drop every
    answer.

  Raises:
    ValueError: see `evaluate_v2`.
  """
  scores = _raw_scores(gold, predictions)[metric == "f1"]
  _check_odds(gold, null_odds)
  ids = sorted(gold, key=null_odds.__getitem__)
  odds = np.array([null_odds[q] for q in ids], np.float64)
  gains = np.cumsum([scores[q] - (not gold[q]) for q in ids])
  # Only the last of equal odds is a threshold.
  gains[:-1][odds[:-1] == odds[1:]] = -np.inf
  best = int(np.argmax(gains))
  if gains[best] <= 0:
    return float(min(0.0, np.nextafter(odds[0], -np.inf)))
  return float(odds[best])


def score_answers(
  gold: Gold,
  answers: answers_lib.Answers,
  has_impossible: bool,
  null_score_diff_threshold: Optional[float] = None,
) -> dict[str, float]:
  """Returns the official metrics of predicted answers.

  Args:
    gold: the texts of each question's answers.
    answers: the prediction for each question.
    has_impossible: whether the data is SQuAD 2.0.
    null_score_diff_threshold: higher null odds mean no answer; None takes the
      best for these questions. SQuAD 2.0 only.

  Returns:
    For SQuAD 2.0 also `null_score_diff_threshold`, the one that was applied.

  Raises:
    ValueError: a question of SQuAD 2.0 has no answer, or no null odds.
  """
  texts = answers_lib.final_texts(answers)
  if not has_impossible:
    return evaluate_v1(gold, texts)
  odds = {
    question: answer.null_odds
    for question, answer in answers.items()
    if answer.null_odds is not None
  }
  threshold = null_score_diff_threshold
  if threshold is None:
    threshold = best_null_threshold(gold, texts, odds)
  values = evaluate_v2(gold, texts, odds, threshold)
  return {**values, "null_score_diff_threshold": threshold}


def _check_not_empty(gold: Gold) -> None:
  if not gold:
    raise ValueError("there is no question to evaluate.")


def _named(ids: Sequence[str]) -> str:
  return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def _check_odds(gold: Gold, null_odds: Mapping[str, float]) -> None:
  missing = [q for q in gold if q not in null_odds]
  if missing:
    raise ValueError(
      f"{len(missing)} of {len(gold)} questions have no null odds "
      f"({_named(missing)}): give those of the same predictions."
    )


def _raw_scores(
  gold: Gold, predictions: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
  """Returns exact match and F1 by question, without a threshold, as fractions.

  Raises:
    ValueError: there is no question, or one has no prediction.
  """
  _check_not_empty(gold)
  missing = [question for question in gold if question not in predictions]
  if missing:
    raise ValueError(
      f"{len(missing)} of {len(gold)} questions have no prediction "
      f'({_named(missing)}): answer them, with "" for no answer.'
    )
  exact, f1 = {}, {}
  for question_id, texts in gold.items():
    golds = [text for text in map(normalize_answer, texts) if text] or [""]
    answer = normalize_answer(predictions[question_id])
    exact[question_id] = float(answer in golds)
    # Unlike in 1.1, an empty answer is correct where the gold one is empty.
    f1[question_id] = max(
      _f1(answer.split(), text.split()) if text else float(not answer)
      for text in golds
    )
  return exact, f1


def _f1(answer: Sequence[str], gold: Sequence[str]) -> float:
  """Returns the F1 of two multisets of words."""
  common = collections.Counter(answer) & collections.Counter(gold)
  same = sum(common.values())
  if not same:
    return 0.0
  precision, recall = same / len(answer), same / len(gold)
  return 2 * precision * recall / (precision + recall)


def _means(
  exact: Mapping[str, float], f1: Mapping[str, float], ids: Sequence[str]
) -> dict[str, float]:
  return {
    "exact": 100.0 * sum(exact[q] for q in ids) / len(ids),
    "f1": 100.0 * sum(f1[q] for q in ids) / len(ids),
    "total": len(ids),
  }


def _official_best(
  gold: Gold,
  predictions: Mapping[str, str],
  scores: Mapping[str, float],
  null_odds: Mapping[str, float],
) -> tuple[float, float]:
  """Returns the best score of any threshold, in percent, and the threshold."""
  ids = sorted((q for q in null_odds if q in gold), key=null_odds.__getitem__)
  # Starts without any answers, and adds one question after the other.
  totals = [float(sum(not texts for texts in gold.values()))]
  for q in ids:
    totals.append(scores[q] if gold[q] else -1.0 if predictions[q] else 0.0)
  totals = np.cumsum(totals)
  best = int(np.argmax(totals))
  threshold = float(null_odds[ids[best - 1]]) if best else 0.0
  return float(100.0 * totals[best] / len(gold)), threshold
