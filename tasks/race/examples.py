"""Exam questions about a passage: recipes, sequences and accuracy.

    examples = read_examples("RACE.tar.gz", "dev", "high", needs_labels=True)
    for example, options in zip(examples, make_all_inputs(examples, ...)):
      (input_ids, segment_ids), _, _, _ = options

Reference: google-research/albert race_utils.py (RaceProcessor,
convert_single_example).
"""

from __future__ import annotations

import dataclasses
import json
import types
from typing import (
  Any,
  Callable,
  Iterable,
  Iterator,
  Mapping,
  Optional,
  Sequence,
)

import numpy as np

from official_albert import tokenization
from tasks.race import passage_files


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How to fine-tune.

  "race" is the paper's (arXiv 1909.11942, Table 14), "race_v2" that of the
  README of google-research/albert for the v2 models: a lower rate and no
  dropout in the encoder, because the v2 models diverge with the first. With
  these, the original reports 0.640 (base v1) to 0.868 (xxlarge v2) on the
  development set. Not yet run here.

  Attributes:
    learning_rate: its peak.
    train_batch_size: questions in an update, each of four sequences.
    num_train_steps: updates.
    num_warmup_steps: of these, those in which the rate rises.
    albert_dropout: of the encoder, in the hidden layers and the attention.
    classifier_dropout: of the pooled output.
    max_seq_length: tokens in a sequence at most.
    max_qa_length: of these, tokens of question and option at most.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float
  classifier_dropout: float
  max_seq_length: int
  max_qa_length: int


_RACE = Recipe(
  learning_rate=2e-5,
  train_batch_size=32,
  num_train_steps=12_000,
  num_warmup_steps=1_000,
  albert_dropout=0.1,
  classifier_dropout=0.1,
  max_seq_length=512,
  # Of the original's run_race.py; Table 14 does not name it.
  max_qa_length=128,
)

RECIPES: Mapping[str, Recipe] = types.MappingProxyType(
  {
    "race": _RACE,
    "race_v2": dataclasses.replace(
      _RACE, learning_rate=1e-5, albert_dropout=0.0
    ),
  }
)


LETTERS = "ABCD"
Inputs = list[tuple[list[int], list[int]]]


@dataclasses.dataclass(frozen=True)
class RaceExample:
  """One question.

  Attributes:
    example_id: the passage's id and the question's number in it, from 0, for
      example "high1.txt#0".
    article: the passage.
    question: with "_" where the option belongs, or without.
    options: four, A to D.
    label: 0 to 3, the option that is right; None where nobody says.
    level: "middle" or "high" school.
  """

  example_id: str
  article: str
  question: str
  options: tuple[str, ...]
  label: Optional[int]
  level: str


def read_examples(
  data_dir: str, split: str, level: str = "all", needs_labels: bool = False
) -> list[RaceExample]:
  """Reads the questions of a split.

  Deviation: each question has an id of its own. In the original all questions
  of a passage share one, so that predictions cannot be told apart.

  Args:
    data_dir: the folder RACE, the folder that holds it or its archive, or the
      archive RACE.tar.gz itself, which is not unpacked.
    split: "train", "dev" or "test".
    level: "middle", "high" or "all".
    needs_labels: refuse passages without answers. Those that are there are
      read in any case.

  Returns:
    Middle before high; passages by number, or in the order of all.txt;
    questions in the passage's order.

  Raises:
    FileNotFoundError: no such data, or no passage in it.
    ValueError: something is wrong with a passage; the message says with which
      file, line and question, or with an argument.
  """
  examples: list[RaceExample] = []
  seen: dict[str, str] = {}
  for passage in passage_files.read(data_dir, split, level):
    name, questions = _parse(passage, needs_labels)
    if name in seen:
      raise ValueError(
        f"{passage.where}: the passage id {name!r} is that of {seen[name]} "
        "already: give each passage its own."
      )
    seen[name] = passage.where
    examples += questions
  return examples


