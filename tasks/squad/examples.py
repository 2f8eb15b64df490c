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
import os
import re
from typing import Any, Callable

from official_albert import files
from official_albert.settings import setting
from official_albert.tasks import common


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """The settings of fine-tuning on one version of SQuAD.

  Source: arXiv 1909.11942, Table 14. Windows and decoding have the defaults of
  run_squad_v1.py and run_squad_v2.py of google-research/albert.
  """

  doc_stride: int = setting(
    128, "SQuAD: tokens from one window to the next; by default 128.", least=1
  )
  max_query_length: int = setting(
    64, "SQuAD: maximum tokens of a question; by default 64.", least=1
  )
  n_best_size: int = setting(
    20, "SQuAD: answers to keep for each question; by default 20.", least=1
  )
  max_answer_length: int = setting(
    30, "SQuAD: maximum tokens of an answer; by default 30.", least=1
  )
  start_n_top: int = setting(
    5, "SQuAD 2.0: starts to try in prediction; by default 5.", least=1
  )
  end_n_top: int = setting(
    5, "SQuAD 2.0: ends to try for each start; by default 5.", least=1
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
class _Question:
  """A question as it stands in a file; `_fault` checks the types."""

  id: Any = None
  question: Any = None
  answers: Any = None
  is_impossible: Any = False


@dataclasses.dataclass
class _Paragraph:
  context: str
  qas: list[_Question]


@dataclasses.dataclass
class _Article:
  paragraphs: list[_Paragraph]


@dataclasses.dataclass
class _File:
  data: list[_Article]


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
    skip_invalid: whether to leave out questions with faults.
    note: is called with a line about questions that are left out.

  Raises:
    ValueError: the file is not in this format, has no valid question, or has
      questions with faults. The message counts them and names the first.
  """
  path = os.fspath(path)
  text = "".join(line for _, line in common.read_lines(path))
  content = files.parse_json(text, path, _File, _FORMAT)
  entries = [
    (f"article {a}, paragraph {p}, question {q}", paragraph.context, question)
    for a, article in enumerate(content.data)
    for p, paragraph in enumerate(article.paragraphs)
    for q, question in enumerate(paragraph.qas)
  ]
  examples: dict[str, SquadExample] = {}
  faults = []
  for where, context, entry in entries:
    fault = _fault(
      context, entry, is_training, needs_answers, may_be_impossible
    )
    if not fault and entry.id in examples:
      fault = "occurs twice: predictions are stored by id"
    if fault:
      if isinstance(entry.id, str) and entry.id:
        where = f"question {files.quote(entry.id, most=40)}"
      faults.append(f"{where} {fault}")
      continue
    examples[entry.id] = SquadExample(
      entry.id,
      entry.question,
      context,
      tuple((x["text"], x["answer_start"]) for x in entry.answers or ()),
      entry.is_impossible,
    )
  shown = "; ".join(faults[:_NAMED])
  if len(faults) > _NAMED:
    shown += f"; and {len(faults) - _NAMED:,} more"
  count = f"{len(faults):,} of {len(entries):,} questions"
  if faults and not (skip_invalid and examples):
    advice = "or give --skip_invalid_questions to leave them out."
    raise ValueError(
      f"{path} has faults in {count}: {shown}. Correct them, {advice}"
      if examples
      else f"{path} has faults in {count}: {shown}. No question is valid."
    )
  if faults:
    note(f"{path}: left out {count} for their faults: {shown}")
  if not examples:
    raise ValueError(f"{path} has no questions: is it the right file?")
  return list(examples.values())


def _fault(
  context: str,
  entry: _Question,
  is_training: bool,
  needs_answers: bool,
  may_be_impossible: bool,
) -> str:
  """Returns what is wrong with a question; "" if it is valid."""
  for name, text in (
    ("id", entry.id),
    ("question", entry.question),
    ("context", context),
  ):
    if text is not None and not isinstance(text, str):
      shown = files.quote(text, most=40)
      return f'has {shown} as "{name}", which is text in quotation marks'
    if not (text or "").strip():
      return f'has no text in "{name}"'
  answers, is_impossible = entry.answers, entry.is_impossible
  answers = [] if answers is None else answers
  if not isinstance(is_impossible, bool):
    return 'has an "is_impossible" that is not true or false'
  if not isinstance(answers, list) or not all(map(_is_answer, answers)):
    return 'has an answer without "text" or a whole "answer_start"'
  needs_answers |= is_training
  if entry.answers is None and needs_answers and not is_impossible:
    return 'has neither "answers" nor "is_impossible"'
  if answers and is_impossible:
    return (
      "has is_impossible true and answers (guesses are called "
      "plausible_answers)"
    )
  if not may_be_impossible and (is_impossible or not answers and needs_answers):
    return "has no answer, as in SQuAD 2.0, which is --task=squad_v2"
  if is_training and len(answers) != 1 and not is_impossible:
    return (
      f"has {len(answers)} answers, but a training question needs exactly one, "
      "or is_impossible"
    )
  for text, start in ((x["text"], x["answer_start"]) for x in answers):
    if not text.strip():
      return "has an empty answer: is_impossible means that there is none"
    if start < 0 or not context.startswith(text, start):
      places = [x.start() for x in re.finditer(re.escape(text), context)]
      nearest = min(places, key=lambda place: abs(place - start), default=-1)
      return (
        f"has the answer {files.quote(text, most=40)}, which is not at "
        f"answer_start {start:,} of the context, "
        + ("nor elsewhere" if nearest < 0 else f"but at {nearest:,}")
      )
  return ""


def _is_answer(value: Any) -> bool:
  """Returns whether a value is an object with `text` and `answer_start`."""
  fields = value if isinstance(value, dict) else {}
  start = fields.get("answer_start")
  return isinstance(fields.get("text"), str) and type(start) is int
