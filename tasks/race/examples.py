"""RACE: recipes, files, sequences and accuracy.

    RACE/{train,dev,test}/{middle,high}/1234.txt   one JSON object, as released
    RACE/{train,dev,test}/{middle,high}/all.txt    one JSON object per line

If a folder has an all.txt, it is read instead of the other files. RACE.tar.gz
has to be unpacked.

Reference: google-research/albert race_utils.py (RaceProcessor,
convert_single_example).
"""

from __future__ import annotations

import codecs
import dataclasses
import os
from multiprocessing.pool import ThreadPool
from typing import Iterable, Iterator, Mapping, Optional, Sequence

import numpy as np

from official_albert import files, tokenization
from official_albert.settings import setting
from official_albert.tasks import common

LETTERS = "ABCD"
LEVELS = ("middle", "high")
_SPLITS = ("train", "dev", "test")
# Files that are read at the same time; a bucket answers each after a while.
_READERS = 32
_ALL = "all.txt"

# (input_ids, segment_ids) for each option, not padded.
Inputs = list[tuple[list[int], list[int]]]


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """The settings of fine-tuning on RACE.

  "race" is the recipe of arXiv 1909.11942, Table 14. "race_v2" is the one in
  the README of google-research/albert for the v2 models, which diverge with the
  former. The original reports accuracies of 0.640 (base v1) to 0.868 (xxlarge
  v2) on the development set. This package has not reproduced them yet.
  """

  # Table 14 omits it; the default is that of run_race.py.
  max_qa_length: int = setting(
    128, "RACE: maximum tokens of question and option; by default 128.", least=1
  )


RECIPES: Mapping[str, Recipe] = {
  "race": Recipe(2e-5, 32, 12_000, 1_000, albert_dropout=0.1),
  "race_v2": Recipe(1e-5, 32, 12_000, 1_000, albert_dropout=0.0),
}


@dataclasses.dataclass(frozen=True)
class RaceExample:
  """One question.

  Attributes:
    example_id: the passage's id and the question's number in it, from 0, for
      example "high1.txt#0".
    question: the question, with or without "_" in place of the option.
    options: the four options, A to D.
    label: the correct option, 0 to 3; None if unknown.
    level: "middle" or "high" school.
  """

  example_id: str
  article: str
  question: str
  options: tuple[str, ...]
  label: Optional[int]
  level: str


def read_examples(
  data_dir: str, split: str, needs_labels: bool = False
) -> list[RaceExample]:
  """Reads the questions of the split "train", "dev" or "test".

  Middle school comes before high school. Passages are sorted by number or have
  the order of all.txt.

  Deviation: each question has its own id. In the original, all questions of a
  passage share one id, so predictions cannot be assigned to questions.

  Args:
    data_dir: the folder RACE, or a folder that contains it.
    split: the name of the split.
    needs_labels: whether all passages must have answers.

  Raises:
    FileNotFoundError: there is no data, or no passage in it.
    ValueError: a passage is invalid. The message names file, line and question.
  """
  root = _find_root(data_dir)
  examples: list[RaceExample] = []
  for level in LEVELS:
    folder = os.path.join(root, split, level)
    names = files.list_dir(folder) if files.is_dir(folder) else []
    names = [_ALL] if _ALL in names else list(filter(_is_passage, names))
    names.sort(key=lambda name: (len(name), name))  # 2.txt before 10.txt.
    paths = [os.path.join(folder, name) for name in names]
    with ThreadPool(_READERS) as pool:
      contents = pool.map(files.read_bytes, paths)
    for name, path, content in zip(names, paths, contents):
      if name != _ALL:
        examples += _parse(path, f"{level}{name}", level, content, needs_labels)
        continue
      for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
          where = f"{path} line {number}"
          examples += _parse(
            where, f"{level}{number}", level, line, needs_labels
          )
  if not examples:
    raise FileNotFoundError(
      f"{root} has no passage of {split}: there should be files such as "
      f"{split}/middle/1.txt, or {split}/middle/{_ALL} with one JSON object a "
      "line."
    )
  return examples


def _find_root(data_dir: str) -> str:
  """Returns the folder with the splits."""
  for folder in (data_dir, os.path.join(data_dir, "RACE")):
    if any(files.is_dir(os.path.join(folder, name)) for name in _SPLITS):
      return folder
  raise FileNotFoundError(
    f"there is no RACE in {data_dir!r}: unpack RACE.tar.gz, and name the "
    "folder with train, dev and test, or the folder that contains it."
  )


