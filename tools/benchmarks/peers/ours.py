"""This project as a program that a benchmark measures; see `protocol`.

Takes the update of tools.run_pretraining. With `Workload.model_dir`, serves
that SavedModel instead, with TensorFlow and tensorflow_text alone.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Callable

from tools.benchmarks.peers import protocol

if TYPE_CHECKING:
  import tensorflow as tf

  from official_albert import modeling, training

# Optimizers by variant. The other systems have AdamW only.
VARIANTS = {"": "adamw", "lamb": "lamb"}


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the program that trains or serves."""
  if workload.model_dir:
    return _build_serving(workload)
  return _build_training(workload)


def _build_training(workload: protocol.Workload) -> protocol.Program:
  optimizer = protocol.choose_variant(workload, VARIANTS)
  import tensorflow as tf

  from official_albert import distribution, training
  from tasks import pretraining

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  distribution.start_compiler()
  distribution.set_precision(workload.precision)
  tf.keras.utils.set_random_seed(workload.seed)
  model = pretraining.AlbertForPretraining(config_of(workload))
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    learning_rate=workload.learning_rate,
    train_batch_size=workload.batch_size,
    optimizer=optimizer,
    # As in the other systems' AdamW.
    bias_correction=True,
    weight_decay=workload.weight_decay,
    clip_norm=workload.clip_norm,
  )
  step = make_step(model, config)
  batch = random_batch(
    workload.batch_size,
    workload.max_seq_length,
    workload.predictions,
    workload.vocab_size,
    workload.seed,
  )
  start = time.monotonic()
  step.get_concrete_function(batch)
  trace_seconds = time.monotonic() - start

  def loss() -> float:
    results = step(batch)
    losses = [results["masked_lm_loss"], results["sentence_order_loss"]]
    return sum(float(x.total) / float(x.weight) for x in losses)

  left, right = (
    tf.cast(tf.random.normal(shape), workload.product_dtype)
    for shape in (
      (workload.tokens, workload.hidden_size),
      (workload.hidden_size, workload.intermediate_size),
    )
  )
  return protocol.Program(
    loss,
    {"tensorflow": tf.__version__},
    f"run_pretraining's step, {optimizer}",
    # Eager products are complete when they return.
    lambda: tf.matmul(left, right),
    trace_seconds,
  )


def _build_serving(workload: protocol.Workload) -> protocol.Program:
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (registers its operations)

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(workload.model_dir)
  run = model.signatures["ids"]
  request = protocol.request(workload)
  features = {name: tf.constant(value) for name, value in request.items()}
  return protocol.Program(
    lambda: float(run(**features)["pooled_output"].numpy().mean()),
    {"tensorflow": tf.__version__},
    "SavedModel, signature ids, by tf.saved_model.load",
  )


def config_of(workload: protocol.Workload) -> modeling.AlbertConfig:
  """Returns the configuration of the workload's model."""
  from official_albert import modeling

  names = {field.name for field in dataclasses.fields(modeling.AlbertConfig)}
  sizes = dataclasses.asdict(workload)
  return modeling.AlbertConfig(**{k: v for k, v in sizes.items() if k in names})


class MeasuredTask:
  """The losses of pretraining for `training.make_train_step`, no metrics."""

  def loss_weights(self, batch):
    from tasks import pretraining

    return pretraining.loss_weights(batch)

  def forward(self, model, batch, training, dropout_seed):
    from tasks import pretraining

    outputs = model(
      batch, training=training, dropout_seed=dropout_seed, logits_only=True
    )
    return pretraining.loss_totals(outputs, batch, compiled=training), {}


def make_step(model: tf.keras.Model, config: training.TrainConfig) -> Callable:
  """Returns the update of tools.run_pretraining, not yet traced.

  Returns:
    A tf.function from a batch to the step's results.
  """
  import tensorflow as tf

  from official_albert import training

  optimizer = config.make_optimizer()
  optimizer._create_all_weights(model.trainable_variables)
  step = training.make_train_step(
    MeasuredTask(), model, optimizer, config, training.make_loss_scale(model)
  )
  return tf.function(step)


def random_batch(
  batch_size: int,
  max_seq_length: int,
  predictions: int,
  vocab_size: int,
  seed: int,
) -> dict[str, tf.Tensor]:
  """Makes a batch without padding that uses all predictions.

  Returns:
    The features of `tfrecords.schemas.PRETRAINING`, [B, S] or [B, P].
  """
  import tensorflow as tf

  shape = [batch_size, max_seq_length]

  def ids(shape, low, high):
    return tf.random.uniform(shape, low, high, tf.int32, seed=seed)

  return {
    "input_ids": ids(shape, 5, vocab_size),
    "input_mask": tf.ones(shape, tf.int32),
    "segment_ids": ids(shape, 0, 2),
    "masked_lm_positions": ids([batch_size, predictions], 0, max_seq_length),
    "masked_lm_ids": ids([batch_size, predictions], 5, vocab_size),
    "masked_lm_weights": tf.ones([batch_size, predictions]),
    "next_sentence_labels": ids([batch_size, 1], 0, 2),
  }


if __name__ == "__main__":
  protocol.serve(build)
