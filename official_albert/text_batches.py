"""Batches of ids for the texts of a `TextClassifier`.

Texts are tokenized on the host; those in memory are tokenized once. Batches
hold texts of similar length and are padded to one of a few lengths, as in
`tools.run_finetuning`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import labels as labels_lib
from official_albert import modeling, tokenization

# The number of training batches that are sorted by length together.
_WINDOW_BATCHES = 32
_NO_LABELS = "the labels are missing: give one for each text."
# What brings its labels along.
WITH_LABELS = (tf.data.Dataset, tf.keras.utils.Sequence, Iterator)


class TextBatches:
  """Makes batches of lists, Datasets, generators and Sequences of texts."""

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
    self._data_error: Optional[Exception] = None

  @contextlib.contextmanager
  def plain_errors(self) -> Iterator[None]:
    """Raises errors about data as they are, without TensorFlow's graph."""
    self._data_error = None
    try:
      yield
    except tf.errors.OpError:
      if self._data_error is None:
        raise
      error, self._data_error = self._data_error, None
    else:
      return
    raise error

  def _on_host(
    self, function: Callable, inputs: Sequence[tf.Tensor], dtypes: Any
  ) -> Any:
    """Applies a function in a graph; `_plain_errors` raises its errors."""

    def called(*arrays: np.ndarray) -> Any:
      try:
        return function(*arrays)
      except (TypeError, ValueError) as error:
        self._data_error = error
        # No specification has this rank, so the graph fails. An exception here
        # would be logged with its stack.
        return tf.nest.map_structure(
          lambda dtype: np.zeros([0, 0, 0], dtype.as_numpy_dtype), dtypes
        )

    return tf.numpy_function(called, inputs, dtypes)

  def dataset(
    self,
    data: Any,
    batch_size: int,
    shuffle: bool = False,
    with_labels: bool = True,
  ) -> tf.data.Dataset:
    """Returns batches of ids for all that `TextClassifier.fit` takes.

    With `shuffle`, the batches of a `Sequence` are in another order each time.
    """
    if isinstance(data, tf.data.Dataset):
      return self._tokenized(data, batch_size, with_labels)
    if isinstance(data, WITH_LABELS):
      return self.from_batches(data, shuffle, with_labels)
    return self.batches(self.arrays(*data), batch_size)

  def from_batches(
    self, source: Any, shuffle: bool = False, with_labels: bool = True
  ) -> tf.data.Dataset:
    """Returns batches of ids for those of an iterator or a sequence."""
    is_iterator = isinstance(source, Iterator)
    if is_iterator:
      first = list(itertools.islice(source, 1))
      source = itertools.chain(first, source)
    else:
      first = [source[0]] if len(source) else []

    def arrays_of(batch: Any) -> tuple[Any, ...]:
      if isinstance(batch, list) and not isinstance(batch[0], (str, bytes)):
        batch = tuple(batch)  # As in Keras.
      x, *others = batch if isinstance(batch, tuple) else (batch,)
      if isinstance(x, (str, bytes)):
        raise ValueError(
          f"a generator or Sequence has batches, such as lists of texts, but "
          f"one is the text {x!r:.80}."
        )
      if with_labels:
        features, *others = self.arrays(x, *others)
      else:
        features, others = self.features(x), []
      return (self._cut(features), *others)

    def batches() -> Iterator[tuple[Any, ...]]:
      if is_iterator:
        yield from map(arrays_of, source)
        return
      order = list(range(len(source)))
      if shuffle:
        random.shuffle(order)
      for number, index in enumerate(order, 1):
        arrays = arrays_of(source[index])
        if number == len(order) and hasattr(source, "on_epoch_end"):
          source.on_epoch_end()
        yield arrays

    def remembering_errors() -> Iterator[tuple[Any, ...]]:
      try:
        yield from batches()
      except Exception as error:
        self._data_error = error
        raise

    examples = [arrays_of(batch) for batch in first]
    others = [array for example in examples for array in example[1:]]
    specs = [tf.TensorSpec([None], array.dtype) for array in others]
    dataset = tf.data.Dataset.from_generator(
      remembering_errors, output_signature=(self._specs, *specs)
    )
    if not is_iterator or not first:
      count = len(source) if first else 0
      dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(1)

  def features(self, x: Any) -> dict[str, np.ndarray]:
    """Returns the ids of texts or pairs, padded to `max_seq_length`."""
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
    second = None
    if len(columns) > 1:
      self._config.check_pairs()
      second = columns[1]
    features = self._tokenizer(
      columns[0], second, self._max_seq_length, "max_length"
    )
    if not self._has_warned:
      watch = tokenization.Watch(self._tokenizer)
      watch.see(tokenization.check_texts(part, "texts") for part in columns)
      if note := watch.note():
        self._has_warned = True
        warnings.warn(note, stacklevel=3)
    return features

  def arrays(
    self, x: Any, y: Any = None, sample_weight: Any = None
  ) -> tuple[Any, ...]:
    """Returns features and targets, and weights if they are given."""
    if y is None:
      raise ValueError(_NO_LABELS)
    arrays: tuple[Any, ...] = (self.features(x), self.targets(y))
    if sample_weight is not None:
      weights = np.asarray(sample_weight, np.float32)
      if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
      arrays += (weights,)
    count = len(arrays[0]["input_ids"])
    for name, array in zip(("labels", "weights"), arrays[1:]):
      if array.shape != (count,):
        raise ValueError(
          f"there are {count} texts, but the {name} have the shape "
          f"{list(array.shape)}: give one for each text."
        )
    return arrays

  def targets(self, y: Any) -> np.ndarray:
    """Returns labels as classes <int32>[N], or as numbers <float32>[N]."""
    if self._labels is None:
      return labels_lib.to_numbers(y)
    return labels_lib.to_classes(y, self._labels)

  @property
  def _lengths(self) -> np.ndarray:
    """The lengths of batches; only one where each is compiled as a whole."""
    if self._has_one_length():
      return np.array([self._max_seq_length])
    return np.array(tokenization.bucket_lengths(self._max_seq_length))

  @property
  def _specs(self) -> dict[str, tf.TensorSpec]:
    length = self._max_seq_length if len(self._lengths) == 1 else None
    return dict.fromkeys(
      modeling.INPUTS, tf.TensorSpec([None, length], tf.int32)
    )

  def _cut(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Cuts the padding of a batch down to one of `_lengths`."""
    longest = features["input_mask"].sum(axis=1).max(initial=1)
    length = self._lengths[np.searchsorted(self._lengths, longest)]
    return {name: array[:, :length] for name, array in features.items()}

  def order(
    self, arrays: tuple[Any, ...], batch_size: int, order: str = "by_length"
  ) -> np.ndarray:
    """Returns the rows <int>[N] in the order of `_batches`."""
    lengths = arrays[0]["input_mask"].sum(axis=1)
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
    self, arrays: tuple[Any, ...], batch_size: int, order: str = "by_length"
  ) -> tf.data.Dataset:
    """Returns batches of the rows of features, targets and weights.

    The order is "given", "by_length", or "shuffled" anew in each epoch.
    """
    features, *others = arrays

    def batches():
      rows = self.order(arrays, batch_size, order)
      for begin in range(0, len(rows), batch_size):
        batch = rows[begin : begin + batch_size]
        ids = {name: array[batch] for name, array in features.items()}
        yield (self._cut(ids), *(array[batch] for array in others))

    specs = [tf.TensorSpec([None], array.dtype) for array in others]
    dataset = tf.data.Dataset.from_generator(
      batches, output_signature=(self._specs, *specs)
    )
    count = -(-len(features["input_ids"]) // batch_size)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE)

  def _tokenized(
    self, dataset: tf.data.Dataset, batch_size: int, with_labels: bool = True
  ) -> tf.data.Dataset:
    """Returns batches of ids for a Dataset of texts.

    Single texts are batched. A Dataset of ids stays as it is; Keras' `fit`
    passes one to `evaluate`.
    """
    x, y, _ = tf.keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    if with_labels and y is None:
      raise ValueError(_NO_LABELS)
    if isinstance(x, Mapping):
      modeling.named_inputs(x)  # Checks the names.
      return dataset
    if tf.nest.flatten(x)[0].shape.rank == 0:
      dataset = dataset.batch(batch_size)

    def to_ids(*texts: np.ndarray) -> list[np.ndarray]:
      return list(self._cut(self.features(texts)).values())

    def tokenize(*element):
      x, y, weight = tf.keras.utils.unpack_x_y_sample_weight(element)
      texts = x if isinstance(x, tuple) else (x,)
      ids = self._on_host(to_ids, texts, [tf.int32] * len(self._specs))
      features = {
        name: tf.ensure_shape(array, spec.shape)
        for (name, spec), array in zip(self._specs.items(), ids)
      }
      if not with_labels:
        return features
      dtype = tf.float32 if self._labels is None else tf.int32
      y = tf.ensure_shape(self._on_host(self.targets, [y], dtype), [None])
      return tf.keras.utils.pack_x_y_sample_weight(features, y, weight)

    dataset = dataset.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)
