"""Losses and metrics on held-out data."""

from __future__ import annotations

import math

import tensorflow as tf

from official_albert import objective, train_step
from official_albert.objective import Batch, Ratio


def make_evaluation(
  task: objective.Task, model, strategy: tf.distribute.Strategy
):
  """A function from batches to the values of every loss and metric."""
  replicas = strategy.num_replicas_in_sync

  def eval_step(batch: Batch) -> dict[str, Ratio]:
    # Every replica is given the whole batch and takes its rows.
    replica = tf.distribute.get_replica_context()
    index = replica.replica_id_in_sync_group
    batch = {
      name: train_step.split(x, replicas)[index] for name, x in batch.items()
    }
    weights = task.loss_weights(batch)
    totals, metrics = task.forward(model, batch, False, None)
    losses = {f"{k}_loss": Ratio(totals[k], weights[k]) for k in totals}
    return replica.all_reduce("SUM", {**losses, **metrics})

  @tf.function
  def run(batch):
    return train_step.run(strategy, eval_step, batch)

  def evaluate(dataset) -> dict[str, float]:
    sums = None
    for batch in dataset:
      part = run(batch)
      sums = part if sums is None else objective.add(sums, part)
    if sums is None:
      raise ValueError("there is no held-out example to evaluate on.")
    values = objective.quotients(sums)
    if not math.isfinite(values["loss"]):
      raise objective.Divergence(
        f"the held-out loss is not finite ({objective.brief(values)}): the "
        "model has diverged, or the held-out data has labels that do not "
        "exist."
      )
    return values

  return evaluate
