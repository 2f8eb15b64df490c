"""Reads SQuAD's files, versions 1.1 and 2.0, and files of the same format.

    {"data": [{"title": "...", "paragraphs": [{"context": "...", "qas": [
      {"id": "...", "question": "...", "is_impossible": false,
       "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

`is_impossible` and questions without an answer belong to version 2.0. For
prediction, answers may be missing. Every field is checked, because the model
would silently learn a wrong answer from a wrong offset; one message counts and
names the questions with faults.

Reference: google-research/albert squad_utils.py (read_squad_examples).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from official_albert import files
from official_albert.tasks import common


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """The settings of fine-tuning on one version of SQuAD; all are at least 1.

  Source: arXiv 1909.11942, Table 14. Windows and decoding have the defaults of
  run_squad_v1.py and run_squad_v2.py of google-research/albert.

  Attributes:
    doc_stride: the tokens from the start of one window to that of the next.
    max_query_length: the maximum tokens of a question; the rest is cut off.
    n_best_size: the number of candidates of a question.
    max_answer_length: the maximum tokens of an answer.
    start_n_top: the number of starts to try in prediction; SQuAD 2.0 only.
    end_n_top: the number of ends to try for each start; SQuAD 2.0 only.
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


@dataclasses.dataclass(frozen=True)
class SquadExample:
  """A question about a paragraph.

  Attributes:
    question_id: the unique id.
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


# Faulty questions to name in a message.
_NAMED = 3
_FORMAT = (
  'SQuAD\'s format is {"data": [{"paragraphs": [{"context": ..., "qas": '
  '[{"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": '
  "...}]}]}]}]}"
)


@dataclasses.dataclass
class _Article:
  paragraphs: list[Any]


@dataclasses.dataclass
class _File:
  data: list[_Article]


class _Fault(ValueError):
  """What is wrong with a question."""


def read_examples(
  path: str,
  is_training: bool = False,
  needs_answers: bool = False,
  may_be_impossible: bool = True,
  skip_invalid: bool = False,
  note: Callable[[str], None] = print,
) -> list[SquadExample]:
  """Reads the questions of a `.json` or `.json.gz` file, in file order.

  Args:
    path: the file.
    is_training: whether each question must have exactly one answer, or
      `is_impossible`.
    needs_answers: whether questions must have answers, or an empty list of
      them, or `is_impossible`.
    may_be_impossible: whether a question may have no answer, as in SQuAD 2.0.
    skip_invalid: whether to leave out invalid questions.
    note: is called with a line about questions that are left out.

  Raises:
    ValueError: the file is not in this format, has no valid question, or has
      invalid ones. The message counts them and names the first.
  """
  path = os.fspath(path)
  text = "".join(line for _, line in common.read_lines(path))
  try:
    content = files.parse_json(text, path, _File, _FORMAT)
  except ValueError:
    if _is_flat(text):
      raise ValueError(
        f"{path} has a row for each question, as the package datasets writes "
        f"SQuAD: convert it; {_FORMAT}."
      ) from None
    raise
  examples: dict[str, SquadExample] = {}
  entries = list(_questions(content))
  faults, total = [], len(entries)
  for where, context, entry in entries:
    try:
      example = _checked(context, entry, is_training or needs_answers)
      count = len(example.answers)
      if example.question_id in examples:
        raise _Fault("occurs twice: predictions are stored by id")
      if not may_be_impossible and (
        example.is_impossible or not count and (is_training or needs_answers)
      ):
        raise _Fault("has no answer, as in SQuAD 2.0, which is --task=squad_v2")
      if is_training and count != 1 and not example.is_impossible:
        raise _Fault(
          f"has {count} answers, but a training question needs exactly one, or "
          "is_impossible"
        )
      examples[example.question_id] = example
    except _Fault as fault:
      if isinstance(entry, dict) and isinstance(entry.get("id"), str):
        where = f"question {files.quote(entry['id'], most=40)}"
      faults.append(f"{where} {fault}")
  shown = "; ".join(faults[:_NAMED])
  if len(faults) > _NAMED:
    shown += f"; and {len(faults) - _NAMED:,} more"
  if faults and not (skip_invalid and examples):
    raise ValueError(
      f"{path} has faults in {len(faults):,} of {total:,} questions: {shown}. "
      + (
        "No question is valid: correct them."
        if not examples
        else "Correct them, or give --skip_invalid_questions to leave them out."
      )
    )
  if faults:
    note(
      f"{path}: left out {len(faults):,} of {total:,} questions for their "
      f"faults: {shown}"
    )
  if not examples:
    raise ValueError(f"{path} has no questions: is it the right file?")
  return list(examples.values())


def _is_flat(text: str) -> bool:
  """Whether a file is a table: JSON lines, or a list of rows."""
  try:
    value, _ = json.JSONDecoder().raw_decode(text.lstrip())
  except (ValueError, RecursionError):
    return False
  if isinstance(value, dict):
    value = value.get("data", value)
  if isinstance(value, list) and value:
    value = value[0]
  return isinstance(value, dict) and {"context", "question"} <= value.keys()


def _questions(content: _File) -> Iterator[tuple[str, Any, Any]]:
  """Yields place, context and entry of each question.

  The entry is None for a paragraph that has no list of questions.
  """
  for a, article in enumerate(content.data):
    for p, paragraph in enumerate(article.paragraphs):
      where = f"article {a}, paragraph {p}"
      fields = paragraph if isinstance(paragraph, dict) else {}
      entries = fields.get("qas")
      if not isinstance(entries, list):
        yield where, None, None
        continue
      for q, entry in enumerate(entries):
        yield f"{where}, question {q}", fields.get("context"), entry


def _checked(context: Any, entry: Any, needs_answers: bool) -> SquadExample:
  """Returns a valid question, or raises `_Fault`."""
  if entry is None:
    raise _Fault('has no list "qas"')
  if not isinstance(entry, dict):
    raise _Fault(f"is {files.quote(entry, most=40)}, not an object")
  question_id, question = entry.get("id"), entry.get("question")
  if question_id is None:
    raise _Fault('has no "id"')
  if not isinstance(question_id, str) or not question_id:
    raise _Fault(
      f"has the id {files.quote(question_id, most=40)}, but an id is text in "
      "quotation marks"
    )
  if not isinstance(question, str) or not question.strip():
    raise _Fault('has no text in "question"')
  if not isinstance(context, str) or not context.strip():
    raise _Fault('has no text in "context"')
  is_impossible = entry.get("is_impossible", False)
  if not isinstance(is_impossible, bool):
    raise _Fault('has an "is_impossible" that is not true or false')
  answers = entry.get("answers")
  if answers is None:
    if needs_answers and not is_impossible:
      raise _Fault('has neither "answers" nor "is_impossible"')
    answers = []
  if not isinstance(answers, list):
    raise _Fault('has "answers" that are not a list')
  if answers and is_impossible:
    raise _Fault(
      "has is_impossible true and answers (guesses are called "
      "plausible_answers)"
    )
  return SquadExample(
    question_id,
    question,
    context,
    tuple(_answer(context, answer) for answer in answers),
    is_impossible,
  )


def _answer(context: str, answer: Any) -> tuple[str, int]:
  fields = answer if isinstance(answer, dict) else {}
  text, start = fields.get("text"), fields.get("answer_start")
  if not isinstance(text, str) or type(start) is not int:
    raise _Fault('has an answer without "text" or a whole "answer_start"')
  if not text.strip():
    raise _Fault("has an empty answer: is_impossible means that there is none")
  if start < 0 or not context.startswith(text, start):
    places = (
      context.rfind(text, 0, start + len(text)),
      context.find(text, start),
    )
    place = min(
      (place for place in places if place >= 0),
      key=lambda place: abs(place - start),
      default=None,
    )
    raise _Fault(
      f"has the answer {files.quote(text, most=40)}, which is not at "
      f"answer_start {files.quote(start, most=20)} of the context, "
      + ("nor elsewhere" if place is None else f"but at {place}")
    )
  return text, start
