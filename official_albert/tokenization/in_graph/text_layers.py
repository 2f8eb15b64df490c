"""The tokenizers in the graph, for models that take raw text.

Text is changed by the table of the Python tokenizer. tensorflow_text splits it
further:

- It contains an older SentencePiece. Both read a model with rounded scores
  (`round_scores`), so they also split alike where two splits are equally good.
- Its BertTokenizer uses another version of Unicode, keeps control characters in
  words and limits the length of words in bytes. So only the words are split by
  its FastWordpieceTokenizer.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from official_albert import tokenization
from official_albert.tokenization import normalization
from official_albert.tokenization.in_graph import normalization_layer as table

# A noncharacter, which is in no vocabulary and thus becomes [UNK].
_UNKNOWN = "\uffff"
# What `str.isspace` accepts up to U+3000, the last one. RE2 has no such class.
_SPACE = tokenization.character_class(str.isspace, map(chr, range(0x3001)))
_WHOLE = 1 << 20  # More characters than a piece has.


class TextLayer(tf.Module):
  """Maps raw strings to the ids of the corresponding Python tokenizer.

  The constructors raise the same errors as the tokenizer. Create the layer
  outside `tf.function`; call it anywhere. SavedModels contain it without asset
  files, because the vocabulary is part of the graph. Programs that load them
  must import tensorflow_text first.

  Attributes:
    tokenizer: the same tokenizer in Python.
    normalization: changes the characters of texts.
    vocab_size: the number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: the ids of the special pieces.
  """

  kind: str
  tokenizer: Any
  _text_bytes = 2**20

  def __init__(self, file: str, lower_case: bool = True, **rules: Any):
    """Reads the file; `rules` are further fields of `TextRules`."""
    super().__init__(name=f"{self.kind}_text")
    python = tokenization.TOKENIZERS[self.kind](file, lower_case, **rules)
    self.tokenizer, self.vocab_size = python, python.vocab_size
    self.normalization = table.NormalizationLayer(python.normalization)
    self.pad_id, self.unk_id = python.pad_id, python.unk_id
    self.cls_id, self.sep_id = python.cls_id, python.sep_id
    self.mask_id = python.mask_id
    # Keras would wrap each item of a list.
    pieces = map(python.id_to_piece, range(self.vocab_size))
    self._pieces = np.array([*pieces], object)

  def shorten(self, texts: tf.Tensor, most: int) -> tf.Tensor:
    """Cuts texts at 1 MiB, or at 64 bytes for each id if that is more.

    A byte takes up to 100 bytes of memory. `most` is that of `tokenize`.
    """
    return tf.strings.substr(texts, 0, max(self._text_bytes, 64 * most))

  def _normalize(self, texts: tf.Tensor, most: int = 0) -> table.NormalTexts:
    texts = check_texts(texts)
    return self.normalization(self.shorten(texts, most) if most else texts)

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    """Returns the ids of each text, without [CLS] and [SEP].

    Args:
      texts: <string>[B], UTF-8; invalid bytes are dropped. ValueError is raised
        for anything but a batch of strings.
      most: how many ids of each text are needed; others may be left out, which
        bounds time and memory. 0 returns all.

    Returns:
      A RaggedTensor <int32>[B, (pieces)].
    """
    raise NotImplementedError

  def tokenize_with_offsets(self, texts: tf.Tensor) -> table.EncodedTexts:
    """Equals the tokenizer's `encode_with_offsets` for each text <string>[B].

    Invalid bytes are dropped and not counted as characters.

    Raises:
      ValueError: `texts` is not a batch of strings, or a SentencePiece model
        splits unknown characters into bytes.
    """
    raise NotImplementedError

  def _without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    """Maps ids to those of the same pieces inside a word, of any shape.

    -1 means that the piece is removed. With WordPiece, text after a [MASK] is a
    new word. This holds for Chinese characters, and BERT's tools read "[MASK]s"
    this way.
    """
    return ids

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    """Returns the pieces of ids: <int>[...] to <string>[...].

    An id outside the vocabulary raises tf.errors.InvalidArgumentError.
    """
    return tf.gather(tf.constant(self._pieces), ids)

  def pack(
    self,
    max_seq_length: int,
    text_a: tf.Tensor,
    text_b: Optional[tf.Tensor] = None,
  ) -> dict[str, tf.Tensor]:
    """Packs one or two batches of texts <string>[B]; see `pack_pair`."""
    ids_a, ids_b = (
      x if x is None else self.tokenize(x, max_seq_length)
      for x in (text_a, text_b)
    )
    return pack_pair(ids_a, ids_b, max_seq_length, self.cls_id, self.sep_id)

  def pack_masked(
    self, max_seq_length: int, texts: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    """Packs texts <string>[B] whose `[MASK]` (case matters) are masks.

    They are found before normalization, and the texts between them are
    tokenized separately. Text directly after a mask continues the word of the
    mask: "[MASK]." becomes `[MASK]` and ".", not `[MASK]`, "▁", ".", because
    this is what a masked word before a full stop looks like in pretraining
    data.

    Returns:
      The features of `pack_pair`, and `mask_positions` <int32>[B, M], the
      positions of [MASK], padded with -1. M is the largest number of masks in a
      text. Longer texts lose their end, masks included.
    """
    features = pack_pair(
      self._with_masks(check_texts(texts), max_seq_length),
      *(None, max_seq_length, self.cls_id, self.sep_id),
    )
    ids = features["input_ids"]
    columns = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
    positions = tf.ragged.boolean_mask(columns, tf.equal(ids, self.mask_id))
    return {**features, "mask_positions": positions.to_tensor(-1)}

  def _with_masks(self, texts: tf.Tensor, most: int) -> tf.RaggedTensor:
    """Maps <string>[B] to <int32>[B, (pieces and masks)]."""
    # Shortens the whole texts, as the time of all parts adds up.
    parts = tf.strings.split(self.shorten(texts, most), "[MASK]")
    parts = parts[:, :most]  # [B, (1 + masks)], each followed by a mask.
    ids = self.tokenize(parts.flat_values, most)  # [all parts, (pieces)]
    # The first piece of a part continues the word if the part touches a mask.
    index_in_text = tf.ragged.range(parts.row_lengths()).flat_values
    touches = (index_in_text > 0) & tf.equal(
      parts.flat_values,
      tf.strings.regex_replace(parts.flat_values, f"^{_SPACE}", ""),
    )
    begins = tf.equal(tf.ragged.range(ids.row_lengths()).flat_values, 0)
    within = begins & tf.gather(touches, ids.value_rowids())
    inner = self._without_word_start(ids.flat_values)
    ids = ids.with_flat_values(tf.where(within, inner, ids.flat_values))
    ids = tf.ragged.boolean_mask(ids, tf.not_equal(ids, -1))
    mask = tf.fill([ids.nrows(out_type=tf.int32), 1], self.mask_id)
    # Every part is followed by a mask, except the last one of a text.
    ids = parts.with_flat_values(tf.concat([ids, mask], axis=1))
    return ids.merge_dims(1, 2)[:, :-1]


class _SentencePieceModel(tf.saved_model.experimental.TrackableResource):
  """A model that stays when TensorFlow's caches are cleared.

  That of tensorflow_text has no name and is lost then, for example in
  tf.random.set_seed, which mteb calls.
  """

  def __init__(self, model: bytes):
    super().__init__()
    self._model = model
    _ = self.resource_handle  # Creates it.

  def _create_resource(self) -> tf.Tensor:
    create = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
    # In the graph of a SavedModel, it belongs to this graph alone.
    is_here = tf.executing_eagerly()
    name = hashlib.sha256(self._model).hexdigest() if is_here else ""
    return create.sentencepiece_op(model=self._model, shared_name=name)


class SentencePieceTextLayer(TextLayer):
  """A `TextLayer` equal to `tokenization.SentencePieceTokenizer`."""

  kind = "sentencepiece"
  _text_bytes = 2**15

  def __init__(self, file: str, lower_case: bool = True, **rules: Any):
    super().__init__(file, lower_case, **rules)
    self._tokenizer = tensorflow_text.SentencepieceTokenizer(
      model=self.tokenizer.model, out_type=tf.int32
    )
    model = _SentencePieceModel(self.tokenizer.model)
    self._tokenizer._model_resource = model
    # The parts of each piece, most of which are their own part.
    split, mark = self.tokenizer.digit_comma_parts, tokenization.WORD_START
    parts = [
      split.get(i) or [(i, 0, _WHOLE, not piece.strip(mark))]
      for i, piece in enumerate(self._pieces)
    ]
    self._part_splits = np.cumsum([0, *map(len, parts)])
    self._parts = np.array(
      [(*part, 0)[:4] for row in parts for part in row], np.int32
    )

  def normalize(self, texts: tf.Tensor) -> tf.Tensor:
    """Applies `tokenization.normalize_text` to strings of any shape."""
    normal = self.normalization(tf.reshape(texts, [-1])).encode()
    return tf.reshape(normal, tf.shape(texts))

  def shorten(self, texts: tf.Tensor, most: int) -> tf.Tensor:
    """Cuts texts at 32 KiB, or at 64 bytes for each id if that is more.

    SentencePiece's time grows with the square of a run of characters that it
    does not know: 1.4 s for 256 KiB, half an hour for 10 MB. A run of spaces
    counts as one. Pieces have up to 16 characters.
    """
    texts = tf.strings.regex_replace(texts, f"{_SPACE}{{2,}}", " ")
    return super().shorten(texts, most)

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    normal = self._normalize(texts, most).encode()
    return self._parts_of(self._tokenizer.tokenize(normal))[0]

  def _parts_of(
    self, ids: tf.RaggedTensor
  ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Splits pieces of digits and a comma: <int32>[B, (pieces)] to K parts.

    Returns:
      The ids of the parts <int32>[B, (parts)], the piece <int32>[K] of each,
      and <int32>[K, 4]: its id, its range in the visible characters of the
      piece, and whether it is only a space.
    """
    parts = tf.RaggedTensor.from_row_splits(
      tf.constant(self._parts), tf.constant(self._part_splits), validate=False
    )
    rows = tf.gather(parts, ids.flat_values)  # [(pieces), (parts), 4]
    splits = tf.gather(rows.row_splits, ids.row_splits)
    found = tf.RaggedTensor.from_row_splits(
      rows.values[:, 0], splits, validate=False
    )
    return found, rows.value_rowids(), rows.values

  @functools.cached_property
  def _hidden(self) -> table.CharacterTable:
    hidden = np.zeros(table.ALL_CHARACTERS, bool)
    hidden[[*map(ord, self.tokenizer.hidden_characters)]] = True
    return table.CharacterTable(hidden)

  def tokenize_with_offsets(self, texts: tf.Tensor) -> table.EncodedTexts:
    self.tokenizer.check_offsets()
    normal = self._normalize(texts)
    found = self._tokenizer.tokenize_with_offsets(normal.encode())
    ids, piece, rows = self._parts_of(found[0])
    text, is_space = ids.value_rowids(), rows[:, 3] > 0
    visible = ~self._hidden(normal.codes)
    # The visible characters before each character. Ranges of visible characters
    # exclude spaces before a piece and what SentencePiece drops after it.
    seen = tf.concat([[0], tf.cumsum(tf.cast(visible, tf.int32))], 0)
    places = tf.concat(
      [tf.where(visible)[:, 0], [tf.size(visible, tf.int64)]], 0
    )
    # The text has a space in front, and the string that was cut has not.
    begin = tf.gather(normal.bytes_before, tf.gather(normal.splits, text)) + 1
    before, after = (
      normal.character_at(begin + tf.gather(x.flat_values, piece))
      for x in found[1:]
    )
    first, last = tf.gather(seen, before), tf.gather(seen, after)
    # A piece can be a part of a character.
    last = tf.where(is_space, last, tf.maximum(last, first + 1))
    first, last = (
      tf.minimum(first + rows[:, 1], tf.maximum(last - 1, first)),
      tf.minimum(first + rows[:, 2], last),
    )
    starts, ends = (tf.concat([x, [0]], 0) for x in normal.letters())
    # A piece ends with its last visible character. If it has none, it ends
    # where the previous piece ends, which may come from the same letter.
    end = tf.gather(ends, tf.gather(places, tf.maximum(last - 1, 0)))
    end = tf.where(
      last > tf.gather(tf.gather(seen, normal.splits), text), end, 0
    )
    # A piece starts at its first visible character, and a space at its end.
    start = tf.gather(
      starts, tf.where(is_space, after, tf.gather(places, first))
    )
    text_end = tf.gather(normal.splits, text + 1)
    at_end = is_space & (after >= text_end)
    start = tf.where(at_end, tf.gather(ends, text_end - 1), start)
    return normal.ranges(ids, start, end)

  def _without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    # "▁able" becomes "able" if the vocabulary has it, and the bare mark goes.
    mark = tokenization.WORD_START
    id_of = {piece: i for i, piece in enumerate(self._pieces)}
    inner = [
      -1 if piece == mark else id_of.get(piece.removeprefix(mark), i)
      for piece, i in id_of.items()
    ]
    return tf.gather(tf.constant(inner), ids)


