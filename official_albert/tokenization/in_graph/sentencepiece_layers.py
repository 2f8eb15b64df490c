"""The SentencePiece tokenizer in the graph, for models that take raw text.

`SentencePieceTextLayer` equals
`official_albert.tokenization.sentencepiece_tokenizer` (for WordPiece see
wordpiece_layer.py). `FillMaskTextLayer` maps strings with `[MASK]` to model
inputs. SavedModels contain both without asset files, because the vocabulary is
part of the graph. Programs that load them must import tensorflow_text first.

The two tokenizers differ in rare cases, as of tensorflow_text 2.15.0:

- They agree on all 420 golden lines, lower-cased and cased.
- Some characters are too new for TensorFlow. tensorflow_text decomposes by
  Unicode 12 and TensorFlow lower-cases by Unicode 13, while Python 3.10 uses
  Unicode 13 and Python 3.11 uses 14. So 12 characters (111 with Python 3.11)
  are not normalized. sentencepiece_layers_test.py lists them: LCD digits,
  phonetic letters, some historic scripts. A capital sigma beside such a
  character may get its other lower-case form.
- Two splits of a word may have the same score. tensorflow_text has an older
  SentencePiece, and the Python package prefers the other split since version
  0.2.2 ("66 6", not "6 66"). This concerns 1 of 31,200 lines of Wikipedia, and
  none with version 0.2.1.

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
# A noncharacter, which does not occur in text.
_NUL_STAND_IN = "\uffff"


class Cut(NamedTuple):
  """Pieces with their positions in normalized texts.

  Attributes:
    ids: a RaggedTensor <int32>[B, (pieces)] with K pieces in all.
    begins: <int64>[K], the first byte that each piece comes from, including
      spaces before it.
    ends: <int64>[K], exclusive.
    first: <int32>[K], the first of the visible characters in those bytes that
      belongs to the piece. It is 0 unless a piece of digits and a comma was
      split. Spaces and characters that SentencePiece drops are not counted.
    last: <int32>[K], exclusive; -1 means up to the end.
  """

  ids: tf.RaggedTensor
  begins: tf.Tensor
  ends: tf.Tensor
  first: tf.Tensor
  last: tf.Tensor


class SentencePieceTextLayer(tf.Module):
  """Maps raw strings to ids, equal to `SentencePieceTokenizer.encode`.

  Create the layer outside `tf.function`; call it anywhere.

  Attributes:
    lower_case: whether text is lower-cased first.
    vocab_size: the number of pieces V.
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
      model: the path of a SentencePiece model file, or its content.
      lower_case: whether to lower-case text first.
      name: the name of the module.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: it is not a SentencePiece model, or it does not have ALBERT's
        special pieces at their ids.
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
        f"the {len(proto):,} bytes given are not a SentencePiece model: give "
        "the .model file, not .vocab or text, and check that the download is "
        "complete."
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
          "`python -m tools.train_vocabulary` trains a suitable one."
        )
    self._parts, self._part_splits = self._digit_comma_table(pieces)
    self._inner_ids = _inner_id_table(pieces)

  def _digit_comma_table(self, pieces: list[str]):
    # Row i lists the ids that id i becomes: itself, or the pieces of the digits
    # and the comma for a piece that ends in a digit and a comma. Beside each
    # id are `first` and `last` of `Cut`.
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
    """Applies `tokenization.normalize_text` to strings of any shape.

    NUL becomes U+FFFF. No vocabulary has either of them.
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
    # The Unicode operation ends a string at its first NUL, and depends on the
    # locale of the process: a Turkish one changes "I" to a dotless i. So NUL is
    # replaced, and ASCII is lower-cased first.
    texts = tf.strings.regex_replace(texts, r"\x00", _NUL_STAND_IN)
    return tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")

  def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the ids of each text, without [CLS] and [SEP].

    Args:
      texts: <string>[B], UTF-8; invalid bytes are dropped.

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
    """Maps <int32>[B, (pieces)] to rows of `_parts`, [B, (pieces), (1+)]."""
    table = tf.RaggedTensor.from_row_splits(
      tf.range(len(self._parts)), tf.constant(self._part_splits), validate=False
    )
    return ids.with_flat_values(tf.gather(table, ids.flat_values))

  def cut_with_bytes(self, normal: tf.Tensor) -> Cut:
    """Returns the pieces of normalized texts with their positions.

    Args:
      normal: <string>[B], the result of `normalize`.
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
    """Maps ids to those of the same pieces inside a word, of any shape.

    "▁able" becomes "able" if the vocabulary has it. The bare word mark becomes
    -1, which means that it is removed. Other pieces do not change.
    """
    return tf.gather(tf.constant(self._inner_ids), ids)

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    """Returns the pieces of ids: <int>[...] to <string>[...].

    Raises:
      tf.errors.InvalidArgumentError: an id is outside the vocabulary.
    """
    ids = tf.cast(ids, tf.int32)
    # id_to_string does not check its range and would crash the process, so it
    # must run after this check.
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
  """Returns a layer of the kind "sentencepiece" or "wordpiece"."""
  if kind == "wordpiece":
    return wordpiece_text_layer.WordPieceTextLayer(file, lower_case)
  return SentencePieceTextLayer(file, lower_case)


