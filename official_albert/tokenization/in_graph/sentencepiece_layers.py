"""The tokenizer as part of the graph, so that a served model takes raw text.

`SentencePieceTextLayer` repeats
`official_albert.tokenization.sentencepiece_tokenizer` with TensorFlow
operations (for WordPiece see wordpiece_text_layer); `FillMaskTextLayer` turns
strings with `[MASK]` into model inputs. Both are saved inside a SavedModel
without any asset file (the vocabulary travels in the graph); whoever loads it
has to import tensorflow_text first.

Where the two tokenizers differ, with tensorflow_text 2.15.0:

- None of the 420 golden lines, in lower case or cased.
- Characters that TensorFlow does not know yet. tensorflow_text decomposes as
  of Unicode 12 and TensorFlow lower-cases as of Unicode 13, Python 3.10
  does both as of Unicode 13 and Python 3.11 as of 14. So 12 characters, or
  111 on Python 3.11, stay as they are instead (text_layers_test.py has them
  all: LCD digits, letters for phonetics, a few historic scripts), and a
  capital sigma next to an equally new character may take the other form.
- Two ways to cut a word that score alike: tensorflow_text carries an older
  SentencePiece, and since 0.2.2 the Python package prefers another of the two
  ("66 6", not "6 66"): 1 line in 31,200 of Wikipedia, none with 0.2.1.

Reference: google-research/albert tokenization.py (preprocess_text,
encode_pieces).
"""

from __future__ import annotations

import os
import unicodedata
from typing import NamedTuple, Union

import numpy as np
import tensorflow as tf
import tensorflow_text

from official_albert.tokenization.in_graph import graph_text
from official_albert.tokenization.in_graph import (
  wordpiece_layer as wordpiece_text_layer,
)

_WORD_START = "\u2581"
_SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_MASK = "[MASK]"
_DROPPED = -1
# A noncharacter: no text that means something has it.
_NUL_STAND_IN = "\uffff"


class Cut(NamedTuple):
  """What `SentencePieceTextLayer.cut_with_bytes` returns.

  Attributes:
    ids: a RaggedTensor <int32>[B, (pieces)], K of them in all.
    begins: <int64>[K], which bytes of its normalised text each piece comes
      from, spaces before it included.
    ends: <int64>[K], exclusive.
    first: <int32>[K], which characters of those bytes are the piece's own,
      spaces and what SentencePiece drops not counted; 0 unless a piece of
      digits and a comma was cut.
    last: <int32>[K], exclusive; -1: to the end.
  """

  ids: tf.RaggedTensor
  begins: tf.Tensor
  ends: tf.Tensor
  first: tf.Tensor
  last: tf.Tensor


