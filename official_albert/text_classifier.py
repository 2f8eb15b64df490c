"""`TextClassifier`: a Keras model that is trained on texts and answers texts.

Texts are tokenized on the host, before batches reach the model, so the model
itself takes ids, on any device, in any precision, with or without XLA. Texts in
memory are tokenized once. Their batches hold texts of similar length and are
padded to one of a few lengths, as in `tools.run_finetuning`.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from official_albert import (
  checkpoints,
  class_metrics,
  modeling,
  serving,
  tokenization,
  training,
)
from official_albert import labels as labels_lib

# The rate for models of the paper's sizes.
_LEARNING_RATE = 2e-5
# Names of the squared error in Keras.
_SQUARED_ERRORS = ("mean_squared_error", "mse", "MSE")
# The targets of a Dataset that give their scale.
_TARGETS_TO_READ = 10_000
# The number of training batches that are sorted by length together.
_WINDOW_BATCHES = 32
_NO_LABELS = "the labels are missing: give one for each text."
# What brings its labels along.
_WITH_LABELS = (tf.data.Dataset, tf.keras.utils.Sequence, Iterator)
_NO_DROPOUT: dict[str, Any] = {
  "hidden_dropout_prob": 0.0,
  "attention_probs_dropout_prob": 0.0,
}


@dataclasses.dataclass(frozen=True)
class Classification:
  """The class of a text.

  Attributes:
    label: the most probable class.
    probabilities: the probability of each class.
  """

  label: str
  probabilities: dict[str, float]


def _check_alone(x: Any, y: Any, sample_weight: Any) -> None:
  """Raises ValueError if labels or weights are given beside a Dataset."""
  if y is not None or sample_weight is not None:
    raise ValueError(
      f"the labels and weights of a {type(x).__name__} are in it: leave y and "
      "sample_weight out."
    )


def _check_data(dataset: tf.data.Dataset, purpose: str) -> None:
  """Raises ValueError if a Dataset is known to be empty."""
  if dataset.cardinality() == 0:
    raise ValueError(f"there are no texts to {purpose}.")


@tf.keras.utils.register_keras_serializable(package="official_albert")
class TextClassifier(modeling.FeatureModel):
  """A classifier or a regression of texts, or of pairs of texts.

  >>> from official_albert import AdamW, TextClassifier
  >>> classifier = TextClassifier.from_checkpoint(
  ...   "quickstart/run", labels=["neg", "pos"], max_seq_length=32
  ... )
  >>> classifier.compile(optimizer=AdamW(3e-4))
  >>> texts, labels = ["Lovely.", "Dull.", "So lovely."], ["pos", "neg", "pos"]
  >>> history = classifier.fit(texts, labels, verbose=0)
  >>> classifier.predict(["Not dull."], verbose=0).shape
  (1, 2)
  >>> sorted(classifier.classify("Not dull.").probabilities)
  ['neg', 'pos']
  >>> classifier.save("stars.keras")
  >>> classifier.export("exported/1")

  `fit`, `evaluate` and `predict` take texts: a list, a NumPy array, a pandas
  Series, a `tf.data.Dataset` of texts with labels, or a generator or Keras
  `Sequence` of batches of them. Pairs are a tuple of two such lists. Labels are
  names of classes or their indices, [N] or [N, 1], or one-hot rows [N, C]; if
  the names are integers, such as "1" to "5", so are the labels. Those of a
  regression are numbers of any scale: the first `fit` standardizes them, and
  the outputs have their scale again.

  A text has one class. Multi-label classification is not supported, and labels
  with several classes for a text are refused.

  A `.keras` file has everything, the tokenizer included.
  `tf.keras.models.load_model` reads it after `import official_albert`.

  Attributes:
    model: the `AlbertForSequenceClassification`.
    tokenizer: the tokenizer.
    labels: the names of the classes in the order of the outputs; None for a
      regression.
    max_seq_length: the maximum number of tokens of a text or a pair, special
      ones included. Longer texts are truncated.
    load_report: the `LoadReport` of `from_checkpoint`, else None.
  """

  load_report: Optional[checkpoints.LoadReport] = None

  def __init__(
    self,
    config: modeling.AlbertConfig,
    tokenizer: tokenization.Tokenizer,
    labels: Optional[Sequence[Any]],
    max_seq_length: int = 128,
    classifier_dropout_prob: float = 0.1,
    **kwargs: Any,
  ):
    """Creates a model with random weights.

    Args:
      config: the configuration, with the dropout rates of fine-tuning.
      tokenizer: the tokenizer of the encoder.
      labels: the names of two or more classes; None for a regression.
      max_seq_length: see the class.
      classifier_dropout_prob: the dropout rate of the pooled output.
      **kwargs: arguments of `tf.keras.Model`.
    """
    super().__init__(config, **kwargs)
    names = () if labels is None else labels_lib.names_of(labels)
    config.check_fits(tokenizer.vocab_size, max_seq_length)
    tokenization.available_tokens(max_seq_length, texts=1)  # Checks it.
    self.tokenizer = tokenizer
    self._has_warned = False
    self.labels = names or None
    self.max_seq_length = max_seq_length
    self.model = modeling.AlbertForSequenceClassification(
      config,
      len(names) or 1,
      classifier_dropout_prob,
      name="model",
      dtype=self.dtype_policy,
    )
    self._create_variables()

  @modeling.without_autograph
  def call(
    self, features: Mapping[str, tf.Tensor], training: Optional[bool] = None
  ) -> tf.Tensor:
    """Computes the outputs for ids; `predict` takes texts.

    Args:
      features: the inputs of `AlbertModel`, such as `tokenizer(texts)`.
      training: whether to apply dropout.

    Returns:
      The probabilities of the classes <float32>[B, C], or the numbers of a
      regression <float32>[B, 1].
    """
    if not isinstance(features, Mapping):
      raise ValueError(
        "texts go to fit, evaluate, predict or classify; a call takes what "
        "classifier.tokenizer(texts) returns."
      )
    logits = self.model(features, training=training, logits_only=True)["logits"]
    if self.labels is None:
      return logits
    # Keras remembers the logits, and computes the cross entropy from them.
    return tf.keras.activations.softmax(logits)

  def compile(
    self,
    optimizer: Any = None,
    loss: Any = None,
    metrics: Any = None,
    weighted_metrics: Any = None,
    **kwargs: Any,
  ) -> None:
    """Sets what `fit` does; see `tf.keras.Model.compile`.

    Args:
      optimizer: the default is `AdamW` with a rate for the encoder's size.
      loss: a loss of probabilities [B, C] and indices of classes [B], or one of
        Keras. The default is the sparse categorical cross entropy; for a
        regression, the squared error.
      metrics: metrics without sample weights, of the same or of Keras. Those
        of one class, such as AUC and Precision, measure the second of two
        classes, and the average over more.
      weighted_metrics: metrics with sample weights. Unless there are other
        metrics, the default is the accuracy; for a regression, none.
      **kwargs: further arguments of Keras.

    Raises:
      ValueError: a metric of a regression is one of classes.
    """
    if optimizer is None:
      size = self.config.hidden_size
      values, _ = training.for_finetuning(_LEARNING_RATE, size)
      optimizer = training.AdamW(values["learning_rate"])
    is_regression = self.labels is None
    if loss is None:
      classes = "sparse_categorical_crossentropy"
      loss = "mean_squared_error" if is_regression else classes
    if metrics is None and weighted_metrics is None:
      weighted_metrics = [] if is_regression else ["accuracy"]
    self._one_hot_loss = not is_regression and class_metrics.takes_one_hot(
      tf.keras.losses.get(loss)
    )
    fitting = (
      class_metrics.of_numbers if is_regression else class_metrics.of_classes
    )
    metrics, weighted_metrics = tf.nest.map_structure(
      lambda metric: metric and fitting(metric), (metrics, weighted_metrics)
    )
    super().compile(
      optimizer, loss, metrics, weighted_metrics=weighted_metrics, **kwargs
    )

  def compile_from_config(self, config: Mapping[str, Any]) -> None:
    """Compiles a loaded model, which Keras does not where `compile` is new."""
    self.compile(**tf.keras.saving.deserialize_keras_object(config))
    if hasattr(self.optimizer, "build"):  # The file has the optimizer's state.
      self.optimizer.build(self.trainable_variables)

  def compute_loss(
    self,
    x: Any = None,
    y: Any = None,
    y_pred: Any = None,
    sample_weight: Any = None,
  ) -> tf.Tensor:
    """Computes the loss, with one-hot labels where Keras' loss wants them.

    The squared error of a regression is in standard deviations of the targets.
    """
    if y is not None and self._one_hot_loss:
      y = tf.one_hot(tf.reshape(y, [-1]), len(self.labels or ()))
    loss = super().compute_loss(x, y, y_pred, sample_weight)
    if self.labels is None and self.loss in _SQUARED_ERRORS:
      loss /= tf.square(self.model.classifier.target_std)
    return loss

  def fit(
    self,
    x: Any,
    y: Any = None,
    batch_size: int = 32,
    epochs: int = 1,
    *,
    validation_split: float = 0.0,
    validation_data: Any = None,
    validation_batch_size: Optional[int] = None,
    shuffle: bool = True,
    class_weight: Optional[Mapping[Any, float]] = None,
    sample_weight: Any = None,
    **kwargs: Any,
  ) -> tf.keras.callbacks.History:
    """Trains on texts; see `tf.keras.Model.fit`.

    Args:
      x: N texts or pairs (see the class), or a Dataset of `(texts, labels)` or
        `(texts, labels, weights)`, in batches or single; or a generator or
        `Sequence` of such batches. A generator for several epochs needs
        `steps_per_epoch`.
      y: N labels.
      batch_size: the number of texts in an update.
      epochs: the number of passes over the texts.
      validation_split: the share of the texts, at their end, to evaluate on.
      validation_data: `(texts, labels)`, `(texts, labels, weights)`, or a
        Dataset, generator or `Sequence` of either. Of a generator, the first
        `validation_steps` batches are kept for all epochs.
      validation_batch_size: the default is `batch_size`.
      shuffle: whether each epoch has another order, with texts of similar
        length in a batch.
      class_weight: the weights of classes, by name or index; others have 1.
      sample_weight: N weights. Those of the classes are multiplied with them.
      **kwargs: further arguments of Keras, such as `callbacks`.

    Raises:
      TypeError: something else than a text is among the texts.
      ValueError: a label is unknown, or the numbers of texts and labels differ.
    """
    if not 0 <= validation_split < 1:
      raise ValueError(
        f"validation_split is {validation_split}, but must be a share below 1."
      )
    evaluation_size = validation_batch_size or batch_size
    if isinstance(validation_data, Iterator):
      steps = kwargs.get("validation_steps")
      kept = list(itertools.islice(validation_data, steps))
      validation_data = self._from_batches(kept)
    elif validation_data is not None:
      validation_data = self._dataset(validation_data, evaluation_size)
    has_steps = kwargs.get("steps_per_epoch") is not None
    if isinstance(x, Iterator) and epochs > 1 and not has_steps:
      raise ValueError(
        f"a generator is read once, but epochs is {epochs}: give "
        "steps_per_epoch, or a Dataset, a Sequence or lists."
      )
    targets: Any = None
    if isinstance(x, _WITH_LABELS):
      _check_alone(x, y, sample_weight)
      if validation_split:
        raise ValueError(
          "validation_split is for lists: give validation_data beside a "
          f"{type(x).__name__}."
        )
      x, targets = self._first_targets(x, kwargs.get("steps_per_epoch"))
      dataset = self._dataset(x, batch_size, shuffle)
    else:
      arrays = self._arrays(x, y, sample_weight)
      if validation_split and validation_data is None:
        count = int(len(arrays[1]) * (1 - validation_split))
        held_out = tf.nest.map_structure(lambda array: array[count:], arrays)
        arrays = tf.nest.map_structure(lambda array: array[:count], arrays)
        validation_data = self._batches(held_out, evaluation_size)
      targets = arrays[1]
      order = "shuffled" if shuffle else "given"
      dataset = self._batches(arrays, batch_size, order)
    _check_data(dataset, "train on")
    if validation_data is not None:
      _check_data(validation_data, "validate on")
    if class_weight:
      if self.labels is None:
        raise ValueError("a regression has no classes: leave class_weight out.")
      # Keras refuses them together with weights of the texts, [B] or [B, 1].
      by_class = np.ones(len(self.labels), np.float32)
      for name, value in class_weight.items():
        by_class[labels_lib.class_index(name, self.labels)] = value

      def weighted(x, y, weight=1.0):
        weight = tf.reshape(tf.cast(weight, tf.float32), [-1])
        return x, y, weight * tf.gather(by_class, y)

      dataset = dataset.map(weighted)
    self._standardize(targets)
    # Keras leaves that of a `fit` that was interrupted, and would use it again.
    self._eval_data_handler = None
    with self._plain_errors():
      return super().fit(
        dataset, epochs=epochs, validation_data=validation_data, **kwargs
      )

  def _first_targets(
    self, data: Any, most: Optional[int]
  ) -> tuple[Any, Optional[np.ndarray]]:
    """Returns data as it was, and targets of its first batches <float32>[N].

    There are none for a classifier. `most` is the number of batches in an
    epoch. Of an iterator, the batches that were read are put in front again.
    """
    if self.labels is not None:
      return data, None
    batches = data
    if isinstance(data, Iterator):
      first = list(itertools.islice(data, min(most or 100, 100)))
      data, batches = itertools.chain(first, data), first
    elif not isinstance(data, tf.data.Dataset):
      batches = (data[index] for index in range(len(data)))
    parts: list[np.ndarray] = []
    for batch in batches:
      _, y, _ = tf.keras.utils.unpack_x_y_sample_weight(batch)
      if y is None or sum(map(len, parts)) >= _TARGETS_TO_READ:
        break
      parts.append(self._targets(np.reshape(y, [-1])))
    return data, np.concatenate(parts) if parts else None

  def _standardize(self, targets: Optional[np.ndarray]) -> None:
    """Gives the head of a regression the scale of its targets, only once."""
    head = self.model.classifier
    if self.labels is not None or targets is None or not len(targets):
      return
    if tf.reduce_all(head.target_scale == 0):
      loaded = self.load_report.matched if self.load_report else ()
      head.set_targets(targets, any("output_weights" in n for n in loaded))

  def evaluate(
    self,
    x: Any,
    y: Any = None,
    batch_size: int = 32,
    *,
    sample_weight: Any = None,
    **kwargs: Any,
  ) -> Any:
    """Evaluates on texts; see `fit` and `tf.keras.Model.evaluate`."""
    if isinstance(x, _WITH_LABELS):
      _check_alone(x, y, sample_weight)
      dataset = self._dataset(x, batch_size)
    else:
      dataset = self._dataset((x, y, sample_weight), batch_size)
    _check_data(dataset, "evaluate on")
    with self._plain_errors():
      return super().evaluate(dataset, **kwargs)

  def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> np.ndarray:
    """Returns the outputs of `call` for texts; see `tf.keras.Model.predict`.

    `x` is N texts or pairs (see the class), or a Dataset, a generator or a
    `Sequence` of them, with or without labels, which are not read. The result
    is <float32>[N, C], or [N, 1] for a regression.
    """
    nothing = np.zeros([0, len(self.labels or "1")], np.float32)
    if isinstance(x, _WITH_LABELS):
      dataset = self._dataset(x, batch_size, with_labels=False)
      if dataset.cardinality() == 0:
        return nothing
      with self._plain_errors():
        return super().predict(dataset, **kwargs)
    if kwargs.get("steps") is not None:
      raise ValueError("steps is for a Dataset: of a list, give a part of it.")
    arrays = (self._features(x),)
    order = self._order(arrays, batch_size, "by_length")
    if not len(order):
      return nothing
    found = super().predict(self._batches(arrays, batch_size), **kwargs)
    predictions = np.zeros_like(found)
    predictions[order] = found
    return predictions

  def classify(
    self,
    texts: Union[str, Sequence[str]],
    texts_b: Union[str, Sequence[str], None] = None,
  ) -> Any:
    """Returns the `Classification` of a text or a pair, or a list for a list.

    Raises:
      ValueError: the model is a regression.
    """
    labels = self.labels
    if labels is None:
      raise ValueError("a regression has no labels: use score.")
    return self._answers(
      texts,
      texts_b,
      lambda row: Classification(
        labels[row.argmax()], dict(zip(labels, row.tolist()))
      ),
    )

  def score(
    self,
    texts: Union[str, Sequence[str]],
    texts_b: Union[str, Sequence[str], None] = None,
  ) -> Any:
    """Returns the number of a text or a pair, or a list for a list.

    Raises:
      ValueError: the model is a classifier.
    """
    if self.labels is not None:
      raise ValueError("a classifier has no numbers: use classify.")
    return self._answers(texts, texts_b, lambda row: float(row[0]))

  def _answers(
    self, texts: Any, texts_b: Any, answer: Callable[[np.ndarray], Any]
  ) -> Any:
    """Returns the answer to each row of `predict`, or to the one of a text."""
    is_one = isinstance(texts, (str, bytes))
    pair = ([texts], [texts_b]) if is_one else (texts, texts_b)
    x = texts if texts_b is None else pair
    answers = [answer(row) for row in self.predict(x, verbose=0)]
    return answers[0] if is_one else answers

  def export(self, filepath: str, pairs: bool = False, **options: Any) -> None:
    """Writes the SavedModel that tools.export_saved_model writes of a run.

    The classifier stays as it is. docs/serving.md describes the folder.

    Args:
      filepath: a new folder; for TF Serving, its name must be a version number.
      pairs: whether the model is for pairs of texts.
      **options: fields of `serving.ExportOptions`, such as `precision`.

    Raises:
      ValueError, OSError: an option is wrong, or the folder is not empty.
    """
    serving.export_classifier(self, filepath, pairs, **options)

  @contextlib.contextmanager
  def _plain_errors(self) -> Iterator[None]:
    """Raises errors about data as they are, without TensorFlow's graph."""
    self._data_error: Optional[Exception] = None
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

  def _dataset(
    self,
    data: Any,
    batch_size: int,
    shuffle: bool = False,
    with_labels: bool = True,
  ) -> tf.data.Dataset:
    """Returns batches of ids for all that `fit` takes.

    With `shuffle`, the batches of a `Sequence` are in another order each time.
    """
    if isinstance(data, tf.data.Dataset):
      return self._tokenized(data, batch_size, with_labels)
    if isinstance(data, _WITH_LABELS):
      return self._from_batches(data, shuffle, with_labels)
    return self._batches(self._arrays(*data), batch_size)

  def _from_batches(
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
        features, *others = self._arrays(x, *others)
      else:
        features, others = self._features(x), []
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

  def _features(self, x: Any) -> dict[str, np.ndarray]:
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
      self.config.check_pairs()
      second = columns[1]
    features = self.tokenizer(
      columns[0], second, self.max_seq_length, "max_length"
    )
    if not self._has_warned:
      watch = tokenization.Watch(self.tokenizer)
      watch.see(tokenization.check_texts(part, "texts") for part in columns)
      if note := watch.note():
        self._has_warned = True
        warnings.warn(note, stacklevel=3)
    return features

  def _arrays(
    self, x: Any, y: Any = None, sample_weight: Any = None
  ) -> tuple[Any, ...]:
    """Returns features and targets, and weights if they are given."""
    if y is None:
      raise ValueError(_NO_LABELS)
    arrays: tuple[Any, ...] = (self._features(x), self._targets(y))
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

  def _targets(self, y: Any) -> np.ndarray:
    """Returns labels as classes <int32>[N], or as numbers <float32>[N]."""
    if self.labels is None:
      return labels_lib.to_numbers(y)
    return labels_lib.to_classes(y, self.labels)

  @property
  def _lengths(self) -> np.ndarray:
    """The lengths of batches; only one where each is compiled as a whole."""
    is_tpu = isinstance(self.distribute_strategy, tf.distribute.TPUStrategy)
    if self.jit_compile or is_tpu:
      return np.array([self.max_seq_length])
    return np.array(tokenization.bucket_lengths(self.max_seq_length))

  @property
  def _specs(self) -> dict[str, tf.TensorSpec]:
    length = self.max_seq_length if len(self._lengths) == 1 else None
    return dict.fromkeys(
      modeling.INPUTS, tf.TensorSpec([None, length], tf.int32)
    )

  def _cut(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Cuts the padding of a batch down to one of `_lengths`."""
    longest = features["input_mask"].sum(axis=1).max(initial=1)
    length = self._lengths[np.searchsorted(self._lengths, longest)]
    return {name: array[:, :length] for name, array in features.items()}

  def _order(
    self, arrays: tuple[Any, ...], batch_size: int, order: str
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

  def _batches(
    self, arrays: tuple[Any, ...], batch_size: int, order: str = "by_length"
  ) -> tf.data.Dataset:
    """Returns batches of the rows of features, targets and weights.

    The order is "given", "by_length", or "shuffled" anew in each epoch.
    """
    features, *others = arrays

    def batches():
      rows = self._order(arrays, batch_size, order)
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
      self.named_inputs(x)  # Checks the names.
      return dataset
    if tf.nest.flatten(x)[0].shape.rank == 0:
      dataset = dataset.batch(batch_size)

    def to_ids(*texts: np.ndarray) -> list[np.ndarray]:
      return list(self._cut(self._features(texts)).values())

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
      dtype = tf.float32 if self.labels is None else tf.int32
      y = tf.ensure_shape(self._on_host(self._targets, [y], dtype), [None])
      return tf.keras.utils.pack_x_y_sample_weight(features, y, weight)

    dataset = dataset.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)

  def get_config(self) -> dict[str, Any]:
    """Returns the settings, with the content of the tokenizer's file."""
    return {
      **super().get_config(),
      "labels": self.labels and list(self.labels),
      "max_seq_length": self.max_seq_length,
      "classifier_dropout_prob": self.model.classifier.dropout_prob,
      "tokenizer": {
        "kind": self.tokenizer.kind,
        **self.tokenizer.rules.to_dict(),
        "content": base64.b64encode(self.tokenizer.content).decode("ascii"),
      },
    }

  @classmethod
  def from_config(
    cls, config: Mapping[str, Any], custom_objects: Any = None
  ) -> TextClassifier:
    stored = config["tokenizer"]
    content = base64.b64decode(stored["content"])
    kind = tokenization.TOKENIZERS[stored["kind"]]
    rules = tokenization.TextRules.of(stored)
    tokenizer = kind(content, **rules.to_dict())
    return super().from_config({**config, "tokenizer": tokenizer})

  @classmethod
  def from_preset(
    cls,
    preset: str,
    labels: Optional[Sequence[Any]],
    tokenizer: tokenization.Tokenizer,
    **kwargs: Any,
  ) -> TextClassifier:
    """Returns a model of a named size with random weights, and warns of it.

    `preset` is one of `modeling.PRESETS`; its vocabulary becomes that of the
    tokenizer. For the other arguments, see the constructor.
    """
    config = modeling.AlbertConfig.from_preset(preset)
    modeling.warn_of_random_weights(cls, preset)
    size = tokenizer.vocab_size
    config = dataclasses.replace(config, vocab_size=size, **_NO_DROPOUT)
    return cls(config, tokenizer, labels, **kwargs)

  @classmethod
  def from_checkpoint(
    cls,
    path: str,
    labels: Optional[Sequence[Any]],
    tokenizer: Optional[tokenization.Tokenizer] = None,
    **kwargs: Any,
  ) -> TextClassifier:
    """Returns a model with a pretrained encoder of any supported format.

    The encoder has no dropout, as in `tools.run_finetuning`. The head of a
    classifier with the same labels is loaded, too; otherwise it is new.

    Args:
      path: see `AlbertModel.from_checkpoint`.
      labels: the names of two or more classes; None for a regression.
      tokenizer: the default is the one beside the checkpoint.
      **kwargs: further arguments of the constructor.

    Raises:
      ValueError, OSError: there is no checkpoint or no tokenizer, or the
        checkpoint is damaged or belongs to another model.
    """
    with checkpoints.open(path) as checkpoint:
      if tokenizer is None:
        if checkpoint.tokenizer is None:
          raise ValueError(
            f"there is no tokenizer beside {path}: give one, such as "
            'tokenizer=SentencePieceTokenizer("30k-clean.model").'
          )
        tokenizer = checkpoint.tokenizer.open()
      config = dataclasses.replace(checkpoint.config, **_NO_DROPOUT)
      classifier = cls(config, tokenizer, labels, **kwargs)
      kind = "regression" if labels is None else "classification"
      head = checkpoints.Head(kind, tuple(classifier.labels or ()))
      left_out, notes = checkpoints.choose_head(checkpoint, head)
      checkpoint.scaled_head.clear()  # `fit` sets the scale of its targets.
      report = checkpoints.fill(classifier.model, checkpoint)
    if any("/pooler/" in name for name in report.missing):
      warnings.warn(
        f"{path} has no weights of the pooler: they are random until fit.",
        stacklevel=2,
      )
    classifier.load_report = dataclasses.replace(
      report, left_out=left_out, notes=notes
    )
    return classifier
