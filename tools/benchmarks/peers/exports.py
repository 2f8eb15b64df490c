"""An exported SavedModel as a program that a benchmark measures.

It answers with what a server has, TensorFlow, and without this package. The
variant is the precision of the export.
"""

from __future__ import annotations

import tensorflow as tf

from official_albert.tools.benchmarks.peers import protocol


def load(workload: protocol.Workload) -> tuple[protocol.Answer, protocol.Facts]:
  """Loads the export."""
  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  path = f"{workload.models_dir}/exports_{workload.variant}"
  model = tf.saved_model.load(path)

  def answer(features: protocol.Features):
    inputs = {name: tf.constant(value) for name, value in features.items()}
    return model.signatures["ids"](**inputs)["pooled_output"].numpy()

  about = f"SavedModel, {workload.variant}; tensorflow {tf.__version__}"
  return answer, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve_model(load)
