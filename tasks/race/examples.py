"""RACE: recipes, files, sequences and accuracy.

    RACE/{train,dev,test}/{middle,high}/1234.txt   one JSON object, as released
    RACE/{train,dev,test}/{middle,high}/all.txt    one JSON object a line

An all.txt is read instead of the files beside it, from which it was made.

Reference: google-research/albert race_utils.py (RaceProcessor,
convert_single_example).
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import tarfile
import zlib
from typing import (
  Any,
  Iterable,
  Iterator,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
)

import numpy as np

from official_albert import tokenization
from tasks import common

LETTERS = "ABCD"
LEVELS = ("middle", "high")
_SPLITS = ("train", "dev", "test")
_ALL = "all.txt"
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_BLOCK_BYTES = 1 << 20

# (input_ids, segment_ids) for each option, not padded.
Inputs = list[tuple[list[int], list[int]]]


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """How to fine-tune on RACE.

  "race" is that of arXiv 1909.11942, Table 14; "race_v2" is that of the README
  of google-research/albert for the v2 models, which diverge with the first. The
  original reports accuracies of 0.640 (base v1) to 0.868 (xxlarge v2) on the
  development set. Not yet run here.

  Attributes:
    max_qa_length: maximum tokens of question and option; Table 14 does not have
      it, and this is the value of run_race.py.
  """

  max_qa_length: int = 128


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
    article: the passage.
    question: with or without "_" in the place of the option.
    options: four, A to D.
    label: the correct option, 0 to 3; None if unknown.
    level: "middle" or "high" school.
  """

  example_id: str
  article: str
  question: str
  options: tuple[str, ...]
  label: Optional[int]
  level: str


class _Passage(NamedTuple):
  """A passage before parsing: its location for messages, its name and JSON."""

  where: str
  name: str
  level: str
  data: bytes


def read_examples(
  data_dir: str, split: str, level: str = "all", needs_labels: bool = False
) -> list[RaceExample]:
  """Reads the questions of a split.

  Deviation: each question has its own id. In the original, all questions of a
  passage share one, so that predictions cannot be assigned to questions.

  Args:
    data_dir: the folder RACE, a folder that contains it or its archive, or the
      archive RACE.tar.gz, which is read without unpacking.
    split: "train", "dev" or "test".
    level: "middle", "high" or "all".
    needs_labels: whether all passages must have answers.

  Returns:
    The questions: middle before high, passages by number or in the order of
    all.txt.

  Raises:
    FileNotFoundError: there is no data, or no passage in it.
    ValueError: an argument is unknown, the archive is damaged, or a passage is
      invalid. The message has file, line and question.
  """
  examples: list[RaceExample] = []
  seen: dict[str, str] = {}
  for passage in _read_passages(data_dir, split, level):
    name, questions = _parse(passage, needs_labels)
    if name in seen:
      raise ValueError(
        f"{passage.where}: the passage id {name!r} is also that of "
        f"{seen[name]}: give each passage its own."
      )
    seen[name] = passage.where
    examples += questions
  return examples


def _read_passages(data_dir: str, split: str, level: str) -> Iterator[_Passage]:
  if split not in _SPLITS:
    raise ValueError(
      f"unknown split {split!r}; choose one of {', '.join(_SPLITS)}."
    )
  if level not in ("all", *LEVELS):
    raise ValueError(
      f"unknown level {level!r}; choose one of all, {', '.join(LEVELS)}."
    )
  levels = LEVELS if level == "all" else (level,)
  root = _find_root(data_dir)
  read = _read_archive if os.path.isfile(root) else _read_folders
  contents = read(root, split, levels)
  if not any(contents.values()):
    raise FileNotFoundError(
      f"{root} has no passage of {split} ({' and '.join(levels)}): there "
      f"should be files such as {split}/{levels[0]}/1.txt, or "
      f"{split}/{levels[0]}/{_ALL} with one JSON object a line."
    )
  for one in levels:
    folder = os.path.join(root, split, one)
    files = contents[one]
    if _ALL in files:
      for number, line in enumerate(files[_ALL].split(b"\n"), 1):
        if line.strip():
          where = f"{os.path.join(folder, _ALL)} line {number}"
          yield _Passage(where, str(number), one, line)
    else:
      for name in sorted(files, key=_by_number):
        yield _Passage(os.path.join(folder, name), name, one, files[name])


