"""The base class of both tokenizers, and the packing of their ids.

Reference for packing: google-research/albert classifier_utils.py
(convert_single_example, _truncate_seq_pair).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Optional, Union

import numpy as np

from official_albert import files, settings
from official_albert.tokenization import normalization

# The file of a tokenizer in a folder of this package, by the tokenizer's kind.
TOKENIZER_FILES = {"sentencepiece": "tokenizer.model", "wordpiece": "vocab.txt"}


@dataclasses.dataclass(frozen=True)
class TextRules:
  """How a tokenizer changes text before it looks for pieces, as the original.

  A tokenizer's file does not hold these rules, so they are recorded beside it.

  Attributes:
    lower_case: whether text is lower-cased.
    keep_accents: whether combining marks stay, with the letters that contain
      one. None is the original's rule: SentencePiece loses them, and WordPiece
      loses them with `lower_case`.
    split_chinese: whether each Chinese character is a word; only WordPiece.
    max_word_characters: longer words become [UNK]; only WordPiece. Hugging Face
      has 100.
  """

  lower_case: bool = True
  keep_accents: Optional[bool] = None
  split_chinese: bool = True
  max_word_characters: int = 200

  def __post_init__(self):
    longest = self.max_word_characters
    settings.check_number("max_word_characters", longest, 1, 10_000, whole=True)

  @classmethod
  def of(cls, record: Mapping[str, Any]) -> TextRules:
    """Returns the rules in a record, whose types have been checked."""
    fields = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: record[name] for name in fields & {*record}})

  def to_dict(self) -> dict[str, Any]:
    """Returns `lower_case`, and the other rules that are not the default."""
    values, defaults = dataclasses.asdict(self), dataclasses.asdict(TextRules())
    changed = {k: x for k, x in values.items() if x != defaults[k]}
    return {"lower_case": self.lower_case, **changed}


class FileTokenizer:
  """Maps text to ids; picklable, so it can be sent to workers.

  Text never becomes a special piece: a literal "[MASK]" is split like other
  text.

  Attributes:
    kind: "sentencepiece" or "wordpiece".
    model_file: the path of the file; "" if its content was given.
    content: the content of the file.
    rules: how text is changed first.
    keep_accents: whether combining marks stay.
    normalization: how each character is changed, by the rules.
    sha256: the hexadecimal hash of the file.
    vocab_size: the number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: the ids of the special pieces.
    special_ids: the ids of all pieces that are not text.
  """

  kind: str
  _what: str
  _advice: str
  vocab_size: int
  pad_id: int
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  special_ids: frozenset[int]
  _pieces: list[str]
  _ids: dict[str, int]
  _starts_word: Callable[[str], bool]

  def __init__(
    self, file: Union[str, bytes], lower_case: bool = True, **rules: Any
  ):
    """Reads a file, whose content may be given instead of its path.

    `rules` are further fields of `TextRules`.
    """
    self.model_file = "" if isinstance(file, bytes) else os.fspath(file)
    self.rules = TextRules(lower_case, **rules)
    try:
      self.content = (
        file if isinstance(file, bytes) else files.read_bytes(self.model_file)
      )
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
      raise FileNotFoundError(
        f"there is no {self._what} {self.model_file!r}: check the path; "
        f"{self._advice}."
      ) from error
    self.sha256 = hashlib.sha256(self.content).hexdigest()
    words, keep = self.kind == "wordpiece", self.rules.keep_accents
    self.keep_accents = words and not lower_case if keep is None else keep
    self.normalization = normalization.make(
      lower_case, self.keep_accents, words, words and self.rules.split_chinese
    )
    self._load(self.content)

  def _load(self, content: bytes) -> None:
    """Sets the attributes that the content of the file says."""
    raise NotImplementedError

  def __call__(
    self,
    texts: Union[str, Sequence[str]],
    texts_b: Union[str, Sequence[str], None] = None,
    max_seq_length: Optional[int] = None,
    padding: str = "longest",
  ) -> dict[str, np.ndarray]:
    """Returns the inputs of a model for B texts, or for B pairs of texts.

    A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], with the ids of an export.

    >>> from official_albert.tokenization import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer("quickstart/tokenizer.model")
    >>> inputs = tokenizer(["A sunny day.", "A day."], max_seq_length=64)
    >>> inputs["input_mask"].tolist()  # [CLS] and [SEP] count.
    [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]]

    Args:
      texts: a text, or a list, an array or a Series of texts. Bytes are read as
        UTF-8.
      texts_b: the second texts of the pairs, as many as there are texts.
      max_seq_length: the maximum length of a row, see `pack_pair`. None keeps
        all tokens.
      padding: "longest" pads to the longest row of this call, "max_length" to
        `max_seq_length`, for a model with a static shape, such as on a TPU.

    Returns:
      `input_ids`, `input_mask` (0 for padding) and `segment_ids`, <int32>[B, S]
      each. A single text has B = 1.
    """
    settings.check_choice("padding", padding, ("longest", "max_length"))
    if padding == "max_length" and max_seq_length is None:
      raise ValueError('padding="max_length" needs max_seq_length.')
    longest = sys.maxsize if max_seq_length is None else max_seq_length
    ids_a = self.encode_batch(check_texts(texts, "texts"))
    ids_b: Sequence[Optional[list[int]]] = [None] * len(ids_a)
    if texts_b is not None:
      ids_b = self.encode_batch(check_texts(texts_b, "texts_b"))
    if len(ids_a) != len(ids_b):
      raise ValueError(
        f"there are {len(ids_a)} texts and {len(ids_b)} second texts: a pair "
        "needs one of each."
      )
    rows = [
      pack_pair(a, b, longest, self.cls_id, self.sep_id)
      for a, b in zip(ids_a, ids_b)
    ]
    # Models do not accept length 0, which an empty batch would have.
    shortest = 2 if texts_b is None else 3
    length = max([shortest, *(len(ids) for ids, _ in rows)])
    if padding == "max_length":
      length = longest
    packed = np.zeros([3, len(rows), length], np.int32)
    for i, (ids, segment_ids) in enumerate(rows):
      packed[:, i, : len(ids)] = ids, [1] * len(ids), segment_ids
    return dict(zip(("input_ids", "input_mask", "segment_ids"), packed))

  def tokenize(self, text: str) -> list[str]:
    """Returns the pieces of a text; those that are unknown stay unchanged.

    With WordPiece, an unknown word becomes [UNK].
    """
    raise NotImplementedError

  def encode(self, text: str) -> list[int]:
    """Returns the ids of `tokenize(text)`, without [CLS] and [SEP]."""
    raise NotImplementedError

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns `[encode(text) for text in texts]` on one thread."""
    return [self.encode(text) for text in texts]

  def encode_with_offsets(self, text: str) -> normalization.EncodedText:
    """Returns `encode(text)` with the characters that each id comes from."""
    raise NotImplementedError

  def changes(self, piece: str) -> bool:
    """Returns whether text is changed so that it never gives this piece."""
    raise NotImplementedError

  def decode(self, ids: Iterable[int]) -> str:
    """Returns readable text, without special pieces other than the unknown."""
    raise NotImplementedError

  def piece_to_id(self, piece: str) -> int:
    """Returns the id of a piece, or `unk_id` if there is no such piece."""
    return self._ids.get(piece, self.unk_id)

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

  @functools.cached_property
  def word_start_table(self) -> np.ndarray:
    """Whether whole-word masking begins a word at each piece, <bool>[V]."""
    return np.array([self._starts_word(piece) for piece in self._pieces])


