"""An exported SavedModel as a program that a benchmark times.

Loaded as any user of it would: TensorFlow and tensorflow_text alone, see
`peer_protocol`.
"""

from __future__ import annotations

from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import request as peer_request


def build(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The signature `ids` of the SavedModel in `workload.model_dir`."""
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (its operations)

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(workload.model_dir)
  run = model.signatures["ids"]
  features = {
    name: tf.constant(value)
    for name, value in peer_request.features(workload).items()
  }

  def step() -> float:
    return float(run(**features)["pooled_output"].numpy().mean())

  return peer_protocol.Program(
    step,
    {"tensorflow": tf.__version__},
    "SavedModel, signature ids, by tf.saved_model.load",
  )


if __name__ == "__main__":
  peer_protocol.serve(build)
