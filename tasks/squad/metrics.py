"""The official scores of SQuAD 1.1 and SQuAD 2.0, in percent.

They are those of the data sets' own programs, evaluate-v1.1.py and
evaluate-v2.0.py, also where the two differ. An answer is compared after
lower-casing, without ASCII punctuation and the articles a, an, the, and the
best of a question's gold answers counts.

Gold answers come as a dict from question id to the texts of its answers; a
question of SQuAD 2.0 that has no answer has an empty list there.
"""

from __future__ import annotations

import collections
import re
import string
from typing import Any, Iterable, Mapping, Optional, Sequence

import numpy as np

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Gold = Mapping[str, Sequence[str]]


def gold_answers(examples: Iterable[Any]) -> dict[str, list[str]]:
  """What the evaluations take, from objects like `SquadExample`.

  Args:
    examples: each with `question_id` and `answers`, pairs of text and start.
  """
  return {e.question_id: [text for text, _ in e.answers] for e in examples}


def normalize_answer(text: str) -> str:
  """The words of `text` that count, with one space between them."""
  text = text.lower().translate(_NO_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def missing_predictions(
  gold: Gold, predictions: Mapping[str, str]
) -> list[str]:
  """The ids of the questions that have no prediction, in the gold's order."""
  return [question_id for question_id in gold if question_id not in predictions]


def evaluate_v1(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
  """Scores answers as evaluate-v1.1.py does.

  Args:
    gold: the texts of each question's answers, at least one.
    predictions: the answer to each question; those to others are ignored.

  Returns:
    `exact_match` and `f1`, in percent of all questions. A question without a
    prediction scores 0; if there are such, `missing` says how many.

  Raises:
    ValueError: there is no question, or one without a gold answer.
  """
  _check_not_empty(gold)
  exact = f1 = 0.0
  for question_id, texts in gold.items():
    if not texts:
      raise ValueError(
        f"question {question_id} has no gold answer, as in SQuAD 2.0: evaluate "
        "it as squad_v2."
      )
    if question_id in predictions:
      answer = normalize_answer(predictions[question_id])
      golds = [normalize_answer(text) for text in texts]
      exact += answer in golds
      f1 += max(_f1(answer.split(), gold.split()) for gold in golds)
  values = {
    "exact_match": 100.0 * exact / len(gold),
    "f1": 100.0 * f1 / len(gold),
  }
  missing = len(missing_predictions(gold, predictions))
  return {**values, "missing": missing} if missing else values


def evaluate_v2(
  gold: Gold,
  predictions: Mapping[str, str],
  null_odds: Optional[Mapping[str, float]] = None,
  null_score_diff_threshold: Optional[float] = None,
) -> dict[str, float]:
  """Scores answers as evaluate-v2.0.py does.

  Deviation: the script's threshold is 1.0 unless told otherwise, as it expects
  probabilities. evaluate_v2 of google-research/albert compares the logits of
  its null odds with that 1.0, so that answered questions with odds over 1 are
  judged as unanswered. Here no threshold means none.

  Deviation: a threshold keeps the answers with odds <= threshold, as the script
  does. The original looks for the best threshold by that rule and then applies
  <, which takes back the answer that made the threshold the best.

  Args:
    gold: the texts of each question's answers; none: it has no answer.
    predictions: the answer to each question, "" for none; those to others are
      ignored. For the best thresholds they have to be the best answers before
      any decision that there is none.
    null_odds: high where a question seems to have no answer.
    null_score_diff_threshold: predictions whose odds are over it count as "".

  Returns:
    In percent, with the script's names: `exact`, `f1`, `total` (a number of
    questions), the same with `HasAns_` and `NoAns_` where there are such
    questions, and with null odds `best_exact`, `best_exact_thresh`, `best_f1`
    and `best_f1_thresh`: the best that any threshold gives, and the first that
    gives it in the order of the odds. Equal odds are passed one by one, in the
    order of `null_odds`, and 0 stands for a threshold below all odds: the
    script's habits, which `best_null_threshold` does not have.

  Raises:
    ValueError: there is no question; a question has no prediction or no odds,
      where the script stops too; odds that are not finite; a threshold without
      odds.
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
  elif null_score_diff_threshold is not None:
    raise ValueError(
      "null_score_diff_threshold needs null odds to compare it with: give "
      "null_odds.json too, or no threshold."
    )
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
  """The threshold with which `evaluate_v2` gives the highest score.

  It is `best_f1_thresh` but for three cases, where applying that one would not
  give the score that stands beside it: equal odds are kept or not together; a
  threshold that keeps no answer is below all odds, also negative ones; and an
  answer of nothing but articles and punctuation is right where there is none.

  Args:
    gold: as in `evaluate_v2`.
    predictions: as in `evaluate_v2`.
    null_odds: as in `evaluate_v2`.
    metric: `exact` or `f1`.

  Returns:
    The lowest such threshold; one of the odds, or at most 0 if it is best to
    answer nothing.

  Raises:
    ValueError: as in `evaluate_v2`, or the metric is neither.
  """
  if metric not in ("exact", "f1"):
    raise ValueError(f"metric is {metric!r}: it must be exact or f1.")
  scores = _raw_scores(gold, predictions)[metric == "f1"]
  _check_odds(gold, null_odds)
  ids = sorted(gold, key=null_odds.__getitem__)
  odds = np.array([null_odds[q] for q in ids], np.float64)
  gains = np.cumsum([scores[q] - (not gold[q]) for q in ids])
  # Only the last of some equal odds is a threshold.
  gains[:-1][odds[:-1] == odds[1:]] = -np.inf
  best = int(np.argmax(gains))
  if gains[best] <= 0:
    return float(min(0.0, np.nextafter(odds[0], -np.inf)))
  return float(odds[best])


def _check_not_empty(gold: Gold) -> None:
  if not gold:
    raise ValueError("there is no question to evaluate.")


def _named(ids: Sequence[str]) -> str:
  """A few of the ids, for a message."""
  return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def _check_odds(gold: Gold, null_odds: Mapping[str, float]) -> None:
  missing = [q for q in gold if q not in null_odds]
  if missing:
    raise ValueError(
      f"{len(missing)} of {len(gold)} questions have no null odds "
      f"({_named(missing)}): give those of the same predictions."
    )
  wrong = [q for q in gold if not np.isfinite(null_odds[q])]
  if wrong:
    raise ValueError(
      f"the null odds of {_named(wrong)} are infinite or no number: no "
      "threshold separates them."
    )


def _raw_scores(
  gold: Gold, predictions: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
  """Exact match and F1 by question, before any threshold, as fractions."""
  _check_not_empty(gold)
  missing = missing_predictions(gold, predictions)
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
    # Unlike in 1.1, nothing is right where the answer is nothing.
    f1[question_id] = max(
      _f1(answer.split(), text.split()) if text else float(not answer)
      for text in golds
    )
  return exact, f1


def _f1(answer: Sequence[str], gold: Sequence[str]) -> float:
  """Of two lists of words, each word as often as it stands there."""
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
  """The best score of any threshold, in percent, and that threshold."""
  ids = sorted((q for q in null_odds if q in gold), key=null_odds.__getitem__)
  # Answering nothing is right for all that have no answer; then one question
  # after the other is answered.
  totals = [float(sum(not texts for texts in gold.values()))]
  for q in ids:
    totals.append(scores[q] if gold[q] else -1.0 if predictions[q] else 0.0)
  totals = np.cumsum(totals)
  best = int(np.argmax(totals))
  threshold = float(null_odds[ids[best - 1]]) if best else 0.0
  return float(100.0 * totals[best] / len(gold)), threshold
