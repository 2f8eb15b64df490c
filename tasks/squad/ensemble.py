"""Several models' answers to the same questions as one.

For SQuAD the ensembles of the paper (arXiv 1909.11942, its section on the
current state of the art) average the scores of the spans that several models
found, and those of the decision that there is no answer.
"""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple, Sequence

from tasks.squad import answers, decoding, prediction_files

Answers = Mapping[str, answers.QuestionAnswers]


def average_answers(
  members: Sequence[Answers], n_best_size: int = decoding.N_BEST_SIZE
) -> dict[str, answers.QuestionAnswers]:
  """The mean of the candidates' probabilities and of the null odds.

  A candidate is known by its text, as in the members' files. A member that does
  not have it among its n best gives it probability 0, so that one sure member
  does not outvote many: a span with 0.9 from one of three models has 0.3,
  behind one to which each of them gives 0.6. With the mean of those members
  only that have it, as one may read the paper, the first would win. What the
  others gave it is in no file; behind 20 candidates it is next to nothing.

  A member without a candidate ("" alone) speaks for no span; it still counts as
  a member. Probabilities of the candidates that are kept may thus sum to less
  than 1. The order of the members makes no difference.

  Args:
    members: each model's answers, all to the same questions.
    n_best_size: candidates of a question, at most.

  Returns:
    The answers by question, in the order of the first member. Candidates have
    neither scores nor places.

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
        f"{min(different)} for one: predict the same file with all of them."
      )
  return {
    question_id: _average(
      [m[question_id] for m in members], question_id, n_best_size
    )
    for question_id in members[0]
  }


def average_folders(
  folders: Sequence[str], n_best_size: int = decoding.N_BEST_SIZE
) -> dict[str, answers.QuestionAnswers]:
  """`average` of the files that `prediction_files.write` left in folders.

  Raises:
    ValueError: as `average`, or a file is not what its name says.
    OSError: a file is missing or cannot be read.
  """
  return average_answers(
    [prediction_files.read_answers(folder) for folder in folders], n_best_size
  )


class _Votes(NamedTuple):
  """For one text: each member's probability, and its best rank in any."""

  probabilities: list[float]
  rank: int


def _average(
  found: Sequence[answers.QuestionAnswers], question_id: str, n_best_size: int
) -> answers.QuestionAnswers:
  odds = [answer.null_odds for answer in found]
  given = [value for value in odds if value is not None]
  if given and len(given) < len(odds):
    raise ValueError(
      f"question {question_id} has null odds from {len(given)} of "
      f"{len(odds)} models: models for SQuAD 1.1 and 2.0 cannot be averaged."
    )
  votes: dict[str, _Votes] = {}
  for answer in found:
    seen = set()
    for rank, candidate in enumerate(answer.n_best):
      # Of a text that a foreign file has twice, the better one counts.
      if not candidate.text or candidate.text in seen:
        continue
      seen.add(candidate.text)
      old = votes.get(candidate.text, _Votes([], rank))
      votes[candidate.text] = _Votes(
        [*old.probabilities, candidate.probability], min(rank, old.rank)
      )
  # fsum rounds once, whatever the order of the members.
  candidates = [
    (-math.fsum(vote.probabilities) / len(found), vote.rank, text)
    for text, vote in votes.items()
  ]
  n_best = [
    answers.Candidate(text, -negative)
    for negative, _, text in sorted(candidates)[:n_best_size]
  ]
  null_odds = math.fsum(given) / len(given) if given else None
  return answers.QuestionAnswers(
    n_best or [answers.Candidate("", 1.0)], null_odds
  )
