"""This project as a program that a benchmark measures; see `protocol`.

Takes the update of tools.run_pretraining. With `Workload.model_dir`, serves
that SavedModel instead, with TensorFlow and tensorflow_text alone.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from official_albert.tools.benchmarks.peers import protocol

if TYPE_CHECKING:
  from official_albert import modeling


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the program that trains or serves."""
  if workload.model_dir:
    return _build_serving(workload)
  return _build_training(workload)


def _build_training(workload: protocol.Workload) -> protocol.Program:
  import tensorflow as tf

  from official_albert import distribution
  from official_albert.tasks import pretraining

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  distribution.start_compiler()
  precision = distribution.set_precision(workload.precision)
  tf.keras.utils.set_random_seed(workload.seed)
  model = pretraining.AlbertForPretraining(
    config_of(workload), workload.recompute_activations
  )
  update = make_update(
    *(MeasuredTask(), model, workload.batch_size),
    learning_rate=workload.learning_rate,
    optimizer=workload.optimizer,
    # As in the other systems' AdamW.
    bias_correction=True,
    weight_decay=workload.weight_decay,
    clip_norm=workload.clip_norm,
    xla=workload.xla or workload.variant == "xla",
  )
  step = tf.function(update)
  batch = {
    name: tf.constant(value)
    for name, value in protocol.training_batch(workload).items()
  }
  start = time.monotonic()
  step.get_concrete_function(batch)
  trace_seconds = time.monotonic() - start

  def loss() -> float:
    results = step(batch)
    losses = [results["masked_lm_loss"], results["sentence_order_loss"]]
    return sum(float(x.total) / float(x.weight) for x in losses)

  @functools.cache  # Not made before memory is measured.
  def factors() -> list[tf.Tensor]:
    dtype = precision.split("_")[-1]
    b, h, i = workload.tokens, workload.hidden_size, workload.intermediate_size
    return [tf.cast(tf.random.normal(x), dtype) for x in ([b, h], [h, i])]

  return protocol.Program(
    loss,
    {"tensorflow": tf.__version__},
    f"run_pretraining's step, {workload.optimizer}",
    # On CPUs, eager products are complete when they return.
    lambda: tf.matmul(*factors()),
    trace_seconds,
    _gpu(),
  )


def _gpu() -> Optional[protocol.Gpu]:
  import tensorflow as tf

  if not tf.config.list_physical_devices("GPU"):
    return None
  return protocol.Gpu(
    tf.test.experimental.sync_devices,
    lambda: tf.config.experimental.get_memory_info("GPU:0")["peak"],
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
    gpu=_gpu(),
  )


def config_of(workload: protocol.Workload) -> modeling.AlbertConfig:
  """Returns the configuration of the workload's model."""
  from official_albert import modeling

  names = {field.name for field in dataclasses.fields(modeling.AlbertConfig)}
  sizes = dataclasses.asdict(workload)
  return modeling.AlbertConfig(**{k: v for k, v in sizes.items() if k in names})


def make_update(task, model, batch_size: int, **settings: Any) -> Callable:
  """Returns the update of the training loop.

  `settings` are further fields of `training.TrainConfig`.
  """
  from official_albert import training

  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    train_batch_size=batch_size,
    **settings,
  )
  optimizer = config.make_optimizer()
  optimizer.set_model(model)
  optimizer._create_all_weights(model.trainable_variables)
  loss_scale = training.make_loss_scale(model)
  return training.make_train_step(task, model, optimizer, config, loss_scale)


class MeasuredTask:
  """The losses of pretraining for `training.make_train_step`, no metrics."""

  def loss_weights(self, batch):
    from official_albert.tasks import pretraining

    return pretraining.loss_weights(batch)

  def forward(self, model, batch, training, dropout_seed):
    from official_albert.tasks import pretraining

    outputs = model(
      batch, training=training, dropout_seed=dropout_seed, logits_only=True
    )
    return pretraining.loss_totals(outputs, batch, compiled=training), {}


if __name__ == "__main__":
  protocol.serve(build)
