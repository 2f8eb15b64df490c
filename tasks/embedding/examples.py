"""Reads pairs and triplets of texts, from which embeddings are learned.

    text,text_b          a text and one that belongs to it
    text,text_b,text_c   the same, and one that does not belong to it
    text,text_b,label    two texts and how similar they are, a number

The columns of a file say which it is; the files of a task may differ.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from official_albert.config import Pooling
from official_albert.settings import setting
from official_albert.tasks import common

SCORES, TRIPLETS, PAIRS = "scores", "triplets", "pairs"


@dataclasses.dataclass(frozen=True)
class Recipe(Pooling, common.Recipe):
  """The settings of training embeddings."""

  similarity_scale: float = setting(
    20.0,
    "Embeddings: factor of the cosines in the loss, 1 / temperature; by "
    "default 20.",
    above=0,
  )
  embedding_dims: str = setting(
    "",
    "Embeddings: also train their first numbers, so that they can be shortened "
    "to 128,64 numbers (Matryoshka).",
  )
  embedding_depths: str = setting(
    "", "Embeddings: also train those after 3,6 layers, which take less time."
  )


@dataclasses.dataclass(frozen=True)
class Example:
  """Texts to compare.

  Attributes:
    guid: the id of the row, by default its number.
    texts: two texts, or three; the third does not belong to the first.
    score: how similar the two are; None if unknown.
    where: the place in the file, for messages.
  """

  guid: str
  texts: tuple[str, ...]
  score: Optional[float]
  where: str = dataclasses.field(compare=False)


class _Examples(common.DiskList):
  """Examples, on the disk if they are many."""

  def encode(self, value: Example) -> bytes:
    return json.dumps([*vars(value).values()]).encode()

  def decode(self, content: bytes) -> Example:
    guid, texts, score, where = json.loads(content)
    return Example(guid, (*texts,), score, where)


def find_columns(path: str, columns: Mapping[str, str]) -> dict[str, str]:
  """Returns those of the columns that tables have, and always two texts.

  `columns` are the names by the roles text, text_b, text_c, label and id.
  """
  record = common.first_record(path)
  found = {
    role: name
    for role, name in columns.items()
    if name in record.cells or role in ("text", "text_b")
  }
  if {"text_c", "label"} <= {*found}:
    raise ValueError(
      f"{record.where}: there are the columns {columns['text_c']!r} of texts "
      f"that do not belong and {columns['label']!r} of scores, of which a file "
      "can have one: leave one out."
    )
  return found


def form_of(columns: Mapping[str, str]) -> str:
  """Returns SCORES, TRIPLETS or PAIRS for the columns of a table, by role."""
  if "label" in columns:
    return SCORES
  return TRIPLETS if "text_c" in columns else PAIRS


def read_examples(
  path: str, columns: Mapping[str, str], invalid: common.InvalidRows
) -> _Examples:
  """Reads tables with the `columns` that `find_columns` has found.

  Invalid rows are left to `invalid`.
  """
  examples = _Examples(_read_rows(path, columns, invalid))
  if not examples:
    raise ValueError(f"{path} has no valid row; the first: {invalid.first}")
  return examples


def check_varied(path: str, form: str, examples: Sequence[Example]) -> None:
  """Raises ValueError if the loss of all training rows would be 0."""
  values: dict[str, Callable[[Example], Any]] = {
    "score": lambda example: example.score,
    "text": lambda example: example.texts[0],
    "second text": lambda example: example.texts[1],
  }
  compared = {SCORES: ["score"], PAIRS: ["text", "second text"], TRIPLETS: []}
  for name in compared[form]:
    first = values[name](examples[0])
    if all(values[name](example) == first for example in examples):
      raise ValueError(
        f"{path}: all {len(examples):,} rows have the {name} {first!r:.60}, "
        "but training compares rows: give rows that differ."
      )


def _read_rows(
  path: str, columns: Mapping[str, str], invalid: common.InvalidRows
) -> Iterator[Example]:
  roles = [x for x in ("text", "text_b", "text_c") if x in columns]
  rows = common.read_table(path, [*columns.values()], invalid)
  for number, record in enumerate(rows):
    with invalid:
      texts = tuple(common.text_cell(record, columns[x]) for x in roles)
      guid, score = str(number), None
      if "id" in columns:
        guid = common.plain_cell(record, columns["id"])
      if "label" in columns:
        label = common.plain_cell(record, columns["label"]).strip()
        common.check_label(record.where, label, None)
        score = float(label)
      yield Example(guid, texts, score, record.where)
