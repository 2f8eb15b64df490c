"""Predicted answers to questions: their files, and ensembles of models.

predictions.json, nbest_predictions.json and null_odds.json have the format of
google-research/albert, which SQuAD's official programs read. They map question
ids to the answer, to a list of candidates with the best first, and to the null
odds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from official_albert import files

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
N_BEST_SIZE = 20
# The start and end score of a question without candidates.
NO_CANDIDATE_SCORE = -1e6

# The names of a candidate's scores in SQuAD 1.1 and 2.0.
_LOGITS = ("start_logit", "end_logit")
_LOG_PROBS = ("start_log_prob", "end_log_prob")
# Probabilities of float32 programs may exceed 1 by rounding.
_MAX_PROBABILITY = 1 + 1e-5


class Candidate(NamedTuple):
  """A possible answer to a question.

  Attributes:
    text: a span of the context; "" if there is no candidate.
    probability: among the candidates of the question.
    start_score: log-probability (2.0) or logit (1.1) of the first token; None
      in an ensemble.
    end_score: the same of the last token.
    start_char: where `text` begins in the context; None if unknown.
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
    """The sum of both scores, by which candidates are sorted."""
    if self.start_score is None or self.end_score is None:
      return None
    return self.start_score + self.end_score


class QuestionAnswers(NamedTuple):
  """The prediction for one question.

  Attributes:
    n_best: at least one candidate, the best first, with different texts.
    null_odds: high if the question seems to have no answer; None in SQuAD 1.1.
  """

  n_best: list[Candidate]
  null_odds: Optional[float] = None

  def text(self, null_score_diff_threshold: Optional[float] = None) -> str:
    """Returns the answer; "" if there is none.

    Deviation: odds equal to the threshold keep the answer, while the original
    requires lower ones. SQuAD's official search for the best threshold returns
    the odds of the last answer to keep.

    Args:
      null_score_diff_threshold: higher null odds mean no answer; None always
        answers.

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


# By question id.
Answers = Mapping[str, QuestionAnswers]


def final_texts(
  answers: Answers, null_score_diff_threshold: Optional[float] = None
) -> dict[str, str]:
  """Returns `QuestionAnswers.text` of each question."""
  return {
    question_id: answer.text(null_score_diff_threshold)
    for question_id, answer in answers.items()
  }


def write_predictions(
  output_dir: str,
  answers: Answers,
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes the files of all questions.

  Without null odds (SQuAD 1.1), null_odds.json is not written, and an old one
  is removed.

  Args:
    output_dir: created if missing.
    answers: by question id.
    null_score_diff_threshold: higher null odds mean no answer in
      predictions.json; None always answers. The candidates do not depend on it.

  Returns:
    The paths.

  Raises:
    ValueError: there is a threshold without null odds, only some questions have
      null odds, or scores are not finite.
    OSError: the folder cannot be created or written.
  """
  odds = {
    question_id: answer.null_odds
    for question_id, answer in answers.items()
    if answer.null_odds is not None
  }
  if odds and len(odds) < len(answers):
    raise ValueError(
      f"{len(odds)} of {len(answers)} questions have null odds: either all or "
      "none must have them."
    )
  names = _LOG_PROBS if odds else _LOGITS
  values = {
    PREDICTIONS_FILE: final_texts(answers, null_score_diff_threshold),
    NBEST_FILE: {
      question_id: [_to_json(candidate, names) for candidate in answer.n_best]
      for question_id, answer in answers.items()
    },
  }
  if odds:
    values[NULL_ODDS_FILE] = odds
  texts = {
    os.path.join(output_dir, name): json.dumps(value, indent=4, allow_nan=False)
    for name, value in values.items()
  }
  os.makedirs(output_dir, exist_ok=True)
  with contextlib.ExitStack() as stack:  # Writes all, then renames all.
    for path, text in texts.items():
      temporary = stack.enter_context(files.replacing(path))
      with open(temporary, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    if not odds:
      with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(output_dir, NULL_ODDS_FILE))
  return list(texts)


def read_null_odds(path: str) -> dict[str, float]:
  """Reads null_odds.json.

  Raises:
    ValueError: the file is not null_odds.json.
    OSError: it cannot be read.
  """
  values = _read(path)
  for question_id, odds in values.items():
    if not _is_number(odds):
      raise ValueError(
        f"{path}: question {question_id}: null odds must be a finite number, "
        f"not {_shown(odds)}: is it {NULL_ODDS_FILE}?"
      )
  return values


def read_nbest(path: str) -> dict[str, list[Candidate]]:
  """Reads nbest_predictions.json, which has no positions of the candidates.

  Raises:
    ValueError: the file is not nbest_predictions.json.
    OSError: it cannot be read.
  """
  result = {}
  for question_id, entries in _read(path).items():
    where = f"{path}: question {question_id}"
    if not isinstance(entries, list) or not entries:
      raise ValueError(
        f"{where}: the candidates must be a list of at least one, not "
        f"{_shown(entries)}: is it {NBEST_FILE}?"
      )
    result[question_id] = [_from_json(entry, where) for entry in entries]
  return result


