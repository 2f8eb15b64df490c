"""The encoder, whose layers share their parameters (paper, section 3.1).

Layer i of L applies the blocks of group i * groups // L. With sharing "all",
the layers of a group share whole blocks. With "attention" or "ffn", they share
only that sublayer. With "none", they share nothing, as in BERT (paper, Table
4). With an `adapter_rank`, they share everything but a low-rank difference.

Reference: google-research/albert modeling.py (transformer_model).
"""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import (
  adapters,
  fused_ops,
  layers,
  packing,
  transformer_block,
)


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SharedTransformerEncoder(layers.ConfiguredLayer):
  """Applies shared transformer blocks `num_hidden_layers` times."""

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    recompute_activations: bool = False,
    **kwargs: Any,
  ):
    """Creates the sublayers.

    With `recompute_activations`, training keeps only the input of each block
    and recomputes the rest for the gradient. This takes less memory and more
    time.
    """
    super().__init__(config, **kwargs)
    self.recompute_activations = recompute_activations

    def sets(kind: Callable[..., Any], name: str) -> list[list[Any]]:
      policy = self.dtype_policy
      return [
        [
          kind(config, name=f"{name}_{s}_{i}", dtype=policy)
          for i in range(config.inner_group_num)
        ]
        for s in range(config.num_sets(name))
      ]

    # attentions[s][i] belongs to inner block i. The index s is a group if the
    # group shares its attention, else a layer. The same holds for ffns.
    self.attentions = sets(transformer_block.SelfAttention, "attention")
    self.ffns = sets(transformer_block.FeedForward, "ffn")
    own = adapters.Adapters(config, name="adapters", dtype=self.dtype_policy)
    self.adapters = own if config.adapter_rank else None

  @property
  def sublayers(self) -> list[tf.keras.layers.Layer]:
    """All attention layers, then all feed-forward layers.

    Keras finds layers in attributes and flat lists when it writes `.keras` and
    `.weights.h5` files, but not in the nested lists above. The names in those
    files come from this attribute and its order, so neither may change.
    """
    sets = [*self.attentions, *self.ffns]
    return [sublayer for inner in sets for sublayer in inner]

  def blocks(
    self, num_layers: Optional[int] = None
  ) -> Iterator[tuple[Any, Any]]:
    """Yields the pairs (attention, ffn) in the order of their application.

    Only models that share everything can have another number of layers.
    """
    c = self.config if num_layers is None else self.config.at_depth(num_layers)
    for layer in range(c.num_hidden_layers):
      yield from zip(
        self.attentions[c.set_of_layer("attention", layer)],
        self.ffns[c.set_of_layer("ffn", layer)],
      )

  def build(self, input_shape: tf.TensorShape) -> None:
    for sublayer in dict.fromkeys(s for block in self.blocks() for s in block):
      with tf.name_scope(sublayer.name):
        sublayer.build(input_shape)
    if self.adapters:
      with tf.name_scope(self.adapters.name):
        self.adapters.build(input_shape)
    super().build(input_shape)

  def adapters_of_blocks(self, num_layers: Optional[int] = None) -> list[Any]:
    """Returns `Adapters.of_blocks`, of empty tuples if there are none."""
    if self.adapters:
      return self.adapters.of_blocks()
    return [((), ()) for _ in self.blocks(num_layers)]

  @layers.without_autograph
  def call(
    self,
    x: tf.Tensor,
    mask: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    rows: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> list[tf.Tensor]:
    """Applies all layers.

    Args (the others: see `SelfAttention`):
      x: <float>[B, S, H], the projected embedding.
      dropout_seed: <int32>[2]. Each application of a shared block draws its own
        mask.
      rows: <int32>[B, Q], the only positions that the last block computes.
      num_layers: None means `num_hidden_layers`. It does not change the output
        of a layer, dropout included.

    Returns:
      num_layers * inner_group_num tensors <float>[B, S, H], one per block. The
      last one is the sequence output; with `rows` it is <float>[B, Q, H].
      Within `packing.without_padding`, padding after the last token is 0.

    Raises:
      ValueError: `num_layers` differs from the model's, but layers have their
        own weights.
    """
    if training and dropout_seed is None:
      # The block is traced once, so its applications need different seeds, and
      # recomputation needs the same seed again.
      dropout_seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
    blocks = list(self.blocks(num_layers))
    uses = collections.Counter(s for block in blocks for s in block)
    weights = {s: s.weights_for(n, training) for s, n in uses.items()}
    functions = {b: self._block_function(b, training) for b in set(blocks)}
    own = self.adapters_of_blocks(num_layers)
    outputs, packed = [], packing.of_batch(mask)
    x = packed.pack(x) if packed else x
    for index, block in enumerate(blocks):
      seed = layers.fold_in(dropout_seed, index)
      computed = rows if index == len(blocks) - 1 else None
      apply = functools.partial(functions[block], mask, seed, computed, packed)
      block_weights = [
        weights[sublayer].pop()._replace(adapters=x)
        for sublayer, x in zip(block, own[index])
      ]
      if training and self.recompute_activations:
        x = layers.recomputed(apply, x, *block_weights)
      else:
        x = apply(x, *block_weights)
      is_packed = packed and computed is None
      outputs.append(packed.unpack_or_zero(x) if is_packed else x)
    return outputs

  def _block_function(self, sublayers: Any, training: Any) -> Callable:
    """Returns a block as a function of its input and its weights.

    Since the weights are arguments, TensorFlow traces the function once for all
    layers that share the block, and again if the last layer computes only some
    rows. What XLA compiles as a whole has no such function.
    """
    attention, ffn = sublayers

    def block(mask, seed, rows, packed, x, attention_weights, ffn_weights):
      seeds = [layers.fold_in(seed, i) for i in range(2)]
      x = attention(
        x, mask, training, seeds[0], attention_weights, rows, packed
      )
      return ffn(x, training, seeds[1], ffn_weights)

    if tf.inside_function() and not fused_ops.compiled_as_a_whole():
      return tf.function(block, autograph=False)
    return block

  def get_config(self) -> dict[str, Any]:
    recomputes = self.recompute_activations
    return {**super().get_config(), "recompute_activations": recomputes}
