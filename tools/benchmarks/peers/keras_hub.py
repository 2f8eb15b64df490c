"""KerasHub's ALBERT as a program that a benchmark measures: masked LM only.

The library has no sentence-order head, so it has slightly less to compute. Runs
in a virtual environment of its own; see `protocol`.
"""

from __future__ import annotations

import os

from tools.benchmarks.peers import protocol

# Whether XLA compiles the whole step.
VARIANTS = {"": False, "jit": True}


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds `AlbertMaskedLM`, `train_on_batch` and Keras' AdamW."""
  jit = protocol.choose_variant(workload, VARIANTS)
  os.environ["KERAS_BACKEND"] = "tensorflow"
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  import keras
  import keras_hub
  import numpy as np

  keras.utils.set_random_seed(workload.seed)
  keras.mixed_precision.set_global_policy(workload.precision)
  backbone = keras_hub.models.AlbertBackbone(
    vocabulary_size=workload.vocab_size,
    num_layers=workload.num_hidden_layers,
    num_heads=workload.num_attention_heads,
    embedding_dim=workload.embedding_size,
    hidden_dim=workload.hidden_size,
    intermediate_dim=workload.intermediate_size,
    max_sequence_length=workload.max_position_embeddings,
  )
  model = keras_hub.models.AlbertMaskedLM(backbone)
  model.compile(
    optimizer=keras.optimizers.AdamW(
      workload.learning_rate,
      weight_decay=workload.weight_decay,
      global_clipnorm=workload.clip_norm,
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    jit_compile=jit,
  )
  generator = np.random.default_rng(workload.seed)
  shape = workload.batch_size, workload.max_seq_length
  ids = generator.integers(5, workload.vocab_size, shape)
  positions = np.argsort(generator.random(shape))[:, : workload.predictions]
  labels = np.take_along_axis(ids, positions, 1)
  np.put_along_axis(ids, positions, 4, 1)
  inputs = {
    "token_ids": ids,
    "segment_ids": generator.integers(0, 2, shape),
    "padding_mask": np.ones(shape, np.int32),
    "mask_positions": positions,
  }
  inputs = {
    name: tf.constant(x, tf.int32) for name, x in sorted(inputs.items())
  }
  labels = tf.constant(labels, tf.int32)

  def step() -> float:
    # Else Keras returns the mean over all batches so far.
    model.reset_metrics()
    return model.train_on_batch(inputs, labels, return_dict=True)["loss"]

  return protocol.Program(
    step,
    {
      "tensorflow": tf.__version__,
      "keras": keras.__version__,
      "keras-hub": keras_hub.__version__,
    },
    f"masked LM only, train_on_batch, jit_compile={jit}, Keras AdamW",
  )


if __name__ == "__main__":
  protocol.serve(build)
