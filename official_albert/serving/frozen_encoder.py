"""Blocks with their own weights, whose operations TensorFlow fuses on CPUs.

On a CPU, TensorFlow's graph optimizer fuses each of these into one oneDNN
operation: product + bias + GELU, product + bias + residual, and product + scale
+ mask. The matrices are variables in the products' dtype. As constants, they
would be copied with each graph that contains them, which takes seconds and ten
times their memory; and oneDNN would pack them for the number of tokens of the
first request, which slows all other requests.

Letters: B batch, S sequence, R = B * S rows, C computed rows, N heads, D head
size, H hidden, I intermediate, Q requested positions.
"""

from __future__ import annotations

import functools
from concurrent import futures
from typing import Any, Callable, Mapping, Optional, Sequence, TypeVar

import numpy as np
import tensorflow as tf

from official_albert import modeling

Tensors = Mapping[str, tf.Tensor]
T = TypeVar("T")


class _Dense:
  """The weights of one or several dense layers of the same input.

  In bfloat16, oneDNN multiplies by a transposed kernel in 0.6 to 1.0 times the
  time (albert_base, 8 to 2,048 rows, one thread). In float32 it is the other
  way round.
  """

  def __init__(self, dtype: tf.DType, *layers: Any):
    kernel = np.concatenate([x.kernel.numpy() for x in layers], axis=1)
    self.bias = np.concatenate([x.bias.numpy() for x in layers])
    self._transpose = dtype == tf.bfloat16
    kernel = kernel.T if self._transpose else kernel
    self._kernel = tf.Variable(tf.cast(kernel, dtype), trainable=False)

  def __call__(
    self, x: tf.Tensor, adapter: Sequence[tf.Tensor] = ()
  ) -> tf.Tensor:
    kernel = tf.cast(self._kernel, x.dtype)
    y = tf.matmul(x, kernel, transpose_b=self._transpose)
    y = tf.nn.bias_add(y, tf.constant(self.bias, x.dtype))
    if adapter:
      a, b = adapter
      y += tf.matmul(tf.matmul(x, a), b)
    return y


