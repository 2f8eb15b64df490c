"""The encoder whose layers share their parameters (paper, section 3.1).

Layer i of L applies the blocks of group i * groups // L. With sharing "all"
a group is one set of parameters; "attention" and "ffn" share only that half
of the block and give every layer its own other half; "none" shares nothing,
which is BERT (paper, Table 4).

Reference: google-research/albert modeling.py (transformer_model).
"""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, Optional

import tensorflow as tf

from official_albert.modeling import config as config_lib
from official_albert.modeling import dropout as dropout_lib
from official_albert.modeling import transformer_block

_HALVES = ("attention", "ffn")


@tf.keras.utils.register_keras_serializable(package="official_albert")
class SharedTransformerEncoder(tf.keras.layers.Layer):
  """`num_hidden_layers` applications of shared transformer blocks."""

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    recompute_activations: bool = False,
    layerwise_lr_decay: float = 1.0,
    **kwargs,
  ):
    """Makes the blocks.

    Args:
      config: sizes, groups and sharing; a dict from `get_config` will do.
      recompute_activations: whether training keeps only each block's input
        and computes the rest again for the gradient: less memory, more time.
      layerwise_lr_decay: d; application k of a variable whose last one is t
        adds to its gradient with weight d^(t-k). The other half of the decay
        is the optimizer's: `block_multipliers`.
      **kwargs: of `tf.keras.layers.Layer`.

    Raises:
      ValueError: the decay is not in (0, 1].
    """
    super().__init__(**kwargs)
    if isinstance(config, dict):
      config = config_lib.AlbertConfig.from_dict(config)
    self.config = config
    self.recompute_activations = recompute_activations
    if not 0 < layerwise_lr_decay <= 1:
      raise ValueError(
        f"layerwise_lr_decay must be in (0, 1], got {layerwise_lr_decay}."
      )
    self.layerwise_lr_decay = layerwise_lr_decay
    # self.attentions[g][i]: the half of inner block i that layers of index g
    # use; g counts groups where the half is shared, else layers.
    self.attentions = [
      [self._attention(f"{g}_{i}") for i in range(config.inner_group_num)]
      for g in range(self._sets("attention"))
    ]
    self.ffns = [
      [self._ffn(f"{g}_{i}") for i in range(config.inner_group_num)]
      for g in range(self._sets("ffn"))
    ]

  @property
  def sublayers(self) -> list[tf.keras.layers.Layer]:
    """Every attention, then every feed-forward network, each once.

    Keras' savers of `.keras` and `.weights.h5` look for layers in attributes
    and in flat lists, and pass over the lists of lists above. The names in
    those files come from this attribute and from the order of the list.
    """
    return [
      half
      for sets in (self.attentions, self.ffns)
      for inner in sets
      for half in inner
    ]

  def _shares(self, half: str) -> bool:
    return self.config.sharing in ("all", half)

  def _sets(self, half: str) -> int:
    c = self.config
    return c.num_hidden_groups if self._shares(half) else c.num_hidden_layers

  def _attention(self, suffix: str) -> transformer_block.SelfAttention:
    c = self.config
    return transformer_block.SelfAttention(
      c.hidden_size,
      c.num_attention_heads,
      c.attention_probs_dropout_prob,
      c.hidden_dropout_prob,
      c.initializer_range,
      name=f"attention_{suffix}",
    )

  def _ffn(self, suffix: str) -> transformer_block.FeedForward:
    c = self.config
    return transformer_block.FeedForward(
      c.hidden_size,
      c.intermediate_size,
      c.hidden_act,
      c.hidden_dropout_prob,
      c.initializer_range,
      name=f"ffn_{suffix}",
    )

  def blocks(self, num_layers: Optional[int] = None):
    """The pairs (attention, ffn) in the order in which they are applied.

    Args:
      num_layers: how many layers; None: the model's. Others need layers that
        share everything in one group.

    Raises:
      ValueError: they do not.
    """
    if num_layers not in (None, self.config.num_hidden_layers):
      self.config.at_depth(num_layers)  # It says what is wrong.
      for _ in range(num_layers):
        yield from zip(self.attentions[0], self.ffns[0])
      return
    for layer in range(self.config.num_hidden_layers):
      attentions = self.attentions[self._set_of("attention", layer)]
      ffns = self.ffns[self._set_of("ffn", layer)]
      yield from zip(attentions, ffns)

  def _set_of(self, half: str, layer: int) -> int:
    """The index in `attentions` or `ffns` of what a layer uses."""
    if self._shares(half):
      return self.config.group_of_layer(layer)
    return layer

  def _last_layer(self, half: str, layer: int) -> int:
    """The last layer that uses the same half as `layer`."""
    layers = range(self.config.num_hidden_layers)
    own = self._set_of(half, layer)
    return max(i for i in layers if self._set_of(half, i) == own)

  def _gradient_factor(self, half: str, layer: int) -> float:
    if self.layerwise_lr_decay == 1.0:
      return 1.0
    later = self._last_layer(half, layer) - layer
    return self.layerwise_lr_decay**later

  def block_multipliers(self) -> list[tuple[tf.Variable, float]]:
    """Of each variable, d^(layers above the last one that uses it)."""
    multipliers = []
    top = self.config.num_hidden_layers - 1
    for half, sets in (("attention", self.attentions), ("ffn", self.ffns)):
      for layer in range(top + 1):
        if self._last_layer(half, layer) == layer:
          factor = self.layerwise_lr_decay ** (top - layer)
          multipliers += [
            (variable, factor)
            for part in sets[self._set_of(half, layer)]
            for variable in part.trainable_variables
          ]
    return multipliers

  def build(self, input_shape):
    for half in {id(h): h for pair in self.blocks() for h in pair}.values():
      with tf.name_scope(half.name):
        half.build(input_shape)
    super().build(input_shape)

  def _weights(self, training: Optional[bool], num_layers: Optional[int]):
    """Of each half of each block in order, cast once for all its uses."""
    pairs = list(self.blocks(num_layers))
    uses = collections.Counter(id(half) for pair in pairs for half in pair)
    left = {
      id(half): half.weights_for(uses[id(half)], training)
      for pair in pairs
      for half in pair
    }
    return [
      [x for half in pair for x in left[id(half)].pop()] for pair in pairs
    ]

  def call(
    self,
    x: tf.Tensor,
    mask: tf.Tensor,
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    rows: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> list[tf.Tensor]:
    """Applies every layer.

    Args:
      x: <float>[B, S, H], the projected embedding.
      mask: <int32>[B, S], 1 for tokens and 0 for padding.
      training: whether dropout is applied.
      dropout_seed: <int32>[2], see `layers/dropout.py`; each application of
        a shared block draws its own mask.
      rows: <int32>[B, Q], the positions that the last block computes, where
        nothing else of its output is needed; None: all.
      num_layers: how many layers to apply, of a model whose layers share
        everything in one group; None: `num_hidden_layers`. What each of them
        computes, dropout included, does not depend on it.

    Returns:
      num_layers * inner_group_num tensors <float>[B, S, H], one per block;
      the last, which with `rows` is <float>[B, Q, H], is the sequence output.

    Raises:
      ValueError: another number of layers than the model's, where layers have
        weights or learning rates of their own.
    """
    if num_layers is not None and self.layerwise_lr_decay != 1.0:
      raise ValueError(
        f"layerwise_lr_decay {self.layerwise_lr_decay} needs a fixed number "
        "of layers: give 1, or train at one depth."
      )
    recompute = self.recompute_activations and training
    if training and dropout_seed is None:
      # Each application of the block, which is traced once, needs masks of its
      # own, and a second computation of it those of the first.
      dropout_seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
    block = self._make_block(training)
    outputs = []
    weights = self._weights(training, num_layers)
    for index, tensors in enumerate(weights):
      layer = index // self.config.inner_group_num
      factors = tuple(self._gradient_factor(h, layer) for h in _HALVES)
      seed = dropout_lib.fold_in(dropout_seed, index)
      asked = rows if index == len(weights) - 1 else None
      apply = functools.partial(block, factors, mask, seed, asked)
      x = recomputed(apply, x, *tensors) if recompute else apply(x, *tensors)
      outputs.append(x)
    return outputs

  def _make_block(self, training: Optional[bool]):
    """The block as a function of all that differs between applications.

    Its variables are arguments too. So it is traced once, whatever the depth
    and the sharing, and once more where only some rows are computed; with
    layer-wise decay once for each of its factors.
    """
    attention, ffn = next(self.blocks())
    count = len(transformer_block.AttentionWeights._fields)

    def block(factors, mask, seed, rows, x, *weights):
      seeds = [dropout_lib.fold_in(seed, half) for half in range(2)]
      first = transformer_block.AttentionWeights(*weights[:count])
      second = transformer_block.FeedForwardWeights(*weights[count:])
      x = scaled(
        lambda x: attention(x, mask, training, seeds[0], first, rows),
        x,
        factors[0],
      )
      return scaled(lambda x: ffn(x, training, seeds[1], second), x, factors[1])

    return (
      tf.function(block, autograph=False) if tf.inside_function() else block
    )

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "config": self.config.to_dict(),
      "recompute_activations": self.recompute_activations,
      "layerwise_lr_decay": self.layerwise_lr_decay,
    }