def _parse(
  passage: passage_files.Passage, needs_labels: bool
) -> tuple[str, list[RaceExample]]:
  """The passage's id and its questions."""
  try:
    value = json.loads(passage.data.decode("utf-8-sig"))
  except UnicodeDecodeError as error:
    raise ValueError(
      f"{passage.where}: byte {error.start} is not UTF-8: convert the file."
    ) from error
  except ValueError as error:
    raise ValueError(f"{passage.where}: not JSON ({error}).") from error
  if not isinstance(value, dict):
    raise ValueError(
      f"{passage.where}: a passage is a JSON object with article, questions, "
      f"options and answers, and this is {_shown(value)}."
    )
  article = value.get("article")
  if not isinstance(article, str) or not article.strip():
    raise ValueError(f"{passage.where}: the passage has no article.")
  questions = value.get("questions")
  if not isinstance(questions, list) or not questions:
    raise ValueError(f"{passage.where}: the passage has no questions.")
  options = _as_many(passage.where, value, "options", len(questions))
  answers: list[Any] = [None] * len(questions)
  letters: list[Optional[str]] = [None]
  if needs_labels or value.get("answers"):
    answers = _as_many(passage.where, value, "answers", len(questions))
    letters = list(LETTERS)

  name = value.get("id") or f"{passage.level}{passage.name}"
  if not isinstance(name, str) or not name.isprintable():
    # It goes into the first column of the table of predictions.
    raise ValueError(
      f"{passage.where}: the passage's id {_shown(name)} is no line of text."
    )
  examples = []
  for number, row in enumerate(zip(questions, options, answers)):
    where = f"{passage.where}, question {number + 1} of {len(questions)}"
    question, texts, answer = row
    _check_question(where, question, texts)
    if answer not in letters:
      raise ValueError(
        f"{where}: the answer {_shown(answer)} is none of the letters "
        f"{', '.join(LETTERS)}."
      )
    examples.append(
      RaceExample(
        example_id=f"{name}#{number}",
        article=article,
        question=question,
        options=tuple(texts),
        label=None if answer is None else LETTERS.index(answer),
        level=passage.level,
      )
    )
  return name, examples


def _as_many(where: str, value: Any, field: str, count: int) -> list[Any]:
  """A list of the passage with an entry for each question."""
  entries = value.get(field)
  if not isinstance(entries, list):
    raise ValueError(f"{where}: the passage has no {field}.")
  if len(entries) != count:
    raise ValueError(
      f"{where}: the passage has {count} questions, but {len(entries)} "
      f"{field}: question {min(count, len(entries)) + 1} has no partner."
    )
  return entries


def _check_question(where: str, question: Any, texts: Any) -> None:
  # Empty questions and options pass: the original takes them, and one of
  # them must not make all the others unreadable.
  if not isinstance(question, str):
    raise ValueError(f"{where}: {_shown(question)} is no text.")
  if not isinstance(texts, list) or not texts:
    raise ValueError(f"{where}: it has no options.")
  if len(texts) != len(LETTERS):
    raise ValueError(
      f"{where}: it has {len(texts)} options instead of {len(LETTERS)}."
    )
  for text in texts:
    if not isinstance(text, str):
      raise ValueError(f"{where}: the option {_shown(text)} is no text.")


def _shown(value: Any) -> str:
  text = json.dumps(value, ensure_ascii=False)
  return text if len(text) <= 40 else f"{text[:40]}..."


def question_with_option(question: str, option: str) -> str:
  """The option in place of each "_", or behind the question."""
  if "_" in question:
    return question.replace("_", option)
  return f"{question} {option}"


def _cleaner(tokenizer: tokenization.Tokenizer) -> Callable[[str], str]:
  """What the original does to questions and options before it joins them.

  So a wide "\uff3f" counts as "_", and no spaces around an option get into
  the question.
  """
  if tokenizer.kind != "sentencepiece":
    return lambda text: text
  lower_case = tokenizer.lower_case
  return lambda text: tokenization.normalize_text(text, lower_case)