class WordPieceTextLayer(TextLayer):
  """A `TextLayer` equal to `tokenization.WordPieceTokenizer`."""

  kind = "wordpiece"

  def __init__(self, file: str, lower_case: bool = True, **rules: Any):
    super().__init__(file, lower_case, **rules)
    # No text has U+FFFE, which stands for lines that are repeated later.
    unique = [
      piece if self.tokenizer.piece_to_id(piece) == i else f"\ufffe{i}"
      for i, piece in enumerate(self._pieces)
    ]
    self._tokenizer = tensorflow_text.FastWordpieceTokenizer(
      unique,
      suffix_indicator=tokenization.CONTINUATION,
      # In bytes; this package's own limit in characters is lower.
      max_bytes_per_word=4 * self.tokenizer.rules.max_word_characters + 1,
      token_out_type=tf.int32,
      unknown_token="[UNK]",
      no_pretokenization=True,
    )

  def _split_words(
    self, normal: table.NormalTexts
  ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Splits changed texts into W words.

    Returns:
      The words <string>[B, (words)], and <int64>[W] each: where they begin and
      end in `normal`. Too long words are unknown.
    """
    space = table.has(normal.rows, normalization.SPACE)
    alone = table.has(normal.rows, normalization.ALONE)
    after_word = table.previous(space | alone, True)
    # The parts are words and single spaces.
    begins = tf.where(space | alone | after_word)[:, 0]
    ends = table.following(begins, tf.size(space, tf.int64))
    parts = table.encode(normal.codes, tf.concat([[0], ends], 0))
    is_word = ~tf.gather(space, begins)
    parts, begins, ends = (
      tf.boolean_mask(x, is_word) for x in (parts, begins, ends)
    )
    is_long = ends - begins > self.tokenizer.rules.max_word_characters
    words = tf.RaggedTensor.from_row_splits(
      tf.where(is_long, _UNKNOWN, parts),
      table.bound(begins, normal.splits),
      validate=False,
    )
    return words, begins, ends

  def tokenize(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    return self.tokenize_words(texts, most).merge_dims(1, 2)

  def tokenize_words(self, texts: tf.Tensor, most: int = 0) -> tf.RaggedTensor:
    """Returns ids by words: <string>[B] to <int32>[B, (words), (pieces)]."""
    words, _, _ = self._split_words(self._normalize(texts, most))
    if most:  # Each word becomes an id or more.
      words = words[:, :most]
    return words.with_flat_values(self._tokenizer.tokenize(words.flat_values))

  def tokenize_with_offsets(self, texts: tf.Tensor) -> table.EncodedTexts:
    normal = self._normalize(texts)
    words, word_begins, word_ends = self._split_words(normal)
    ids, begins, ends = self._tokenizer.tokenize_with_offsets(words.flat_values)
    word = ids.value_rowids()
    begin = tf.gather(normal.bytes_before, tf.gather(word_begins, word))
    first = normal.character_at(begin + begins.flat_values)
    last = normal.character_at(begin + ends.flat_values)
    # [UNK] stands for the whole word, which may have been replaced.
    unknown = tf.equal(ids.flat_values, self.unk_id)
    last = tf.where(unknown, tf.gather(word_ends, word), last) - 1
    starts, ends = normal.letters()
    return normal.ranges(
      words.with_flat_values(ids).merge_dims(1, 2),
      tf.gather(starts, first),
      tf.gather(ends, last),
    )


# The classes by the kinds of their files.
TEXT_LAYERS: dict[str, type[TextLayer]] = {
  "sentencepiece": SentencePieceTextLayer,
  "wordpiece": WordPieceTextLayer,
}


def check_texts(texts: tf.Tensor) -> tf.Tensor:
  """Returns `texts` as a tensor <string>[B], or raises ValueError."""
  texts = tf.convert_to_tensor(texts)
  if texts.dtype != tf.string or texts.shape.rank != 1:
    raise ValueError(
      "texts must be <string>[B], a list of strings, got "
      f"<{texts.dtype.name}>{texts.shape}."
    )
  return texts


def pack_pair(
  ids_a: tf.RaggedTensor,
  ids_b: Optional[tf.RaggedTensor],
  max_seq_length: Union[int, tf.Tensor],
  cls_id: int,
  sep_id: int,
) -> dict[str, tf.Tensor]:
  """Applies `tokenization.pack_pair` to each row of ids and pads with 0.

  A tensor `max_seq_length` <int32>[] is not checked: it has room for [CLS] and
  the [SEP] of each text.

  Returns:
    `input_ids`, `input_mask` and `segment_ids` <int32>[B, S]. S is the length
    of the longest sequence of the batch.
  """
  texts = 1 if ids_b is None else 2
  if isinstance(max_seq_length, int):
    tokenization.available_tokens(max_seq_length, texts)
  available = tf.cast(max_seq_length - 1 - texts, ids_a.row_splits.dtype)
  length_a = ids_a.row_lengths()  # [B]
  length_b = tf.zeros_like(length_a) if ids_b is None else ids_b.row_lengths()
  # As in `tokenization.pack_pair`.
  keep_a = tf.minimum(
    length_a, tf.maximum(available - length_b, (available + 1) // 2)
  )
  keep_b = tf.minimum(length_b, available - keep_a)
  # One gather collects all rows from one list of ids. Each row consists of a
  # few ranges of that list; [CLS] and [SEP] are ranges of length 1.
  values = [tf.constant([cls_id, sep_id], ids_a.dtype), ids_a.values]
  first = tf.zeros_like(length_a)
  start_a = ids_a.row_starts() + 2
  separator = (first + 1, first + 2)
  ranges = [(first, first + 1), (start_a, start_a + keep_a), separator]
  length = keep_a + 2
  if ids_b is not None:
    values.append(ids_b.values)
    start_b = ids_b.row_starts() + 2 + tf.size(ids_a.values, length_a.dtype)
    ranges += [(start_b, start_b + keep_b), separator]
    length += keep_b + 1
  starts, ends = (
    tf.reshape(tf.stack(column, axis=1), [-1]) for column in zip(*ranges)
  )
  ids = tf.gather(tf.concat(values, 0), tf.ragged.range(starts, ends).values)
  # Models do not accept length 0, which an empty batch would have.
  longest = tf.maximum(tf.reduce_max(length), 2 if ids_b is None else 3)
  rows = tf.RaggedTensor.from_row_lengths(ids, length, validate=False)
  mask = tf.sequence_mask(length, longest, tf.int32)
  # Segment 0 ends with the first [SEP].
  segments = mask - tf.sequence_mask(keep_a + 2, longest, tf.int32)
  return {
    "input_ids": rows.to_tensor(shape=tf.stack([-1, longest])),
    "input_mask": mask,
    "segment_ids": segments,
  }
