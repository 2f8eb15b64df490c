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
import os

from official_albert import files
from tasks import common


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


@dataclasses.dataclass
class _Answer:
  text: str
  answer_start: int


@dataclasses.dataclass
class _Question:
  id: str
  question: str
  is_impossible: bool = False
  answers: list[_Answer] = dataclasses.field(default_factory=list)


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


def read_examples(path: str, is_training: bool = False) -> list[SquadExample]:
  """Reads the questions of a `.json` or `.json.gz` file, in file order.

  In training, each question must have exactly one answer or `is_impossible`.
  """
  path = os.fspath(path)
  text = "".join(line for _, line in common.read_lines(path))
  content = files.parse_json(
    text, path, _File, "name a file of SQuAD, or download it again"
  )
  examples: dict[str, SquadExample] = {}
  for a, article in enumerate(content.data):
    for p, paragraph in enumerate(article.paragraphs):
      if not paragraph.context.strip():
        raise ValueError(
          f"{path}, article {a}, paragraph {p}: the context is empty: add or "
          "remove it."
        )
      for entry in paragraph.qas:
        where = f"{path}: question {files.quote(entry.id, most=40)}"
        if entry.id in examples:
          raise ValueError(
            f"{where} occurs twice: give each question its own id; predictions "
            "are stored by id."
          )
        example = _checked(where, paragraph.context, entry)
        count = len(example.answers)
        if is_training and count != 1 and not example.is_impossible:
          raise ValueError(
            f"{where} has {count} answers, but a training question needs "
            "exactly one answer or is_impossible: use a training file; "
            "held-out files have several answers."
          )
        examples[entry.id] = example
  if not examples:
    raise ValueError(f"{path} has no questions: is it the right file?")
  return list(examples.values())


def _checked(where: str, context: str, entry: _Question) -> SquadExample:
  for answer in entry.answers:
    text, start = answer.text, answer.answer_start
    quoted = files.quote(text, most=40)
    if not text.strip():
      raise ValueError(
        f"{where} has an empty answer: remove it, and set is_impossible if "
        "there is none."
      )
    if entry.is_impossible:
      raise ValueError(
        f"{where} has is_impossible true and the answer {quoted}: correct one "
        "of the two (guesses are called plausible_answers)."
      )
    if start < 0 or not context.startswith(text, start):
      raise ValueError(
        f"{where}: the answer {quoted} is not in the context at answer_start "
        f"{files.quote(start, most=20)}: copy answers from the context, and "
        "count characters from 0."
      )
  answers = tuple((a.text, a.answer_start) for a in entry.answers)
  return SquadExample(
    entry.id, entry.question, context, answers, entry.is_impossible
  )
