"""Computes held-out losses, metrics and predictions.

Losses and most metrics are sums over batches. Official metrics such as F1 are
functions of all predictions, so predictions are collected row by row, sorted
by id, and stripped of the rows that only pad the last batch. One pass over the
data computes both.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_albert import distribution, modeling
from official_albert.train_config import TrainConfig
from official_albert.training import objective, train_step
from official_albert.training.objective import Batch, Ratio

ID = "example_id"
_DEFAULTS = TrainConfig("")


class Evaluation:
  """Evaluates a model on held-out data, and predicts with it.

      values = Evaluation(task, model, strategy)(task.eval_dataset(64))

  Each batch of a dataset must have a static number of rows that is a multiple
  of the number of replicas.
  """

  def __init__(
    self,
    task: objective.Task,
    model: tf.keras.Model,
    strategy: tf.distribute.Strategy,
    config: TrainConfig = _DEFAULTS,
  ):
    """Traces nothing yet; the model computes as `config` says."""

    def evaluate(batch: Batch) -> tuple[dict[str, Ratio], Any]:
      weights = task.loss_weights(batch)
      totals, metrics, rows = task.evaluate(model, batch)
      losses = {f"{k}_loss": Ratio(totals[k], weights[k]) for k in totals}
      return {**losses, **metrics}, rows

    predicting: Any = task  # If it is a `PredictingTask`.

    def predict(batch: Batch) -> tuple[dict[str, Ratio], Any]:
      return {}, predicting.predict(model, batch)

    self._task = predicting
    self._evaluate = _make_pass(strategy, evaluate, config)
    self._predict = _make_pass(strategy, predict, config)

  def __call__(
    self,
    dataset: tf.data.Dataset,
    before_batch: Callable[[], None] = lambda: None,
    scoring: Any = None,
  ) -> objective.Values:
    """Returns the values of all losses and metrics of labeled data.

    They include those of the task's `score` if it is a `PredictingTask`.
    `before_batch` is called before each batch; an exception in it ends the
    evaluation. `scoring` is a task whose `score` is called instead: runs that
    share a graph may score its predictions in their own ways.

    Raises:
      Divergence: the loss is not finite.
      ValueError: the data is empty.
    """
    sums, parts = self._evaluate(dataset, before_batch)
    if sums is None:
      raise ValueError("there is no held-out example to evaluate on.")
    values = objective.quotients(sums)
    losses = [v for k, v in values.items() if k.endswith("_loss")]
    if not all(math.isfinite(v) for v in losses if v is not None):
      raise objective.Divergence(
        f"the held-out loss is not finite ({objective.brief(values)}): the "
        "model has diverged, or the held-out data has labels that do not "
        "exist."
      )
    scoring = self._task if scoring is None else scoring
    scores = scoring.score(collect(parts)) if parts[0] else {}
    return {**values, **{name: float(x) for name, x in scores.items()}}

  def predict(
    self, dataset: tf.data.Dataset, is_labeled: bool = False
  ) -> dict[str, np.ndarray]:
    """Returns the predictions of the examples of a `PredictingTask`.

    They are arrays [N, ...] by the names of `task.predict`, with a row for each
    of the N examples whose `example_weight` is not 0. If the data `is_labeled`,
    the graph is that of evaluations, which need not be traced again; otherwise
    labels are not read. Raises the errors of `collect`.
    """
    run_over = self._evaluate if is_labeled else self._predict
    return collect(run_over(dataset)[1])


def _make_pass(
  strategy: tf.distribute.Strategy,
  step: Callable[[Batch], Any],
  config: TrainConfig,
) -> Callable[..., tuple[Any, list[dict[str, np.ndarray]]]]:
  """Returns a function that runs a step on each batch of a dataset.

  The step computes as `config` says, and returns Ratios and rows. The function
  returns the sums of the former, None if there is no batch, and the rows of
  each batch.
  """
  if config.compile_chains:
    distribution.start_compiler()
  step = modeling.computed_as(config)(step)

  def on_replica(batch: Batch) -> tuple[Any, dict[str, tf.Tensor]]:
    replica = tf.distribute.get_replica_context()
    count = replica.num_replicas_in_sync
    # Each replica receives the whole batch.
    index = replica.replica_id_in_sync_group
    own = {name: train_step.split(x, count)[index] for name, x in batch.items()}
    sums, rows = step(own)
    if sums:
      sums = replica.all_reduce("SUM", sums)
    if rows and count > 1:
      rows = replica.all_gather(dict(rows), axis=0)
    return sums, dict(rows)

  @tf.function(autograph=False)
  def run(batch):
    return train_step.run_step(strategy, on_replica, batch)

  def run_over(
    dataset: tf.data.Dataset, before_batch: Callable[[], None] = lambda: None
  ) -> tuple[Any, list[dict[str, np.ndarray]]]:
    dataset = modeling.with_prefix_masks(dataset, config.attention)
    # One graph for batches of all lengths, because two graphs may differ in the
    # last bits.
    graph = run.get_concrete_function(dataset.element_spec)
    sums, parts = None, []
    for batch in dataset:
      before_batch()
      part, rows = graph(batch)
      if sums is not None:
        part = tf.nest.map_structure(tf.add, sums, part)
      sums = part
      arrays = {name: x.numpy() for name, x in rows.items()}
      # The rows that only pad the batch have weight 0.
      if "example_weight" in batch:
        kept = batch["example_weight"].numpy() != 0
        arrays = {name: x[kept] for name, x in arrays.items()}
      parts.append(arrays)
    return sums, parts

  return run_over


def collect(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
  """Joins the predictions of all batches, sorted by `example_id` <int>[B].

  Raises:
    ValueError: there are no rows, or their ids are not 0, 1, 2, ...
  """
  if not sum(len(part[ID]) for part in parts):
    raise ValueError("there is no example to predict.")
  rows = {
    name: np.concatenate([part[name] for part in parts]) for name in parts[0]
  }
  order = np.argsort(rows[ID], kind="stable")
  rows = {name: x[order] for name, x in rows.items()}
  wrong = np.flatnonzero(rows[ID] != np.arange(len(order)))
  if wrong.size:
    raise ValueError(
      f"{ID} {wrong[0]} was not predicted, or the one before it twice: each "
      "example must occur once, numbered from 0. The records may be damaged or "
      "belong to another split."
    )
  return rows
