"""Reads SQuAD: files of versions 1.1 and 2.0, and the user's own like them.

    {"data": [{"title": "...", "paragraphs": [{"context": "...", "qas": [
      {"id": "...", "question": "...", "is_impossible": false,
       "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

Of version 2.0 are `is_impossible` and questions without an answer. For
prediction, answers may be left out. Everything is checked while it is read, for
one wrong offset would teach a wrong answer without a word.

Reference: google-research/albert squad_utils.py (read_squad_examples).
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Settings of fine-tuning on one version of SQuAD.

  Source: arXiv 1909.11942, Table 14; windows and decoding are the defaults of
  run_squad_v1.py and run_squad_v2.py of google-research/albert.

  Attributes:
    learning_rate: the peak, at the end of the warm-up.
    train_batch_size: windows in a step.
    num_train_steps: in all.
    num_warmup_steps: of them, at the start.
    albert_dropout: of hidden states and attention.
    classifier_dropout: of the head that decides if there is an answer; SQuAD
      1.1 has none.
    max_seq_length: tokens of a window with its question.
    doc_stride: tokens from one window of a context to the next.
    max_query_length: tokens of a question; the rest is cut.
    n_best_size: candidates of a question.
    max_answer_length: tokens of an answer, at most.
    start_n_top: starts that are kept when predicting; SQuAD 2.0 only.
    end_n_top: ends that are kept for each of them; SQuAD 2.0 only.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float
  classifier_dropout: float
  max_seq_length: int
  doc_stride: int = 128
  max_query_length: int = 64
  n_best_size: int = 20
  max_answer_length: int = 30
  start_n_top: int = 5
  end_n_top: int = 5


RECIPES = {
  "squad_v1": Recipe(
    learning_rate=5e-5,
    train_batch_size=48,
    num_train_steps=3649,
    num_warmup_steps=365,
    albert_dropout=0.0,
    classifier_dropout=0.1,
    max_seq_length=384,
  ),
  "squad_v2": Recipe(
    learning_rate=3e-5,
    train_batch_size=48,
    num_train_steps=8144,
    num_warmup_steps=814,
    albert_dropout=0.0,
    classifier_dropout=0.1,
    max_seq_length=512,
  ),
}


_KINDS = {
  str: "a text",
  int: "a whole number",
  list: "a list",
  bool: "true or false",
}
# So much of a wrong text is shown.
_SHOWN = 40


@dataclasses.dataclass(frozen=True)
class SquadExample:
  """A question about a paragraph.

  Attributes:
    question_id: as in the file; no two questions share one.
    question: its text.
    context: the paragraph.
    answers: (text, start) each; `context[start:]` begins with the text. One
      while training, several in held-out files, none if there is none or it is
      not known.
    is_impossible: whether the file says that the context has no answer.
  """

  question_id: str
  question: str
  context: str
  answers: tuple[tuple[str, int], ...] = ()
  is_impossible: bool = False


def read_examples(path: str, is_training: bool = False) -> list[SquadExample]:
  """Every question of a `.json` or `.json.gz` file, in its order.

  Args:
    path: the file.
    is_training: whether `check_trainable` holds for each question.

  Raises:
    OSError: the file cannot be read.
    ValueError: it is not as it should be; says which question, and why.
  """
  path = os.fspath(path)
  examples = []
  seen: set[str] = set()
  for place, context, entry in _questions(path, _load(path)):
    example = _read_question(place, context, entry)
    if example.question_id in seen:
      raise ValueError(
        f"{path}: two questions have the id {example.question_id!r}: "
        "predictions are written by id, so give each question its own."
      )
    seen.add(example.question_id)
    if is_training:
      check_trainable(example, path)
    examples.append(example)
  if not examples:
    raise ValueError(f"{path} holds no question: is it the right file?")
  return examples


def check_trainable(example: SquadExample, where: str = "training") -> None:
  """Refuses what no loss can be computed for.

  Raises:
    ValueError: neither exactly one answer nor `is_impossible`.
  """
  count = len(example.answers)
  if count != 1 and not example.is_impossible:
    raise ValueError(
      f"{where}: question {example.question_id!r} has {count} answers, but a "
      "training question needs exactly one, or is_impossible true: take a "
      "training file, held-out files have several."
    )


def _load(path: str) -> Any:
  with open(path, "rb") as file:
    content = file.read()
  if path.endswith(".gz"):
    try:
      content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
      raise ValueError(
        f"{path} is not a complete gzip file ({error}): download it again."
      ) from error
  if not content.strip():
    raise ValueError(f"{path} is empty: download it again.")
  try:
    return json.loads(content.decode("utf-8-sig"))
  except UnicodeDecodeError as error:
    line = content.count(b"\n", 0, error.start) + 1
    raise ValueError(
      f"{path}, line {line}, is not UTF-8: SQuAD files are JSON in UTF-8."
    ) from error
  except json.JSONDecodeError as error:
    raise ValueError(
      f"{path}, line {error.lineno}, is not JSON ({error.msg}): is it a SQuAD "
      "file, and is its download complete?"
    ) from error
  except RecursionError as error:
    raise ValueError(f"{path} is JSON nested too deep for SQuAD.") from error


def _questions(
  path: str, content: Any
) -> Iterator[tuple[str, str, dict[str, Any]]]:
  """Yields (where, context, question)."""
  for a, article in enumerate(_field(path, content, "data", list)):
    place = f"{path}, article {a}"
    if isinstance(article, dict) and isinstance(article.get("title"), str):
      place += f" ({_shown(article['title'])})"
    for p, paragraph in enumerate(_field(place, article, "paragraphs", list)):
      here = f"{place}, paragraph {p}"
      context = _field(here, paragraph, "context", str)
      if not context.strip():
        raise ValueError(f"{here}: its context is empty: write or remove it.")
      for q, entry in enumerate(_field(here, paragraph, "qas", list)):
        yield f"{here}, question {q}", context, entry


def _read_question(place: str, context: str, entry: Any) -> SquadExample:
  question_id = _field(place, entry, "id", str)
  place = f"{place} (id {_shown(question_id)})"
  question = _field(place, entry, "question", str)
  is_impossible = "is_impossible" in entry and _field(
    place, entry, "is_impossible", bool
  )
  answers = []
  if "answers" in entry:
    for answer in _field(place, entry, "answers", list):
      answers.append(_read_answer(place, context, answer))
  if answers and is_impossible:
    raise ValueError(
      f"{place} is_impossible, but has the answer {_shown(answers[0][0])}: "
      "one of the two is wrong (guesses are called plausible_answers)."
    )
  return SquadExample(
    question_id, question, context, tuple(answers), is_impossible
  )


def _read_answer(place: str, context: str, answer: Any) -> tuple[str, int]:
  text = _field(place, answer, "text", str)
  start = _field(place, answer, "answer_start", int)
  if not text.strip():
    raise ValueError(
      f"{place} has an empty answer: leave it out, and say is_impossible if "
      "there is none."
    )
  if start >= 0 and context.startswith(text, start):
    return text, start
  first = context.find(text)
  if first >= 0:
    advice = f"it is at {first}; answer_start counts characters, from 0"
  elif " ".join(text.split()) in " ".join(context.split()):
    advice = "it is there with other white space: write it as the context does"
  else:
    advice = "it is nowhere in the context: answers are copied from it"
  raise ValueError(
    f"{place}: the answer {_shown(text)} is not in its context at answer_start "
    f"{start}: {advice}."
  )


def _field(place: str, holder: Any, name: str, kind: type) -> Any:
  """A field of a JSON object, of the kind that it has to be.

  Raises:
    ValueError: there is none.
  """
  if not isinstance(holder, dict):
    raise ValueError(
      f"{place} is no JSON object: SQuAD's has the field {name!r} there."
    )
  if name not in holder:
    known = ", ".join(map(repr, sorted(holder))) or "none"
    raise ValueError(f"{place} lacks the field {name!r}; it has {known}.")
  value = holder[name]
  if type(value) is not kind:  # To isinstance, True is a whole number.
    raise ValueError(
      f"{place}: {name!r} is {_shown(value)}, but has to be {_KINDS[kind]}."
    )
  return value


def _shown(value: Any) -> str:
  text = repr(value)
  return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
