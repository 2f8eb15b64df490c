"""Reads, writes and averages predicted answers to questions.

predictions.json, nbest_predictions.json and null_odds.json have the format of
google-research/albert, which SQuAD's official programs read. They map question
ids to the answer, to a list of candidates with the best first, and to the null
odds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from typing import Annotated, Any, Mapping, NamedTuple, Optional, Sequence

from annotated_types import Interval, MinLen

from official_albert import files
from official_albert.tasks.squad.examples import Recipe

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
_ADVICE = "predict again"


class Candidate(NamedTuple):
  """A possible answer to a question.

  Attributes:
    text: a span of the context; "" if there is no candidate.
    probability: the probability among the candidates of the question.
    start_score: the log-probability (2.0) or logit (1.1) of the first token;
      None in an ensemble, and for answers read from a file.
    end_score: the same for the last token.
  """

  text: str
  probability: float
  start_score: Optional[float] = None
  end_score: Optional[float] = None


class QuestionAnswers(NamedTuple):
  """The prediction for one question.

  Attributes:
    n_best: at least one candidate, the best first, with different texts.
    null_odds: high if the question seems to have no answer; None in SQuAD 1.1.
  """

  n_best: list[Candidate]
  null_odds: Optional[float] = None

  def text(self, null_score_diff_threshold: Optional[float] = None) -> str:
    """Returns the answer; "" if the null odds are above the threshold.

    Deviation: odds equal to the threshold keep the answer, while the original
    requires lower odds. SQuAD's official search for the best threshold returns
    the odds of the last answer to keep.
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


# By question id.
Answers = Mapping[str, QuestionAnswers]


def write_predictions(
  output_dir: str,
  answers: Answers,
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes the files of all questions; returns their paths.

  The threshold applies only to predictions.json. Without null odds (SQuAD 1.1),
  null_odds.json is not written, and an old one is removed. If a score is not
  finite, ValueError is raised before anything is written.
  """
  odds = {
    question_id: answer.null_odds
    for question_id, answer in answers.items()
    if answer.null_odds is not None
  }
  scores = "log_prob" if odds else "logit"
  values = {
    PREDICTIONS_FILE: {
      question_id: answer.text(null_score_diff_threshold)
      for question_id, answer in answers.items()
    },
    NBEST_FILE: {
      question_id: [_to_json(candidate, scores) for candidate in answer.n_best]
      for question_id, answer in answers.items()
    },
  }
  if odds:
    values[NULL_ODDS_FILE] = odds
  texts = {
    os.path.join(output_dir, name): json.dumps(value, indent=4, allow_nan=False)
    for name, value in values.items()
  }
  files.make_folder(output_dir)
  for path, text in texts.items():
    files.write_text(path, text + "\n")
  if not odds:
    with contextlib.suppress(FileNotFoundError):
      files.remove(os.path.join(output_dir, NULL_ODDS_FILE))
  return list(texts)


def _to_json(candidate: Candidate, scores: str) -> dict[str, Any]:
  entry = {"text": candidate.text, "probability": candidate.probability}
  if candidate.start_score is not None:
    entry[f"start_{scores}"] = candidate.start_score
    entry[f"end_{scores}"] = candidate.end_score
  return entry


@dataclasses.dataclass
class _Entry:
  """A candidate in a file; its scores are not read."""

  text: str
  # Probabilities computed in float32 may exceed 1 by rounding.
  probability: Annotated[float, Interval(ge=0, le=1 + 1e-5)]


_NBEST: Any = Annotated[
  dict[str, Annotated[list[_Entry], MinLen(1)]], MinLen(1)
]
_NULL_ODDS: Any = dict[str, Annotated[float, Interval(ge=-1e30, le=1e30)]]


def read_answers(folder: str) -> dict[str, QuestionAnswers]:
  """Reads a folder written by `write_predictions`, without the scores."""
  path, odds_path = (
    os.path.join(folder, name) for name in (NBEST_FILE, NULL_ODDS_FILE)
  )
  n_best = files.read_json(path, _NBEST, _ADVICE)
  odds = dict.fromkeys(n_best)
  if files.exists(odds_path):
    odds = files.read_json(odds_path, _NULL_ODDS, _ADVICE)
  if odds.keys() != n_best.keys():
    raise ValueError(
      f"{path} has other questions than {NULL_ODDS_FILE}: {_ADVICE}."
    )
  return {
    question_id: QuestionAnswers(
      [Candidate(e.text, e.probability) for e in entries], odds[question_id]
    )
    for question_id, entries in n_best.items()
  }


def average_answers(members: Sequence[Answers]) -> dict[str, QuestionAnswers]:
  """Returns the means over models of the probabilities and the null odds.

  arXiv 1909.11942 averages like this for SQuAD. Candidates are identified by
  their text. If a member lacks a candidate, its probability counts as 0: a span
  with 0.9 from one of three models gets 0.3, less than a span with 0.6 from
  each. (The paper may also mean the average over the members that have the
  span; then the first would win.) The order of the members does not matter.
  """
  for number, member in enumerate(members[1:], 2):
    different = member.keys() ^ members[0].keys()
    if different:
      raise ValueError(
        f"members 1 and {number} of the ensemble answer different questions, "
        f"for example {min(different)}: predict the same file with all of them."
      )
  return {
    question_id: _average(
      [member[question_id] for member in members], question_id
    )
    for question_id in members[0]
  }


def _average(
  found: Sequence[QuestionAnswers], question_id: str
) -> QuestionAnswers:
  odds = [a.null_odds for a in found if a.null_odds is not None]
  if odds and len(odds) < len(found):
    raise ValueError(
      f"question {question_id} has null odds from {len(odds)} of {len(found)} "
      "models: models for SQuAD 1.1 and 2.0 cannot be averaged."
    )
  probabilities: dict[str, list[float]] = {}
  ranks: dict[str, int] = {}
  for answer in found:
    seen = {""}
    for rank, (text, probability, *_) in enumerate(answer.n_best):
      # If another program's file has a text twice, the first one counts.
      if text not in seen:
        seen.add(text)
        probabilities.setdefault(text, []).append(probability)
        ranks[text] = min(rank, ranks.get(text, rank))
  # fsum rounds once, so that the order of the members does not matter.
  means = {t: math.fsum(p) / len(found) for t, p in probabilities.items()}
  best = sorted(means, key=lambda text: (-means[text], ranks[text], text))
  return QuestionAnswers(
    [Candidate(text, means[text]) for text in best[: Recipe.n_best_size]]
    or [Candidate("", 1.0)],
    math.fsum(odds) / len(odds) if odds else None,
  )