class FillMaskTextLayer(tf.Module):
  """Maps strings with `[MASK]` to the inputs of a masked language model.

      layer = FillMaskTextLayer(SentencePieceTextLayer("30k-clean.model"))
      layer(tf.constant(["The capital of [MASK] is Paris."]))

  The literal `[MASK]` (case matters) is found before normalization, and the
  texts between masks are tokenized separately. Text directly after a mask
  continues the word of the mask: "[MASK]." becomes `[MASK]` and ".", not
  `[MASK]`, "▁", ".", because this is what a masked word before a full stop
  looks like in pretraining data.

  Attributes:
    text_layer: the tokenizer.
    max_seq_length: the maximum sequence length S.
  """

  def __init__(
    self,
    text_layer: TextLayer,
    max_seq_length: int = 512,
    name: str = "fill_mask_text",
  ):
    """Stores the tokenizer and the maximum length.

    Raises:
      ValueError: the maximum length is less than 3.
    """
    super().__init__(name=name)
    if max_seq_length < 3:
      raise ValueError(
        f"max_seq_length must be at least 3, got {max_seq_length}: [CLS] and "
        "[SEP] take two positions."
      )
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length

  def __call__(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
    """Packs each text as `[CLS] text [SEP]`.

    Args:
      texts: <string>[B], UTF-8.

    Returns:
      `input_ids`, `input_mask` and `segment_ids` <int32>[B, S], padded with 0,
      where S is the length of the longest sequence of the batch. Longer texts
      than max_seq_length lose their end, masks included. `mask_positions`
      <int32>[B, M] has the positions of [MASK], padded with -1, where M is the
      largest number of masks in a text.

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
    """Maps <string>[B] to <int32>[B, (pieces and masks)]."""
    parts = tf.strings.split(texts, _MASK)  # [B, (1 + masks)]
    ids = self._continued(parts)  # [all parts, (pieces)]
    mask = tf.fill([ids.nrows(out_type=tf.int32), 1], self.text_layer.mask_id)
    # Every part is followed by a mask, except the last one of a text.
    ids = parts.with_flat_values(tf.concat([ids, mask], axis=1))
    return ids.merge_dims(1, 2)[:, :-1]

  def _continued(self, parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Tokenizes all parts; one directly after a mask continues its word."""
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
  """Returns <int32>[V], see `SentencePieceTextLayer.without_word_start`."""
  id_of = {piece: i for i, piece in enumerate(pieces)}
  table = np.arange(len(pieces), dtype=np.int32)
  for i, piece in enumerate(pieces):
    if piece == _WORD_START:
      table[i] = _DROPPED
    elif piece.startswith(_WORD_START):
      table[i] = id_of.get(piece[len(_WORD_START) :], i)
  return table
