"""An exported SavedModel as a program that a benchmark measures.

It answers with what a server has, TensorFlow, and without this package.
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers its operations)

from official_albert.tools.benchmarks.peers import protocol


def build(workload: protocol.Workload) -> tuple[protocol.Step, protocol.Facts]:
  """Builds the program."""
  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(f"{workload.models_dir}/exports")
  inputs = {
    name: tf.constant(value)
    for name, value in protocol.request(workload).items()
  }

  def step() -> float:
    answer = model.signatures["ids"](**inputs)
    return answer["pooled_output"].numpy().mean()

  about = f"SavedModel, signature ids; tensorflow {tf.__version__}"
  return step, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve(build)
