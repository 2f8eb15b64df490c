"""--num_hidden_layers: how often the shared layers of a trained model apply."""

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
  """Returns whether a depth is given."""
  return NUM_HIDDEN_LAYERS.value != 0


def at_depth(config: modeling.AlbertConfig) -> modeling.AlbertConfig:
  """Returns the model at the given depth, if any.

  Raises:
    ValueError: the model cannot have that depth.
  """
  return config.at_depth(NUM_HIDDEN_LAYERS.value) if given() else config
