"""Served models of encoders and of texts: signatures around one function.

A model is traced once, as a function of ids. Each signature converts its inputs
(texts, tf.Examples or unchecked ids) to ids and calls that function, so a
SavedModel holds its graph and the weights only once.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling
from official_albert.serving import early_exit, frozen_encoder, request_checks
from official_albert.settings import PAIR, TEXT, check_number
from official_albert.tokenization import in_graph

Tensors = dict[str, tf.Tensor]
# The names of texts, and a function of texts <string>[B] with these names;
# `options` are <string>[B, options].
TextFunction = tuple[tuple[str, ...], Callable[..., Tensors]]
TEXT_SIGNATURES = ("encode", "encode_pair")
# Signatures that a model without an embedding for a second text lacks.
_OF_PAIRS = ("encode_pair", "sentence_order")


class ServedModule(tf.Module):
  """A model that answers requests; subclasses implement `forward`.

  Attributes:
    kind: the kind of model, for export.json.
    text_signatures: the names of the signatures for texts, the default first.
    extra_ids: further <int32> inputs of the signature `ids`, and their axes.
    options: the number of sequences per example; 0 means one, without an axis.
    takes_pairs: whether every text comes with a second one.
    cls_id: the id of [CLS]; None if unknown.
    has_pooler: whether the model has the weights of the pooler.
    depth_inputs: further inputs of the signatures at a depth; see `early_exit`.
    model: the Keras model.
    config: its `AlbertConfig`.
    text_layer: holds all resources of tensorflow_text; None serves only ids.
    max_seq_length: the largest S of texts.
  """

  kind = ""
  text_signatures: tuple[str, ...] = ()
  extra_ids: Mapping[str, str] = {}
  options = 0
  takes_pairs = False
  has_pooler = True
  depth_inputs: tuple[str, ...] = ("exit_layer",)
  cls_id: Optional[int] = None

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
  ):
    """Raises ValueError if tokenizer or length do not fit the model."""
    super().__init__(name="served")
    self.model = model
    self.config = model.config
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length
    check_number("max_seq_length", max_seq_length, least=1)
    pieces = text_layer.vocab_size if text_layer else 0
    self.config.check_fits(pieces, max_seq_length, self.takes_pairs)
    if self.config.type_vocab_size < 2:
      self.text_signatures = tuple(
        name for name in self.text_signatures if name not in _OF_PAIRS
      )
    if text_layer:
      self.cls_id = text_layer.cls_id

  def forward(self, **features: tf.Tensor) -> Tensors:
    """Calls the model with training=False; signatures use `traced` instead.

    Args:
      **features: `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], and
        `extra_ids`.
    """
    raise NotImplementedError

  def text_functions(self) -> dict[str, TextFunction]:
    """Returns what each text signature computes, by its name."""
    return {}

  def packed(self, *texts: tf.Tensor) -> Tensors:
    """Returns the features of one or two texts <string>[B]."""
    return self.text_layer.pack(self.max_seq_length, *texts)

  def text_function(self, name: str) -> TextFunction:
    """Returns the inputs of a signature, and its function with checks."""
    if name.endswith(early_exit.AT_DEPTH):
      name = name.removesuffix(early_exit.AT_DEPTH)
      names, _ = self.text_function(name)
      at_depth = functools.partial(
        self._at_depth, lambda x, **texts: x.text_function(name)[1](**texts)
      )
      return (*names, *self.depth_inputs), at_depth
    names, function = self.text_functions()[name]

    def of_texts(**texts):
      single = {x: text for x, text in texts.items() if x != "options"}
      return function(**texts | request_checks.check_texts(single))

    return names, of_texts

  def text_signature(self, name: str) -> tf.types.experimental.ConcreteFunction:
    """Returns the graph of a text signature."""
    # Its variables would be created while a signature is traced, which
    # TensorFlow would trace once more then.
    _ = self.traced
    names, function = self.text_function(name)
    dtypes = early_exit.DEPTH_INPUTS
    specs = {
      x: tf.TensorSpec(
        [None, self.options] if x == "options" else [None],
        dtypes.get(x, tf.string),
        x,
      )
      for x in names
    }
    traced = tf.function(function, autograph=False)
    return traced.get_concrete_function(**specs)

  def ids_outputs(self, features: Tensors) -> Tensors:
    """Returns the outputs of `ids` and `examples` for checked features."""
    return self.traced(features)

  def plain_outputs(self, features: Tensors) -> Tensors:
    """Returns numeric outputs for unchecked features, for TFLite."""
    return self.forward(**features)

  def settings(self) -> dict[str, Any]:
    """Returns additional JSON values for export.json."""
    return {}

  @property
  def plain_inputs(self) -> dict[str, str]:
    """The axes of the features of `plain_outputs`, such as "B S" or "B 4 S"."""
    axes = f"B {self.options} S" if self.options else "B S"
    return {**dict.fromkeys(request_checks.IDS, axes), **self.extra_ids}

  def freeze(self, precision: str) -> None:
    """Replaces the model by one with a frozen encoder; see `freeze_encoder`."""
    self.model = frozen_encoder.outside_strategy(
      frozen_encoder.freeze_encoder, self.model, precision
    )
    self.__dict__.pop("traced", None)

  @functools.cached_property
  def traced(self) -> frozen_encoder.FrozenFunction:
    """The function `forward`, traced once."""
    with tf.init_scope():
      return frozen_encoder.outside_strategy(
        frozen_encoder.FrozenFunction,
        lambda features: self.forward(**features),
        list(self._specs().values()),
      )

  def _at_depth(
    self, ask: Callable[..., Tensors], **inputs: tf.Tensor
  ) -> Tensors:
    """Returns what `ask` gets of a module whose rows leave, and `exit_layer`.

    The `inputs` are those of a signature at a depth.
    """
    depth = {name: inputs.pop(name) for name in self.depth_inputs}
    model, reached = early_exit.leaving_model(self.model, depth)
    with modeling.plain_operations_only():
      return {**ask(self.with_model(model), **inputs), **reached}

  def with_model(self, model: Any) -> Any:
    """Returns a copy that answers by another model, which is not traced."""
    module = copy.copy(self)
    module.model = model
    module.__dict__["traced"] = lambda features: module.forward(**features)
    return module

  def _specs(self) -> dict[str, tf.TensorSpec]:
    return {
      name: tf.TensorSpec(
        [int(x) if x.isdigit() else None for x in axes.split()], tf.int32, name
      )
      for name, axes in self.plain_inputs.items()
    }

  def signatures(
    self, which: str = "all", at_depth: bool = False
  ) -> dict[str, Any]:
    """Returns concrete functions by the names of their signatures.

    `which` is one of `SELECTIONS`. Those of texts need a `text_layer`. With
    `at_depth`, those of texts and ids also exist with the depth as input.
    """
    functions: dict[str, Any] = {}
    if which != "ids":
      own, end = self.text_signatures, early_exit.BY_LAYER
      names = [name for name in own if not name.endswith(end)]
      deep = *(name + early_exit.AT_DEPTH for name in names), *own
      names = list(dict.fromkeys([*names, *(deep if at_depth else ())]))
      for name in names:
        functions[name] = self.text_signature(name)
    if which != "text":
      functions.update(self._id_signatures(at_depth))
    return functions

  def _id_signatures(self, at_depth: bool) -> dict[str, Any]:
    _ = self.traced
    config, letters = self.config, self.plain_inputs[request_checks.IDS[0]]

    def outputs(module: ServedModule, **features: tf.Tensor) -> Tensors:
      with tf.device("CPU:0"):  # Where ids arrive, also if there is a GPU.
        checked = request_checks.check_ids(features, letters, config)
        checked = request_checks.without_server_padding(checked, self.cls_id)
      extra = {name: features[name] for name in self.extra_ids}
      return module.ids_outputs({**checked, **extra})

    @tf.function(autograph=False)
    def examples(examples):
      names = list(self.extra_ids)
      features = request_checks.parse_examples(
        examples, self.options, names, config.max_position_embeddings
      )
      return outputs(self, **features)

    def trace(function, ask, specs):
      traced = tf.function(functools.partial(function, ask), autograph=False)
      return traced.get_concrete_function(**specs)

    serialized = tf.TensorSpec([None], tf.string, "examples")
    functions = {
      "ids": trace(outputs, self, self._specs()),
      "examples": examples.get_concrete_function(serialized),
    }
    if at_depth:
      specs = self._specs()
      for name in self.depth_inputs:
        dtype = early_exit.DEPTH_INPUTS[name]
        specs[name] = tf.TensorSpec([None], dtype, name)
      name = "ids" + early_exit.AT_DEPTH
      functions[name] = trace(self._at_depth, outputs, specs)
    return functions


def encoder_outputs(outputs: Tensors) -> Tensors:
  """Returns the vectors of `AlbertModel`'s outputs in float32."""
  return {
    name: tf.cast(outputs[name], tf.float32)
    for name in ("pooled_output", "sequence_output")
    if name in outputs
  }


class ServedEncoder(ServedModule):
  """Serves `pooled_output` <float32>[B, H] and `sequence_output` [B, S, H].

  Without `has_pooler`, there is no `pooled_output`.
  """

  kind = "encoder"
  text_signatures = TEXT_SIGNATURES

  def forward(self, **features: tf.Tensor) -> Tensors:
    outputs = encoder_outputs(self.model(features, training=False))
    if not self.has_pooler:
      del outputs["pooled_output"]
    return outputs

  def text_functions(self) -> dict[str, TextFunction]:
    return encode_functions(self.packed, self.ids_outputs)


def encode_functions(
  packed: Callable[..., Any], encode: Callable[..., Any]
) -> dict[str, TextFunction]:
  """Returns the functions of the signatures `encode` and `encode_pair`.

  `packed` is that of a module, and `encode` maps its features to outputs. The
  signatures also return `input_ids` and `input_mask`, and of pairs
  `segment_ids`.
  """

  def encode_one(text):
    features = packed(text)
    outputs = encode(features)
    del features["segment_ids"]
    return {**outputs, **features}

  def encode_pair(text_a, text_b):
    features = packed(text_a, text_b)
    return {**encode(features), **features}

  return {"encode": (TEXT, encode_one), "encode_pair": (PAIR, encode_pair)}


class ServedLogits(ServedModule):
  """Serves a model of one head that takes `logits_only`."""

  def forward(self, **features: tf.Tensor) -> Tensors:
    return self.model(features, training=False, logits_only=True)

  def plain_outputs(self, features: Tensors) -> Tensors:
    # For `logits_only`, a TFLite file would hold some kernels twice.
    return {"logits": self.model(features, training=False)["logits"]}


class ServedTextTask(ServedLogits):
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
    self.inputs = PAIR if is_pair else TEXT
    self.kind = "classification" if labels else "regression"
    self.text_signatures = ("classify",) if labels else ("score",)
    if self.kind == "classification":
      self.depth_inputs = tuple(early_exit.DEPTH_INPUTS)

  def ids_outputs(self, features: Tensors) -> Tensors:
    logits = self.traced(features)["logits"]
    if not self.labels:
      return {"score": logits[:, 0]}
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {
      "label": tf.gather(tf.constant(self.labels), best),
      "probabilities": tf.nn.softmax(logits),
      "logits": logits,
    }

  def text_functions(self) -> dict[str, TextFunction]:
    def outputs(**texts):
      return self.ids_outputs(self.packed(*map(texts.get, self.inputs)))

    return {self.text_signatures[0]: (self.inputs, outputs)}

  def settings(self) -> dict[str, Any]:
    return {"labels": list(self.labels), "inputs": list(self.inputs)}


class ServedMultiLabel(ServedTextTask):
  """Returns `labels` <string>[B, C], `probabilities` and `logits` [B, C].

  `labels` has "" for those that the text does not have.
  """

  def __init__(
    self, *args: Any, thresholds: Optional[Mapping[str, float]] = None
  ):
    """A text has a label from its threshold on, which is 0.5 by default."""
    super().__init__(*args)
    self.kind, self.depth_inputs = "multi_label", ServedModule.depth_inputs
    self._thresholds = [(thresholds or {}).get(x, 0.5) for x in self.labels]

  def ids_outputs(self, features: Tensors) -> Tensors:
    logits = self.traced(features)["logits"]
    probabilities = tf.sigmoid(logits)
    has_label = probabilities >= tf.constant(self._thresholds)
    return {
      "labels": tf.where(has_label, tf.constant(self.labels), ""),
      "probabilities": probabilities,
      "logits": logits,
    }

  def settings(self) -> dict[str, Any]:
    return {**super().settings(), "thresholds": self._thresholds}
