"""Layers one at a time: each row of a batch leaves after a layer of its own.

A row leaves after the number of layers that the request gives. A classifier may
also let it leave as soon as its head is sure, as in DeeBERT (arXiv 2004.12993);
layers that share their weights need no heads of their own for that. Rows that
have left are not computed any more.

Letters: B batch, A rows that have not left, S sequence, H hidden, Q requested
positions.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

import tensorflow as tf

from official_albert.serving import frozen_encoder, request_checks

# The inputs of signatures whose names end in `AT_DEPTH`, and their dtypes.
AT_DEPTH = "_at_depth"
BY_LAYER = "_by_layer"  # Ends the names of those that answer after each layer.
DEPTH_INPUTS = {"exit_layer": tf.int32, "exit_threshold": tf.float32}
# How many sizes a large batch may have while rows leave.
_SIZES = 4


def leaving_model(
  model: Any, depth: Mapping[str, tf.Tensor]
) -> tuple[Any, dict[str, tf.Tensor]]:
  """Returns a copy of a frozen model whose rows leave, for one call.

  `depth` has `exit_layer` <int32>[B], after how many layers a row leaves at the
  latest (0: all), and for a classifier `exit_threshold` <float32>[B], the
  probability of a class from which on it leaves (0: never). They are checked.
  The second result is a dict, which has the number of layers of each row as
  `exit_layer` <int32>[B] after the call.
  """
  num_layers = model.config.num_hidden_layers
  reached: dict[str, tf.Tensor] = {}

  def probability(hidden):
    logits = model.classifier(tf.tanh(model.albert.pooler(hidden)))
    return tf.reduce_max(tf.nn.softmax(logits), axis=-1)  # [A]

  def make_encoder(blocks):
    def encoder(x, mask, rows=None, **unused):
      checked = _checked(depth, tf.shape(mask)[0], num_layers)
      most, threshold = map(checked.get, DEPTH_INPUTS)
      # The last value is that of the rows that fill up a batch: they leave.
      most = tf.pad(tf.where(most > 0, most, num_layers), [[0, 1]])

      def leaves(layer, first, index):
        leave = layer >= tf.gather(most, index)
        if threshold is None:
          return leave
        least = tf.gather(tf.pad(threshold, [[0, 1]]), index)
        return leave | (least > 0) & (probability(first) >= least)

      hidden, reached["exit_layer"] = _apply(blocks, x, mask, leaves)
      return [hidden if rows is None else tf.gather(hidden, rows, batch_dims=1)]

    return encoder

  return frozen_encoder.with_encoder(model, make_encoder), reached


def model_of_layers(model: Any) -> Any:
  """Returns a copy of a frozen model for batches of L equal parts.

  Part l of the outputs, from 1, is that of l layers, each computed once.
  """

  def make_encoder(blocks):
    def encoder(x, mask, rows=None, **unused):
      each = blocks.config.inner_group_num
      part = tf.shape(mask)[0] // blocks.config.num_hidden_layers
      outputs = blocks.every_output(x[:part], mask[:part])
      hidden = tf.concat(outputs[each - 1 :: each], 0)
      return [hidden if rows is None else tf.gather(hidden, rows, batch_dims=1)]

    return encoder

  return frozen_encoder.with_encoder(model, make_encoder)


def _checked(
  depth: Mapping[str, tf.Tensor], batch: tf.Tensor, num_layers: int
) -> dict[str, tf.Tensor]:
  result = {}
  for name, values in depth.items():
    values = request_checks.check_rank(name, values, "B")
    most = num_layers if name == "exit_layer" else 1
    is_right = tf.reduce_all((values >= 0) & (values <= most))
    check = request_checks.refuse_unless(
      is_right & tf.equal(tf.size(values), batch),
      f"{name} must have a value from 0 to {most} for each row",
    )
    result[name] = request_checks.after_checks([check], values)
  return result


def _apply(
  blocks: frozen_encoder.FrozenBlocks,
  x: tf.Tensor,
  mask: tf.Tensor,
  leaves: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
  """Applies layers to x <float>[B, S, H] until all rows have left.

  A batch has few different sizes, because oneDNN prepares each product anew for
  each size, which would take longer than a layer of a small model. So some rows
  that have left stay, to fill it up; their index is B.

  `leaves` returns <bool>[A] from the number of layers <int32>[] and, of the
  rows inside, [CLS] <float>[A, H] and the indices <int32>[A].

  Returns the output of the last layer of each row <float>[B, S, H], and the
  number of its layers <int32>[B].
  """
  width = blocks.config.hidden_size
  batch, length = tf.unstack(tf.shape(mask))
  step = tf.maximum(1, batch // _SIZES)

  def body(layer, index, y, padding, outputs, layers):
    left = tf.size(index)
    y = tf.reshape(y, [-1, width])
    y = blocks.apply_layer(layer, y, padding, left, length)
    y = tf.reshape(y, [left, length, width])
    layer += 1
    leave = leaves(layer, tf.cast(y[:, 0], blocks.dtype), index)  # [A]
    gone = tf.boolean_mask(index, leave)[:, None]
    last = tf.cast(tf.boolean_mask(y, leave), blocks.dtype)
    outputs = tf.tensor_scatter_nd_update(outputs, gone, last)
    numbers = tf.fill(tf.shape(gone)[:1], layer)
    layers = tf.tensor_scatter_nd_update(layers, gone, numbers)
    count = tf.reduce_sum(tf.cast(~leave, tf.int32))
    order = tf.argsort(tf.cast(leave, tf.int32))[: -(-count // step) * step]
    index = tf.where(leave, batch, index)
    rest = [tf.gather(x, order) for x in (index, y, padding)]
    return layer, *rest, outputs, layers

  def encode(dtype):
    y = tf.reshape(tf.cast(x, dtype), [batch, length, width])
    padding, index = blocks.padding(mask, dtype), tf.range(batch)
    outputs = tf.zeros([batch + 1, length, width], blocks.dtype)
    layers = tf.zeros([batch + 1], tf.int32)
    found = tf.while_loop(
      lambda layer, index, *unused: tf.size(index) > 0,
      body,
      (tf.constant(0), index, y, padding, outputs, layers),
      parallel_iterations=1,
    )
    return [x[:batch] for x in found[-2:]]

  return blocks.in_dtype(encode)
