"""Arrays and batches of ids for the texts of a `TextClassifier`.

Batches hold texts of similar length and are padded to one of a few lengths, as
in `tools.run_finetuning`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import distribution, tokenization
from official_albert import labels as labels_lib


class Rows(NamedTuple):
  """N texts as ids, with labels and weights.

  Attributes:
    features: the inputs of the model <int32>[N, S], padded.
    targets: classes <int32>[N], numbers <float32>[N], or for several labels of
      a text, 1.0 for each that it has, <float32>[N, C].
    weights: <float32>[N]; None for equal ones.
  """

  features: dict[str, np.ndarray]
  targets: np.ndarray
  weights: Optional[np.ndarray]

  def part(self, rows: slice) -> Rows:
    """Returns the rows of a slice."""
    return tf.nest.map_structure(lambda x: None if x is None else x[rows], self)


def read_dataset(
  dataset: tf.data.Dataset, batch_size: int
) -> tuple[Any, Any, Any, int]:
  """Returns texts, labels and weights, None for none, and the batch size.

  The batch size is that of a Dataset in batches, else the given one.
  """
  if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
    raise ValueError(
      "the Dataset is endless: leave repeat() out, and give epochs."
    )
  rank = tf.nest.flatten(dataset.element_spec)[0].shape.rank
  if rank is None:  # A generator without shapes.
    first = dataset.take(1).as_numpy_iterator()
    rank = max((np.ndim(tf.nest.flatten(x)[0]) for x in first), default=1)
  if rank == 0:
    dataset = dataset.batch(batch_size)
  parts = [*distribution.untuned(dataset).as_numpy_iterator()]
  if not parts:
    return [], [], None, batch_size
  joined = tf.nest.map_structure(lambda *x: np.concatenate(x), *parts)
  x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(joined)
  return x, y, weights, len(tf.nest.flatten(parts[0])[0])


def split_texts(x: Any) -> list[list[str]]:
  """Returns the texts of a list, or the two lists of a pair."""
  if isinstance(x, (Iterator, Mapping, tf.keras.utils.Sequence)):
    raise ValueError(
      "texts are lists, arrays or a tf.data.Dataset, not a "
      f"{type(x).__name__}: collect them in a list."
    )
  parts = x if isinstance(x, tuple) else (x,)
  is_pair = len(parts) == 2 and not isinstance(parts[0], str)
  if isinstance(x, tuple) and not is_pair:
    raise ValueError(
      "a tuple is a pair of two lists, (texts_a, texts_b): give single texts "
      "as a list."
    )
  return [tokenization.check_texts(part, "texts") for part in parts]


def make_rows(
  features: dict[str, np.ndarray],
  y: Any,
  sample_weight: Any,
  labels: Optional[Sequence[str]],
  multi_label: bool = False,
) -> Rows:
  """Checks labels and weights; `labels` are the classes, None for numbers."""
  if y is None:
    raise ValueError("the labels are missing: give one for each text.")
  count = len(features["input_ids"])
  if not count:
    raise ValueError("there are no texts.")
  if labels is None:
    targets = labels_lib.to_numbers(y)
  elif multi_label:
    targets = labels_lib.to_indicators(y, labels)
  else:
    targets = labels_lib.to_classes(y, labels)
  weights = None
  if sample_weight is not None:
    weights = labels_lib.one_column(np.asarray(sample_weight, np.float32))
  for name, array in (("labels", targets), ("weights", weights)):
    axes = 1 + (multi_label and array is targets)
    if array is not None and (len(array), array.ndim) != (count, axes):
      raise ValueError(
        f"there are {count} texts, but the {name} have the shape "
        f"{list(array.shape)}: give one for each text."
      )
  return Rows(features, targets, weights)


def make_order(
  features: Mapping[str, np.ndarray], batch_size: int, order: str
) -> np.ndarray:
  """Returns the rows <int>[N] in the order of `make_batches`."""
  lengths = features["input_mask"].sum(axis=1)
  if order == "given":
    return np.arange(len(lengths))
  if order == "by_length":
    # The longest first: if memory is too small, the first batch shows it.
    return np.argsort(-lengths, kind="stable")
  # The seed is one of those that tf.keras.utils.set_random_seed determines.
  generator = np.random.default_rng(random.getrandbits(64))
  rows = generator.permutation(len(lengths))
  whole, size = len(rows) - len(rows) % batch_size, 32 * batch_size
  buckets = tokenization.bucket_lengths(features["input_ids"].shape[1])
  bucket = np.searchsorted(buckets, lengths)
  batches = []
  for begin in range(0, whole, size):
    # Of 32 batches, texts of similar length are together.
    window = rows[begin : min(begin + size, whole)]
    window = window[np.argsort(bucket[window], kind="stable")]
    batches += np.split(window, len(window) // batch_size)
  generator.shuffle(batches)
  return np.concatenate([*batches, rows[whole:]])


def make_batches(
  arrays: Sequence[Any],
  batch_size: int,
  has_one_length: bool,
  order: str = "by_length",
) -> tf.data.Dataset:
  """Returns batches of features <int32>[N, S] and of other arrays, or None.

  The order is "given", "by_length", or "shuffled" anew in each epoch. With
  `has_one_length`, batches have length S, as each length would be compiled.
  """
  features, *others = (array for array in arrays if array is not None)
  count, longest = features["input_ids"].shape
  lengths = tokenization.bucket_lengths(longest)
  if has_one_length:
    lengths = (longest,)

  def batches():
    rows = make_order(features, batch_size, order)
    for begin in range(0, len(rows), batch_size):
      batch = rows[begin : begin + batch_size]
      most = features["input_mask"][batch].sum(axis=1).max(initial=1)
      length = lengths[np.searchsorted(lengths, most)]
      ids = {name: x[batch, :length] for name, x in features.items()}
      yield (ids, *(array[batch] for array in others))

  spec = tf.TensorSpec([None, longest if has_one_length else None], tf.int32)
  specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in others]
  dataset = tf.data.Dataset.from_generator(
    batches, output_signature=(dict.fromkeys(features, spec), *specs)
  )
  dataset = dataset.apply(
    tf.data.experimental.assert_cardinality(-(-count // batch_size))
  )
  return distribution.untuned(dataset.prefetch(2))
