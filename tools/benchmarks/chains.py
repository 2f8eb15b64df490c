"""Times the chains that XLA compiles in training beside plain operations."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from typing import Any, Callable, Sequence

import tensorflow as tf

from official_albert import modeling
from official_albert.tools.benchmarks import turns
from official_albert.tools.benchmarks.peers.protocol import Workload


def run(benchmark: str, options: turns.Options) -> None:
  """Measures, prints a table, and saves it if there is a folder."""
  workload = options.workload()
  rows, results = [], {}
  for name, chain, shapes, *only in _chains(workload):
    row = {"ms compiled, plain": name}
    for dtype, part in itertools.product(
      ("float32", "bfloat16"), ("forward", "with gradient")
    ):
      row[column := f"{dtype}, {part}"] = ""
      if column.startswith(*(only or [""])):
        times = _alternate(chain, shapes, dtype, part, options.repeats)
        medians = (f"{1e3 * statistics.median(x):.1f}" for x in times)
        row[column] = ", ".join(medians)
        results[f"{name}, {column}"] = times
    rows.append(row)
  turns.report(options, benchmark, workload, results, rows)


def _chains(x: Workload) -> list[tuple]:
  """Returns the name of each chain, its function and the shapes of inputs.

  One that training does not have in all columns has the begin of theirs.
  """
  ops: Any = modeling.fused_ops
  config, b, s = x.config, x.batch_size, x.max_seq_length
  h, i, v = (
    config[f"{name}_size"] for name in ("hidden", "intermediate", "vocab")
  )
  heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
  mask, labels = tf.ones([b, s], tf.int32), tf.range(b * x.predictions)
  return [
    ("GELU with bias", lambda *x: ops.gelu(*x, True), [[b, s, i], [i]]),
    (
      "bias, residual and LayerNorm",
      lambda *x: ops.add_layer_norm(*x, 1e-12, True),
      [[b, s, h], [h], [b, s, h], [h], [h]],
    ),
    (
      "bias and split into heads",
      lambda *x: ops.split_heads(*x, 3, heads, True),
      [[b, s, 3 * h], [3 * h]],
    ),
    (
      "attention probabilities",
      lambda *x: ops.attention_probs(*x, mask, True),
      [[b, heads, s, h // heads]] * 2,
    ),
    (
      "cross entropy of the vocabulary",
      lambda x: ops.cross_entropy(x, labels, True),
      [[b * x.predictions, v]],
    ),
    (
      "sum of the gradients of a shared kernel",
      lambda x: ops.shared_kernel(tf.cast(x, "float32"), layers, x.dtype, True),
      *([[h, i]], "bfloat16"),
    ),
  ]


def _alternate(
  chain: Callable, shapes: Sequence, dtype: str, part: str, repeats: int
) -> tuple[list[float], list[float]]:
  """Returns the seconds of each turn, compiled and plain."""

  def draw(shape: Sequence[int]) -> tf.Tensor:
    return tf.cast(tf.random.uniform(shape), dtype)

  inputs = [draw(shape) for shape in shapes]
  outputs = tf.nest.flatten(chain(*inputs))
  upstream = [tf.cast(draw(x.shape), x.dtype) for x in outputs]

  def function(switch: contextlib.AbstractContextManager) -> Callable:
    def call():
      with switch, tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(chain(*inputs))
        if part == "forward":
          return outputs
        return outputs, tape.gradient(outputs, inputs, upstream)

    return tf.function(call, autograph=False)

  compiled = function(contextlib.nullcontext())
  plain = function(modeling.without_compilation())
  times: tuple[list[float], list[float]] = ([], [])
  compiled(), plain()  # The first calls compile.
  for _ in range(repeats):
    for called, seconds in zip((compiled, plain), times):
      start = time.perf_counter()
      called(), tf.test.experimental.sync_devices()
      seconds.append(time.perf_counter() - start)
  return times
