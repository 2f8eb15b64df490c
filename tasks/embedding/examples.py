"""Reads pairs and triplets of texts, from which embeddings are learned.

    text,text_b          a text and one that belongs to it
    text,text_b,text_c   the same, and one that does not belong to it
    text,text_b,label    two texts and how similar they are, a number

The columns of a file say which it is; the files of a task may differ.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional, Sequence

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
class Example(common.TextExample):
  """Two texts, and perhaps one that does not belong to the first.

  The label is how similar the two are, a number; None if unknown.
  """

  text_c: Optional[str] = None

  @property
  def texts(self) -> list[Optional[str]]:
    """Two texts, or three."""
    return [*super().texts, *[self.text_c] * (self.text_c is not None)]


def form_of(path: str, columns: Mapping[str, str]) -> str:
  """Returns SCORES, TRIPLETS or PAIRS for the columns of a file, by role."""
  if {"text_c", "label"} <= {*columns}:
    raise ValueError(
      f"{path}: there are the columns {columns['text_c']!r} of texts that do "
      f"not belong and {columns['label']!r} of scores, of which a file can "
      "have one: leave one out."
    )
  if "label" in columns:
    return SCORES
  return TRIPLETS if "text_c" in columns else PAIRS


def check_varied(path: str, form: str, examples: Sequence[Example]) -> None:
  """Raises ValueError if the loss of all training rows would be 0."""
  values: dict[str, Callable[[Any], Any]] = {
    "score": lambda example: example.label,
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
