"""Answers rows in their order, a window of rows at a time.

Rows of similar length should share a batch; otherwise most of a batch is
padding. So a window of rows is read, sorted by length, cut into batches, and
answered in the original order. Memory holds one window at a time.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tools.prediction.backend import Backend
from tools.prediction.input import InputRow

# Batches that are sorted together.
WINDOW_BATCHES = 32


def predict(
  backend: Backend,
  rows: Iterable[InputRow],
  batch_size: int,
  window_batches: int = WINDOW_BATCHES,
) -> Iterator[tuple[InputRow, Mapping[str, Any]]]:
  """Yields each row with its answer, in the order of the rows.

  Args:
    backend: the model.
    rows: any number of them.
    batch_size: the most rows of a batch.
    window_batches: how many batches are sorted together.

  Raises:
    ValueError: the batch size is below 1, or the model refuses a row; the
      message names the row's file and line.
  """
  if batch_size < 1:
    raise ValueError(f"eval_batch_size is {batch_size}, but must be positive.")
  for window in _blocks(rows, batch_size * window_batches):
    lengths = np.asarray(backend.lengths([row.cells for row in window]))
    # The longest first: if memory is too small, the first batch shows it.
    order = np.argsort(-lengths, kind="stable")
    answers: list[Mapping[str, Any]] = [{}] * len(window)
    for batch in _blocks(order, batch_size):
      results = _answers(backend, [window[i] for i in batch])
      for index, answer in zip(batch, results):
        answers[index] = answer
    yield from zip(window, answers)


def _answers(
  backend: Backend, batch: Sequence[InputRow]
) -> Sequence[Mapping[str, Any]]:
  try:
    return backend([row.cells for row in batch])
  except tf.errors.InvalidArgumentError:
    # One row may be wrong; or the rows are too much together, because an export
    # limits the windows of SQuAD's contexts in a request.
    answers = []
    for row in batch:
      try:
        answers += backend([row.cells])
      except tf.errors.InvalidArgumentError as error:
        raise ValueError(
          f"{row.where}: {_reason(error)} ({backend.about})"
        ) from error
    return answers


def _reason(error: tf.errors.InvalidArgumentError) -> str:
  """Returns the message without what TensorFlow adds to it."""
  text = error.message.split("\n\t [[")[0].split(" [Op:")[0]
  text = re.sub(r"^\{\{.*?\}\} ", "", text)
  failed = re.search(r"assertion failed: \[(.*)\]$", text, re.DOTALL)
  # The message and the numbers of a failed check are in brackets each.
  return failed[1].replace("] [", " ") if failed else text


def _blocks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
  rest = iter(items)
  while block := list(itertools.islice(rest, size)):
    yield block
