"""Reads SQuAD's files, versions 1.1 and 2.0, and files of the same format.

    {"data": [{"title": "...", "paragraphs": [{"context": "...", "qas": [
      {"id": "...", "question": "...", "is_impossible": false,
       "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

`is_impossible` and questions without an answer belong to version 2.0. For
prediction, answers may be missing. Every field is checked, because the model
would silently learn a wrong answer from a wrong offset.

Reference: google-research/albert squad_utils.py (read_squad_examples).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

from official_albert import files
from tasks import common


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """The settings of fine-tuning on one version of SQuAD.

  Source: arXiv 1909.11942, Table 14. Windows and decoding have the defaults of
  run_squad_v1.py and run_squad_v2.py of google-research/albert.

  Attributes:
    doc_stride: the tokens from the start of one window to that of the next.
    max_query_length: the maximum tokens of a question; the rest is cut off.
    n_best_size: the number of candidates of a question.
    max_answer_length: the maximum tokens of an answer.
    start_n_top: the number of starts to try in prediction; SQuAD 2.0 only.
    end_n_top: the number of ends to try for each start; SQuAD 2.0 only.

  Raises (in the constructor):
    ValueError: an attribute is less than 1.
  """

  doc_stride: int = 128
  max_query_length: int = 64
  n_best_size: int = 20
  max_answer_length: int = 30
  start_n_top: int = 5
  end_n_top: int = 5

  def __post_init__(self):
    for name in Recipe.__annotations__:
      if getattr(self, name) < 1:
        raise ValueError(
          f"{name} is {getattr(self, name)}, but must be at least 1."
        )


RECIPES = {
  "squad_v1": Recipe(5e-5, 48, 3649, 365, max_seq_length=384),
  "squad_v2": Recipe(3e-5, 48, 8144, 814, max_seq_length=512),
}
_KINDS = {
  str: "text",
  int: "an integer",
  list: "a list",
  bool: "true or false",
}


@dataclasses.dataclass(frozen=True)
class SquadExample:
  """A question about a paragraph.

  Attributes:
    question_id: the unique id.
    question: the text of the question.
    context: the paragraph.
    answers: pairs (text, start) where `context[start:]` begins with the text.
      Training files have one, held-out files several. Empty if there is no
      answer or it is unknown.
    is_impossible: whether the file marks the question as unanswerable.
  """

  question_id: str
  question: str
  context: str
  answers: tuple[tuple[str, int], ...] = ()
  is_impossible: bool = False


def read_examples(path: str, is_training: bool = False) -> list[SquadExample]:
  """Reads the questions of a `.json` or `.json.gz` file, in file order.

  In training, each question must have exactly one answer or `is_impossible`.

  Raises:
    ValueError: the file is invalid; the message names the question.
  """
  path = os.fspath(path)
  examples: dict[str, SquadExample] = {}
  for place, context, entry in _questions(path):
    example = _read_question(place, context, entry)
    name, count = example.question_id, len(example.answers)
    if name in examples:
      raise ValueError(
        f"{path}: two questions have the id {files.quote(name)}: give each "
        "question its own id; predictions are stored by id."
      )
    if is_training and count != 1 and not example.is_impossible:
      raise ValueError(
        f"{path}: question {files.quote(name)} has {count} answers, but a "
        "training question needs exactly one answer or is_impossible: use a "
        "training file; held-out files have several answers."
      )
    examples[name] = example
  if not examples:
    raise ValueError(f"{path} has no questions: is it the right file?")
  return list(examples.values())


def _questions(path: str) -> Iterator[tuple[str, str, Any]]:
  """Yields the location, the context and the JSON object of each question."""
  text = "".join(line for _, line in common.read_lines(path))
  try:
    content = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise ValueError(
      f"{path} is not JSON ({error}): is it a SQuAD file, and is its download "
      "complete?"
    ) from error
  for a, article in enumerate(_field(path, content, "data", list)):
    place = f"{path}, article {a}"
    if isinstance(article, dict) and "title" in article:
      place += f" ({files.quote(article['title'], most=40)})"
    for p, paragraph in enumerate(_field(place, article, "paragraphs", list)):
      here = f"{place}, paragraph {p}"
      context = _field(here, paragraph, "context", str)
      if not context.strip():
        raise ValueError(f"{here}: the context is empty: add or remove it.")
      for q, entry in enumerate(_field(here, paragraph, "qas", list)):
        yield f"{here}, question {q}", context, entry


def _read_question(place: str, context: str, entry: Any) -> SquadExample:
  question_id = _field(place, entry, "id", str)
  place = f"{place} (id {files.quote(question_id, most=40)})"
  question = _field(place, entry, "question", str)
  is_impossible = "is_impossible" in entry and _field(
    place, entry, "is_impossible", bool
  )
  answers = ()
  if "answers" in entry:
    answers = tuple(
      _read_answer(place, context, answer)
      for answer in _field(place, entry, "answers", list)
    )
  if answers and is_impossible:
    raise ValueError(
      f"{place} has is_impossible true and the answer "
      f"{files.quote(answers[0][0], most=40)}: correct one of the two (guesses "
      "are called plausible_answers)."
    )
  return SquadExample(question_id, question, context, answers, is_impossible)


def _read_answer(place: str, context: str, answer: Any) -> tuple[str, int]:
  text = _field(place, answer, "text", str)
  start = _field(place, answer, "answer_start", int)
  if not text.strip():
    raise ValueError(
      f"{place} has an empty answer: remove it, and set is_impossible if there "
      "is none."
    )
  if start >= 0 and context.startswith(text, start):
    return text, start
  raise ValueError(
    f"{place}: the answer {files.quote(text, most=40)} is not in the context "
    f"at answer_start {files.quote(start, most=20)}: copy answers from the "
    "context, and count characters from 0."
  )


def _field(place: str, holder: Any, name: str, kind: type) -> Any:
  """Returns a field of a JSON object; refuses a missing one and other types."""
  if not isinstance(holder, dict):
    raise ValueError(
      f"{place} is not a JSON object with the field {name!r}, as in SQuAD."
    )
  if name not in holder:
    known = files.quote(*sorted(holder))
    raise ValueError(f"{place} lacks the field {name!r}; it has {known}.")
  value = holder[name]
  if type(value) is not kind:  # isinstance would accept True as an integer.
    raise ValueError(
      f"{place}: {name!r} is {files.quote(value)}, but must be {_KINDS[kind]}."
    )
  return value
