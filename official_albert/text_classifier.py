"""`TextClassifier`: a Keras model that is trained on texts and answers texts.

Texts are tokenized on the host, before batches reach the model (see
`text_batches`), so the model itself takes ids, on any device, in any precision,
with or without XLA.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import warnings
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from official_albert import (
  checkpoints,
  files,
  modeling,
  runs,
  serving,
  text_batches,
  tokenization,
  training,
)
from official_albert import labels as labels_lib
from official_albert.settings import (
  EXPORT_PRECISIONS,
  SELECTIONS,
  check_choice,
  check_number,
)

Texts = Union[str, Sequence[str]]
# The rate for models of the paper's sizes.
_LEARNING_RATE = 2e-5
# Names of the squared error in Keras.
_SQUARED_ERRORS = ("mean_squared_error", "mse", "MSE")
# Names for which Keras chooses the function that fits the labels.
_CHOSEN = ("accuracy", "acc", "crossentropy", "ce")
_NO_DROPOUT: dict[str, Any] = {
  "hidden_dropout_prob": 0.0,
  "attention_probs_dropout_prob": 0.0,
}


@dataclasses.dataclass(frozen=True)
class Classification:
  """The class of a text.

  Attributes:
    label: the most probable class; of a text with several, the list of those
      whose probability reaches the threshold of the class.
    probabilities: the probability of each class.
    exit_layer: the number of layers that were applied to the text; None if the
      call asked for no `exit_layer` or `exit_threshold`.
  """

  label: Union[str, list[str]]
  probabilities: dict[str, float]
  exit_layer: Optional[int] = dataclasses.field(default=None, repr=False)


def _check_function(function: Any) -> None:
  """Refuses a loss or a metric of Keras that takes one-hot labels.

  `function` is a function, an object or a name, or None.
  """
  if isinstance(function, str):
    if function in _CHOSEN:
      return
    function = tf.keras.metrics.get(function)
  if type(function) is tf.keras.metrics.MeanMetricWrapper:
    function = function._fn  # A user's.
  kind = function if hasattr(function, "__name__") else type(function)
  name = kind.__name__.lower()
  is_known = kind.__module__.startswith(("keras.", "tf_keras.", "tensorflow_"))
  if function is not None and is_known and not name.startswith("sparse"):
    raise ValueError(
      f"{name} takes one-hot labels, but those of a TextClassifier are "
      "indices: give accuracy, a function of Keras whose name begins with "
      "sparse, or your own, or measure what predict returns."
    )


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
  Series, or a `tf.data.Dataset` of texts with labels, which is read once, into
  memory. Pairs are a tuple of two such lists. Labels are names of classes or
  their indices, [N] or [N, 1]; if the names are integers, such as "1" to "5",
  so are the labels. Those of a regression are numbers of any scale: the first
  `fit` standardizes them, and the outputs have their scale again.

  A text has one class. With `multi_label`, it may have several labels or none:
  then labels are a list of names for each text, or an array [N, C] of 0 and 1,
  as scikit-learn's MultiLabelBinarizer makes it.

  A `.keras` file has everything, the tokenizer included.
  `tf.keras.models.load_model` reads it after `import official_albert`.

  Attributes:
    model: the `AlbertForSequenceClassification`.
    tokenizer: the tokenizer.
    labels: the names of the classes in the order of the outputs; None for a
      regression.
    max_seq_length: the maximum number of tokens of a text or a pair, special
      ones included. Longer texts are truncated.
    multi_label: whether a text may have several labels.
    thresholds: the probability from which on a text has each of them.
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
    multi_label: bool = False,
    thresholds: Union[float, Sequence[float]] = 0.5,
    **kwargs: Any,
  ):
    """Creates a model with random weights.

    Args:
      config: the configuration, with the dropout rates of fine-tuning.
      tokenizer: the tokenizer of the encoder.
      labels: the names of two or more classes; None for a regression.
      max_seq_length: see the class.
      classifier_dropout_prob: the dropout rate of the pooled output.
      multi_label: see the class.
      thresholds: see the class; a number is that of all labels.
      **kwargs: arguments of `tf.keras.Model`.
    """
    super().__init__(config, **kwargs)
    is_regression = labels is None and not multi_label
    names = () if is_regression else labels_lib.names_of(labels)
    config.check_fits(tokenizer.vocab_size, max_seq_length)
    tokenization.available_tokens(max_seq_length, texts=1)  # Checks it.
    self.tokenizer = tokenizer
    self.labels = names or None
    self.multi_label = bool(multi_label)
    self.thresholds = _thresholds(thresholds, len(names), self.multi_label)
    self.max_seq_length = max_seq_length
    self.model = modeling.AlbertForSequenceClassification(
      config,
      len(names) or 1,
      classifier_dropout_prob,
      name="model",
      dtype=self.dtype_policy,
    )
    if self.multi_label:
      self.model.classifier.enlarge_weights()
    self._has_warned = False
    self._create_variables()

  @modeling.without_autograph
  def call(
    self, features: Mapping[str, tf.Tensor], training: Optional[bool] = None
  ) -> tf.Tensor:
    """Computes the outputs for ids, such as `tokenizer(texts)`.

    These are the probabilities of the classes <float32>[B, C], or the numbers
    of a regression <float32>[B, 1]. `predict` takes texts.
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
    if self.multi_label:
      return tf.keras.activations.sigmoid(logits)
    return tf.keras.activations.softmax(logits)

  def _features(self, x: Any) -> dict[str, np.ndarray]:
    """Returns the ids of texts or pairs, padded to `max_seq_length`."""
    columns: Any = text_batches.split_texts(x)
    if len(columns) == 2:
      self.config.check_pairs()
    if not self._has_warned:
      texts = itertools.chain(*columns)
      if note := tokenization.coverage_note(self.tokenizer, texts):
        self._has_warned = True
        warnings.warn(note, stacklevel=4)
    first, second = [*columns, None][:2]
    return self.tokenizer(first, second, self.max_seq_length, "max_length")

  def _rows(
    self, x: Any, y: Any, sample_weight: Any, batch_size: int
  ) -> tuple[text_batches.Rows, int]:
    """Returns what `fit` and `evaluate` are given, and its batch size."""
    if isinstance(x, tf.data.Dataset):
      if y is not None or sample_weight is not None:
        raise ValueError(
          "the labels and weights of a Dataset are in it: leave y and "
          "sample_weight out."
        )
      x, y, sample_weight, batch_size = text_batches.read_dataset(x, batch_size)
    features = self._features(x)
    names, multi_label = self.labels, self.multi_label
    rows = text_batches.make_rows(
      features, y, sample_weight, names, multi_label
    )
    return rows, batch_size

  def _batches(
    self, arrays: Sequence[Any], batch_size: int, order: str = "by_length"
  ) -> tf.data.Dataset:
    is_tpu = isinstance(self.distribute_strategy, tf.distribute.TPUStrategy)
    has_one_length = is_tpu or bool(self.jit_compile)
    return text_batches.make_batches(arrays, batch_size, has_one_length, order)

  def compile(
    self,
    optimizer: Any = None,
    loss: Any = None,
    metrics: Any = None,
    weighted_metrics: Any = None,
    **kwargs: Any,
  ) -> None:
    """Sets what `fit` does; see `tf.keras.Model.compile`.

    The default optimizer is `AdamW` with a rate for the encoder's size, the
    default loss the sparse categorical cross entropy of probabilities [B, C]
    and indices [B], or the squared error; without metrics, the accuracy is
    measured. With `multi_label`, both are binary, of [B, C] and [B, C]. Raises
    ValueError if a function takes one-hot labels.
    """
    if optimizer is None:
      size = self.config.hidden_size
      values, _ = training.for_finetuning(_LEARNING_RATE, size)
      optimizer = training.AdamW(values["learning_rate"])
    if self.labels is None:
      loss = loss or "mean_squared_error"
    elif self.multi_label:
      loss = loss or "binary_crossentropy"
      if metrics is None and weighted_metrics is None:
        weighted_metrics = ["binary_accuracy"]
    else:
      loss = loss or "sparse_categorical_crossentropy"
      if metrics is None and weighted_metrics is None:
        weighted_metrics = ["accuracy"]
      functions = [tf.keras.losses.get(loss), metrics, weighted_metrics]
      for function in tf.nest.flatten(functions):
        _check_function(function)
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
    """Computes the loss; that of a regression is in standard deviations."""
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
    shuffle: bool = True,
    class_weight: Optional[Mapping[Any, float]] = None,
    sample_weight: Any = None,
    **kwargs: Any,
  ) -> tf.keras.callbacks.History:
    """Trains on texts; see `tf.keras.Model.fit`.

    Args:
      x: N texts or pairs (see the class), or a Dataset of `(texts, labels)` or
        `(texts, labels, weights)`, in batches, which replace `batch_size`, or
        single.
      y: N labels.
      batch_size: the number of texts in an update.
      epochs: the number of passes over the texts.
      validation_split: the share of the texts, at their end, to evaluate on.
      validation_data: `(texts, labels)`, `(texts, labels, weights)`, or a
        Dataset of either.
      shuffle: whether each epoch has another order, with texts of similar
        length in a batch.
      class_weight: the weights of classes, by name or index; others have 1.
      sample_weight: N weights. Those of the classes are multiplied with them.
      **kwargs: further arguments of Keras, such as `callbacks`.

    Raises:
      TypeError: something else than a text is among the texts.
      ValueError: a label is unknown, or the numbers of texts and labels differ.
    """
    check_number("validation_split", validation_split, least=0, below=1)
    rows, batch_size = self._rows(x, y, sample_weight, batch_size)
    held_out, held_out_size = None, batch_size
    if validation_data is not None:
      given = validation_data
      if isinstance(given, tf.data.Dataset):
        given = (given,)
      x, y, weights = (*given, None, None)[:3]
      held_out, held_out_size = self._rows(x, y, weights, batch_size)
    elif validation_split:
      count = int(len(rows.targets) * (1 - validation_split))
      if not 0 < count < len(rows.targets):
        raise ValueError(
          f"validation_split is {validation_split}, which leaves no texts to "
          "train on, or none to evaluate on."
        )
      held_out, rows = rows.part(slice(count, None)), rows.part(slice(count))
    validation = held_out and self._batches(held_out, held_out_size)
    if class_weight and (self.multi_label or not self.labels):
      raise ValueError("class_weight is for one class of a text: leave it out.")
    if class_weight:
      # Keras fails if there are weights of the texts, too.
      labels = self.labels or ()
      by_class = np.ones(len(labels), np.float32)
      for name, value in class_weight.items():
        by_class[labels_lib.class_index(name, labels)] = value
      weights = by_class[rows.targets]
      if rows.weights is not None:
        weights *= rows.weights
      rows = rows._replace(weights=weights)
    # Gives the head of a regression the scale of its targets, only once.
    head = self.model.classifier
    if self.labels is None and tf.reduce_all(head.target_scale == 0):
      loaded = self.load_report.matched if self.load_report else ()
      head.set_targets(rows.targets, any("output_weights" in n for n in loaded))
    # Keras leaves that of a `fit` that was interrupted, and would use it again.
    self._eval_data_handler = None
    order = "shuffled" if shuffle else "given"
    dataset = self._batches(rows, batch_size, order)
    return super().fit(
      dataset, epochs=epochs, validation_data=validation, **kwargs
    )

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
    spec = getattr(x, "element_spec", None)
    if isinstance(spec, tuple) and isinstance(spec[0], Mapping):
      return super().evaluate(x, **kwargs)  # The ids that `fit` held out.
    rows, size = self._rows(x, y, sample_weight, batch_size)
    return super().evaluate(self._batches(rows, size), **kwargs)

  def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> np.ndarray:
    """Returns the outputs of `call` for texts; see `tf.keras.Model.predict`.

    `x` is N texts or pairs (see the class), or a Dataset of them, whose labels
    are not read. The result is <float32>[N, C], or [N, 1] for a regression.
    """
    if kwargs.get("steps") is not None:
      raise ValueError("steps is not supported: give a part of the texts.")
    if isinstance(x, tf.data.Dataset):
      x, _, _, batch_size = text_batches.read_dataset(x, batch_size)
    features = self._features(x)
    order = text_batches.make_order(features, batch_size, "by_length")
    if not len(order):
      return np.zeros([0, len(self.labels or "1")], np.float32)
    batches = self._batches([features], batch_size)
    found = super().predict(batches, **kwargs)
    predictions = np.zeros_like(found)
    predictions[order] = found
    return predictions

  def classify(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns the `Classification` of a text or a pair, or a list for a list.

    Raises ValueError for a regression.
    """
    labels = self.labels
    if labels is None:
      raise ValueError("a regression has no labels: use score.")

    def answer(row):
      chances = dict(zip(labels, row.tolist()))
      if self.multi_label:
        chosen = itertools.compress(
          labels, row >= np.array(self.thresholds, np.float32)
        )
        return Classification([*chosen], chances)
      return Classification(labels[row.argmax()], chances)

    return self._answers(texts, texts_b, answer)

  def choose_thresholds(self, x: Any, y: Any) -> None:
    """Sets the `thresholds` with the highest F1 of each label on other texts.

    `x` and `y` are those of `fit`, in lists or arrays. Raises ValueError if
    they do not fit, or for a model of one class of a text.
    """
    if not self.multi_label:
      raise ValueError("thresholds are for a model with multi_label=True.")
    gold = self._rows(x, y, None, 1)[0].targets
    found = labels_lib.best_thresholds(self.predict(x, verbose=0), gold)
    self.thresholds = found.tolist()

  def score(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns the number of a text or a pair, or a list for a list.

    Raises ValueError for a classifier.
    """
    if self.labels is not None:
      raise ValueError("a classifier has no numbers: use classify.")
    return self._answers(texts, texts_b, lambda row: float(row[0]))

  def _answers(
    self, texts: Any, texts_b: Any, answer: Callable[[np.ndarray], Any]
  ) -> Any:
    """Returns the answer to each row of `predict`, or to the one of a text."""
    is_one = isinstance(texts, (str, bytes))
    if is_one and texts_b is not None:
      texts, texts_b = [texts], [texts_b]
    x = texts if texts_b is None else (texts, texts_b)
    answers = [answer(row) for row in self.predict(x, verbose=0)]
    return answers[0] if is_one else answers

  def export(
    self,
    filepath: str,
    pairs: bool = False,
    signatures: str = "all",
    precision: str = "float32",
  ) -> None:
    """Writes the SavedModel that tools.export_saved_model writes of a run.

    Args:
      filepath: a new folder; for TF Serving, its name must be a version number.
      pairs: whether the model is for pairs of texts.
      signatures: "all", "text" or "ids".
      precision: "float32" or "bfloat16", whatever the model was trained in.
    """
    check_choice("signatures", signatures, SELECTIONS)
    check_choice("precision", precision, tuple(EXPORT_PRECISIONS))
    files.check_new_folder(filepath, "filepath")
    weights = checkpoints.by_path(self.model)
    values = {name: variable.numpy() for name, variable in weights.items()}
    policy = EXPORT_PRECISIONS[precision]
    config = {**self.model.get_config(), "dtype": policy}
    own = self.tokenizer
    file = checkpoints.TokenizerFile(
      own.model_file, own.kind, own.rules, content=own.content
    )

    def write():
      model = type(self.model).from_config(config)
      for name, variable in checkpoints.by_path(model).items():
        variable.assign(values[name])
      parts = model, file.make_layer(), self.max_seq_length, self.labels, pairs
      module = serving.ServedTextTask(*parts)
      if self.multi_label:
        thresholds = dict(zip(self.labels, self.thresholds))
        module = serving.ServedMultiLabel(*parts, thresholds=thresholds)
      task = f"text_{'pair_' if pairs else ''}{module.kind}"
      source = serving.Source(module, task, "TextClassifier", file)
      serving.write_saved_model(source, filepath, signatures, precision)

    serving.outside_strategy(write)

  def get_config(self) -> dict[str, Any]:
    """Returns the settings, with the content of the tokenizer's file."""
    return {
      **super().get_config(),
      "labels": self.labels and list(self.labels),
      "max_seq_length": self.max_seq_length,
      "multi_label": self.multi_label,
      "thresholds": list(self.thresholds),
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
    stored = {**config["tokenizer"]}
    kind = tokenization.TOKENIZERS[stored.pop("kind")]
    tokenizer = kind(base64.b64decode(stored.pop("content")), **stored)
    return super().from_config({**config, "tokenizer": tokenizer})

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
    classifier with the same labels is loaded, too; otherwise it is new. With
    the head of a run, `thresholds` are by default those that the run chose.

    Args:
      path: see `AlbertModel.from_checkpoint`.
      labels: the names of two or more classes; None for a regression.
      tokenizer: the default is the one beside the checkpoint.
      **kwargs: further arguments of the constructor.

    Raises:
      ValueError, OSError: there is no checkpoint or no tokenizer.
    """
    with checkpoints.open(path) as checkpoint:
      if tokenizer is None:
        file = checkpoint.choose_tokenizer()
        if file is None:
          raise ValueError(
            f"there is no tokenizer beside {path}: give one, such as "
            'tokenizer=SentencePieceTokenizer("30k-clean.model").'
          )
        tokenizer = file.open()
      config = dataclasses.replace(checkpoint.config, **_NO_DROPOUT)
      classifier = cls(config, tokenizer, labels, **kwargs)
      kind = "regression" if labels is None else "classification"
      kind = "multi_label" if classifier.multi_label else kind
      head = checkpoints.Head(kind, tuple(classifier.labels or ()))
      report = checkpoints.fill(classifier.model, checkpoint, head)
      has_run = checkpoint.folder and not report.missing
      if classifier.multi_label and has_run and "thresholds" not in kwargs:
        chosen = runs.read_thresholds(checkpoint.folder)
        classifier.thresholds = [chosen.get(x, 0.5) for x in head.labels]
    if any("/pooler/" in name for name in report.missing):
      warnings.warn(
        f"{path} has no weights of the pooler: they are random until fit.",
        stacklevel=2,
      )
    classifier.load_report = report
    return classifier


def _thresholds(given: Any, count: int, multi_label: bool) -> list[float]:
  """Returns a threshold for each of `count` labels; see `TextClassifier`."""
  values = np.asarray(given, np.float64)
  if not multi_label and (values != 0.5).any():
    raise ValueError("thresholds are for multi_label=True: leave them out.")
  is_within = (values >= 0) & (values <= 1)
  if values.shape not in ((), (count,)) or not is_within.all():
    raise ValueError(
      f"thresholds are {given!r:.80}, but must be a number from 0 to 1, or one "
      f"for each of the {count} labels."
    )
  return np.broadcast_to(values, count).tolist()
