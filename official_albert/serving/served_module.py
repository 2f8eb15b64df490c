"""What all served models have in common: signatures around one function.

A model is traced once, by ids; each signature is a function around that, which
makes ids of what it is given (texts, tf.Examples, or checked ids) and answers
of what comes back. So a SavedModel holds the weights once, however many
signatures it has.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, Optional

import numpy as np
import tensorflow as tf

from official_albert.serving import SELECTIONS, frozen_encoder, request_checks
from official_albert.tokenization import in_graph

Tensors = dict[str, tf.Tensor]
Requests = dict[str, dict[str, np.ndarray]]


class ServedModule(tf.Module):
  """A model that answers requests; subclasses say how.

  Attributes:
    kind: what it does, as export.json calls it.
    text_signatures: names of signatures that take texts; the first is the
      default one.
    extra_ids: further inputs of `ids`, <int32>, and their axes.
    forward_inputs: further inputs of `forward`, likewise; None: those of
      `extra_ids`.
    options: of how many sequences an example is; 0: of one, without an axis
      of its own.
    cls_id: of [CLS]; None if nobody knows it.
    model: the Keras model.
    config: its `AlbertConfig`.
    text_layer: holds every resource of tensorflow_text; None if only ids are
      served.
    max_seq_length: S at most, for texts.
  """

  kind = ""
  text_signatures: tuple[str, ...] = ()
  extra_ids: Mapping[str, str] = {}
  forward_inputs: Optional[Mapping[str, str]] = None
  options = 0
  cls_id: Optional[int] = None

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
  ):
    """Composes the module.

    Raises:
      ValueError: texts would become longer sequences, or other ids, than the
        model can take.
    """
    super().__init__(name="served")
    self.model = model
    self.config = model.config
    self.text_layer = text_layer
    self.max_seq_length = max_seq_length
    most = self.config.max_position_embeddings
    if max_seq_length > most:
      raise ValueError(
        f"max_seq_length {max_seq_length} exceeds the model's {most} position "
        "embeddings."
      )
    if max_seq_length < 1:
      raise ValueError(
        f"max_seq_length is {max_seq_length}, but must be at least 1."
      )
    if text_layer is None:
      return
    # Fewer may be: some models of other people have rows to spare.
    if text_layer.vocab_size > self.config.vocab_size:
      raise ValueError(
        f"the tokenizer has {text_layer.vocab_size} pieces, but the model has "
        f"vocab_size {self.config.vocab_size}: give the tokenizer that the "
        "model was trained with."
      )
    self.cls_id = text_layer.cls_id

  # What a subclass has to say.

  def forward(self, **features: tf.Tensor) -> Tensors:
    """The model, with training=False; every signature calls it by `run`.

    Args:
      **features: `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], and
        those of `forward_inputs`.
    """
    raise NotImplementedError

  def text_functions(self) -> dict[str, Any]:
    """A tf.function with its input_signature for each of text_signatures."""
    return {}

  def ids_outputs(self, features: Tensors) -> Tensors:
    """The answers to checked <int32> features."""
    return self.run(**features)

  def plain_outputs(self, features: Tensors) -> Tensors:
    """Numbers only, of features that nobody checks: for phones."""
    return self.forward(**features)

  def settings(self) -> dict[str, Any]:
    """What else a client may want to know, as JSON values."""
    return {}

  def example_texts(
    self, signature: str, names: Mapping[str, tf.TensorSpec], length: int
  ) -> dict[str, str]:
    """Texts of about `length` tokens in all, one for each input."""
    del signature
    words = max(1, (length - 1) // len(names) - 1)
    return {name: " ".join(["the"] * words) for name in names}

  # What is the same for all.

  @property
  def plain_inputs(self) -> dict[str, str]:
    """The axes of the features of `plain_outputs`, such as "B S" or "B 4 S"."""
    return {
      **dict.fromkeys(request_checks.IDS, self._letters),
      **self.extra_ids,
    }

  def freeze(self, precision: str) -> None:
    """Makes an encoder for servers of the model's, which is lost by it.

    Args:
      precision: of products, a key of `frozen_encoder.DTYPES`; the model was
        made under the policy that goes with it.

    Raises:
      ValueError: it is frozen already, in another precision.
    """
    self.model = frozen_encoder.freeze_encoder(self.model, precision)
    # What was traced before has the variables' values of that time.
    self.__dict__.pop("_traced", None)

  def run(self, **features: tf.Tensor) -> Tensors:
    """Calls `forward`, traced once with the weights of that time.

    After `run_with(function)`, calls the function instead.
    """
    return self._traced(features)

  def run_with(self, function: Callable[..., Tensors]) -> None:
    """Makes every signature call `function` where it would call `forward`.

    Args:
      function: has the arguments and results of `forward`.
    """
    # `setattr` of tf.Module reads the attribute first, which would trace.
    self.__dict__["_traced"] = lambda features: function(**features)

  @functools.cached_property
  def _traced(self):
    inputs = self.forward_inputs
    specs = self._specs(self.extra_ids if inputs is None else inputs)
    with tf.init_scope():
      return frozen_encoder.freeze(
        lambda features: self.forward(**features), list(specs.values())
      )

  @property
  def _letters(self) -> str:
    return f"B {self.options} S" if self.options else "B S"

  def _specs(self, extra: Mapping[str, str]) -> dict[str, tf.TensorSpec]:
    """Of ids and further inputs, all of any size but for the options."""
    letters = {**dict.fromkeys(request_checks.IDS, self._letters), **extra}
    return {
      name: tf.TensorSpec(
        [int(x) if x.isdigit() else None for x in axes.split()], tf.int32, name
      )
      for name, axes in letters.items()
    }

  def signatures(self, which: str = "all") -> dict[str, Any]:
    """Concrete functions by the names of their signatures.

    Args:
      which: one of `SELECTIONS`; "ids" needs no tensorflow_text.

    Raises:
      ValueError: no such selection, or texts are asked for and there is no
        tokenizer.
    """
    if which not in SELECTIONS:
      raise ValueError(
        f"unknown signatures {which!r}; choose one of {', '.join(SELECTIONS)}."
      )
    functions: dict[str, Any] = {}
    if which != "ids":
      if self.text_layer is None:
        raise ValueError(
          "there is no tokenizer, so that texts cannot be served: export with "
          "--signatures=ids, or give the tokenizer."
        )
      functions = self.text_functions()
    concrete = {
      name: function.get_concrete_function()
      for name, function in functions.items()
    }
    return {**concrete, **({} if which == "text" else self._id_signatures())}

  def _id_signatures(self) -> dict[str, Any]:
    def ids(**features):
      return self._checked_outputs(features)

    def examples(examples):
      return self._checked_outputs(
        request_checks.parse_examples(
          examples, self.options, list(self.extra_ids)
        )
      )

    one = tf.TensorSpec([None], tf.string, "examples")
    return {
      "ids": tf.function(ids).get_concrete_function(
        **self._specs(self.extra_ids)
      ),
      "examples": tf.function(examples).get_concrete_function(one),
    }

  def _checked_outputs(self, features: Tensors) -> Tensors:
    config = self.config
    checked = request_checks.check_ids(
      features,
      self._letters,
      config.vocab_size,
      config.type_vocab_size,
      config.max_position_embeddings,
    )
    checked = request_checks.without_server_padding(checked, self.cls_id)
    extra = {name: features[name] for name in self.extra_ids}
    return self.ids_outputs({**checked, **extra})

  def example_requests(
    self, signatures: Mapping[str, Any], batch: int, length: int
  ) -> Requests:
    """A request for each signature, of so many rows and tokens.

    Args:
      signatures: those of `signatures`.
      batch: rows.
      length: S; texts come near to it.
    """
    requests = {}
    for name, function in signatures.items():
      specs = tf.nest.flatten(function.structured_input_signature)
      specs = {spec.name: spec for spec in specs}
      if name == "ids":
        requests[name] = self._example_ids(specs, batch, length)
      elif name == "examples":
        requests[name] = {"examples": _serialized(self, batch, length)}
      else:
        texts = self.example_texts(name, specs, length)
        requests[name] = {
          key: np.full([batch, *specs[key].shape[1:]], text, object)
          for key, text in texts.items()
        }
    return requests

  def _example_ids(self, names, batch: int, length: int):
    shape = [batch, self.options, length] if self.options else [batch, length]
    ids = np.arange(length, dtype=np.int32) % self.config.vocab_size
    values = {
      "input_ids": np.broadcast_to(ids, shape).copy(),
      "input_mask": np.ones(shape, np.int32),
      "segment_ids": np.zeros(shape, np.int32),
    }
    for name in set(names) - set(values):
      values[name] = np.zeros([batch, 1], np.int32)
    return values


def _serialized(module: ServedModule, batch: int, length: int) -> np.ndarray:
  """<string>[batch], tf.Examples of `length` tokens a sequence."""
  ids = np.arange(length) % module.config.vocab_size
  values = np.tile(ids, max(module.options, 1))
  example = tf.train.Example()
  example.features.feature["input_ids"].int64_list.value.extend(values)
  return np.full([batch], example.SerializeToString(), object)


TEXT_SIGNATURES = ("encode", "encode_pair")


def encoder_outputs(outputs: Tensors) -> Tensors:
  """What is served of `AlbertModel`'s outputs, in float32."""
  return {
    name: tf.cast(outputs[name], tf.float32)
    for name in ("pooled_output", "sequence_output")
  }


class ServedEncoder(ServedModule):
  """`pooled_output` <float32>[B, H], `sequence_output` <float32>[B, S, H].

  Attributes:
    model: the `AlbertModel`.
  """

  kind = "encoder"
  text_signatures = TEXT_SIGNATURES

  def forward(self, **features: tf.Tensor) -> Tensors:
    return encoder_outputs(self.model(features, training=False))

  def text_functions(self) -> dict[str, Any]:
    packed = in_graph.PackedTextLayer(self.text_layer, self.max_seq_length)
    return encode_functions(packed, self.ids_outputs)


def encode_functions(
  packed: in_graph.PackedTextLayer, encode
) -> dict[str, Any]:
  """`encode` and `encode_pair`, which also say what ids the texts became.

  Args:
    packed: makes features.
    encode: from features to `encoder_outputs`.
  """
  text, text_a, text_b = (
    tf.TensorSpec([None], tf.string, name)
    for name in ("text", "text_a", "text_b")
  )

  @tf.function(input_signature=[text])
  def encode_one(text):
    """<string>[B]: vectors, `input_ids` and `input_mask` <int32>[B, S]."""
    features = packed(request_checks.check_texts({"text": text})["text"])
    outputs = encode(features)
    del features["segment_ids"]
    return {**outputs, **features}

  @tf.function(input_signature=[text_a, text_b])
  def encode_pair(text_a, text_b):
    """<string>[B] each: vectors, ids, mask and `segment_ids`."""
    texts = request_checks.check_texts({"text_a": text_a, "text_b": text_b})
    features = packed(texts["text_a"], texts["text_b"])
    return {**encode(features), **features}

  return dict(zip(TEXT_SIGNATURES, (encode_one, encode_pair)))
