"""RACE: recipes, files and sequences.

    RACE/{train,dev,test}/{middle,high}/1234.txt   one JSON object, as released
    RACE/{train,dev,test}/{middle,high}/all.txt    one JSON object per line

If a folder has an all.txt, it is read instead of the other files. RACE.tar.gz
has to be unpacked.

Reference: google-research/albert race_utils.py (RaceProcessor,
convert_single_example).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Iterable, Iterator, Mapping, Optional

from official_albert import files, tokenization
from official_albert.settings import setting
from official_albert.tasks import common

LETTERS = "ABCD"
LEVELS = ("middle", "high", "college")  # The last is that of RACE-C.
_ALL = "all.txt"


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
    guid: the passage's id and the question's number in it, from 0, for example
      "high1.txt#0".
    question: the question, with or without "_" in place of the option.
    options: the four options, A to D.
    label: the letter of the correct option; None if unknown.
    level: one of `LEVELS`.
  """

  guid: str
  article: str
  question: str
  options: tuple[str, ...]
  label: Optional[str]
  level: str


def read_examples(
  data_dir: str, split: str, needs_labels: bool = False
) -> list[RaceExample]:
  """Reads the questions of the split "train", "dev" or "test".

  `data_dir` is the folder RACE, or one that contains it. Middle school comes
  before high school. Passages are sorted by number or have the order of
  all.txt, and must have answers with `needs_labels`.

  Deviation: each question has its own id. In the original, all questions of a
  passage share one id, so predictions cannot be assigned to questions.
  """
  examples: list[RaceExample] = []
  roots = data_dir, os.path.join(data_dir, "RACE")
  for level, root in itertools.product(LEVELS, roots):
    folder = os.path.join(root, split, level)
    for where, name, content in _read_passages(folder):
      passage = files.parse_json(
        content,
        where,
        _Passage,
        "a passage has article, questions, options and answers",
      )
      if needs_labels and not passage.answers:
        raise ValueError(f"{where}: the passage has no answers.")
      guid = passage.id or level + name
      examples += [
        RaceExample(
          f"{guid}#{i}",
          passage.article,
          question,
          tuple(passage.options[i]),
          passage.answers[i] if passage.answers else None,
          level,
        )
        for i, question in enumerate(passage.questions)
      ]
  if not examples:
    raise FileNotFoundError(
      f"{data_dir!r} has no passage of RACE's {split}: unpack RACE.tar.gz, and "
      f"name the folder with {split}/middle/1.txt and so on, or with "
      f"{split}/middle/{_ALL} with one JSON object a line, or its parent."
    )
  return examples


def _read_passages(folder: str) -> Iterator[tuple[str, str, bytes]]:
  """Yields the place, the file or line, and the JSON of each passage."""
  names = files.list_dir(folder) if files.is_dir(folder) else []
  if _ALL in names:
    path = os.path.join(folder, _ALL)
    for number, line in enumerate(files.read_bytes(path).split(b"\n"), 1):
      if line.strip():
        yield f"{path} line {number}", str(number), line
    return
  # Archives made on macOS also have "._1.txt" for "1.txt".
  names = [x for x in names if x.endswith(".txt") and not x.startswith(".")]
  names.sort(key=lambda name: (len(name), name))  # 2.txt before 10.txt.
  for name in names:
    path = os.path.join(folder, name)
    yield path, name, files.read_bytes(path)


@dataclasses.dataclass
class _Passage:
  """A passage as it stands in a file.

  Empty questions and options occur in RACE, and the original accepts them.
  """

  article: str
  questions: list[str]
  options: list[list[str]]
  answers: list[str] = dataclasses.field(default_factory=list)
  id: str = ""

  def __post_init__(self):
    counts = [len(options) for options in self.options]
    if (
      not (self.article.strip() and self.questions)
      or counts != [len(LETTERS)] * len(self.questions)
      or len(self.answers) not in (0, len(counts))
      or not {*self.answers} <= {*LETTERS}
    ):
      raise ValueError(
        "the passage has no article or no questions, or some have not "
        f"{len(LETTERS)} options and one of {', '.join(LETTERS)} as answer"
      )


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
) -> Iterator[list[tuple[list[int], list[int]]]]:
  """Yields [CLS] article [SEP] question with option [SEP] for each option.

  A sequence is its ids and segments, not padded. The option replaces each "_"
  in the question, or follows it. Of both, the last `max_qa_length` tokens are
  kept, and of the article the first that fit. An article is tokenized once for
  consecutive questions.
  """
  check_lengths(max_seq_length, max_qa_length)

  def clean(text: str) -> str:
    # As in the original, questions and options are normalized before they are
    # joined: a wide "\uff3f" becomes "_", and spaces around options disappear.
    if tokenizer.kind != "sentencepiece":
      return text
    lower_case = tokenizer.rules.lower_case
    return tokenization.normalize_text(text, lower_case, tokenizer.keep_accents)

  article: Optional[str] = None
  article_ids: list[int] = []
  for example in examples:
    if example.article != article:
      article, article_ids = example.article, tokenizer.encode(example.article)
    question = clean(example.question)
    if "_" not in question:
      question += " _"
    rows = tokenizer.encode_batch(
      [question.replace("_", clean(option)) for option in example.options]
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
