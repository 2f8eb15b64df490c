"""Exports of this package as a program that a benchmark measures.

It answers with what a server has, and without this package: TensorFlow, ONNX
Runtime, LiteRT or TensorFlow's interpreter (the setting "interpreter"). The
variant is the name of the export's folder: its format, and its precision or
quantization. SavedModels answer the setting "output".
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any, Mapping

import numpy as np

from official_albert.tools.benchmarks.peers import protocol


def load(workload: protocol.Workload) -> tuple[protocol.Answer, protocol.Facts]:
  """Loads the export."""
  makers = {"exports": _saved_model, "onnx": _onnx, "tflite": _tflite}
  make = makers[workload.variant.partition("_")[0]]
  path = f"{workload.models_dir}/{workload.variant}"
  answer, library = make(path, workload)
  return answer, lambda: with_gpu({"about": f"{workload.variant}; {library}"})


def with_gpu(facts: Mapping[str, Any]) -> dict[str, Any]:
  """Returns facts, with the peak memory of TensorFlow's GPU if it has one."""
  tf = sys.modules.get("tensorflow")
  if not (tf and tf.config.list_physical_devices("GPU")):
    return dict(facts)
  memory = tf.config.experimental.get_memory_info("GPU:0")
  about = f"{facts['about']}, GPU"
  return {**facts, "about": about, "peak_bytes": memory["peak"]}


def _saved_model(
  path: str, workload: protocol.Workload
) -> tuple[protocol.Answer, str]:
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(path)
  output = workload.settings.get("output", "pooled_output")

  def answer(features: protocol.Features):
    inputs = {name: tf.constant(value) for name, value in features.items()}
    return model.signatures["ids"](**inputs)[output].numpy()

  return answer, f"tensorflow {tf.__version__}"


def _onnx(
  path: str, workload: protocol.Workload
) -> tuple[protocol.Answer, str]:
  import onnxruntime

  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = workload.threads
  session = onnxruntime.InferenceSession(f"{path}/model.onnx", options)

  def answer(features: protocol.Features):
    inputs = {name: value.astype(np.int64) for name, value in features.items()}
    return session.run(["pooled_output"], inputs)[0]

  return answer, f"onnxruntime {onnxruntime.__version__}"


def _tflite(
  path: str, workload: protocol.Workload
) -> tuple[protocol.Answer, str]:
  """Loads a file for the first request of its length, and answers by rows.

  A file takes one sequence of a fixed length.
  """
  package = workload.settings["interpreter"]
  interpreter = importlib.import_module(package)

  @functools.cache
  def runner(length: int):
    model = interpreter.Interpreter(
      f"{path}_{length}/model.tflite", num_threads=workload.threads
    )
    return model.get_signature_runner("ids")

  def answer(features: protocol.Features):
    rows, length = features["input_ids"].shape
    outputs = [
      runner(length)(**{name: x[i : i + 1] for name, x in features.items()})
      for i in range(rows)
    ]
    return np.concatenate([output["pooled_output"] for output in outputs])

  return answer, package


if __name__ == "__main__":
  protocol.serve_model(load)
