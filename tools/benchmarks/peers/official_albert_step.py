"""This project's pretraining step as a program that a benchmark times.

The update is the one of `tools.run_pretraining`; see `peer_protocol`.
"""

from __future__ import annotations

import time

from official_albert import distribution, modeling, training
from tasks import pretraining
from tools.benchmarks.peers import protocol as peer_protocol

# Variants, and the optimizer of each. Peers have AdamW only.
VARIANTS = {"": "adamw", "lamb": "lamb"}


def build(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The model, its optimizer, and the traced step.

  Raises:
    ValueError: no such variant.
  """
  if workload.variant not in VARIANTS:
    raise ValueError(f"unknown variant {workload.variant!r}; there is lamb.")
  optimizer_name = VARIANTS[workload.variant]
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  from tools.benchmarks import measured_task

  distribution.start_compiler()
  distribution.set_precision(workload.precision)
  tf.keras.utils.set_random_seed(workload.seed)
  model = pretraining.AlbertForPretraining(
    modeling.AlbertConfig(
      vocab_size=workload.vocab_size,
      embedding_size=workload.embedding_size,
      hidden_size=workload.hidden_size,
      num_hidden_layers=workload.num_hidden_layers,
      num_attention_heads=workload.num_attention_heads,
      intermediate_size=workload.intermediate_size,
      max_position_embeddings=workload.max_position_embeddings,
      sharing=workload.sharing,
      hidden_dropout_prob=workload.hidden_dropout_prob,
      attention_probs_dropout_prob=workload.attention_probs_dropout_prob,
    )
  )
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    learning_rate=workload.learning_rate,
    train_batch_size=workload.batch_size,
    optimizer=optimizer_name,
    # As the peers' AdamW has it.
    bias_correction=True,
    weight_decay=workload.weight_decay,
    clip_norm=workload.clip_norm,
  )
  step = measured_task.make_step(model, config)
  batch = measured_task.random_batch(
    workload.batch_size,
    workload.max_seq_length,
    workload.predictions,
    workload.vocab_size,
    workload.seed,
  )
  begun = time.monotonic()
  step.get_concrete_function(batch)
  trace_seconds = time.monotonic() - begun

  def loss() -> float:
    results = step(batch)
    losses = [results["masked_lm_loss"], results["sentence_order_loss"]]
    return sum(float(x.total) / float(x.weight) for x in losses)

  dtype = workload.product_dtype
  left = tf.cast(
    tf.random.normal([workload.tokens, workload.hidden_size]), dtype
  )
  right = tf.cast(
    tf.random.normal([workload.hidden_size, workload.intermediate_size]), dtype
  )
  return peer_protocol.Program(
    loss,
    {"tensorflow": tf.__version__},
    f"run_pretraining's step, {optimizer_name}",
    # Eager products are finished when they return.
    lambda: tf.matmul(left, right),
    trace_seconds,
  )


if __name__ == "__main__":
  peer_protocol.serve(build)
