r"""Size, speed and error of TFLite files of a random model.

    python -m tools.benchmarks.tflite_measure --preset=albert_base_v2 \
        --sequence_length=128

Converts an encoder with random weights and a head of three classes with each
quantization, and prints a table: megabytes, milliseconds for one sequence (the
median of 20 after 3) with one thread and with two, and the difference from the
Keras model, see tools/conversion/tflite_export.py.
--keep_dir keeps the files.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Mapping, Sequence

import numpy as np
from absl import flags

from official_albert import files, modeling
from tools import conversion
from tools.cli import command_line, markdown, path_flags

_PRESET = flags.DEFINE_string(
  "preset",
  "albert_base_v2",
  "The model's size, see official_albert/modeling/config.py.",
)
_SEQUENCE_LENGTH = flags.DEFINE_integer(
  "sequence_length", 128, "Tokens; 0 makes files that can be resized."
)
_QUANTIZATIONS = flags.DEFINE_list(
  "quantizations",
  list(conversion.tflite_export.QUANTIZATIONS),
  "Which are made.",
)
_THREADS = flags.DEFINE_list("threads", ["1", "2"], "Of the interpreter.")
_KEEP_DIR = path_flags.define("keep_dir", "", "Keeps the files there.")
_LOGITS_ONLY = flags.DEFINE_bool(
  "logits_only",
  False,
  "The last layer computes the first position only: faster, and larger.",
)

_WARM_UP, _RUNS = 3, 20
_FLEXIBLE_LENGTH = 128


INPUTS = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), "B S")


def make_function(config: modeling.AlbertConfig, logits_only: bool = False):
  """A random classifier of three classes, as a function of features.

  Args:
    config: the encoder's.
    logits_only: see `AlbertForSequenceClassification`.
  """
  import tensorflow as tf  # Here and below, so that --help is quick.

  tf.keras.utils.set_random_seed(0)
  model = modeling.AlbertForSequenceClassification(config, 3)

  def function(features):
    outputs = model(features, training=False, logits_only=logits_only)
    return {
      "logits": outputs["logits"],
      "probabilities": tf.nn.softmax(outputs["logits"]),
    }

  return function


def milliseconds(path: str, threads: int, length: int) -> float:
  """The median time of one sequence.

  Args:
    path: of a TFLite file with the signature `ids`.
    threads: of the interpreter.
    length: tokens.
  """
  import tensorflow as tf

  interpreter = tf.lite.Interpreter(model_path=path, num_threads=threads)
  run = interpreter.get_signature_runner("ids")
  rng = np.random.default_rng(0)
  ids = rng.integers(5, 40, (1, length)).astype(np.int32)
  inputs: Mapping[str, np.ndarray] = {
    "input_ids": ids,
    "input_mask": np.ones_like(ids),
    "segment_ids": np.zeros_like(ids),
  }
  times = []
  for _ in range(_WARM_UP + _RUNS):
    start = time.perf_counter()
    run(**inputs)
    times.append(time.perf_counter() - start)
  return 1000 * statistics.median(times[_WARM_UP:])


def threads_of(texts: Sequence[str]) -> list[int]:
  """The numbers of --threads.

  Raises:
    ValueError: one of them is none, or below 1.
  """
  for text in texts:
    if not (text.isascii() and text.isdigit() and int(text)):
      raise ValueError(
        f"--threads has {text!r}: name numbers of at least 1, such as 1,2."
      )
  return [int(text) for text in texts]


def check_flags(config: modeling.AlbertConfig) -> None:
  """Refuses what would fail once a model has been converted.

  Raises:
    ValueError: a length or a quantization is of no use.
    NotADirectoryError: --keep_dir is a file.
  """
  # One token is too short to be compared in rows of different lengths.
  length, most = _SEQUENCE_LENGTH.value, config.max_position_embeddings
  if length and not 2 <= length <= most:
    raise ValueError(
      f"--sequence_length is {length}; must be 0, or from 2 to the {most} "
      f"tokens that {_PRESET.value} takes."
    )
  for quantization in _QUANTIZATIONS.value:
    conversion.tflite_export.check_quantization(quantization)
  files.check_folder(_KEEP_DIR.value)


def measure(
  config: modeling.AlbertConfig,
  path: str,
  length: int,
  quantization: str,
  threads: Sequence[int],
) -> tuple[str, ...]:
  """Converts, and returns the cells of a row."""
  made = conversion.tflite_export.export_tflite(
    make_function(config, _LOGITS_ONLY.value),
    INPUTS,
    path,
    config.vocab_size,
    quantization,
    length,
  )
  numbers = [
    milliseconds(path, count, length or _FLEXIBLE_LENGTH) for count in threads
  ]
  return (
    quantization,
    f"{made.bytes / 1e6:.1f}",
    *(f"{number:.1f}" for number in numbers),
    f"{made.differences['logits']:.2g}",
    f"{made.agreement:.2f}",
  )


def main(argv) -> None:
  del argv
  config = modeling.AlbertConfig.from_preset(_PRESET.value)
  check_flags(config)
  threads = threads_of(_THREADS.value)
  times = [f"ms, {count} threads" for count in threads]
  head = ("weights", "MB", *times, "difference", "agreement")
  print(markdown.head(head))
  with tempfile.TemporaryDirectory() as folder:
    for quantization in _QUANTIZATIONS.value:
      name = f"{quantization}.tflite"
      path = os.path.join(_KEEP_DIR.value or folder, name)
      cells = measure(
        config, path, _SEQUENCE_LENGTH.value, quantization, threads
      )
      print(markdown.row(cells), flush=True)


if __name__ == "__main__":
  command_line.run(main)
