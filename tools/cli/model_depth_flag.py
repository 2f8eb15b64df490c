"""--num_hidden_layers: a trained model's shared layers, applied more or less.

The weights of a model whose layers share everything are those of any depth, so
that whoever uses it can choose between fast and good.
"""

from __future__ import annotations

from absl import flags

from official_albert import modeling

NUM_HIDDEN_LAYERS = flags.DEFINE_integer(
  "num_hidden_layers",
  0,
  "How many times the shared layers are applied; 0: as many as the model was "
  "trained with. Needs layers that share everything in one group.",
)


def given() -> bool:
  """Whether a depth was asked for."""
  return NUM_HIDDEN_LAYERS.value != 0


def at_depth(config: modeling.AlbertConfig) -> modeling.AlbertConfig:
  """The model at the depth that was asked for, else as it is.

  Raises:
    ValueError: the model cannot have that depth.
  """
  return config.at_depth(NUM_HIDDEN_LAYERS.value) if given() else config
