"""What the tokenizers inside the graph share: arguments, files, characters."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import tensorflow as tf


def read_file(path: str, what: str) -> bytes:
  """The bytes of a tokenizer's file.

  Raises:
    FileNotFoundError: there is none; `what` says what it should be.
  """
  if not tf.io.gfile.exists(path):
    raise FileNotFoundError(
      f"there is no {what} {path!r}: check the path; "
      "`python -m tools.train_vocabulary` makes a SentencePiece model."
    )
  with tf.io.gfile.GFile(path, "rb") as file:
    return file.read()


def check_texts(texts: tf.Tensor) -> tf.Tensor:
  """`texts` as a tensor <string>[B].

  Raises:
    ValueError: it is anything else.
  """
  texts = tf.convert_to_tensor(texts)
  if texts.dtype != tf.string or texts.shape.rank != 1:
    raise ValueError(
      "texts must be <string>[B], a list of strings, got "
      f"<{texts.dtype.name}>{texts.shape}."
    )
  return texts


@functools.cache
def character_class(predicate: Callable[[str], object]) -> str:
  """An RE2 class of the characters that Python's Unicode data says yes to.

  RE2 has neither `str.isspace` nor the combining classes of its own.
  """
  ranges = []
  for code in range(sys.maxunicode + 1):
    if predicate(chr(code)):
      if ranges and ranges[-1][1] == code - 1:
        ranges[-1][1] = code
      else:
        ranges.append([code, code])
  inside = [rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges]
  return f"[{''.join(inside)}]"
