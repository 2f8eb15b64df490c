"""The base class of both tokenizers, and the packing of their ids.

Reference for packing: google-research/albert classifier_utils.py
(convert_single_example, _truncate_seq_pair).
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Optional

import numpy as np

from official_albert import files
from official_albert.tokenization import text_offsets


class FileTokenizer:
  """Maps text to ids; picklable, so it can be sent to workers.

  Text never becomes a special piece: a literal "[MASK]" is split like other
  text.

  Attributes:
    kind: "sentencepiece" or "wordpiece".
    model_file: the path of the file.
    lower_case: whether text is lower-cased first.
    sha256: the hexadecimal hash of the file.
    vocab_size: the number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: the ids of the special pieces.
    special_ids: the ids of all pieces that are not text.
  """

  kind: str
  vocab_size: int
  pad_id: int
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  special_ids: frozenset[int]
  _pieces: list[str]

  def _read(self, file: str, lower_case: bool, what: str, advice: str) -> bytes:
    self.model_file = os.fspath(file)
    self.lower_case = lower_case
    try:
      content = files.read_bytes(self.model_file)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
      raise FileNotFoundError(
        f"there is no {what} {self.model_file!r}: check the path; {advice}."
      ) from error
    self.sha256 = hashlib.sha256(content).hexdigest()
    return content

  def tokenize(self, text: str) -> list[str]:
    """Returns the pieces of a text."""
    raise NotImplementedError

  def encode(self, text: str) -> list[int]:
    """Returns the ids of `tokenize(text)`, without [CLS] and [SEP]."""
    raise NotImplementedError

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns `[encode(text) for text in texts]` on one thread."""
    return [self.encode(text) for text in texts]

  def encode_with_offsets(self, text: str) -> text_offsets.EncodedText:
    """Returns `encode(text)` with the characters that each id comes from."""
    raise NotImplementedError

  def character_form(self, char: str) -> int:
    """Returns the form that `encode` gives a character; see `text_offsets`."""
    raise NotImplementedError

  def decode(self, ids: Iterable[int]) -> str:
    """Returns readable text, without special pieces other than the unknown."""
    raise NotImplementedError

  def piece_to_id(self, piece: str) -> int:
    """Returns the id of a piece, or `unk_id` if there is no such piece."""
    raise NotImplementedError

  def id_to_piece(self, id: int) -> str:
    """Returns the piece; an id outside the vocabulary raises ValueError."""
    if not 0 <= id < self.vocab_size:
      raise ValueError(
        f"id {id} is outside the vocabulary of {self.vocab_size} pieces: was "
        "it encoded with another tokenizer?"
      )
    return self._pieces[id]

  def marked_piece(self, id: int) -> str:
    """Returns the piece as SentencePiece writes it, with "▁" for a space."""
    return self.id_to_piece(id)

  def _starts_word(self, piece: str) -> bool:
    raise NotImplementedError

  @functools.cached_property
  def word_start_table(self) -> np.ndarray:
    """Whether whole-word masking begins a word at each piece, <bool>[V]."""
    table = np.array([self._starts_word(piece) for piece in self._pieces])
    table.setflags(write=False)
    return table


def available_tokens(max_seq_length: int, texts: int) -> int:
  """Returns how many tokens fit besides [CLS] and the [SEP] of each text."""
  available = max_seq_length - 1 - texts
  if available < texts:
    raise ValueError(
      f"max_seq_length is {max_seq_length}, but [CLS], {texts} [SEP] and a "
      f"token of each text need {1 + 2 * texts}: increase it."
    )
  return available


def pack_pair(
  ids_a: Sequence[int],
  ids_b: Optional[Sequence[int]],
  max_seq_length: int,
  cls_id: int,
  sep_id: int,
) -> tuple[list[int], list[int]]:
  """Packs one or two texts as [CLS] A [SEP] B [SEP].

  If they do not fit, tokens are removed one by one from the end of the longer
  text, or from B if both are equally long.

  >>> from official_albert import tokenization
  >>> tokenization.pack_pair([11, 12, 13], [21, 22], 7, cls_id=2, sep_id=3)
  ([2, 11, 12, 3, 21, 22, 3], [0, 0, 0, 0, 1, 1, 1])

  Args:
    ids_a: the tokens of A, possibly empty.
    ids_b: the tokens of B, possibly empty; None if there is no second text.
    max_seq_length: the maximum length of the result, special tokens included.
    cls_id: the id of [CLS].
    sep_id: the id of [SEP].

  Returns:
    (input_ids, segment_ids) of equal length, not padded. Segment 0 ends with
    the first [SEP].
  """
  available = available_tokens(max_seq_length, 1 if ids_b is None else 2)
  length_b = len(ids_b or ())
  # A keeps what B does not need, but always half, rounded up, if it is longer.
  keep_a = min(len(ids_a), max(available - length_b, (available + 1) // 2))
  keep_b = min(length_b, available - keep_a)
  input_ids = [cls_id, *ids_a[:keep_a], sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b is not None:
    input_ids += [*ids_b[:keep_b], sep_id]
    segment_ids += [1] * (keep_b + 1)
  return input_ids, segment_ids
