"""The encoder for servers: constants, and operations that oneDNN takes whole.

Training compiles what is between matrix products with XLA, which a server need
not have. Here the same block is written in the forms that TensorFlow's own
optimizer turns into one operation each on a CPU: product + bias + GELU, product
+ bias + residual, product + scale + mask, and LayerNorm. Weights are constants
of the products' dtype, so that oneDNN packs each of them once and keeps it.

ALBERT's layers are one block: it is one function, called as often as there are
layers, so that its packed weights exist once and stay in the processor's cache.

Letters: B batch, S sequence, R = B * S rows, N heads, D head size, H hidden,
I intermediate, Q positions that are asked for.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from official_albert import modeling


class _Norm(NamedTuple):
  gamma: np.ndarray
  beta: np.ndarray
  epsilon: float


class _Block(NamedTuple):
  """Weights of one block, <float32>; kernels are [in, out]."""

  qkv_kernel: np.ndarray
  qkv_bias: np.ndarray
  output_kernel: np.ndarray
  output_bias: np.ndarray
  attention_norm: _Norm
  intermediate_kernel: np.ndarray
  intermediate_bias: np.ndarray
  ffn_kernel: np.ndarray
  ffn_bias: np.ndarray
  ffn_norm: _Norm


class FrozenEncoder(tf.Module):
  """Takes the place of an `AlbertModel` in a model that is to be exported.

      model.albert = FrozenEncoder(model.albert, tf.bfloat16)
      model({"input_ids": ids}, training=False)

  The weights are those at the time of the call to the constructor.

  Attributes:
    config: the model's.
    embedding: has the word table, for the masked LM head.
    dtype: of the products.
  """

  def __init__(self, albert: modeling.AlbertModel, dtype: tf.DType):
    """Reads the weights.

    Args:
      albert: the encoder.
      dtype: tf.float32 or tf.bfloat16.
    """
    super().__init__(name="frozen_encoder")
    self.config = albert.config
    self.dtype = dtype
    self.embedding = _FrozenEmbedding(albert.embedding, dtype)
    self._pooler = _dense_weights(albert.pooler)
    made = {}
    self._blocks = []
    for pair in albert.encoder.blocks():
      key = tuple(map(id, pair))
      if key not in made:
        made[key] = _block(*pair)
      self._blocks.append(made[key])

  def __call__(
    self,
    inputs: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    output_positions: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """As `AlbertModel.call`, without dropout and without `encoder_outputs`.

    Args:
      inputs: `input_ids`, and optionally `input_mask`, `segment_ids`
        <int32>[B, S].
      training: must be false.
      dropout_seed: not used.
      output_positions: <int32>[B, Q], see `AlbertModel.call`.
      num_layers: None, or as many as were frozen.

    Returns:
      `sequence_output` [B, S, H] or [B, 1 + Q, H], `pooled_output` [B, H] and
      `embedding_output` [B, S, E], in the products' dtype.
    """
    if training:
      raise ValueError("a frozen encoder cannot be trained.")
    depth = self.config.num_hidden_layers
    if num_layers not in (None, depth):
      raise ValueError(
        f"a frozen encoder has its {depth} layers and no others: freeze one "
        f"that has {num_layers}."
      )
    inputs, _ = modeling.named_inputs(inputs)
    ids = inputs["input_ids"]
    modeling.check_ids("input_ids", ids)
    mask = inputs.get("input_mask")
    mask = tf.ones_like(ids) if mask is None else mask
    batch, length = tf.unstack(tf.shape(ids))
    x, embedded = self.embedding(ids, inputs.get("segment_ids"))
    sizes = [batch, length]
    # 0 for tokens, and a number that leaves nothing for padding.
    padding = tf.cast(1 - mask[:, None, None, :], self.dtype)
    padding *= tf.cast(modeling.MASKED_SCORE, self.dtype)  # [B, 1, 1, S]
    functions = {}
    for block in self._blocks:
      if id(block) not in functions:
        functions[id(block)] = self._block_function(block)
      x = functions[id(block)](x, padding, *sizes)
    hidden = tf.reshape(x, [*sizes, self.config.hidden_size])
    first = hidden[:, 0]
    if output_positions is not None:
      rows = tf.pad(output_positions, [[0, 0], [1, 0]])
      hidden = tf.gather(hidden, rows, batch_dims=1)  # [B, 1 + Q, H]
    return {
      "sequence_output": hidden,
      "pooled_output": tf.tanh(_dense(first, *self._pooler)),
      "embedding_output": tf.reshape(
        embedded, [batch, length, self.config.embedding_size]
      ),
    }

  def _block_function(self, w: _Block):
    """The block as a function that is not copied to where it is called.

    So the servers keep one set of packed weights for all of its calls.
    """
    rows = tf.TensorSpec([None, self.config.hidden_size], self.dtype)
    padding = tf.TensorSpec([None, 1, 1, None], self.dtype)
    size = tf.TensorSpec([], tf.int32)

    @tf.function(
      input_signature=[rows, padding, size, size],
      autograph=False,
      experimental_attributes={"_noinline": True},
    )
    def block(x, padding, batch, length):
      return self._apply(w, x, padding, [batch, length])

    return block

  def _apply(self, w: _Block, x, padding, sizes) -> tf.Tensor:
    """<float>[R, H] to <float>[R, H]; padding is <float>[B, 1, 1, S]."""
    width = self.config.hidden_size
    heads = self.config.num_attention_heads
    qkv = _dense(x, w.qkv_kernel, w.qkv_bias)  # [R, 3 * H]
    qkv = tf.reshape(qkv, [*sizes, 3, heads, width // heads])
    q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [B, N, S, D]
    scale = tf.constant(q.shape[-1] ** -0.5, self.dtype)
    scores = tf.matmul(q, k, transpose_b=True) * scale + padding
    # As a matrix: of the one operation TensorFlow's optimizer does not know the
    # rank, and says so on stderr.
    shape = tf.shape(scores)
    probs = tf.nn.softmax(tf.reshape(scores, [-1, shape[3]]))
    context = tf.matmul(tf.reshape(probs, shape), v)  # [B, N, S, D]
    context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, width])
    x = _layer_norm(
      _dense(context, w.output_kernel, w.output_bias) + x, w.attention_norm
    )
    y = _dense(x, w.intermediate_kernel, w.intermediate_bias)  # [R, I]
    y = self._activation(y)
    return _layer_norm(_dense(y, w.ffn_kernel, w.ffn_bias) + x, w.ffn_norm)

  def _activation(self, x: tf.Tensor) -> tf.Tensor:
    name = self.config.hidden_act
    if name in ("gelu", "gelu_erf"):
      return tf.nn.gelu(x, approximate=name == "gelu")
    return tf.keras.activations.get(name)(x)


class _FrozenEmbedding:
  """As `FactorizedEmbedding`, of rows instead of sequences."""

  def __init__(self, embedding, dtype: tf.DType):
    self._dtype = dtype
    self._words = embedding.word_embeddings.numpy()
    self._segments = embedding.token_type_embeddings.numpy()
    self._positions = embedding.position_embeddings.numpy()
    self._norm = _norm(embedding.layer_norm)
    projection = embedding.projection
    self._projection = _dense_weights(projection) if projection else None
    self._table = None

  def __call__(
    self, ids: tf.Tensor, segment_ids: Optional[tf.Tensor]
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """<int32>[B, S] to <float>[R, H], and before the projection [R, E]."""
    if segment_ids is None:
      segment_ids = tf.zeros_like(ids)
    # The graph holds it once, whoever uses it.
    self._table = tf.constant(self._words, self._dtype)
    x = tf.gather(self._table, ids)
    x += tf.gather(tf.constant(self._segments, self._dtype), segment_ids)
    positions = tf.constant(self._positions, self._dtype)
    x += positions[: tf.shape(ids)[1]]
    x = _layer_norm(tf.reshape(x, [-1, self._words.shape[1]]), self._norm)
    return _dense(x, *self._projection) if self._projection else x, x

  def vocabulary_scores(self, x: tf.Tensor) -> tf.Tensor:
    """<float>[N, E] to <float>[N, V], of the graph that was called last."""
    return tf.matmul(tf.cast(x, self._dtype), self._table, transpose_b=True)


def _dense_weights(layer) -> tuple[np.ndarray, np.ndarray]:
  return layer.kernel.numpy(), layer.bias.numpy()


def _dense(x: tf.Tensor, kernel: np.ndarray, bias: np.ndarray) -> tf.Tensor:
  """<float>[R, I] to <float>[R, O]."""
  y = tf.matmul(x, tf.constant(kernel, x.dtype))
  return tf.nn.bias_add(y, tf.constant(bias, x.dtype))


def _layer_norm(x: tf.Tensor, norm: _Norm) -> tf.Tensor:
  """LayerNorm of <float>[R, H], in the form that becomes one operation.

  Each row is a channel of a batch normalization over one example.
  """
  rows, width = tf.unstack(tf.shape(x))
  rows = tf.expand_dims(rows, 0)
  y, *_ = tf.raw_ops.FusedBatchNormV3(
    x=tf.reshape(x, tf.stack([1, rows[0], width, 1])),
    scale=tf.fill(rows, 1.0),
    offset=tf.fill(rows, 0.0),
    mean=tf.constant([], tf.float32),
    variance=tf.constant([], tf.float32),
    epsilon=norm.epsilon,
    data_format="NCHW",
    is_training=True,
  )
  y = tf.reshape(y, tf.shape(x))
  y = y * tf.constant(norm.gamma, x.dtype) + tf.constant(norm.beta, x.dtype)
  return tf.ensure_shape(y, [None, len(norm.gamma)])


def _norm(layer) -> _Norm:
  return _Norm(layer.gamma.numpy(), layer.beta.numpy(), layer.epsilon)


def _block(attention, ffn) -> _Block:
  parts = (attention.query, attention.key, attention.value)
  return _Block(
    np.concatenate([part.kernel.numpy() for part in parts], axis=1),
    np.concatenate([part.bias.numpy() for part in parts]),
    attention.output_dense.kernel.numpy(),
    attention.output_dense.bias.numpy(),
    _norm(attention.layer_norm),
    ffn.intermediate.kernel.numpy(),
    ffn.intermediate.bias.numpy(),
    ffn.output_dense.kernel.numpy(),
    ffn.output_dense.bias.numpy(),
    _norm(ffn.layer_norm),
  )


DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}

Tensors = Mapping[str, tf.Tensor]


def freeze_encoder(model, precision: str):
  """The model with a `FrozenEncoder` as its encoder.

  Args:
    model: an `AlbertModel`, or a model with one as its attribute `albert`,
      which can only predict from then on.
    precision: of products, a key of `DTYPES`. The process must have the policy
      that goes with it, see `distribution.set_precision`.

  Returns:
    A `FrozenEncoder`, or the model that was given; what is frozen already is
    returned as it is.

  Raises:
    ValueError: it is frozen already, in another precision.
  """
  dtype = DTYPES[precision]
  if isinstance(model, modeling.AlbertModel):
    return FrozenEncoder(model, dtype)
  if isinstance(model, FrozenEncoder):
    if model.dtype != dtype:
      raise ValueError(
        f"the model is frozen in {model.dtype.name} already: make another one "
        f"to have it in {precision}."
      )
    return model
  model.albert = freeze_encoder(model.albert, precision)
  return model


def freeze(
  function: Callable[[dict[str, tf.Tensor]], Tensors],
  inputs: Sequence[tf.TensorSpec],
) -> Callable[[Tensors], dict[str, tf.Tensor]]:
  """Traces a function once, with the present values of all variables.

      run = freeze(
        lambda features: model(features, training=False),
        [tf.TensorSpec([None, None], tf.int32, "input_ids")],
      )

  Whatever calls the result, in however many signatures, shares one copy of the
  constants in the SavedModel.

  Args:
    function: of a dict by the specs' names to a dict.
    inputs: its inputs; each has a name.

  Returns:
    The same function of a dict with these inputs; others are ignored.
  """

  @tf.function(autograph=False)
  def traced(features):
    return dict(function(features))

  concrete = traced.get_concrete_function({spec.name: spec for spec in inputs})
  names = sorted(concrete.structured_outputs)
  shapes = {k: v.shape for k, v in concrete.structured_outputs.items()}
  frozen = convert_to_constants.convert_variables_to_constants_v2(
    concrete, lower_control_flow=False
  )
  order = [tensor.name.split(":")[0] for tensor in frozen.inputs]

  def run(features: Tensors) -> dict[str, tf.Tensor]:
    values = frozen(*(tf.convert_to_tensor(features[name]) for name in order))
    return {
      name: tf.ensure_shape(value, shapes[name])
      for name, value in zip(names, values)
    }

  run.concrete = frozen
  return run
