"""LiteRT, or TensorFlow's interpreter, with an exported TFLite file.

The variant is the --quantization of the file, and the setting "interpreter" the
package. A file takes one sequence of a fixed length, so a batch is answered row
by row.
"""

from __future__ import annotations

import functools
import importlib

import numpy as np

from official_albert.tools.benchmarks.peers import protocol


def load(workload: protocol.Workload) -> tuple[protocol.Answer, protocol.Facts]:
  """Loads the interpreter; a file is loaded for the first request it takes."""
  package = workload.settings["interpreter"]
  interpreter = importlib.import_module(package)
  prefix = f"{workload.models_dir}/tflite_{workload.variant}"

  @functools.cache
  def runner(length: int):
    model = interpreter.Interpreter(
      f"{prefix}_{length}/model.tflite", num_threads=workload.threads
    )
    return model.get_signature_runner("ids")

  def answer(features: protocol.Features):
    rows, length = features["input_ids"].shape
    outputs = [
      runner(length)(**{name: x[i : i + 1] for name, x in features.items()})
      for i in range(rows)
    ]
    return np.concatenate([output["pooled_output"] for output in outputs])

  about = f"TFLite, {workload.variant}; {package}"
  return answer, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve_model(load)