def read_answers(folder: str) -> dict[str, QuestionAnswers]:
  """Reads what `write_predictions` wrote, without positions of the candidates.

  Args:
    folder: with nbest_predictions.json and, for SQuAD 2.0, null_odds.json.

  Raises:
    ValueError: a file is invalid, or the two have different questions.
    OSError: nbest_predictions.json is missing, or a file cannot be read.
  """
  n_best = read_nbest(os.path.join(folder, NBEST_FILE))
  path = os.path.join(folder, NULL_ODDS_FILE)
  odds: dict[str, Optional[float]] = dict.fromkeys(n_best)
  if os.path.exists(path):
    odds = {**read_null_odds(path)}
    different = odds.keys() ^ n_best.keys()
    if different:
      raise ValueError(
        f"{path} and {NBEST_FILE} beside it have different questions, for "
        f"example {min(different)}: they are of different runs; predict again."
      )
  return {
    question_id: QuestionAnswers(candidates, odds[question_id])
    for question_id, candidates in n_best.items()
  }


def _to_json(candidate: Candidate, names: tuple[str, str]) -> dict[str, Any]:
  entry = {"text": candidate.text, "probability": candidate.probability}
  scores = (candidate.start_score, candidate.end_score)
  if None not in scores:
    entry.update(zip(names, scores))
  return entry


def _from_json(entry: Any, where: str) -> Candidate:
  if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
    raise ValueError(f"{where}: a candidate must be an object with a text.")
  probability = entry.get("probability")
  if not _is_number(probability) or not 0 <= probability <= _MAX_PROBABILITY:
    raise ValueError(
      f"{where}: the probability of a candidate must be a number from 0 to 1, "
      f"not {_shown(probability)}."
    )
  scores: list[Optional[float]] = [None, None]
  for names in (_LOGITS, _LOG_PROBS):
    if all(_is_number(entry.get(name)) for name in names):
      scores = [entry[name] for name in names]
  return Candidate(entry["text"], probability, *scores)


def _is_number(value: Any) -> bool:
  return isinstance(value, float) and math.isfinite(value)


def _shown(value: Any) -> str:
  text = json.dumps(value)
  return text if len(text) < 30 else f"{text[:26]}..."


def _read(path: str) -> dict[str, Any]:
  """Reads a JSON object whose keys, the question ids, are unique."""

  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = {}
    for key, entry in pairs:
      if key in value:
        raise ValueError(f"{path}: {key!r} occurs twice.")
      value[key] = entry
    return value

  try:
    with open(path, encoding="utf-8") as file:
      # Integers become floats, which all numbers here are.
      value = json.load(file, object_pairs_hook=unique, parse_int=float)
  except UnicodeDecodeError:
    raise ValueError(f"{path} is not UTF-8 text.") from None
  except json.JSONDecodeError as error:
    raise ValueError(
      f"{path}, line {error.lineno}: not JSON ({error.msg}): predict again."
    ) from None
  if not isinstance(value, dict) or not value:
    raise ValueError(
      f"{path} must be a JSON object with an entry for each question, not "
      f"{_shown(value)}."
    )
  return value


def average_answers(
  members: Sequence[Answers], n_best_size: int = N_BEST_SIZE
) -> dict[str, QuestionAnswers]:
  """Returns the means over models of the probabilities and the null odds.

  arXiv 1909.11942 averages like this for SQuAD. Candidates are identified by
  their text. A member without a candidate among its n best counts with
  probability 0: a span with 0.9 from one of three models gets 0.3, less than
  one with 0.6 from each. (The paper may also be read as a mean over the members
  that have the span; then the first would win.)

  A member without any candidate still counts as a member, so that the
  probabilities of a question may sum to less than 1. The order of the members
  does not matter.

  Args:
    members: the answers of each model to the same questions.
    n_best_size: maximum candidates of a question.

  Returns:
    The answers by question, in the order of the first member, without scores
    and positions.

  Raises:
    ValueError: there is no member, they have different questions, or only some
      of them have null odds.
  """
  if not members:
    raise ValueError("an ensemble needs the predictions of at least one model.")
  for number, member in enumerate(members[1:], 2):
    different = member.keys() ^ members[0].keys()
    if different:
      raise ValueError(
        f"members 1 and {number} of the ensemble answer different questions, "
        f"for example {min(different)}: predict the same file with all of them."
      )
  return {
    question_id: _average(
      [member[question_id] for member in members], question_id, n_best_size
    )
    for question_id in members[0]
  }


def _average(
  found: Sequence[QuestionAnswers], question_id: str, n_best_size: int
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
    seen = set()
    for rank, candidate in enumerate(answer.n_best):
      text = candidate.text
      # If a file of another program has a text twice, the first one counts.
      if text and text not in seen:
        seen.add(text)
        probabilities.setdefault(text, []).append(candidate.probability)
        ranks[text] = min(rank, ranks.get(text, rank))
  # fsum rounds once, so that the order of the members does not matter.
  means = {t: math.fsum(p) / len(found) for t, p in probabilities.items()}
  best = sorted(means, key=lambda text: (-means[text], ranks[text], text))
  return QuestionAnswers(
    [Candidate(text, means[text]) for text in best[:n_best_size]]
    or [Candidate("", 1.0)],
    math.fsum(odds) / len(odds) if odds else None,
  )