def _is_passage(name: str) -> bool:
  # Archives made on macOS also have "._1.txt" for "1.txt".
  return name.endswith(".txt") and not name.startswith(".")


@dataclasses.dataclass
class _Passage:
  article: str
  # Empty questions and options occur in RACE, and the original accepts them.
  questions: list[str]
  options: list[list[str]]
  answers: list[str] = dataclasses.field(default_factory=list)
  id: str = ""

  def __post_init__(self):
    count, answers = len(self.questions), len(self.answers)
    if not (self.article.strip() and count):
      raise ValueError("the passage has no article, or no questions")
    if len(self.options) != count or answers not in (0, count):
      raise ValueError("there are not options and an answer for each question")
    for number, options in enumerate(self.options, 1):
      if len(options) != len(LETTERS):
        raise ValueError(f"question {number} has not {len(LETTERS)} options")
    for number, answer in enumerate(self.answers, 1):
      if answer not in list(LETTERS):
        raise ValueError(
          f"the answer {files.quote(answer)} of question {number} is not one "
          f"of the letters {', '.join(LETTERS)}"
        )


def _parse(
  where: str, name: str, level: str, content: bytes, needs_labels: bool
) -> list[RaceExample]:
  """Returns the questions of a passage; `name` is its id unless it has one."""
  passage = files.parse_json(
    content.removeprefix(codecs.BOM_UTF8),
    where,
    _Passage,
    "a passage has article, questions, options and answers",
  )
  if needs_labels and not passage.answers:
    raise ValueError(f"{where}: the passage has no answers.")
  labels = map(LETTERS.index, passage.answers)
  return [
    RaceExample(
      f"{passage.id or name}#{number}",
      passage.article,
      question,
      tuple(options),
      next(labels, None),
      level,
    )
    for number, (question, options) in enumerate(
      zip(passage.questions, passage.options)
    )
  ]


def question_with_option(question: str, option: str) -> str:
  """Replaces each "_" by the option, or appends it to the question."""
  if "_" in question:
    return question.replace("_", option)
  return f"{question} {option}"


def check_lengths(max_seq_length: int, max_qa_length: int) -> None:
  """Raises ValueError for lengths that leave no space for the passage.

  Deviation: the original stops at the first question that is too long, or
  continues without a passage.
  """
  if max_qa_length < 1 or max_seq_length < max_qa_length + 4:
    raise ValueError(
      f"max_seq_length is {max_seq_length} and max_qa_length is "
      f"{max_qa_length}: max_qa_length must be at least 1, and max_seq_length "
      "larger by at least 4, for [CLS], two [SEP] and the passage."
    )


def make_all_inputs(
  examples: Iterable[RaceExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  max_qa_length: int,
) -> Iterator[Inputs]:
  """Yields [CLS] article [SEP] question with option [SEP] for each option.

  The question with its option keeps its last `max_qa_length` tokens, and the
  article keeps the first tokens that fit. An article is tokenized once for
  consecutive questions.
  """
  check_lengths(max_seq_length, max_qa_length)

  def clean(text: str) -> str:
    # As in the original, questions and options are normalized before they are
    # joined: a wide "\uff3f" becomes "_", and spaces around options disappear.
    if tokenizer.kind != "sentencepiece":
      return text
    return tokenizer.normalize(text)  # type: ignore[union-attr]

  article: Optional[str] = None
  article_ids: list[int] = []
  for example in examples:
    if example.article != article:
      article, article_ids = example.article, tokenizer.encode(example.article)
    question = clean(example.question)
    rows = tokenizer.encode_batch(
      [question_with_option(question, clean(o)) for o in example.options]
    )
    tails = [row[-max_qa_length:] for row in rows]
    yield [
      tokenization.pack_pair(
        article_ids[: max_seq_length - 3 - len(tail)],
        tail,
        max_seq_length,
        tokenizer.cls_id,
        tokenizer.sep_id,
      )
      for tail in tails
    ]


def accuracy_by_level(
  predictions: np.ndarray, labels: np.ndarray, levels: Sequence[str]
) -> dict[str, float]:
  """Returns the accuracy on all questions and on each level that occurs.

  RACE's paper (arXiv 1704.04683) reports all three, google-research/albert only
  `eval_accuracy`. Predictions and labels are <int>[N].
  """
  result = {"accuracy": common.accuracy(predictions, labels)}
  for level in LEVELS:
    chosen = np.array(levels) == level
    if chosen.any():
      result[f"accuracy_{level}"] = common.accuracy(
        predictions[chosen], labels[chosen]
      )
  return result
