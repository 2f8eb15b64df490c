"""predictions.json, nbest_predictions.json and null_odds.json.

Their form is that of google-research/albert, which the official programs of
SQuAD read: all map question ids, to the answer, to a list of candidates with
the best first, and to the null odds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, Mapping, Optional

from official_albert import files
from tasks.squad import answers as answers_lib

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"

# What the scores of a candidate are called, in SQuAD 1.1 and 2.0.
_LOGITS = ("start_logit", "end_logit")
_LOG_PROBS = ("start_log_prob", "end_log_prob")
# Probabilities of float32 programs may pass 1 by their rounding.
_MAX_PROBABILITY = 1 + 1e-5


def write_predictions(
  output_dir: str,
  answers: Mapping[str, answers_lib.QuestionAnswers],
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes the files of all questions; each is whole or not there.

  Without null odds (SQuAD 1.1) null_odds.json is not written, and one of an
  earlier run is removed, as it does not belong to these answers.

  Args:
    output_dir: the folder; made if missing.
    answers: by question id.
    null_score_diff_threshold: null odds over it mean no answer in
      predictions.json; None answers always. The candidates stay as they are.

  Returns:
    The paths that were written.

  Raises:
    ValueError: a threshold without null odds, null odds for some questions
      only, or scores that are not finite.
    OSError: the folder cannot be made or written.
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
    PREDICTIONS_FILE: answers_lib.final_texts(
      answers, null_score_diff_threshold
    ),
    NBEST_FILE: {
      question_id: [_entry(candidate, names) for candidate in answer.n_best]
      for question_id, answer in answers.items()
    },
  }
  if odds:
    values[NULL_ODDS_FILE] = odds
  texts = {
    name: json.dumps(value, indent=4, allow_nan=False) + "\n"
    for name, value in values.items()
  }
  os.makedirs(output_dir, exist_ok=True)
  paths = {name: os.path.join(output_dir, name) for name in texts}
  with contextlib.ExitStack() as stack:  # All are written, then all renamed.
    for name, text in texts.items():
      temporary = stack.enter_context(files.replacing(paths[name]))
      with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    stale = os.path.join(output_dir, NULL_ODDS_FILE)
    if not odds and os.path.exists(stale):
      os.remove(stale)
  return list(paths.values())


def read_predictions(path: str) -> dict[str, str]:
  """The answer to each question.

  Raises:
    ValueError: the file is not predictions.json.
    OSError: it cannot be read.
  """
  values = _read(path)
  for question_id, text in values.items():
    if not isinstance(text, str):
      raise ValueError(
        f"{path}: question {question_id}: the answer must be a text, not "
        f"{_kind(text)}: is it {PREDICTIONS_FILE}?"
      )
  return values


def read_null_odds(path: str) -> dict[str, float]:
  """The null odds of each question.

  Raises:
    ValueError: the file is not null_odds.json.
    OSError: it cannot be read.
  """
  values = _read(path)
  for question_id, odds in values.items():
    if not _is_number(odds):
      raise ValueError(
        f"{path}: question {question_id}: null odds must be a finite number, "
        f"not {_kind(odds)}: is it {NULL_ODDS_FILE}?"
      )
  return values


def read_nbest(path: str) -> dict[str, list[answers_lib.Candidate]]:
  """The candidates of each question; where they stand is not in the file.

  Raises:
    ValueError: the file is not nbest_predictions.json.
    OSError: it cannot be read.
  """
  values = _read(path)
  result = {}
  for question_id, entries in values.items():
    where = f"{path}: question {question_id}"
    if not isinstance(entries, list) or not entries:
      raise ValueError(
        f"{where}: the candidates must be a list of at least one, not "
        f"{_kind(entries)}: is it {NBEST_FILE}?"
      )
    result[question_id] = [_candidate(entry, where) for entry in entries]
  return result


def read_answers(folder: str) -> dict[str, answers_lib.QuestionAnswers]:
  """What `write` wrote, without the place of the candidates.

  Args:
    folder: with nbest_predictions.json and, for SQuAD 2.0, null_odds.json.

  Raises:
    ValueError: a file is not what its name says, or the two are of other
      questions.
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
        f"{path} and {NBEST_FILE} beside it have different questions, "
        f"{min(different)} for one: they are of different runs; predict again."
      )
  return {
    question_id: answers_lib.QuestionAnswers(candidates, odds[question_id])
    for question_id, candidates in n_best.items()
  }


def _entry(
  candidate: answers_lib.Candidate, names: tuple[str, str]
) -> dict[str, Any]:
  entry = {"text": candidate.text, "probability": candidate.probability}
  scores = (candidate.start_score, candidate.end_score)
  # An ensemble's have none.
  if None not in scores:
    entry.update(zip(names, scores))
  return entry


def _candidate(entry: Any, where: str) -> answers_lib.Candidate:
  if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
    raise ValueError(f"{where}: a candidate must be an object with a text.")
  probability = entry.get("probability")
  if not _is_number(probability) or not 0 <= probability <= _MAX_PROBABILITY:
    raise ValueError(
      f"{where}: the probability of a candidate must be a number from 0 to 1, "
      f"not {_kind(probability)}."
    )
  scores: list[Optional[float]] = [None, None]
  for names in (_LOGITS, _LOG_PROBS):
    if all(_is_number(entry.get(name)) for name in names):
      scores = [entry[name] for name in names]
  return answers_lib.Candidate(entry["text"], probability, *scores)


def _is_number(value: Any) -> bool:
  return isinstance(value, float) and math.isfinite(value)


def _kind(value: Any) -> str:
  """What a value is, short enough for a message."""
  text = json.dumps(value)
  return text if len(text) < 30 else f"{text[:26]}..."


def _read(path: str) -> dict[str, Any]:
  """An object of JSON with questions' ids for keys, none of them twice."""

  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
      keys = [key for key, _ in pairs]
      twice = next(key for key in keys if keys.count(key) > 1)
      raise _TwiceError(f"{path}: {twice!r} stands there twice.")
    return value

  try:
    with open(path, encoding="utf-8") as file:
      # Whole numbers of any length are floats, too.
      value = json.load(file, object_pairs_hook=unique, parse_int=float)
  except _TwiceError:
    raise
  except UnicodeDecodeError:
    raise ValueError(f"{path} is not UTF-8 text.") from None
  except json.JSONDecodeError as error:
    raise ValueError(
      f"{path}, line {error.lineno}: not JSON ({error.msg}): write it again "
      "with the predictions."
    ) from None
  if not isinstance(value, dict) or not value:
    raise ValueError(
      f"{path} must be a JSON object with an entry for each question, not "
      f"{_kind(value)}."
    )
  return value


class _TwiceError(ValueError):
  """A key that stands twice in an object."""
