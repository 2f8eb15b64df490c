"""RACE: recipes, files, sequences and accuracy.

    RACE/{train,dev,test}/{middle,high}/1234.txt   one JSON object, as released
    RACE/{train,dev,test}/{middle,high}/all.txt    one JSON object per line

If a folder has an all.txt, it is read instead of the other files.

Reference: google-research/albert race_utils.py (RaceProcessor,
convert_single_example).
"""

from __future__ import annotations

import codecs
import dataclasses
import os
from multiprocessing.pool import ThreadPool
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

import numpy as np

from official_albert import archives, files, tokenization
from official_albert.tasks import common

LETTERS = "ABCD"
LEVELS = ("middle", "high")
_SPLITS = ("train", "dev", "test")
_ARCHIVES = ("RACE.tar.gz", "RACE.tgz", "RACE.tar")
# Files that are read at the same time; a bucket answers each after a while.
_READERS = 32
# Of an archive, far above RACE, which has 28,000 passages.
_MAX_BYTES, _MAX_FILES = 1 << 30, 100_000
_ALL = "all.txt"
# Faulty passages to name in a message.
_NAMED = 3

# (input_ids, segment_ids) for each option, not padded.
Inputs = list[tuple[list[int], list[int]]]


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """The settings of fine-tuning on RACE.

  "race" is the recipe of arXiv 1909.11942, Table 14. "race_v2" is the one in
  the README of google-research/albert for the v2 models, which diverge with the
  former. The original reports accuracies of 0.640 (base v1) to 0.868 (xxlarge
  v2) on the development set. This package has not reproduced them yet.

  Attributes:
    max_qa_length: the maximum tokens of question and option. Table 14 omits it;
      the default is that of run_race.py.
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
    data_dir: the folder RACE, a folder that contains it or its archive, or the
      archive RACE.tar.gz, which is read without unpacking.
    split: the name of the split.
    needs_labels: whether all passages must have answers.

  Raises:
    FileNotFoundError: there is no data, or no passage in it.
    ValueError: the archive is damaged, or passages are invalid. The message
      counts the faults, and names file, line and question of the first.
  """
  root = _find_root(data_dir)
  read = _read_archive if files.is_file(root) else _read_folders
  examples: list[RaceExample] = []
  faults: list[str] = []

  def add(where: str, name: str, level: str, data: bytes) -> None:
    try:
      parsed = _parse(where, name, level, data, needs_labels, faults)
      examples.extend(parsed)
    except ValueError as fault:
      faults.append(str(fault).rstrip("."))

  for level, contents in read(root, split).items():
    folder = os.path.join(root, split, level)
    if _ALL in contents:
      for number, line in enumerate(contents[_ALL].split(b"\n"), 1):
        if line.strip():
          where = f"{os.path.join(folder, _ALL)} line {number}"
          add(where, f"{level}{number}", level, line)
      continue
    # 2.txt comes before 10.txt.
    for file in sorted(contents, key=lambda name: (len(name), name)):
      add(os.path.join(folder, file), f"{level}{file}", level, contents[file])
  if len(faults) == 1:
    raise ValueError(f"{faults[0]}.")
  if faults:
    shown = "; ".join(faults[:_NAMED])
    if len(faults) > _NAMED:
      shown += f"; and {len(faults) - _NAMED:,} more"
    raise ValueError(
      f"{root} has {len(faults):,} faults in {split}: {shown}. Correct them."
    )
  if not examples:
    raise FileNotFoundError(
      f"{root} has no passage of {split}: there should be files such as "
      f"{split}/middle/1.txt, or {split}/middle/{_ALL} with one JSON object a "
      "line."
    )
  return examples


def _find_root(data_dir: str) -> str:
  """Returns the folder with the splits, or the archive."""
  if files.is_file(data_dir):
    return data_dir
  for folder in (data_dir, os.path.join(data_dir, "RACE")):
    if any(files.is_dir(os.path.join(folder, name)) for name in _SPLITS):
      return folder
  for name in _ARCHIVES:
    archive = os.path.join(data_dir, name)
    if files.is_file(archive):
      return archive
  raise FileNotFoundError(
    f"there is no RACE in {data_dir!r}: name the folder with train, dev and "
    "test, the folder that contains it, or RACE.tar.gz."
  )


