"""What a model says to a question: its n best answers, and if there is one."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional

# Start and end of a question without any candidate.
NO_CANDIDATE_SCORE = -1e6


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