def check_texts(texts: Any, name: str) -> list[str]:
  """Returns one or several texts as a list; see `FileTokenizer.__call__`.

  Raises:
    TypeError: something else than a text is given.
  """
  if isinstance(texts, (str, bytes)):
    texts = [texts]
  elif (
    not isinstance(texts, Iterable)
    or isinstance(texts, (Mapping, Set))  # Sets have no order.
    or getattr(texts, "ndim", 1) != 1  # A DataFrame has the names of columns.
  ):
    raise TypeError(
      f"{name} must be a text or a list of texts, not {texts!r:.80}; the texts "
      "of pairs are two lists."
    )
  elif hasattr(texts, "numpy"):
    texts = texts.numpy()  # Of TensorFlow.
  checked = []
  for i, text in enumerate(texts):
    if isinstance(text, bytes):
      text = text.decode("utf-8", "ignore")
    if not isinstance(text, str):
      raise TypeError(f"{name}[{i}] is {text!r:.80}, but must be a str.")
    checked.append(text)
  return checked


def bucket_lengths(max_length: int) -> tuple[int, ...]:
  """Returns 16, 24, 32, 48, 64, 96, 128 and so on; the last is `max_length`.

  Batches are padded to one of them, so that few shapes are compiled. Each is at
  most 1.5 times the previous one.
  """
  lengths, power = [], 16
  while power < max_length:
    lengths += [n for n in (power, power + power // 2) if n < max_length]
    power *= 2
  return (*lengths, max_length)


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
  """Packs one or two texts as [CLS] A [SEP] B [SEP]: ids and segment ids.

  If they do not fit, tokens are removed one by one from the end of the longer
  text, or from B if both are equally long. Segment 0 ends with the first [SEP].

  Deviation: an empty B has its [SEP], too, as in transformers for a batch; the
  original leaves it out.

  >>> from official_albert import tokenization
  >>> tokenization.pack_pair([11, 12, 13], [21, 22], 7, cls_id=2, sep_id=3)
  ([2, 11, 12, 3, 21, 22, 3], [0, 0, 0, 0, 1, 1, 1])
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
