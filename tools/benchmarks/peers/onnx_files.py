"""ONNX Runtime with an exported file, as a program that a benchmark measures.

The variant is the --quantization of the file.
"""

from __future__ import annotations

import numpy as np
import onnxruntime

from official_albert.tools.benchmarks.peers import protocol


def build(workload: protocol.Workload) -> tuple[protocol.Step, protocol.Facts]:
  """Builds the program."""
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = workload.threads
  path = f"{workload.models_dir}/onnx_{workload.variant}/model.onnx"
  session = onnxruntime.InferenceSession(path, options)
  request = protocol.request(workload)
  inputs = {name: value.astype(np.int64) for name, value in request.items()}

  def step() -> float:
    return session.run(["pooled_output"], inputs)[0].mean()

  about = f"ONNX, {workload.variant}; onnxruntime {onnxruntime.__version__}"
  return step, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve(build)