def scaled(
  block: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, factor: float
) -> tf.Tensor:
  """block(x), whose variables get `factor` times their gradient from here.

  The gradient with respect to `x` is that of `block`: what comes in from above
  is multiplied and what goes out below divided, so that only what is branched
  off in between, to the variables, is left with the factor.

  Args:
    block: any computation with variables.
    x: <float>[...].
    factor: positive; 1 costs nothing.

  Returns:
    What `block` returns.
  """
  if factor == 1.0:
    return block(x)
  return _scale(block(_scale(x, 1.0 / factor)), factor)


def _scale(x: tf.Tensor, factor: float) -> tf.Tensor:
  """`x`, with `factor` times its gradient."""

  @tf.custom_gradient
  def run(x):
    return tf.identity(x), lambda dy: dy * tf.cast(factor, dy.dtype)

  return run(x)


def recomputed(
  block: Callable[..., tf.Tensor], x: tf.Tensor, *others: tf.Tensor
) -> tf.Tensor:
  """Computes block(x, *others), and again for the gradient.

  The gradient of a block needs nearly all of its intermediate tensors, and a
  shared block is applied 12 times or more. Computed again from the block's
  input in the backward pass, they exist for one application at a time, at the
  price of one more forward pass (arXiv 1604.06174). This saves memory inside a
  `tf.function`; eager tapes keep all tensors.

  Args:
    block: computes the same both times: dropout in it has seeds. Its variables
      have gradients as usual, but no tensor that is not an argument.
    x: <float>[...].
    *others: such as weights that are cast already.

  Returns:
    What `block` returns.
  """

  @tf.custom_gradient
  def run(x, *others):
    def gradient(dy, variables=()):
      variables = list(variables)
      with tf.GradientTape() as tape:
        again = _after(dy, x)
        tape.watch([again, *others])
        y = block(again, *others)
      slopes = tape.gradient(y, [again, *others, *variables], dy)
      count = 1 + len(others)
      return tuple(slopes[:count]), slopes[count:]

    return block(x, *others), gradient

  return run(x, *others)


def _after(dy: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
  """`x`, but not before there is `dy`.

  Without that, the second computation would be found equal to the first, and
  the first one's results kept; or it would all be done at once.
  """
  # TensorFlow keeps to control dependencies, XLA to what is added. 0 * dy is
  # not 0 for a compiler, since dy may be infinite; then dx is not finite
  # either way.
  with tf.control_dependencies([dy]):
    nothing = 0.0 * tf.reshape(dy, [-1])[0]
    return x + tf.cast(nothing, x.dtype)
