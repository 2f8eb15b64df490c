"""Measures the latency of a model at several depths.

    python -m tools.experiments.depth_latency --albert_config_file=F \\
        --depths=1,3,6 --output_file=OUT.json

One sequence passes through the encoder as tools.export_saved_model writes it,
frozen in bfloat16. The weights are random, which does not change the time. The
depths take turns, so a busy machine slows all of them.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Callable, Sequence

from absl import flags

from official_albert import distribution, files, modeling, serving
from official_albert.tools.cli import command_line, path_flags

_CONFIG_FILE = path_flags.define(
  "albert_config_file", None, "The model; all its layers share their weights."
)
_DEPTHS = flags.DEFINE_list("depths", None, "Numbers of layers to apply.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens of the sequence.")
_OUTPUT_FILE = path_flags.define(
  "output_file", None, "JSON file: median milliseconds by depth."
)


def _compiled(config: modeling.AlbertConfig, length: int) -> Callable:
  import tensorflow as tf  # Here, so that --help is quick.

  frozen = serving.FrozenEncoder(modeling.AlbertModel(config), tf.bfloat16)
  ids = tf.random.stateless_uniform(
    [1, length], [1, 2], maxval=config.vocab_size, dtype=tf.int32
  )

  @tf.function(autograph=False)
  def encode():
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    return frozen(features)["pooled_output"]

  encode()
  return lambda: encode().numpy()


def measure(
  config: modeling.AlbertConfig,
  depths: Sequence[int],
  length: int,
  repeats: int = 50,
) -> dict[str, float]:
  """Returns the median milliseconds by depth."""
  functions = {
    depth: _compiled(
      dataclasses.replace(config, num_hidden_layers=depth), length
    )
    for depth in depths
  }
  times: dict[int, list[float]] = {depth: [] for depth in depths}
  for _ in range(repeats):
    for depth, function in functions.items():
      start = time.perf_counter()
      function()
      times[depth].append(1000 * (time.perf_counter() - start))
  return {str(depth): statistics.median(t) for depth, t in times.items()}


def main(argv) -> None:
  del argv
  distribution.start_compiler()
  config = modeling.AlbertConfig.from_json_file(_CONFIG_FILE.value)
  depths = [int(depth) for depth in _DEPTHS.value]
  times = measure(config, depths, _LENGTH.value)
  files.write_json(_OUTPUT_FILE.value, times)


if __name__ == "__main__":
  flags.mark_flags_as_required(["albert_config_file", "depths", "output_file"])
  command_line.run(main)