def _find_root(data_dir: str) -> str:
  """Returns the folder with the splits, or the archive.

  Raises:
    FileNotFoundError: there is neither.
  """
  if os.path.isfile(data_dir):
    return data_dir
  for folder in (data_dir, os.path.join(data_dir, "RACE")):
    if any(os.path.isdir(os.path.join(folder, split)) for split in _SPLITS):
      return folder
  for ending in _ARCHIVES:
    archive = os.path.join(data_dir, f"RACE{ending}")
    if os.path.isfile(archive):
      return archive
  raise FileNotFoundError(
    f"there is no RACE in {data_dir!r}: name the folder with train, dev and "
    "test, the folder that contains it, or RACE.tar.gz."
  )


def _read_folders(
  root: str, split: str, levels: Sequence[str]
) -> dict[str, dict[str, bytes]]:
  """Returns contents by level and file name."""
  files: dict[str, dict[str, bytes]] = {level: {} for level in levels}
  for level in levels:
    folder = os.path.join(root, split, level)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in [_ALL] if _ALL in names else filter(_is_passage, names):
      with open(os.path.join(folder, name), "rb") as file:
        files[level][name] = file.read()
  return files


def _read_archive(
  root: str, split: str, levels: Sequence[str]
) -> dict[str, dict[str, bytes]]:
  """Returns contents by level and file name, in one pass over the archive."""
  files: dict[str, dict[str, bytes]] = {level: {} for level in levels}
  try:
    with tarfile.open(root) as archive:
      for member in archive:
        *_, parent, level, name = ["", "", *member.name.split("/")]
        is_wanted = parent == split and level in levels and _is_passage(name)
        if is_wanted and member.isfile():
          files[level][name] = archive.extractfile(member).read()
      # Reads to the end, where gzip's checksum is.
      while archive.fileobj.read(_BLOCK_BYTES):
        pass
  except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
    raise ValueError(
      f"{root} is not a complete tar archive ({error}): download it again."
    ) from error
  return files


def _is_passage(name: str) -> bool:
  # macOS adds "._1.txt" to archives beside "1.txt".
  return name.endswith(".txt") and not name.startswith(".")


def _by_number(name: str) -> tuple[bool, int, str]:
  """Sorts 2.txt before 10.txt, and names without a number last."""
  stem = name.removesuffix(".txt")
  is_number = stem.isascii() and stem.isdigit()
  return not is_number, int(stem) if is_number else 0, name


def _parse(
  passage: _Passage, needs_labels: bool
) -> tuple[str, list[RaceExample]]:
  """Returns the passage's id and its questions."""
  where = passage.where
  try:
    value = json.loads(passage.data.decode("utf-8-sig"))
  except UnicodeDecodeError as error:
    raise ValueError(
      f"{where}: byte {error.start} is not UTF-8: convert the file."
    ) from error
  except ValueError as error:
    raise ValueError(f"{where}: not JSON ({error}).") from error
  if not isinstance(value, dict):
    raise ValueError(
      f"{where}: a passage must be a JSON object with article, questions, "
      f"options and answers, got {_shown(value)}."
    )
  article = value.get("article")
  if not isinstance(article, str) or not article.strip():
    raise ValueError(f"{where}: the passage has no article.")
  questions = value.get("questions")
  if not isinstance(questions, list) or not questions:
    raise ValueError(f"{where}: the passage has no questions.")
  options = _list_of(where, value, "options", len(questions))
  answers: list[Any] = [None] * len(questions)
  if has_answers := bool(needs_labels or value.get("answers")):
    answers = _list_of(where, value, "answers", len(questions))
  name = value.get("id") or f"{passage.level}{passage.name}"
  # The id is written into tables of predictions.
  if not isinstance(name, str) or not name.isprintable():
    raise ValueError(
      f"{where}: the passage's id {_shown(name)} is not one line of text."
    )
  examples = []
  for number, question in enumerate(questions):
    here = f"{where}, question {number + 1} of {len(questions)}"
    texts, answer = options[number], answers[number]
    _check_question(here, question, texts)
    if has_answers and answer not in list(LETTERS):
      raise ValueError(
        f"{here}: the answer {_shown(answer)} is not one of the letters "
        f"{', '.join(LETTERS)}."
      )
    examples.append(
      RaceExample(
        example_id=f"{name}#{number}",
        article=article,
        question=question,
        options=tuple(texts),
        label=LETTERS.index(answer) if has_answers else None,
        level=passage.level,
      )
    )
  return name, examples