class SentencePieceTextLayer(tf.Module):
  """Raw strings to ids, equal to `SentencePieceTokenizer.encode`.

  Make it outside of `tf.function`; call it anywhere.

  Attributes:
    lower_case: whether text is lower-cased first.
    vocab_size: number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: 0 to 4.
  """

  pad_id, unk_id, cls_id, sep_id, mask_id = range(len(_SPECIAL_PIECES))

  def __init__(
    self,
    model: str | bytes | os.PathLike,
    lower_case: bool = True,
    name: str = "sentence_piece_text",
  ):
    """Reads and checks a model.

    Args:
      model: the path of a SentencePiece model file, or the file's bytes.
      lower_case: whether text is lower-cased first.
      name: of the module.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: not a SentencePiece model, or one without ALBERT's special
        pieces at their ids.
    """
    super().__init__(name=name)
    self.lower_case = lower_case
    proto = (
      model
      if isinstance(model, bytes)
      else graph_text.read_file(os.fspath(model), "SentencePiece model file")
    )
    try:
      self._tokenizer = tensorflow_text.SentencepieceTokenizer(
        model=proto, out_type=tf.int32
      )
      self.vocab_size = int(self._tokenizer.vocab_size())
    except tf.errors.OpError as error:
      raise ValueError(
        f"the {len(proto):,} bytes given are not a SentencePiece model: pass "
        "the .model file (not .vocab or text), downloaded completely."
      ) from error
    pieces = [
      piece.decode("utf-8")
      for piece in self._tokenizer.id_to_string(
        tf.range(self.vocab_size)
      ).numpy()
    ]
    for expected, piece in enumerate(_SPECIAL_PIECES):
      if pieces[expected : expected + 1] != [piece]:
        raise ValueError(
          f"the SentencePiece model lacks {piece} at id {expected}: ALBERT's "
          f"vocabularies begin with {', '.join(_SPECIAL_PIECES)}; "
          "`python -m tools.train_vocabulary` makes a fitting one."
        )
    self._parts, self._part_splits = self._digit_comma_table(pieces)
    self._inner_ids = _inner_id_table(pieces)

  def _digit_comma_table(self, pieces: list[str]):
    # Row i holds what id i becomes: itself, or for a piece that ends in a
    # digit and a comma the pieces of its digits and the comma. Beside each id
    # stands which of the piece's characters are its own, marks not counted;
    # -1 is the last one's end.
    rows = [[(i, 0, -1)] for i in range(len(pieces))]
    comma = int(self._tokenizer.string_to_id(","))
    for i, piece in enumerate(pieces):
      if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
        digits = piece[:-1].replace(_WORD_START, "")
        cut, _, ends = self._tokenizer.tokenize_with_offsets(digits)
        ends = [
          len(digits.encode("utf-8")[:end].decode("utf-8"))
          for end in ends.numpy().tolist()
        ]
        rows[i] = list(zip(cut.numpy().tolist(), [0, *ends], ends))
        rows[i].append((comma, len(digits), len(digits) + 1))
    parts = np.array([part for row in rows for part in row], np.int32)
    splits = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
    return parts, splits

  def normalize(self, texts: tf.Tensor) -> tf.Tensor:
    """`tokenization.normalize_text` of every string, of any shape.

    NUL comes out as U+FFFF; both are unknown to any vocabulary.
    """
    space = graph_text.character_class(str.isspace)
    marks = graph_text.character_class(unicodedata.combining)
    texts = tf.strings.unicode_transcode(
      texts, "UTF-8", "UTF-8", errors="ignore"
    )
    texts = tf.strings.regex_replace(texts, f"{space}+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = tensorflow_text.normalize_utf8(texts, "NFKD")
    texts = tf.strings.regex_replace(texts, marks, "")
    if not self.lower_case:
      return texts
    # The Unicode-aware operation ends a string at its first NUL, and follows
    # the locale of the process: under a Turkish one "I" becomes a dotless i.
    # So NUL steps aside, and ASCII is lower-cased before.
    texts = tf.strings.regex_replace(texts, r"\x00", _NUL_STAND_IN)
    return tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")

  def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """The ids of each text, without [CLS] and [SEP].

    Args:
      texts: <string>[B], UTF-8; bytes that are not are dropped.

    Returns:
      A RaggedTensor <int32>[B, (pieces)].

    Raises:
      ValueError: `texts` is not a batch of strings.
    """
    texts = graph_text.check_texts(texts)
    ids = self._tokenizer.tokenize(self.normalize(texts))
    parts = self._parts_of(ids)
    ids_of_parts = tf.gather(tf.constant(self._parts[:, 0]), parts.flat_values)
    return parts.with_flat_values(ids_of_parts).merge_dims(1, 2)

  def _parts_of(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """<int32>[B, (pieces)] -> rows of `_parts`, <int32>[B, (pieces), (1+)]."""
    table = tf.RaggedTensor.from_row_splits(
      tf.range(len(self._parts)), tf.constant(self._part_splits), validate=False
    )
    return ids.with_flat_values(tf.gather(table, ids.flat_values))

  def cut_with_bytes(self, normal: tf.Tensor) -> Cut:
    """`tokenize` of normalised texts, with places in them.

    Args:
      normal: <string>[B], what `normalize` returned.
    """
    ids, begins, ends = self._tokenizer.tokenize_with_offsets(normal)
    parts = self._parts_of(ids)
    row = tf.gather(tf.constant(self._parts), parts.flat_values)
    piece = parts.values.value_rowids()
    ids = parts.with_flat_values(row[:, 0]).merge_dims(1, 2)
    return Cut(
      ids,
      tf.gather(begins.flat_values, piece),
      tf.gather(ends.flat_values, piece),
      row[:, 1],
      row[:, 2],
    )

  def without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    """Ids of the same pieces inside a word, of any shape.

    "▁able" becomes "able" where the vocabulary has it; the bare word mark
    becomes -1, to be left out; every other piece stays.
    """
    return tf.gather(tf.constant(self._inner_ids), ids)

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    """The vocabulary's pieces: <int>[...] -> <string>[...].

    Raises:
      tf.errors.InvalidArgumentError: an id is outside the vocabulary.
    """
    ids = tf.cast(ids, tf.int32)
    # The operation behind id_to_string reads beyond its table without asking
    # (the process dies), so it has to wait for this.
    inside = tf.debugging.Assert(
      tf.reduce_all((ids >= 0) & (ids < self.vocab_size)),
      [f"an id is outside the vocabulary of {self.vocab_size} pieces:", ids],
    )
    with tf.control_dependencies([] if inside is None else [inside]):
      return self._tokenizer.id_to_string(tf.identity(ids))


TextLayer = Union[
  SentencePieceTextLayer, wordpiece_text_layer.WordPieceTextLayer
]


def make_text_layer(kind: str, file: str, lower_case: bool) -> TextLayer:
  """The twin of a tokenizer of this kind, "sentencepiece" or "wordpiece"."""
  if kind == "wordpiece":
    return wordpiece_text_layer.WordPieceTextLayer(file, lower_case)
  return SentencePieceTextLayer(file, lower_case)


class FillMaskTextLayer(tf.Module):
  """Strings with `[MASK]` to the inputs of a masked language model.

      layer = FillMaskTextLayer(SentencePieceTextLayer("30k-clean.model"))
      layer(tf.constant(["The capital of [MASK] is Paris."]))

  `[MASK]` is found literally (case matters) before anything is normalised;
  the text between two masks is tokenised by itself. Text that touches the
  mask on its left goes on within the mask's word: "[MASK]." is `[MASK]` and
  ".", not `[MASK]`, "▁", ".", because that is what a masked word before a
  full stop looks like in pretraining data.

  Attributes:
    text_layer: the tokenizer.
    max_seq_length: the longest sequence S that it makes.
  """

  def __init__(
    self,
    text_layer: TextLayer,
    max_seq_length: int = 512,
    name: str = "fill_mask_text",
  ):
    """Composes the layer.

    Raises:
      ValueError: no room for a token between [CLS] and [SEP].
    """
    super().__init__(name=name)
    if max_seq_length < 3:
      raise ValueError(
        f"max_seq_length must be at least 3, got {max_seq_length}: [CLS] and "
        "[SEP] take two places."
      )
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length

  def __call__(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
    """Packs each text as `[CLS] text [SEP]`.

    Args:
      texts: <string>[B], UTF-8.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], with S the
      longest text of the batch up to max_seq_length (what is longer loses its
      end, masks included), padded with 0; `mask_positions` <int32>[B, M],
      where input_ids is [MASK], with M the most masks in a text, padded
      with -1.

    Raises:
      ValueError: `texts` is not a batch of strings.
    """
    ids = self._body(graph_text.check_texts(texts))[
      :, : self.max_seq_length - 2
    ]
    batch = ids.nrows(out_type=tf.int32)
    ids = tf.concat(
      [
        tf.fill([batch, 1], self.text_layer.cls_id),
        ids,
        tf.fill([batch, 1], self.text_layer.sep_id),
      ],
      axis=1,
    )
    positions = tf.ragged.range(ids.row_lengths())
    positions = tf.ragged.boolean_mask(
      positions, tf.equal(ids, self.text_layer.mask_id)
    )
    input_ids = ids.to_tensor(self.text_layer.pad_id)
    return {
      "input_ids": input_ids,
      "input_mask": tf.ones_like(ids).to_tensor(0),
      "segment_ids": tf.zeros_like(input_ids),
      "mask_positions": tf.cast(positions, tf.int32).to_tensor(-1),
    }

  def _body(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """<string>[B] -> <int32>[B, (pieces and masks)]."""
    parts = tf.strings.split(texts, _MASK)  # [B, (1 + masks)]
    ids = self._continued(parts)  # [all parts, (pieces)]
    mask = tf.fill([ids.nrows(out_type=tf.int32), 1], self.text_layer.mask_id)
    # Every part is followed by a mask, except the last one of a text.
    ids = parts.with_flat_values(tf.concat([ids, mask], axis=1))
    return ids.merge_dims(1, 2)[:, :-1]

  def _continued(self, parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Tokenises all parts; one that touches a mask begins within a word."""
    ids = self.text_layer.tokenize(parts.flat_values)
    index_in_text = tf.ragged.range(parts.row_lengths()).flat_values
    space = graph_text.character_class(str.isspace)
    touches = (index_in_text > 0) & tf.equal(
      parts.flat_values,
      tf.strings.regex_replace(parts.flat_values, f"^{space}", ""),
    )
    begins = tf.equal(tf.ragged.range(ids.row_lengths()).flat_values, 0)
    within = begins & tf.gather(touches, ids.value_rowids())
    inner = self.text_layer.without_word_start(ids.flat_values)
    ids = ids.with_flat_values(tf.where(within, inner, ids.flat_values))
    return tf.ragged.boolean_mask(ids, tf.not_equal(ids, _DROPPED))


def _inner_id_table(pieces: list[str]) -> np.ndarray:
  """<int32>[V]: see `SentencePieceTextLayer.without_word_start`."""
  id_of = {piece: i for i, piece in enumerate(pieces)}
  table = np.arange(len(pieces), dtype=np.int32)
  for i, piece in enumerate(pieces):
    if piece == _WORD_START:
      table[i] = _DROPPED
    elif piece.startswith(_WORD_START):
      table[i] = id_of.get(piece[len(_WORD_START) :], i)
  return table