def make_inputs(
  example: RaceExample,
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  max_qa_length: int,
) -> Inputs:
  """The sequences of one question; `make_all_inputs` is faster for many."""
  inputs = make_all_inputs([example], tokenizer, max_seq_length, max_qa_length)
  return next(inputs)


def make_all_inputs(
  examples: Iterable[RaceExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  max_qa_length: int,
) -> Iterator[Inputs]:
  """[CLS] article [SEP] question with option [SEP], for each option.

  The question with its option keeps its last `max_qa_length` tokens, the
  article as many of its first ones as still fit. An article is tokenized once
  for all its questions, which `read_examples` puts one after the other.

  Args:
    examples: the questions.
    tokenizer: of `official_albert.tokenization.sentencepiece_tokenizer`.
    max_seq_length: tokens in a sequence at most, special ones included.
    max_qa_length: tokens of question and option at most.

  Yields:
    For each example four pairs (input_ids, segment_ids), not padded.

  Raises:
    ValueError: the lengths leave no room for the article; raised with the
      first example.
  """
  # Deviation: refused at once; the original stops at the first question that
  # is too long, or goes on without a passage.
  if max_qa_length < 1 or max_seq_length < max_qa_length + 4:
    raise ValueError(
      f"max_seq_length is {max_seq_length} and max_qa_length is "
      f"{max_qa_length}: max_qa_length has to be above 0, and max_seq_length "
      "larger by at least 4, for [CLS], two [SEP] and the passage."
    )
  clean = _cleaner(tokenizer)
  article: Optional[str] = None
  article_ids: list[int] = []
  for example in examples:
    if example.article != article:
      article, article_ids = example.article, tokenizer.encode(example.article)
    question = clean(example.question)
    rows = tokenizer.encode_batch(
      [question_with_option(question, clean(o)) for o in example.options]
    )
    inputs = []
    for row in rows:
      tail = row[-max_qa_length:]
      context = article_ids[: max_seq_length - 3 - len(tail)]
      inputs.append(
        tokenization.pack_pair(
          context, tail, max_seq_length, tokenizer.cls_id, tokenizer.sep_id
        )
      )
    yield inputs


LEVELS = ("middle", "high")


def accuracy_by_level(
  predictions: np.ndarray, labels: np.ndarray, levels: Sequence[str]
) -> dict[str, float]:
  """Shares of right answers: all questions, and each level of school.

  The paper's numbers are over all questions, with the two levels beside them
  (arXiv 1704.04683; google-research/albert reports `eval_accuracy` only).

  Args:
    predictions: <int>[N], the option chosen, from 0.
    labels: <int>[N], the option that is right.
    levels: N times "middle" or "high".

  Returns:
    `accuracy`, and `accuracy_middle` and `accuracy_high` as far as there are
    such questions. The first counts questions, not levels.

  Raises:
    ValueError: no questions, another number of them in one of the arguments,
      or an unknown level.
  """
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  levels = np.asarray(levels, dtype=str)
  if predictions.ndim != 1 or not (
    predictions.shape == labels.shape == levels.shape
  ):
    raise ValueError(
      f"predictions {predictions.shape}, labels {labels.shape} and levels "
      f"{levels.shape} have to be equally many, in one dimension."
    )
  if not len(labels):
    raise ValueError("no questions: there is no accuracy of nothing.")
  unknown = sorted(set(levels.tolist()) - set(LEVELS))
  if unknown:
    raise ValueError(f"the level {unknown[0]!r} is none of {LEVELS}.")
  is_right = predictions == labels
  result = {"accuracy": float(np.mean(is_right))}
  for level in LEVELS:
    chosen = is_right[levels == level]
    if len(chosen):
      result[f"accuracy_{level}"] = float(np.mean(chosen))
  return result
