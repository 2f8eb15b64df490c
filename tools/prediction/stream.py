"""Rows through a model and out again in their order, a window at a time.

Rows of similar length should share a batch, or most of it is padding; but
millions of rows cannot be sorted. So a window of rows is read ahead, what goes
through the model is sorted by length and cut into batches, and the answers
leave in the order of the rows. At no time is there more than one window.
"""

from __future__ import annotations

import itertools
from typing import (
  Any,
  Iterable,
  Iterator,
  Mapping,
  NamedTuple,
  Protocol,
  Sequence,
)

import tensorflow as tf

from tools.prediction.input import InputRow

# Batches that are sorted together.
WINDOW_BATCHES = 32


class Part(NamedTuple):
  """What goes through the model of a row: all of it, or one of its windows.

  Attributes:
    length: in any unit, of a backend always the same.
    inputs: what the backend makes of it.
  """

  length: int
  inputs: Any


class Backend(Protocol):
  """A model with its tokenizer, or without.

  Attributes:
    about: a sentence's beginning: which model it is, and of what.
    roles: what a row has to have.
  """

  about: str
  roles: tuple[str, ...]

  def parts(self, cells: Mapping[str, Any]) -> Sequence[Part]:
    """What goes through the model, at least one part.

    Raises:
      ValueError: the row cannot be predicted.
    """

  def run(self, inputs: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """The model's outputs for each of a batch of parts' inputs.

    Raises:
      tf.errors.InvalidArgumentError: the model refuses one of them, or so
        many at once.
    """

  def answer(
    self,
    cells: Mapping[str, Any],
    parts: Sequence[Part],
    outputs: Sequence[Mapping[str, Any]],
  ) -> dict[str, Any]:
    """What is said of a row, from the outputs for its parts."""


def predict(
  backend: Backend,
  rows: Iterable[InputRow],
  batch_size: int,
  window_batches: int = WINDOW_BATCHES,
) -> Iterator[tuple[InputRow, dict[str, Any]]]:
  """Each row with its answer, in the rows' order.

  Args:
    backend: the model.
    rows: any number of them.
    batch_size: parts that go through the model together, at most.
    window_batches: how many batches are read ahead.

  Raises:
    ValueError: a batch has no place for a part, or a row cannot be predicted;
      the message says file and line.
  """
  if batch_size < 1 or window_batches < 1:
    raise ValueError(
      f"eval_batch_size is {batch_size}, and {window_batches} batches are read "
      "ahead: both have to be at least 1."
    )
  for window in _blocks(rows, batch_size * window_batches):
    yield from zip(window, _answers(backend, window, batch_size))


def _answers(
  backend: Backend, window: Sequence[InputRow], batch_size: int
) -> Iterator[dict[str, Any]]:
  parts, owners, begins = [], [], []
  for row in window:
    begins.append(len(parts))
    try:
      parts += backend.parts(row.cells)
    except ValueError as error:
      raise ValueError(f"{row.where}: {error}") from error
    owners += [row] * (len(parts) - begins[-1])
  # The longest first: if memory is short, it is so at once.
  order = sorted(range(len(parts)), key=lambda i: -parts[i].length)
  outputs: list[Mapping[str, Any]] = [{}] * len(parts)
  for batch in _blocks(order, batch_size):
    results = _run(backend, [(owners[i], parts[i].inputs) for i in batch])
    for index, result in zip(batch, results):
      outputs[index] = result
  for row, begin, end in zip(window, begins, [*begins[1:], len(parts)]):
    yield backend.answer(row.cells, parts[begin:end], outputs[begin:end])


def _run(
  backend: Backend, batch: Sequence[tuple[InputRow, Any]]
) -> Sequence[Mapping[str, Any]]:
  try:
    return backend.run([inputs for _, inputs in batch])
  except tf.errors.InvalidArgumentError:
    # Which row is it? Maybe none: an export reads so many windows of SQuAD's
    # contexts at once, and long contexts come together.
    results = []
    for row, inputs in batch:
      try:
        results += backend.run([inputs])
      except tf.errors.InvalidArgumentError as error:
        message = error.message.split("\n\t [[")[0].split("[Op:")[0]
        raise ValueError(f"{row.where}: {message}") from error
    return results


def _blocks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
  rest = iter(items)
  while block := list(itertools.islice(rest, size)):
    yield block
