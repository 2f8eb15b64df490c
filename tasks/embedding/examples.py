"""Reads pairs and triplets of texts, from which embeddings are learned.

    text,text_b          a text and one that belongs to it
    text,text_b,text_c   the same, and one that does not belong to it
    text,text_b,label    two texts and how similar they are, a number

The columns of a file say which it is; the files of a task may differ.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Iterator, Mapping, Optional

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


def form_of(path: str, columns: Mapping[str, str]) -> str:
  """Returns SCORES, TRIPLETS or PAIRS for tables, by their columns.

  `columns` are their names by the roles text, text_b, text_c and label.
  """
  record = next(common.read_table(path, []))
  has = {role for role, name in columns.items() if name in record.cells}
  if {"text_c", "label"} <= has:
    raise ValueError(
      f"{record.where}: there are the columns {columns['text_c']!r} of texts "
      f"that do not belong and {columns['label']!r} of scores, of which a file "
      "can have one: leave one out."
    )
  return SCORES if "label" in has else TRIPLETS if "text_c" in has else PAIRS


def read_examples(
  path: str, columns: Mapping[str, str], invalid: common.InvalidRows
) -> _Examples:
  """Reads tables; see `form_of` and `common.read_table`.

  `columns` may have the role id. Invalid rows are left to `invalid`.
  """
  form = form_of(path, columns)
  roles = ["text", "text_b", *(["text_c"] if form == TRIPLETS else [])]
  examples = _Examples(_read_rows(path, columns, roles, form, invalid))
  if not examples:
    raise ValueError(f"{path} has no valid row; the first: {invalid.first}")
  return examples


def _read_rows(
  path: str,
  columns: Mapping[str, str],
  roles: list[str],
  form: str,
  invalid: common.InvalidRows,
) -> Iterator[Example]:
  others = ["id"] if "id" in columns else []
  others += ["label"] if form == SCORES else []
  names = [columns[role] for role in (*roles, *others)]
  for number, record in enumerate(common.read_table(path, names, invalid)):
    with invalid:
      texts = tuple(common.text_cell(record, columns[x]) for x in roles)
      guid, score = str(number), None
      if "id" in others:
        guid = common.plain_cell(record, columns["id"])
      if form == SCORES:
        label = common.plain_cell(record, columns["label"]).strip()
        common.check_label(record.where, label, None)
        score = float(label)
      yield Example(guid, texts, score, record.where)
