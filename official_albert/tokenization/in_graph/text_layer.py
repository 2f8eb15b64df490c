"""The base class of the tokenizers in the graph, and character classes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization.in_graph import normalization_layer


class TextLayer(tf.Module):
  """Maps raw strings to the ids of the corresponding Python tokenizer.

  The constructors of the subclasses raise the same errors as the tokenizer.
  Create the layer outside `tf.function`; call it anywhere. SavedModels contain
  it without asset files, because the vocabulary is part of the graph. Programs
  that load them must import tensorflow_text first.

  Attributes:
    rules: how text is changed first.
    lower_case, keep_accents: whether text is lower-cased, and marks stay.
    normalization: changes the characters of texts.
    vocab_size: the number of pieces V.
    pad_id, unk_id, cls_id, sep_id, mask_id: the ids of the special pieces.
  """

  def __init__(self, tokenizer: tokenization.Tokenizer):
    super().__init__(name=f"{tokenizer.kind}_text")
    self.rules, self.lower_case = tokenizer.rules, tokenizer.lower_case
    self.keep_accents = tokenizer.keep_accents
    self.normalization = normalization_layer.NormalizationLayer(
      tokenizer.normalization
    )
    self.vocab_size = tokenizer.vocab_size
    self.pad_id, self.unk_id = tokenizer.pad_id, tokenizer.unk_id
    self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id
    self.mask_id = tokenizer.mask_id

  _text_bytes = 2**20

  def shorten(self, texts: tf.Tensor, most: int) -> tf.Tensor:
    """Cuts texts at 1 MiB, or at 64 bytes for each id if that is more.

    A byte takes up to 100 bytes of memory. `most` is that of `tokenize`.
    """
    return tf.strings.substr(texts, 0, max(self._text_bytes, 64 * most))

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

  def tokenize_with_offsets(
    self, texts: tf.Tensor
  ) -> normalization_layer.EncodedTexts:
    """Equals the tokenizer's `encode_with_offsets` for each text <string>[B].

    Invalid bytes are dropped and not counted as characters.

    Raises:
      ValueError: `texts` is not a batch of strings, or a SentencePiece model
        splits unknown characters into bytes.
    """
    raise NotImplementedError

  def without_word_start(self, ids: tf.Tensor) -> tf.Tensor:
    """Maps ids to those of the same pieces inside a word, of any shape.

    -1 means that the piece is removed.
    """
    raise NotImplementedError

  def pieces(self, ids: tf.Tensor) -> tf.Tensor:
    """Returns the pieces of ids: <int>[...] to <string>[...].

    An id outside the vocabulary raises tf.errors.InvalidArgumentError.
    """
    raise NotImplementedError


def check_texts(texts: tf.Tensor) -> tf.Tensor:
  """Returns `texts` as a tensor <string>[B], or raises ValueError."""
  texts = tf.convert_to_tensor(texts)
  if texts.dtype != tf.string or texts.shape.rank != 1:
    raise ValueError(
      "texts must be <string>[B], a list of strings, got "
      f"<{texts.dtype.name}>{texts.shape}."
    )
  return texts


@functools.cache
def character_class(predicate: Callable[[str], object]) -> str:
  """Returns an RE2 class of all characters for which `predicate` is true.

  RE2 itself has no classes for `str.isspace` and combining characters.
  """
  ranges = tokenization.character_ranges(predicate, sys.maxunicode + 1)
  inside = [rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges]
  return f"[{''.join(inside)}]"
