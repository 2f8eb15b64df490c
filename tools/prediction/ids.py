"""Texts as the ids that a model was trained with, for models that take no text.

The Python tokenizer that made the training data, packing and cutting included:
for runs, and for SavedModels that were exported with ids alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Sequence

import numpy as np

from official_albert import tokenization
from tasks import race
from tools.prediction.stream import Part

FEATURES = ("input_ids", "input_mask", "segment_ids")


@dataclasses.dataclass(frozen=True)
class Ids:
  """Makes sequences of rows.

  Attributes:
    tokenizer: the model's.
    max_seq_length: S, tokens of a sequence at most.
    roles: what a row has, see `registry.TaskKind`; not of SQuAD.
    max_qa_length: of RACE.
    fixed_length: whether all sequences are padded to S, or those of a batch
      to its longest.
  """

  tokenizer: tokenization.Tokenizer
  max_seq_length: int
  roles: tuple[str, ...]
  max_qa_length: int = 0
  fixed_length: bool = False

  def part(self, cells: Mapping[str, Any]) -> Part:
    """The sequence of a row, or of a question with its options those."""
    if "options" in self.roles:
      example = race.RaceExample(
        example_id="",
        article=cells["passage"],
        question=cells["question"],
        options=tuple(cells["options"]),
        label=None,
        level="",
      )
      sequences = race.make_inputs(
        example, self.tokenizer, self.max_seq_length, self.max_qa_length
      )
      return Part(max(len(ids) for ids, _ in sequences), sequences)
    text_a, *text_b = (cells[role] for role in self.roles)
    sequence = tokenization.pack_pair(
      self.tokenizer.encode(text_a),
      self.tokenizer.encode(text_b[0]) if text_b else None,
      self.max_seq_length,
      self.tokenizer.cls_id,
      self.tokenizer.sep_id,
    )
    return Part(len(sequence[0]), sequence)

  def batch(self, inputs: Sequence[Any]) -> dict[str, np.ndarray]:
    """`FEATURES` <int32>[B, S], of options [B, 4, S], filled up with zeros.

    Args:
      inputs: of `part`, for each row.
    """
    if "options" in self.roles:
      flat = pad([s for row in inputs for s in row], self._length())
      return {
        name: x.reshape(len(inputs), -1, x.shape[1]) for name, x in flat.items()
      }
    return pad(inputs, self._length())

  def _length(self) -> int:
    return self.max_seq_length if self.fixed_length else 0


def pad(
  sequences: Sequence[tuple[Sequence[int], Sequence[int]]], length: int = 0
) -> dict[str, np.ndarray]:
  """Sequences as one batch.

  Args:
    sequences: ids and segment ids of each.
    length: of the result; 0: that of the longest.

  Returns:
    `FEATURES`, <int32>[B, S] each.
  """
  length = length or max(len(ids) for ids, _ in sequences)
  rows = {
    name: np.zeros([len(sequences), length], np.int32) for name in FEATURES
  }
  for number, (ids, segments) in enumerate(sequences):
    rows["input_ids"][number, : len(ids)] = ids
    rows["input_mask"][number, : len(ids)] = 1
    rows["segment_ids"][number, : len(ids)] = segments
  return rows
