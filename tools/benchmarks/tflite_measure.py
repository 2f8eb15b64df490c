r"""Measures the size, speed and error of TFLite files of a random model.

    python -m tools.benchmarks.tflite_measure --preset=albert_base_v2 \
        --sequence_length=128

Converts a classifier with three classes by each quantization and prints a
table: megabytes, the median milliseconds of one sequence for each number of
threads, and the difference from the Keras model (see
tools/conversion/tflite_export.py). --keep_dir keeps the files. The interpreter
is that of LiteRT, as on phones, which `pip install ai-edge-litert` installs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import tempfile
import time

import numpy as np
from absl import flags

from official_albert import files, modeling
from official_albert.tools import conversion
from official_albert.tools.cli import command_line, path_flags, printing

_PRESET = flags.DEFINE_string("preset", "albert_base_v2", "Name of the model.")
_SEQUENCE_LENGTH = flags.DEFINE_integer(
  "sequence_length", 128, "Tokens; 0: files with a flexible length."
)
_QUANTIZATIONS = flags.DEFINE_list(
  "quantizations", list(conversion.QUANTIZATIONS), "Quantizations to measure."
)
_THREADS = flags.DEFINE_list(
  "threads", ["1", "2"], "Threads of the interpreter, such as 1,2."
)
flags.register_validator(
  _THREADS,
  lambda texts: all(re.fullmatch("[1-9][0-9]*", text) for text in texts),
  "must be numbers of at least 1, such as 1,2",
)
_KEEP_DIR = path_flags.define(
  "keep_dir", "", "Folder for the files.", local=True
)
_WARM_UP, _RUNS = 3, 20
_FLEXIBLE_LENGTH = 128
INPUTS = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), "B S")


def make_function(config: modeling.AlbertConfig):
  """Returns a random classifier of three classes, a function of features."""
  import tensorflow as tf  # Here and below, so that --help is quick.

  tf.keras.utils.set_random_seed(0)
  model = modeling.AlbertForSequenceClassification(config, 3)

  def function(features):
    logits = model(features, training=False)["logits"]
    return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

  return function


def milliseconds(path: str, threads: int, length: int) -> float:
  """Returns the median time of a sequence of `length` tokens."""
  from ai_edge_litert.interpreter import Interpreter

  interpreter = Interpreter(model_path=path, num_threads=threads)
  run = interpreter.get_signature_runner("ids")
  ids = np.random.default_rng(0).integers(5, 40, (1, length)).astype(np.int32)
  mask, segment_ids = np.ones_like(ids), np.zeros_like(ids)
  times = []
  for _ in range(_WARM_UP + _RUNS):
    start = time.perf_counter()
    run(input_ids=ids, input_mask=mask, segment_ids=segment_ids)
    times.append(time.perf_counter() - start)
  return 1000 * statistics.median(times[_WARM_UP:])


def check_flags(config: modeling.AlbertConfig) -> None:
  """Checks the flags before the first conversion."""
  # With one token there are no rows of different lengths to compare.
  length, most = _SEQUENCE_LENGTH.value, config.max_position_embeddings
  if length and not 2 <= length <= most:
    raise ValueError(
      f"--sequence_length is {length}; must be 0, or from 2 to the {most} "
      f"tokens that {_PRESET.value} takes."
    )
  for quantization in _QUANTIZATIONS.value:
    conversion.tflite_export.check_quantization(quantization)
  files.check_folder(_KEEP_DIR.value)


def main(argv) -> None:
  del argv
  config = modeling.AlbertConfig.from_preset(_PRESET.value)
  check_flags(config)
  if not importlib.util.find_spec("ai_edge_litert"):
    raise ValueError("LiteRT is not installed: pip install ai-edge-litert.")
  from ai_edge_litert import interpreter

  threads = [int(text) for text in _THREADS.value]
  length = _SEQUENCE_LENGTH.value
  times = [f"ms, {count} threads" for count in threads]
  print(
    printing.table_head(("weights", "MB", *times, "difference", "agreement"))
  )
  with tempfile.TemporaryDirectory() as folder:
    for quantization in _QUANTIZATIONS.value:
      path = os.path.join(_KEEP_DIR.value or folder, f"{quantization}.tflite")
      made = conversion.tflite_export.export_tflite(
        make_function(config),
        INPUTS,
        path,
        config.vocab_size,
        quantization,
        length,
        interpreter.Interpreter,
      )
      cells = [quantization, f"{made.bytes / 1e6:.1f}"]
      for count in threads:
        time_of_one = milliseconds(path, count, length or _FLEXIBLE_LENGTH)
        cells.append(f"{time_of_one:.1f}")
      cells.append(f"{made.differences['logits']:.2g}")
      cells.append(f"{made.agreement:.2f}")
      print(printing.table_row(cells), flush=True)


if __name__ == "__main__":
  command_line.run(main)
