"""ONNX Runtime with an exported file, as a program that a benchmark measures.

The variant is the --quantization of the file.
"""

from __future__ import annotations

import numpy as np

from official_albert.tools.benchmarks.peers import protocol


def load(workload: protocol.Workload) -> tuple[protocol.Answer, protocol.Facts]:
  """Loads the file."""
  import onnxruntime

  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = workload.threads
  path = f"{workload.models_dir}/onnx_{workload.variant}/model.onnx"
  session = onnxruntime.InferenceSession(path, options)

  def answer(features: protocol.Features):
    inputs = {name: value.astype(np.int64) for name, value in features.items()}
    return session.run(["pooled_output"], inputs)[0]

  about = f"ONNX, {workload.variant}; onnxruntime {onnxruntime.__version__}"
  return answer, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve_model(load)
