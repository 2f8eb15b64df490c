"""An encoder with constant weights, whose operations TensorFlow fuses on CPUs.

On a CPU, TensorFlow's graph optimizer fuses each of these into one oneDNN
operation: product + bias + GELU, product + bias + residual, product + scale +
mask, and LayerNorm. The weights are constants in the products' dtype, so oneDNN
packs each of them only once. Layers that share weights call one function, so
the packed weights exist once and stay in the processor's cache.

Letters: B batch, S sequence, R = B * S rows, N heads, D head size, H hidden,
I intermediate, Q requested positions.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import wrap_function
from tensorflow.python.framework import convert_to_constants

from official_albert import modeling

DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}
Tensors = Mapping[str, tf.Tensor]


class _Dense:
  """The weights of one or several dense layers of the same input."""

  def __init__(self, *layers):
    self.kernel = np.concatenate([x.kernel.numpy() for x in layers], axis=1)
    self.bias = np.concatenate([x.bias.numpy() for x in layers])

  def __call__(self, x: tf.Tensor) -> tf.Tensor:
    y = tf.matmul(x, tf.constant(self.kernel, x.dtype))
    return tf.nn.bias_add(y, tf.constant(self.bias, x.dtype))


class _LayerNorm:
  """LayerNorm in plain operations.

  A batch normalization with rows as channels would be twice as fast, but in
  TensorFlow 2.15 and 2.20, oneDNN's kernel for it damages the memory of the
  process if threads call it with different numbers of rows.
  """

  def __init__(self, layer: Any):
    self.gamma, self.beta = layer.gamma.numpy(), layer.beta.numpy()
    self.epsilon = layer.epsilon

  def __call__(self, x: tf.Tensor) -> tf.Tensor:
    y = tf.cast(x, tf.float32)
    y -= tf.reduce_mean(y, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(y), axis=-1, keepdims=True)
    y *= tf.math.rsqrt(variance + self.epsilon)
    y = y * self.gamma + self.beta
    return tf.ensure_shape(tf.cast(y, x.dtype), [None, len(self.gamma)])


class FrozenEncoder(tf.Module):
  """Replaces the `AlbertModel` of a model for export.

      model.albert = FrozenEncoder(model.albert, tf.bfloat16)
      model({"input_ids": ids}, training=False)

  The weights are those at the time of construction.

  Attributes:
    config: the `AlbertConfig`.
    embedding: the embedding, whose word table the masked LM head uses.
    dtype: the dtype of the products, tf.float32 or tf.bfloat16.
  """

  def __init__(self, albert: modeling.AlbertModel, dtype: tf.DType):
    super().__init__(name="frozen_encoder")
    self.config = albert.config
    self.dtype = dtype
    self.embedding = _FrozenEmbedding(albert.embedding, dtype)
    self._pooler = _Dense(albert.pooler)
    functions: dict[Any, Callable] = {}
    for attention, ffn in albert.encoder.blocks():
      key = (id(attention), id(ffn))
      if key not in functions:
        functions[key] = self._block_function(attention, ffn)
    self._layers = [
      functions[id(attention), id(ffn)]
      for attention, ffn in albert.encoder.blocks()
    ]

  def __call__(
    self,
    inputs: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    output_positions: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Computes what `AlbertModel.call` does, in the dtype of the products.

    There are no `encoder_outputs`, and `dropout_seed` is not used. ValueError
    is raised for training and for another number of layers.
    """
    depth = self.config.num_hidden_layers
    if training or num_layers not in (None, depth):
      raise ValueError(
        f"a frozen encoder cannot be trained, and applies {depth} layers."
      )
    inputs, _ = modeling.named_inputs(inputs)
    ids = inputs["input_ids"]
    modeling.check_ids("input_ids", ids)
    mask = inputs.get("input_mask")
    mask = tf.ones_like(ids) if mask is None else mask
    batch, length = tf.unstack(tf.shape(ids))
    x, embedded = self.embedding(ids, inputs.get("segment_ids"))
    padding = tf.cast(1 - mask[:, None, None, :], self.dtype)
    padding *= tf.cast(modeling.MASKED_SCORE, self.dtype)  # [B, 1, 1, S]
    x = self.apply_layers(x, padding, batch, length)
    hidden = tf.reshape(x, [batch, length, self.config.hidden_size])
    first = hidden[:, 0]
    if output_positions is not None:
      rows = tf.pad(output_positions, [[0, 0], [1, 0]])
      hidden = tf.gather(hidden, rows, batch_dims=1)  # [B, 1 + Q, H]
    return {
      "sequence_output": hidden,
      "pooled_output": tf.tanh(self._pooler(first)),
      "embedding_output": tf.reshape(
        embedded, [batch, length, self.config.embedding_size]
      ),
    }

  def apply_layers(
    self, x: tf.Tensor, padding: tf.Tensor, batch: tf.Tensor, length: tf.Tensor
  ) -> tf.Tensor:
    """Applies all layers to <float>[R, H], with padding [B, 1, 1, S]."""
    for layer in self._layers:
      x = layer(x, padding, batch, length)
    return x

  def _block_function(
    self, attention: Any, ffn: Any
  ) -> Callable[..., tf.Tensor]:
    """Returns one block as a function from <float>[R, H] to <float>[R, H]."""
    width = self.config.hidden_size
    heads = self.config.num_attention_heads
    qkv_dense = _Dense(attention.query, attention.key, attention.value)
    output_dense = _Dense(attention.output_dense)
    attention_norm = _LayerNorm(attention.layer_norm)
    intermediate = _Dense(ffn.intermediate)
    ffn_output = _Dense(ffn.output_dense)
    ffn_norm = _LayerNorm(ffn.layer_norm)
    size = tf.TensorSpec([], tf.int32)

    @tf.function(
      input_signature=[
        tf.TensorSpec([None, width], self.dtype),
        tf.TensorSpec([None, 1, 1, None], self.dtype),
        size,
        size,
      ],
      autograph=False,
      # If inlined, each layer would pack its own copy of the weights.
      experimental_attributes={"_noinline": True},
    )
    def block(x, padding, batch, length):
      qkv = tf.reshape(qkv_dense(x), [batch, length, 3, heads, width // heads])
      q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [B, N, S, D]
      scale = tf.constant(q.shape[-1] ** -0.5, self.dtype)
      scores = tf.matmul(q, k, transpose_b=True) * scale + padding
      # As a matrix, because TensorFlow's optimizer does not know the rank of
      # the fused operation and would print a warning.
      shape = tf.shape(scores)
      probs = tf.nn.softmax(tf.reshape(scores, [-1, shape[3]]))
      context = tf.matmul(tf.reshape(probs, shape), v)  # [B, N, S, D]
      context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, width])
      x = attention_norm(output_dense(context) + x)
      y = self._activation(intermediate(x))  # [R, I]
      return ffn_norm(ffn_output(y) + x)

    return block

  def _activation(self, x: tf.Tensor) -> tf.Tensor:
    name = self.config.hidden_act
    if name in ("gelu", "gelu_erf"):
      return tf.nn.gelu(x, approximate=name == "gelu")
    return tf.keras.activations.get(name)(x)