def _list_of(where: str, value: Any, field: str, count: int) -> list[Any]:
  """Returns a field with an entry for each question."""
  entries = value.get(field)
  if not isinstance(entries, list):
    raise ValueError(f"{where}: the passage has no {field}.")
  if len(entries) != count:
    raise ValueError(
      f"{where}: the passage has {count} questions, but {len(entries)} {field}."
    )
  return entries


def _check_question(where: str, question: Any, texts: Any) -> None:
  # Empty questions and options occur in RACE, and the original accepts them.
  if not isinstance(question, str):
    raise ValueError(f"{where}: {_shown(question)} is not text.")
  if not isinstance(texts, list) or len(texts) != len(LETTERS):
    count = len(texts) if isinstance(texts, list) else 0
    raise ValueError(
      f"{where}: it has {count} options instead of {len(LETTERS)}."
    )
  for text in texts:
    if not isinstance(text, str):
      raise ValueError(f"{where}: the option {_shown(text)} is not text.")


def _shown(value: Any) -> str:
  text = json.dumps(value, ensure_ascii=False)
  return text if len(text) <= 40 else f"{text[:40]}..."


def question_with_option(question: str, option: str) -> str:
  """Puts the option in place of each "_", or after the question."""
  if "_" in question:
    return question.replace("_", option)
  return f"{question} {option}"


def make_inputs(
  example: RaceExample,
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  max_qa_length: int,
) -> Inputs:
  """Returns the sequences of one question; see `make_all_inputs`."""
  inputs = make_all_inputs([example], tokenizer, max_seq_length, max_qa_length)
  return next(inputs)


def make_all_inputs(
  examples: Iterable[RaceExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  max_qa_length: int,
) -> Iterator[Inputs]:
  """Yields [CLS] article [SEP] question with option [SEP] for each option.

  The question with its option keeps its last `max_qa_length` tokens, and the
  article its first tokens that fit. Consecutive questions with one article
  share its tokens.

  Args:
    examples: the questions.
    tokenizer: that of the model.
    max_seq_length: maximum tokens of a sequence, special ones included.
    max_qa_length: maximum tokens of question and option.

  Raises:
    ValueError: the lengths leave no space for the article; raised with the
      first example.
  """
  # Deviation: the original stops at the first question that is too long, or
  # continues without a passage.
  if max_qa_length < 1 or max_seq_length < max_qa_length + 4:
    raise ValueError(
      f"max_seq_length is {max_seq_length} and max_qa_length is "
      f"{max_qa_length}: max_qa_length must be at least 1, and max_seq_length "
      "larger by at least 4, for [CLS], two [SEP] and the passage."
    )

  def clean(text: str) -> str:
    # As in the original, questions and options are normalized before they are
    # joined: a wide "\uff3f" becomes "_", and spaces around options disappear.
    if tokenizer.kind != "sentencepiece":
      return text
    return tokenization.normalize_text(text, tokenizer.lower_case)

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
  """Returns the accuracy on all questions and on each level of school.

  The paper reports all three (arXiv 1704.04683), google-research/albert only
  `eval_accuracy`.

  Args:
    predictions: <int>[N], the chosen options.
    labels: <int>[N], the correct ones.
    levels: N times "middle" or "high".

  Returns:
    `accuracy`, and `accuracy_middle` and `accuracy_high` if there are such
    questions.

  Raises:
    ValueError: there are no questions, or the numbers of questions differ.
  """
  correct = np.asarray(predictions), np.asarray(labels)
  levels = np.asarray(levels)
  result = {"accuracy": common.accuracy(*correct)}
  for level in LEVELS:
    if (levels == level).any():
      result[f"accuracy_{level}"] = common.accuracy(
        *(values[levels == level] for values in correct)
      )
  return result