class _LayerNorm:
  """LayerNorm of a sum in plain operations.

  A batch normalization with rows as channels would be twice as fast, but in
  TensorFlow 2.15 and 2.20, oneDNN's kernel for it damages the memory of the
  process if threads call it with different numbers of rows.
  """

  def __init__(self, layer: Any):
    self.gamma, self.beta = layer.gamma.numpy(), layer.beta.numpy()
    self.epsilon = layer.epsilon

  def __call__(self, x: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
    y = tf.cast(x, tf.float32) + tf.cast(residual, tf.float32)
    y -= tf.reduce_mean(y, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(y), axis=-1, keepdims=True)
    y *= tf.math.rsqrt(variance + self.epsilon)
    y = y * self.gamma + self.beta
    return tf.ensure_shape(tf.cast(y, x.dtype), [None, len(self.gamma)])


class FrozenBlocks(tf.Module):
  """Computes what a `SharedTransformerEncoder` does, for export.

  The weights are copies of those at the time of construction; `dtype` is that
  of the products, tf.float32 or tf.bfloat16. See `freeze_encoder`.
  """

  def __init__(self, encoder: Any, dtype: tf.DType):
    super().__init__(name="frozen_blocks")
    self.config = encoder.config
    self.dtype = dtype
    functions: dict[Any, Callable[..., tf.Tensor]] = {}
    self._layers = []
    for attention, ffn in encoder.blocks():
      key = (id(attention), id(ffn))
      if key not in functions:
        functions[key] = self._block_function(attention, ffn)
      self._layers.append(functions[key])
    # A and B of the four kernels of each application, if it has any.
    self._adapters = [
      [tf.Variable(tf.cast(x, dtype), trainable=False) for x in (*a, *f)]
      for a, f in encoder.adapters_of_blocks()
    ]

  def __call__(
    self,
    x: tf.Tensor,
    mask: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    rows: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> list[tf.Tensor]:
    """Returns a list of the last output; see `SharedTransformerEncoder.call`.

    The model cannot be trained, and always applies all layers. Padding at the
    end of a sequence is not computed if it takes a tenth of the batch or more,
    so that a batch with little padding needs no copies.

    Deviation: the outputs of padding after the last token are 0; the original's
    are those of a token of padding, as here in a sequence without tokens.
    """
    del training, dropout_seed, num_layers
    width = self.config.hidden_size
    batch, length = tf.unstack(tf.shape(mask))
    packed = modeling.Packing.of(mask)

    def encode(dtype):
      y = tf.cast(tf.reshape(x, [-1, width]), dtype)  # [R, H]
      padding = self.padding(mask, dtype)

      def apply(y, packed=None):
        arguments = padding, batch, length, packed
        *before, last = range(len(self._layers))
        for index in before:
          y = self._apply_block(index, y, *arguments)
        return self._apply_block(last, y, *arguments, rows)

      def without_padding():
        z = apply(tf.gather(y, packed.positions), packed)
        return tf.gather(z, packed.rows) if rows is None else z

      is_full = 10 * tf.size(packed.positions) > 9 * batch * length
      y = tf.cond(is_full, lambda: apply(y), without_padding)
      exists = packed.is_token
      if rows is not None:
        exists = tf.gather(exists, rows, batch_dims=1)  # [B, Q]
      y = tf.reshape(y, tf.concat([tf.shape(exists), [width]], 0))
      y = tf.where(exists[..., None], y, tf.zeros([], dtype))
      return tf.cast(tf.ensure_shape(y, [None, None, width]), self.dtype)

    return [self.in_dtype(encode)]

  def every_output(self, x: tf.Tensor, mask: tf.Tensor) -> list[tf.Tensor]:
    """Returns the outputs <float>[B, S, H] of all blocks."""
    width = self.config.hidden_size
    batch, length = tf.unstack(tf.shape(mask))

    def encode(dtype):
      y = tf.cast(tf.reshape(x, [-1, width]), dtype)  # [R, H]
      padding, outputs = self.padding(mask, dtype), []
      for index in range(len(self._layers)):
        y = self._apply_block(index, y, padding, batch, length)
        hidden = tf.reshape(y, [batch, length, width])
        outputs.append(tf.cast(hidden, self.dtype))
      return outputs

    return self.in_dtype(encode)

  def padding(self, mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns what is added to attention scores, <float>[B, 1, 1, S]."""
    padding = tf.cast(1 - mask[:, None, None, :], dtype)
    return padding * tf.cast(modeling.MASKED_SCORE, dtype)

  def in_dtype(self, encode: Callable[[tf.DType], T]) -> T:
    """Calls a function with the dtype in which products round to nearest."""
    if self.dtype != tf.bfloat16:
      return encode(self.dtype)
    rounded, exact = lambda: encode(tf.bfloat16), lambda: encode(tf.float32)
    return modeling.where_products_round(rounded, exact)

  def _apply_block(
    self, index: int, x: tf.Tensor, *others: tf.Tensor
  ) -> tf.Tensor:
    own = [tf.cast(variable, x.dtype) for variable in self._adapters[index]]
    return self._layers[index](own, x, *others)

  def apply_layer(
    self, layer: tf.Tensor, x: tf.Tensor, *others: tf.Tensor
  ) -> tf.Tensor:
    """Applies layer number `layer` <int32>[], from 0, to <float>[R, H]."""
    each, blocks = self.config.inner_group_num, self._layers
    layers = [range(i, i + each) for i in range(0, len(blocks), each)]

    def apply(indices):
      y = x
      for index in indices:
        y = self._apply_block(index, y, *others)
      return y

    if blocks == blocks[:each] * len(layers) and not any(self._adapters):
      return apply(layers[0])
    choices = [functools.partial(apply, indices) for indices in layers]
    return tf.switch_case(layer, choices)

  def _block_function(self, attention: Any, ffn: Any) -> Callable[..., Any]:
    """Returns a function from <float>[R, H] to <float>[R, H], of any dtype.

    With `packed`, the rows are its C. With `rows` <int32>[B, Q], the result has
    only these positions, <float>[B * Q, H].
    """
    width = self.config.hidden_size
    heads = self.config.num_attention_heads
    qkv_dense = _Dense(
      self.dtype, attention.query, attention.key, attention.value
    )
    output_dense = _Dense(self.dtype, attention.output_dense)
    attention_norm = _LayerNorm(attention.layer_norm)
    intermediate = _Dense(self.dtype, ffn.intermediate)
    ffn_output = _Dense(self.dtype, ffn.output_dense)
    ffn_norm = _LayerNorm(ffn.layer_norm)

    def block(own, x, padding, batch, length, packed=None, rows=None):
      qkv = qkv_dense(x, own[:2])
      if packed:
        qkv = tf.gather(qkv, packed.rows)
      qkv = tf.reshape(qkv, [batch, length, 3, heads, width // heads])
      q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [B, N, S, D]
      if rows is not None:
        q = tf.gather(q, rows, axis=2, batch_dims=1)  # [B, N, Q, D]
      scale = tf.constant(q.shape[-1] ** -0.5, x.dtype)
      scores = tf.matmul(q, k, transpose_b=True) * scale + padding
      # As a matrix, because TensorFlow's optimizer does not know the rank of
      # the fused operation and would print a warning.
      shape = tf.shape(scores)
      probs = tf.nn.softmax(tf.reshape(scores, [-1, shape[3]]))
      context = tf.matmul(tf.reshape(probs, shape), v)  # [B, N, S, D]
      context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, width])
      if rows is not None:
        at = tf.reshape(rows + length * tf.range(batch)[:, None], [-1])
        if packed:
          at = tf.gather(tf.reshape(packed.rows, [-1]), at)
        x = tf.gather(x, at)
      elif packed:
        context = tf.gather(context, packed.positions)
      x = attention_norm(output_dense(context, own[2:4]), x)
      y = self._activation(intermediate(x, own[4:6]))  # [R, I]
      return ffn_norm(ffn_output(y, own[6:]), x)

    return tf.function(
      block,
      autograph=False,
      # If inlined, each layer would be optimized on its own, which doubles the
      # time to the first answer.
      experimental_attributes={"_noinline": True},
    )

  def _activation(self, x: tf.Tensor) -> tf.Tensor:
    name = self.config.hidden_act
    if name in ("gelu", "gelu_erf"):
      return tf.nn.gelu(x, approximate=name == "gelu")
    return tf.keras.activations.get(name)(x)


def freeze_encoder(model: Any, precision: str) -> Any:
  """Returns a model with `FrozenBlocks` in its encoder.

  Args:
    model: an `AlbertModel`, or a model with one as its attribute `albert`,
      which stays as it is and shares all other layers with the result. The
      result can only predict. A frozen model is returned.
    precision: the dtype of the products, a key of `EXPORT_PRECISIONS`. The
      model must have the corresponding policy.
  """

  def freeze(encoder):
    if isinstance(encoder, FrozenBlocks):
      return encoder
    return FrozenBlocks(encoder, tf.as_dtype(precision))

  return with_encoder(model, freeze)


def with_encoder(model: Any, replace: Callable[[Any], Any]) -> Any:
  """Returns a model with replace(encoder); see `freeze_encoder`."""
  # Keras copies a model only by saving it.
  result = object.__new__(type(model))
  vars(result).update(vars(model))
  if isinstance(model, modeling.AlbertModel):
    vars(result)["encoder"] = replace(model.encoder)
  else:
    vars(result)["albert"] = with_encoder(model.albert, replace)
  return result


class FrozenFunction:
  """A function of named tensors, traced once.

  The weights are not copied: calls see their changes, and a model that is
  trained on has to be copied before.

  Attributes:
    weights: the variables of the graph.
  """

  def __init__(
    self,
    function: Callable[[dict[str, tf.Tensor]], Tensors],
    inputs: Sequence[tf.TensorSpec],
  ):
    """Traces a function of a dict with the names of `inputs`."""

    @tf.function(autograph=False)
    def traced(features):
      with modeling.plain_operations_only():
        return dict(function(features))

    self._names = [spec.name for spec in inputs]
    self._run = traced.get_concrete_function(dict(zip(self._names, inputs)))
    graph = self._run.graph
    variables = {id(x.handle): x for x in graph.variables}
    # In the order of the graph; that of `variables` changes between processes.
    self.weights = [
      variables[id(tensor)]
      for tensor in self._run.captured_inputs
      if id(tensor) in variables
    ]
    # The graph refers to its variables weakly, so that calls within other
    # graphs would fail once the model is gone.
    graph.variables = self.weights

  def __call__(self, features: Tensors) -> dict[str, tf.Tensor]:
    return self._run(
      {name: tf.convert_to_tensor(features[name]) for name in self._names}
    )


def outside_strategy(function: Callable[..., T], *arguments: Any) -> T:
  """Calls a function outside the scope of any `tf.distribute.Strategy`.

  Within a scope, each variable has a copy per device, and the functions of a
  SavedModel run only by `Strategy.run`.
  """
  if not tf.distribute.has_strategy():
    return function(*arguments)
  with futures.ThreadPoolExecutor(1) as other_thread:  # It has no scope.
    return other_thread.submit(function, *arguments).result()
