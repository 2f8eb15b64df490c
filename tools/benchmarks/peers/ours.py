"""The update of tools.run_pretraining as a program that a benchmark measures.

See `protocol`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from official_albert import distribution, modeling, training
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.benchmarks.peers import exports, protocol


def build(workload: protocol.Workload) -> tuple[protocol.Step, protocol.Facts]:
  """Builds the program."""
  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  distribution.set_precision(workload.precision)
  tf.keras.utils.set_random_seed(1)
  settings = dict(workload.settings)
  model = model_lib.AlbertForPretraining(
    modeling.AlbertConfig.from_dict(workload.config),
    settings.pop("recompute_activations", False),
  )
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    train_batch_size=workload.batch_size,
    learning_rate=workload.learning_rate,
    # As in the AdamW of others.
    bias_correction=True,
    **settings,
  )
  optimizer = training.optimizer_of(config)
  optimizer.prepare(model)
  task: Any = _MeasuredTask()
  update = tf.function(
    training.make_train_step(task, model, optimizer, config, None),
    autograph=False,
  )
  batch = {
    name: tf.constant(value) for name, value in protocol.batch(workload).items()
  }
  batch["example_weight"] = tf.ones([workload.batch_size])

  def step() -> float:
    results = update(batch)
    tf.test.experimental.sync_devices()
    losses = [results["masked_lm_loss"], results["sentence_order_loss"]]
    return sum(float(x.total) / float(x.weight) for x in losses)

  def facts() -> dict[str, Any]:
    about = f"run_pretraining's step, {config.optimizer}"
    return exports.with_gpu({"about": f"{about}; tensorflow {tf.__version__}"})

  return step, facts


class _MeasuredTask:
  """The losses of pretraining for `training.make_train_step`, no metrics."""

  def loss_weights(self, batch):
    return task_lib.loss_weights(batch)

  def forward(self, model, batch, training, dropout_seed):
    outputs = model(
      batch, training=training, dropout_seed=dropout_seed, logits_only=True
    )
    return task_lib.losses(outputs, batch, compiled=training)[0], {}


if __name__ == "__main__":
  protocol.serve(build)
