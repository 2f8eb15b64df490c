"""Answers rows of text by a signature of a model."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import remote, tokenization
from official_albert.serving import IDS, Tensors
from official_albert.tasks import common
from official_albert.tasks.answer_fields import ERROR

# Outputs that no table contains, because [B, S, H] is large.
_UNUSED = ("sequence_output", *IDS)
# The number of batches that are sorted together.
_WINDOW_BATCHES = 32
# Sorting needs no difference between longer texts, which would take long.
_MOST_CHARACTERS = 4000


@dataclasses.dataclass(frozen=True)
class Backend:
  """A signature of a model, which answers rows.

  Attributes:
    roles: the cells that a row needs.
    function: takes texts by role, <string>[B] or of options <string>[B, 4];
      returns tensors [B, ...] with the names of the signature's outputs.
    about: a description of the model, for messages.
    tokenizer: the tokenizer of the model.
  """

  roles: tuple[str, ...]
  function: Callable[..., Tensors]
  about: str
  tokenizer: tokenization.Tokenizer

  def lengths(self, rows: Sequence[common.Record]) -> list[int]:
    """Returns the length of each row in tokens.

    Sorted by characters, batches would compute a fifth more.
    """
    texts = [
      " ".join("".join(row.cells[x])[:_MOST_CHARACTERS] for x in self.roles)
      for row in rows
    ]
    return [len(ids) for ids in self.tokenizer.encode_batch(texts)]

  def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the outputs of the signature for each of B rows.

    Raises:
      tf.errors.InvalidArgumentError: the model refuses one of the rows, or so
        many together.
    """
    outputs = self.function(
      **{role: tf.constant([row[role] for row in rows]) for role in self.roles}
    )
    values = {
      name: _to_numpy(x) for name, x in outputs.items() if name not in _UNUSED
    }
    for name, array in values.items():
      if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(
          f"{name} is not a number: the model has diverged; use an earlier "
          f"checkpoint ({self.about})."
        )
    return [dict(zip(values, row)) for row in zip(*values.values())]


def _to_numpy(tensor: tf.Tensor) -> np.ndarray:
  """Returns an array; texts are `str`, without bytes that are not UTF-8."""
  array = tensor.numpy()
  if array.dtype != object:
    return array
  texts = np.empty(array.size, object)
  texts[:] = [text.decode("utf-8", "replace") for text in array.ravel()]
  return texts.reshape(array.shape)


def predict(
  backend: Backend,
  rows: Iterable[common.Record],
  batch_size: int,
  keep_refused: bool = False,
) -> Iterator[tuple[common.Record, Mapping[str, Any]]]:
  """Yields each row with its answer, in the order of the rows.

  A window of rows is read, sorted by length to save padding, and cut into
  batches. Memory holds one window at a time.

  Args:
    backend: the model.
    rows: any number of rows.
    batch_size: the maximum number of rows in a batch.
    keep_refused: whether the answer to a row that the model refuses is
      {"error": reason}, instead of a ValueError.

  Raises:
    ValueError: the model refuses a row, or with `keep_refused` all rows of the
      first window; the message names a row's file and line.
  """
  if batch_size < 1:
    raise ValueError(f"eval_batch_size is {batch_size}, but must be positive.")
  rest, is_first = iter(rows), True
  while window := list(itertools.islice(rest, batch_size * _WINDOW_BATCHES)):
    order: np.ndarray = np.arange(len(window))
    if len(window) > batch_size:  # A single batch needs no order.
      lengths = backend.lengths(window)
      # The longest first: if memory is too small, the first batch shows it.
      order = np.argsort(-np.array(lengths), kind="stable")
    answers: dict[int, Mapping[str, Any]] = {}
    for start in range(0, len(window), batch_size):
      batch = order[start : start + batch_size]
      found = _answers(backend, [window[i] for i in batch])
      answers.update(zip(batch, found))
    refused = sorted(i for i, answer in answers.items() if ERROR in answer)
    none_answered = is_first and len(refused) == len(window)
    if refused and (none_answered or not keep_refused):
      row, reason = window[refused[0]], answers[refused[0]][ERROR]
      raise ValueError(f"{row.where}: {reason} ({backend.about})")
    is_first = False
    yield from ((row, answers[i]) for i, row in enumerate(window))


def _answers(
  backend: Backend, batch: Sequence[common.Record]
) -> Sequence[Mapping[str, Any]]:
  """Returns the answers; that to a refused row is its reason."""
  try:
    return backend([row.cells for row in batch])
  except tf.errors.InvalidArgumentError as error:
    if len(batch) == 1:
      return [{ERROR: _reason(error)}]
  # Some rows may be wrong; or the rows are too much together, because an export
  # limits the windows of SQuAD's contexts in a request.
  half = len(batch) // 2
  return [*_answers(backend, batch[:half]), *_answers(backend, batch[half:])]


def _reason(error: tf.errors.InvalidArgumentError) -> str:
  """Returns the message without TensorFlow's additions."""
  _, text = remote.explain(error.message)
  failed = re.search(r"assertion failed: \[(.*)\]$", text, re.DOTALL)
  # The message and the numbers of a failed check are in brackets each.
  return failed[1].replace("] [", " ") if failed else text
