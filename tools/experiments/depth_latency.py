"""How long one answer takes at each of some depths of a model.

    python -m tools.experiments.depth_latency --albert_config_file=F \\
        --depths=1,3,6 --output_file=OUT.json

One sequence through the encoder as tools.export_saved_model writes it, frozen
in bfloat16, with random weights, which take the same time as trained ones. The
depths take turns, so that a busy machine slows them all.
"""

from __future__ import annotations

import dataclasses
import statistics
import time

from absl import flags

from official_albert import distribution, files, modeling, serving
from tools.cli import command_line, path_flags

_CONFIG_FILE = path_flags.define(
  "albert_config_file", None, "The model, whose layers share everything."
)
_DEPTHS = flags.DEFINE_list("depths", None, "How many layers are applied.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens of the sequence.")
_REPEATS = flags.DEFINE_integer("repeats", 50, "Answers at each depth.")
_OUTPUT_FILE = path_flags.define(
  "output_file", None, "JSON: the median milliseconds by depth."
)


def make_function(config: modeling.AlbertConfig, length: int):
  """The frozen encoder as a function without arguments, already run once."""
  import tensorflow as tf  # Here, so that --help is quick.

  albert = modeling.AlbertModel(config)
  frozen = serving.FrozenEncoder(albert, tf.bfloat16)
  ids = tf.random.stateless_uniform(
    [1, length], [1, 2], maxval=config.vocab_size, dtype=tf.int32
  )

  @tf.function(autograph=False)
  def run(ids):
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    return frozen(features)["pooled_output"]

  def once() -> None:
    run(ids).numpy()

  once()
  return once


def measure(
  config: modeling.AlbertConfig,
  depths: list[int],
  length: int,
  repeats: int,
) -> dict[str, float]:
  """The median milliseconds at each depth, by the depth's name."""
  functions = {
    depth: make_function(
      dataclasses.replace(config, num_hidden_layers=depth), length
    )
    for depth in depths
  }
  times: dict[int, list[float]] = {depth: [] for depth in depths}
  for _ in range(repeats):
    for depth, function in functions.items():
      begun = time.perf_counter()
      function()
      times[depth].append(1000 * (time.perf_counter() - begun))
  return {str(depth): statistics.median(t) for depth, t in times.items()}


def main(argv) -> None:
  del argv
  distribution.start_compiler()
  files.write_json(
    _OUTPUT_FILE.value,
    measure(
      modeling.AlbertConfig.from_json_file(_CONFIG_FILE.value),
      [int(depth) for depth in _DEPTHS.value],
      _LENGTH.value,
      _REPEATS.value,
    ),
  )


if __name__ == "__main__":
  flags.mark_flags_as_required(["albert_config_file", "depths", "output_file"])
  command_line.run(main)