class _FrozenEmbedding:
  """A `FactorizedEmbedding` that returns rows instead of sequences."""

  def __init__(self, embedding: Any, dtype: tf.DType):
    self._dtype = dtype
    self.words = embedding.word_embeddings.numpy()
    self._segments = embedding.token_type_embeddings.numpy()
    self._positions = embedding.position_embeddings.numpy()
    self._norm = _LayerNorm(embedding.layer_norm)
    projection = embedding.projection
    self._projection = _Dense(projection) if projection else None
    self.table = self.given_table = None

  def __call__(
    self, ids: tf.Tensor, segment_ids: Optional[tf.Tensor]
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Maps <int32>[B, S] to <float>[R, H] and, before projection, [R, E]."""
    if segment_ids is None:
      segment_ids = tf.zeros_like(ids)
    # Kept for `vocabulary_scores`, so the graph holds the table once.
    self.table = self.given_table
    if self.table is None:
      self.table = tf.constant(self.words, self._dtype)
    x = tf.gather(self.table, ids)
    x += tf.gather(tf.constant(self._segments, self._dtype), segment_ids)
    positions = tf.constant(self._positions, self._dtype)
    x += positions[: tf.shape(ids)[1]]
    x = self._norm(tf.reshape(x, [-1, self.words.shape[1]]))
    return self._projection(x) if self._projection else x, x

  def vocabulary_scores(self, x: tf.Tensor) -> tf.Tensor:
    """Maps <float>[N, E] to <float>[N, V], in the graph of the last call."""
    if self.table is None:
      self.table = tf.constant(self.words, self._dtype)
    return tf.matmul(tf.cast(x, self._dtype), self.table, transpose_b=True)


def freeze_encoder(model: Any, precision: str) -> Any:
  """Returns the model with a `FrozenEncoder` as its encoder.

  Args:
    model: an `AlbertModel`, or a model with one as its attribute `albert`. It
      can only predict from then on. A frozen model is returned unchanged.
    precision: the precision of the products, a key of `DTYPES`. The process
      must use the corresponding policy; see `distribution.set_precision`.
  """
  if isinstance(model, FrozenEncoder):
    return model
  if isinstance(model, modeling.AlbertModel):
    return FrozenEncoder(model, DTYPES[precision])
  model.albert = freeze_encoder(model.albert, precision)
  return model


def freeze(
  function: Callable[[dict[str, tf.Tensor]], Tensors],
  inputs: Sequence[tf.TensorSpec],
) -> Callable[[Tensors], dict[str, tf.Tensor]]:
  """Traces a function once, with the current values of all variables.

      run = freeze(
        lambda features: model(features, training=False),
        [tf.TensorSpec([None, None], tf.int32, "input_ids")],
      )

  All signatures that call the result share one copy of the constants.

  Args:
    function: maps a dict with the names of `inputs` to a dict of outputs.
    inputs: the named inputs; the result ignores all others.
  """

  @tf.function(autograph=False)
  def traced(features):
    with modeling.plain_operations_only():
      return dict(function(features))

  concrete = traced.get_concrete_function({spec.name: spec for spec in inputs})
  names = sorted(concrete.structured_outputs)
  shapes = {k: v.shape for k, v in concrete.structured_outputs.items()}
  order = [tensor.name.split(":")[0] for tensor in concrete.inputs]
  order = order[: len(order) - len(concrete.captured_inputs)]
  graph_def = _with_constants(concrete.graph)
  if graph_def is None:
    frozen = convert_to_constants.convert_variables_to_constants_v2(
      concrete, lower_control_flow=False
    )
    order = [tensor.name.split(":")[0] for tensor in frozen.inputs]
  else:
    frozen = wrap_function.function_from_graph_def(
      graph_def,
      [f"{name}:0" for name in order],
      [tensor.name for tensor in concrete.outputs],
    )

  def run(features: Tensors) -> dict[str, tf.Tensor]:
    values = frozen(*(tf.convert_to_tensor(features[name]) for name in order))
    return {
      name: tf.ensure_shape(value, shapes[name])
      for name, value in zip(names, values)
    }

  return run


def freeze_in_parts(
  function: Callable[[dict[str, tf.Tensor]], Tensors],
  inputs: Sequence[tf.TensorSpec],
  encoder: Any,
) -> Callable[[Tensors], dict[str, tf.Tensor]]:
  """Freezes a function for calls from Python; see `freeze`.

  The result computes the same numbers, but Python calls each layer. Within one
  graph, TensorFlow prepares the function of a shared layer again for each of
  its calls, which takes seconds and copies the weights each time. The look-up
  of words takes the table as an input, because constants are copied, too.

  Args:
    function: see `freeze`; it calls the encoder once.
    inputs: see `freeze`.
    encoder: the `FrozenEncoder`.
  """
  layers, embedding = encoder.apply_layers, encoder.embedding
  size, dtype = encoder.config.hidden_size, encoder.dtype
  words = tf.constant(embedding.words, dtype)

  def before(features):
    found: dict[str, tf.Tensor] = {}

    def record(x, padding, batch, length):
      found.update(x=x, padding=padding, batch=batch, length=length)
      return x

    with_layers(record, features)
    return found

  def after(features):
    def skip(*_):
      embedding.table = None  # A constant, for the product with it.
      return features["hidden"]

    return with_layers(skip, features)

  def with_layers(apply_layers, features):
    encoder.apply_layers = apply_layers
    embedding.given_table = features["words"]
    return function({spec.name: features[spec.name] for spec in inputs})

  specs = [*inputs, tf.TensorSpec(words.shape, dtype, "words")]
  try:
    first = freeze(before, specs)
    last = freeze(after, [*specs, tf.TensorSpec([None, size], dtype, "hidden")])
  finally:
    encoder.apply_layers = layers
    embedding.given_table = None

  def run(features: Tensors) -> dict[str, tf.Tensor]:
    features = {**features, "words": words}
    return last({**features, "hidden": layers(**first(features))})

  return run


def _with_constants(graph: tf.Graph) -> Any:
  """Returns the GraphDef of a traced function, with captures as constants.

  TensorFlow's convert_variables_to_constants_v2 does the same, but optimizes
  the graph first, which takes seconds for the constants of an encoder. Returns
  None if variables are not only read, as in a model with a Keras encoder.
  """
  variables = {id(variable.handle): variable for variable in graph.variables}
  values = {
    inside.op.name: variables.get(id(outside), outside).numpy()
    for outside, inside in graph.captures
  }
  handles = {
    inside.op.name
    for outside, inside in graph.captures
    if id(outside) in variables
  }
  graph_def = graph.as_graph_def()
  for node in graph_def.node:
    if node.op != "ReadVariableOp" and handles & {*node.input}:
      return None
    name = node.input[0] if node.op == "ReadVariableOp" else node.name
    if name in values and node.name not in handles:
      value = tf.make_tensor_proto(values[name])
      node.op = "Const"
      del node.input[:]
      node.attr.clear()
      node.attr["dtype"].type = value.dtype
      node.attr["value"].tensor.CopyFrom(value)
  return graph_def
