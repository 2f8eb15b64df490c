"""Exports as programs that a benchmark measures; see `protocol`.

They answer with what a server has: TensorFlow, its C library or LiteRT. So each
of them is imported where it is used.
"""

from __future__ import annotations

from official_albert.tools.benchmarks import c_api_loader
from official_albert.tools.benchmarks.peers import protocol

VARIANTS = {
  "saved_model": "SavedModel, signature ids, by tf.saved_model.load",
  "c_api": "the same by TensorFlow's C API, as in TF Serving",
  "tflite": "LiteRT",
}


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the program."""
  about, folder = VARIANTS[workload.variant], workload.model_dir
  features = protocol.request(workload)
  if workload.variant == "c_api":
    loaded = c_api_loader.CApiModel(folder)
    return protocol.Program(
      lambda: loaded.run("ids", features)["pooled_output"].mean(), about
    )
  if workload.variant == "tflite":
    from ai_edge_litert import interpreter

    run = interpreter.Interpreter(
      f"{folder}/model.tflite", num_threads=workload.threads
    ).get_signature_runner("ids")
    return protocol.Program(
      lambda: run(**features)["pooled_output"].mean(), about
    )
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (registers its operations)

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(folder)
  inputs = {name: tf.constant(value) for name, value in features.items()}

  def step() -> float:
    answer = model.signatures["ids"](**inputs)
    return answer["pooled_output"].numpy().mean()

  return protocol.Program(
    step, f"{about}; tensorflow {tf.__version__}", **protocol.tensorflow_gpu()
  )


if __name__ == "__main__":
  protocol.serve(build)
