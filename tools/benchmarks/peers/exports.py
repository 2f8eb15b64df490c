"""Exports as programs that a benchmark measures; see `protocol`.

They answer with what a server has, TensorFlow or LiteRT. So each of them is
imported where it is used.
"""

from __future__ import annotations

from official_albert.tools.benchmarks.peers import protocol


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the program, of the variant "saved_model" or "tflite"."""
  folder, features = workload.model_dir, protocol.request(workload)
  if workload.variant == "tflite":
    from ai_edge_litert import interpreter

    run = interpreter.Interpreter(
      f"{folder}/model.tflite", num_threads=workload.threads
    ).get_signature_runner("ids")
    return protocol.Program(
      lambda: run(**features)["pooled_output"].mean(), "LiteRT"
    )
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (registers its operations)

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(folder)
  inputs = {name: tf.constant(value) for name, value in features.items()}

  def step() -> float:
    answer = model.signatures["ids"](**inputs)
    return answer["pooled_output"].numpy().mean()

  about = f"SavedModel, signature ids; tensorflow {tf.__version__}"
  return protocol.Program(step, about, **protocol.tensorflow_gpu())


if __name__ == "__main__":
  protocol.serve(build)
