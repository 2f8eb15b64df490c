"""Arrays and batches of ids for the texts of a `TextClassifier`.

Texts are tokenized once, on the host. Batches hold texts of similar length and
are padded to one of a few lengths, as in `tools.run_finetuning`.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import labels as labels_lib
from official_albert import modeling, tokenization

# The number of training batches that are sorted by length together.
_WINDOW_BATCHES = 32


class Rows(NamedTuple):
  """N texts as ids, with labels and weights.

  Attributes:
    features: the inputs of the model <int32>[N, S], padded.
    targets: classes <int32>[N], or numbers <float32>[N].
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
  if tf.nest.flatten(dataset.element_spec)[0].shape.rank == 0:
    dataset = dataset.batch(batch_size)
  parts = [*dataset.as_numpy_iterator()]
  if not parts:
    return [], [], None, batch_size
  joined = tf.nest.map_structure(lambda *x: np.concatenate(x), *parts)
  x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(joined)
  return x, y, weights, len(tf.nest.flatten(parts[0])[0])


class TextBatches:
  """Makes batches of lists and Datasets of texts."""

  def __init__(
    self,
    tokenizer: tokenization.Tokenizer,
    config: modeling.AlbertConfig,
    labels: Optional[Sequence[str]],
    max_seq_length: int,
    has_one_length: Callable[[], bool],
  ):
    """Stores the arguments, which are those of the classifier.

    `has_one_length` returns whether all batches have `max_seq_length`, because
    each length would be compiled as a whole.
    """
    self._tokenizer, self._config, self._labels = tokenizer, config, labels
    self._max_seq_length = max_seq_length
    self._has_one_length = has_one_length
    self._has_warned = False

  def features(self, x: Any) -> dict[str, np.ndarray]:
    """Returns the ids of texts or pairs, padded to `max_seq_length`."""
    if isinstance(x, (Iterator, Mapping, tf.keras.utils.Sequence)):
      raise ValueError(
        "texts are lists, arrays or a tf.data.Dataset, not a "
        f"{type(x).__name__}: collect them in a list."
      )
    texts = x if isinstance(x, tuple) else (x,)
    if len(texts) not in (1, 2) or (
      len(texts) == 2 and isinstance(texts[0], str)
    ):
      raise ValueError(
        "a tuple is a pair of two lists, (texts_a, texts_b): give single texts "
        "as a list."
      )
    columns: list[Any] = [
      np.reshape(part, -1) if getattr(part, "shape", ())[1:] == (1,) else part
      for part in texts
    ]
    if len(columns) > 1:
      self._config.check_pairs()
    second = columns[1] if len(columns) > 1 else None
    features = self._tokenizer(
      columns[0], second, self._max_seq_length, "max_length"
    )
    if not self._has_warned:
      watch = tokenization.Watch(self._tokenizer)
      watch.see(tokenization.check_texts(part, "texts") for part in columns)
      if note := watch.note():
        self._has_warned = True
        warnings.warn(note, stacklevel=4)
    return features

  def rows(
    self, x: Any, y: Any, sample_weight: Any, batch_size: int, purpose: str
  ) -> tuple[Rows, int]:
    """Returns what `fit` and `evaluate` are given, and its batch size."""
    if isinstance(x, tf.data.Dataset):
      if y is not None or sample_weight is not None:
        raise ValueError(
          "the labels and weights of a Dataset are in it: leave y and "
          "sample_weight out."
        )
      x, y, sample_weight, batch_size = read_dataset(x, batch_size)
    features = self.features(x)
    if y is None:
      raise ValueError("the labels are missing: give one for each text.")
    count = len(features["input_ids"])
    if not count:
      raise ValueError(f"there are no texts to {purpose}.")
    if self._labels is None:
      targets = labels_lib.to_numbers(y)
    else:
      targets = labels_lib.to_classes(y, self._labels)
    weights = sample_weight
    if weights is not None:
      weights = labels_lib.one_column(np.asarray(weights, np.float32))
    for name, array in (("labels", targets), ("weights", weights)):
      if array is not None and array.shape != (count,):
        raise ValueError(
          f"there are {count} texts, but the {name} have the shape "
          f"{list(array.shape)}: give one for each text."
        )
    return Rows(features, targets, weights), batch_size

  @property
  def _lengths(self) -> np.ndarray:
    """The lengths of batches; only one where each is compiled as a whole."""
    if self._has_one_length():
      return np.array([self._max_seq_length])
    return np.array(tokenization.bucket_lengths(self._max_seq_length))

  def order(
    self, features: Mapping[str, np.ndarray], batch_size: int, order: str
  ) -> np.ndarray:
    """Returns the rows <int>[N] in the order of `batches`."""
    lengths = features["input_mask"].sum(axis=1)
    if order == "given":
      return np.arange(len(lengths))
    if order == "by_length":
      # The longest first: if memory is too small, the first batch shows it.
      return np.argsort(-lengths, kind="stable")
    # The seed is one of those that tf.keras.utils.set_random_seed determines.
    generator = np.random.default_rng(random.getrandbits(64))
    rows = generator.permutation(len(lengths))
    buckets = np.searchsorted(self._lengths, lengths)
    whole = len(rows) - len(rows) % batch_size
    size = _WINDOW_BATCHES * batch_size
    batches = []
    for begin in range(0, whole, size):
      window = rows[begin : min(begin + size, whole)]
      # Texts of one bucket stay in their order, which is already random.
      window = window[np.argsort(buckets[window], kind="stable")]
      batches += np.split(window, len(window) // batch_size)
    generator.shuffle(batches)
    return np.concatenate([*batches, rows[whole:]])

  def batches(
    self, arrays: Sequence[Any], batch_size: int, order: str = "by_length"
  ) -> tf.data.Dataset:
    """Returns batches of features and of other arrays, which may be None.

    The order is "given", "by_length", or "shuffled" anew in each epoch.
    """
    features, *others = (array for array in arrays if array is not None)
    lengths = self._lengths

    def batches():
      rows = self.order(features, batch_size, order)
      for begin in range(0, len(rows), batch_size):
        batch = rows[begin : begin + batch_size]
        longest = features["input_mask"][batch].sum(axis=1).max(initial=1)
        length = lengths[np.searchsorted(lengths, longest)]
        ids = {name: x[batch, :length] for name, x in features.items()}
        yield (ids, *(array[batch] for array in others))

    length = self._max_seq_length if len(lengths) == 1 else None
    ids = dict.fromkeys(features, tf.TensorSpec([None, length], tf.int32))
    specs = [tf.TensorSpec([None], array.dtype) for array in others]
    dataset = tf.data.Dataset.from_generator(
      batches, output_signature=(ids, *specs)
    )
    count = -(-len(features["input_ids"]) // batch_size)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE)
