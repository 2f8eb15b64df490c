"""What a model says of every example of a dataset, in the examples' order.

Predictions leave the devices row by row: a metric such as F1 or a Pearson
correlation is not a sum over batches, and a submission file has a line for
each example. Rows come back from all replicas, without those that only fill up
the last batch, and in the order of their ids whatever the order of the batches.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_albert.training import objective, train_step
from official_albert.training.objective import Batch

ID = "example_id"


def make_prediction(
  task: objective.PredictingTask, model, strategy: tf.distribute.Strategy
):
  """A function of a dataset to its predictions.

  Args:
    task: says what to predict.
    model: the model, made under `strategy`.
    strategy: the devices.

  Returns:
    A function of a dataset, each of whose batches has as many rows as its
    static shape says, a multiple of the number of replicas. It returns NumPy
    arrays [N, ...] by the names that `task.predict` gives, a row for each of
    the N examples whose `example_weight` is not 0. It raises what `collect`
    raises.
  """

  def step(batch: Batch) -> dict[str, tf.Tensor]:
    return gather_predictions(task.predict(model, own_rows(batch)))

  @tf.function
  def run(batch):
    return train_step.run_step(strategy, step, batch)

  def predict(dataset) -> dict[str, np.ndarray]:
    # One program for batches of all lengths.
    program = run.get_concrete_function(dataset.element_spec)
    return collect([real_rows(batch, program(batch)) for batch in dataset])

  return predict


def own_rows(batch: Batch) -> dict[str, tf.Tensor]:
  """The rows of this replica; every replica is given the whole batch."""
  replica = tf.distribute.get_replica_context()
  count = replica.num_replicas_in_sync
  index = replica.replica_id_in_sync_group
  return {name: train_step.split(x, count)[index] for name, x in batch.items()}


def gather_predictions(rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """The rows of all replicas, in the order of the replicas."""
  replica = tf.distribute.get_replica_context()
  if not rows or replica.num_replicas_in_sync == 1:
    return dict(rows)
  return replica.all_gather(dict(rows), axis=0)


def real_rows(
  batch: Batch, rows: Mapping[str, tf.Tensor]
) -> dict[str, np.ndarray]:
  """What was predicted for the rows that are examples.

  Args:
    batch: the whole batch; without `example_weight` <float32>[B] all its rows
      are examples.
    rows: of all replicas.
  """
  arrays = {name: x.numpy() for name, x in rows.items()}
  if "example_weight" not in batch:
    return arrays
  kept = batch["example_weight"].numpy() != 0
  return {name: x[kept] for name, x in arrays.items()}


def collect(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
  """The rows of all batches, sorted by their ids.

  Args:
    parts: of each batch, with `example_id` <int>[B].

  Raises:
    ValueError: there is no row or no id, an id comes twice, one between 0 and
      the largest does not come, or rows differ in shape between batches.
  """
  if not sum(len(next(iter(part.values()), ())) for part in parts):
    raise ValueError("there is no example to predict.")
  if ID not in parts[0]:
    raise ValueError(
      f"predictions need {ID}, the number of each example, got only "
      f"{', '.join(sorted(parts[0]))}."
    )
  for part in parts[1:]:
    for name, x in part.items():
      if x.shape[1:] != parts[0][name].shape[1:]:
        raise ValueError(
          f"predictions of {name} have the shape {list(x.shape[1:])} in one "
          f"batch and {list(parts[0][name].shape[1:])} in another: pad them to "
          "one length."
        )
  rows = {
    name: np.concatenate([part[name] for part in parts]) for name in parts[0]
  }
  order = np.argsort(rows[ID], kind="stable")
  rows = {name: x[order] for name, x in rows.items()}
  # Where the sorted ids first are not 0, 1, 2 and so on.
  wrong = np.flatnonzero(rows[ID] != np.arange(len(order)))
  if wrong.size:
    number, found = int(wrong[0]), int(rows[ID][wrong[0]])
    what = (
      f"{ID} {found} was predicted twice"
      if number and found == number - 1
      else f"{ID} {number} was not predicted, but {found} was"
    )
    raise ValueError(
      f"{what}: each example has to come once, numbered from 0; the records "
      "may be those of another split, or damaged."
    )
  return rows
