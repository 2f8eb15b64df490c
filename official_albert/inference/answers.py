"""What a loaded model answers: pieces, answers, spans and choices."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class Piece:
  """A piece that may stand for a [MASK].

  Attributes:
    token: the piece, without the mark of a word's start.
    probability: its probability.
    id: its id in the vocabulary.
  """

  token: str
  probability: float
  id: int


@dataclasses.dataclass(frozen=True)
class Answer:
  """The answer to a question.

  Attributes:
    text: the answer, a part of the context; "" if the model of SQuAD 2.0 finds
      none.
    probability: its probability.
    start, end: its first character in the context, and the one after its last.
    null_score_diff: the odds that there is no answer; None for SQuAD 1.1.
    n_best: the best answers as dicts with text, probability, start and end.
  """

  text: str
  probability: float
  start: int
  end: int
  null_score_diff: Optional[float] = None
  n_best: list[dict[str, Any]] = dataclasses.field(
    default_factory=list, repr=False
  )


@dataclasses.dataclass(frozen=True)
class TaggedSpan:
  """An entity in a text, or a word with its tag.

  Attributes:
    text: the part of the text.
    start, end: its first character in the text, and the one after its last.
    label: the name of the entity without B- and I-, or the tag of the word.
    probability: the mean of those of its words.
  """

  text: str
  start: int
  end: int
  label: str
  probability: float


@dataclasses.dataclass(frozen=True)
class Choice:
  """The option that answers a question.

  Attributes:
    option: the text of the option.
    index: its number, from 0.
    probabilities: the probability of each option.
  """

  option: str
  index: int
  probabilities: list[float]