def _read_folders(root: str, split: str) -> dict[str, dict[str, bytes]]:
  """Returns contents by level and file name."""
  contents: dict[str, dict[str, bytes]] = {}
  with ThreadPool(_READERS) as pool:
    for level in LEVELS:
      folder = os.path.join(root, split, level)
      names = files.list_dir(folder) if files.is_dir(folder) else []
      names = [_ALL] if _ALL in names else list(filter(_is_passage, names))
      paths = [os.path.join(folder, name) for name in names]
      contents[level] = dict(zip(names, pool.map(files.read_bytes, paths)))
  return contents


def _read_archive(root: str, split: str) -> dict[str, dict[str, bytes]]:
  """Returns contents by level and file name, in one pass over the archive."""
  contents: dict[str, dict[str, bytes]] = {level: {} for level in LEVELS}
  try:
    with files.open(root, "rb") as packed:
      found = archives.members(packed, _MAX_FILES, _MAX_BYTES)
      for archive, member in found:
        *_, parent, level, name = ["", "", *member.name.split("/")]
        is_wanted = parent == split and level in LEVELS and _is_passage(name)
        if is_wanted and member.isreg() and not member.issparse():
          contents[level][name] = archive.extractfile(member).read()
  except archives.ERRORS as error:
    reason = str(error).partition(":")[0]  # Others list all formats.
    raise ValueError(
      f"{root} is not a complete .tar or .tar.gz ({reason[:120]}): download "
      "it again."
    ) from error
  return contents


def _is_passage(name: str) -> bool:
  # Archives made on macOS also have "._1.txt" for "1.txt".
  return name.endswith(".txt") and not name.startswith(".")


def _parse(
  where: str,
  name: str,
  level: str,
  data: bytes,
  needs_labels: bool,
  faults: list[str],
) -> list[RaceExample]:
  """Returns the questions of a passage; `name` is its id unless it has one.

  Adds those with faults to `faults`; raises ValueError for one of the passage.
  """
  value = files.parse_json(
    data.removeprefix(codecs.BOM_UTF8),
    where,
    dict[str, Any],
    "a passage has article, questions, options and answers",
  )
  article = value.get("article")
  if not isinstance(article, str) or not article.strip():
    raise ValueError(f"{where}: the passage has no article.")
  fields = ["questions", "options"]
  if needs_labels or value.get("answers"):
    fields.append("answers")
  columns = [value.get(field) or [] for field in fields]
  for field, column in zip(fields, columns):
    if not (isinstance(column, list) and 0 < len(column) == len(columns[0])):
      raise ValueError(
        f"{where}: the passage has no {field}, or not one for each question."
      )
  examples = []
  for number, (question, options, *answer) in enumerate(zip(*columns)):
    here = f"{where}, question {number + 1} of {len(columns[0])}"
    # Empty questions and options occur in RACE, and the original accepts them.
    if not (
      isinstance(options, list)
      and len(options) == len(LETTERS)
      and all(isinstance(text, str) for text in (question, *options))
    ):
      faults.append(
        f"{here}: it must be a text with {len(LETTERS)} texts as options"
      )
      continue
    if answer and answer[0] not in list(LETTERS):
      faults.append(
        f"{here}: the answer {files.quote(answer[0])} is not one of the "
        f"letters {', '.join(LETTERS)}"
      )
      continue
    examples.append(
      RaceExample(
        f"{value.get('id') or name}#{number}",
        article,
        question,
        tuple(options),
        LETTERS.index(answer[0]) if answer else None,
        level,
      )
    )
  return examples


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
  predictions: Any, labels: Any, levels: Sequence[str]
) -> dict[str, float]:
  """Returns the accuracy on all questions and on each level that occurs.

  RACE's paper (arXiv 1704.04683) reports all three, google-research/albert only
  `eval_accuracy`. Predictions and labels are <int>[N]; no questions have no
  accuracy (ValueError).
  """
  if not len(labels):
    raise ValueError("there are no questions, so there is no metric of them.")
  right, level_of = np.equal(predictions, labels), np.array(levels)
  result = {"accuracy": float(right.mean())}
  for level in LEVELS:
    if (level_of == level).any():
      result[f"accuracy_{level}"] = float(right[level_of == level].mean())
  return result
