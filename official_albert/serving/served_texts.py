"""Serves classifiers and regressions of texts or of pairs of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints
from official_albert.serving import (
  frozen_encoder,
  saved_model_folder,
  served_module,
)
from official_albert.serving.served_module import Tensors
from official_albert.settings import EXPORT_PRECISIONS
from official_albert.tokenization import in_graph

if TYPE_CHECKING:
  from official_albert.text_classifier import TextClassifier


class ServedTextTask(served_module.ServedModule):
  """Returns `label` <string>[B], `probabilities` and `logits` <float32>[B, C].

  For a regression, returns `score` <float32>[B] instead.

  Attributes:
    labels: the classes in the head's order; () for a regression.
    inputs: the names of the texts.
  """

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    labels: Optional[Sequence[str]],
    is_pair: bool,
  ):
    """Serves an `AlbertForSequenceClassification`; see `ServedModule`.

    Without labels, it is a regression.
    """
    self.takes_pairs = is_pair
    super().__init__(model, text_layer, max_seq_length)
    self.labels = tuple(labels or ())
    self.inputs = served_module.PAIR if is_pair else served_module.TEXT
    self.kind = "classification" if labels else "regression"
    self.text_signatures = ("classify",) if labels else ("score",)

  def forward(self, **features: tf.Tensor) -> Tensors:
    return self.model(features, training=False, logits_only=True)

  def plain_outputs(self, features: Tensors) -> Tensors:
    # For `logits_only`, a TFLite file would hold some kernels twice.
    return {"logits": self.model(features, training=False)["logits"]}

  def ids_outputs(self, features: Tensors) -> Tensors:
    logits = self.run(**features)["logits"]
    if not self.labels:
      return {"score": logits[:, 0]}
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {
      "label": tf.gather(tf.constant(self.labels), best),
      "probabilities": tf.nn.softmax(logits),
      "logits": logits,
    }

  def text_functions(self) -> dict[str, served_module.TextFunction]:
    def outputs(**texts):
      return self.ids_outputs(self.packed(*map(texts.get, self.inputs)))

    return {self.text_signatures[0]: (self.inputs, outputs)}

  def settings(self) -> dict[str, Any]:
    return {"labels": list(self.labels), "inputs": list(self.inputs)}


def export_classifier(
  classifier: TextClassifier, export_dir: str, pairs: bool, **options: Any
) -> None:
  """Writes the folder of an export; see `TextClassifier.export`.

  The export has a copy of the model, in the precision of the options.
  """
  settings = saved_model_folder.ExportOptions(**options)
  policy = EXPORT_PRECISIONS[settings.precision]
  model, tokenizer = classifier.model, classifier.tokenizer
  values = {name: x.numpy() for name, x in checkpoints.by_path(model).items()}
  file = checkpoints.TokenizerFile(
    tokenizer.model_file,
    tokenizer.kind,
    tokenizer.rules,
    content=tokenizer.content,
  )

  def write():
    copy = type(model).from_config({**model.get_config(), "dtype": policy})
    for name, variable in checkpoints.by_path(copy).items():
      variable.assign(values[name])
    arguments = file.make_layer(), classifier.max_seq_length, classifier.labels
    module = ServedTextTask(copy, *arguments, pairs)
    task = f"text_{'pair_' if pairs else ''}{module.kind}"
    source = saved_model_folder.Source(module, task, "TextClassifier", file)
    saved_model_folder.write_saved_model(source, export_dir, settings)

  frozen_encoder.outside_strategy(write)
