"""Compares an exported file with the function that it was made from."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np
import tensorflow as tf

from official_albert import AlbertConfig, serving

# The largest allowed difference of an output, relative to the root mean square
# of the function's output.
TOLERANCES = {"none": 1e-3, "float16": 2e-2, "int8": 0.2}


def concrete_function(
  module: serving.ServedModule, batch: int, length: int
) -> Any:
  """Returns the graph of `plain_outputs` for inputs of a fixed size."""
  sizes = {"B": batch, "S": length, "P": length}
  specs = {
    name: tf.TensorSpec(
      [sizes.get(axis) or int(axis) for axis in axes.split()], tf.int32, name
    )
    for name, axes in module.plain_inputs.items()
  }
  return tf.function(
    lambda **features: dict(module.plain_outputs(features)), autograph=False
  ).get_concrete_function(**specs)


def compare(
  run: Callable[..., Mapping[str, np.ndarray]],
  concrete: Any,
  config: AlbertConfig,
  quantization: str,
) -> None:
  """Raises ValueError if an output differs too much for random ids.

  Outputs of positions are compared at tokens; a file may leave padding out.
  `run` computes the file's outputs for the inputs of `concrete`, <int32>.
  """
  pieces, last_segment = config.vocab_size, config.type_vocab_size - 1
  specs = concrete.structured_input_signature[1]
  rng = np.random.default_rng(0)
  shape = specs["input_ids"].shape
  places = np.arange(shape[-1])
  sums: dict[str, Any] = {}  # Of squares: of errors, and of outputs.
  for _ in range(4):
    ends = rng.integers(2, len(places) + 1, (*shape[:-1], 1))
    mask = places < ends
    features = {
      "input_ids": rng.integers(min(5, pieces - 1), pieces, shape),
      "input_mask": mask,
      "segment_ids": np.minimum((places >= ends // 2) & mask, last_segment),
      "masked_lm_positions": rng.integers(0, ends, shape),
    }
    inputs = {name: features[name].astype(np.int32) for name in specs}
    expected = concrete(**{k: tf.constant(x) for k, x in inputs.items()})
    for name, value in run(**inputs).items():
      if value.dtype.kind == "f":
        exact = expected[name].numpy().astype(np.float64)
        if value.shape[: mask.ndim] == mask.shape:
          value, exact = value[mask], exact[mask]
        squares = np.square(value - exact).sum(), np.square(exact).sum()
        sums[name] = sums.get(name, 0) + np.array(squares)
  for name, (error, size) in sums.items():
    difference = np.sqrt(error / max(size, 1e-24))
    if not difference <= TOLERANCES[quantization]:  # NaN must fail too.
      raise ValueError(
        f"{name} of the file differs by {difference:.3g}, more than "
        f"{TOLERANCES[quantization]:g}: choose another quantization than "
        f"{quantization}."
      )
