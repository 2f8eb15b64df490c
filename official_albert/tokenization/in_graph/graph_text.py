"""Helpers of the tokenizers in the graph: files, arguments, characters."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import tensorflow as tf


def read_file(path: str, what: str) -> bytes:
  """Reads the file of a tokenizer.

  Args:
    path: the file.
    what: the kind of file, for the error message.

  Raises:
    FileNotFoundError: the file does not exist.
  """
  if not tf.io.gfile.exists(path):
    raise FileNotFoundError(
      f"there is no {what} {path!r}: check the path; "
      "`python -m tools.train_vocabulary` makes a SentencePiece model."
    )
  with tf.io.gfile.GFile(path, "rb") as file:
    return file.read()


def check_texts(texts: tf.Tensor) -> tf.Tensor:
  """Returns `texts` as a tensor <string>[B].

  Raises:
    ValueError: it has another dtype or rank.
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
  """Returns an RE2 class of all characters for which `predicate` is true.

  RE2 itself has no classes for `str.isspace` and combining characters.
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
