"""Losses and metrics on held-out data.

Losses add up over batches. A task that predicts also has its official metrics,
which are a function of all predictions together; both are had from one pass
over the data, and from one call of the model where they ask it the same.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

import tensorflow as tf

from official_albert.training import objective, prediction, train_step
from official_albert.training.objective import Batch, Ratio


def make_evaluation(
  task: objective.Task, model, strategy: tf.distribute.Strategy
):
  """A function from batches to the values of every loss and metric.

  If `task` is an `objective.PredictingTask`, what its `score` returns is among
  them. The function's second argument is called before each batch; what it
  raises ends the evaluation.
  """
  predicts = isinstance(task, objective.PredictingTask)

  def eval_step(batch: Batch):
    batch = prediction.own_rows(batch)
    asked_once = _AskedOnce(model)
    weights = task.loss_weights(batch)
    totals, metrics = task.forward(asked_once, batch, False, None)
    losses = {f"{k}_loss": Ratio(totals[k], weights[k]) for k in totals}
    replica = tf.distribute.get_replica_context()
    sums = replica.all_reduce("SUM", {**losses, **metrics})
    rows = task.predict(asked_once, batch) if predicts else {}
    return sums, prediction.gather_predictions(rows)

  @tf.function
  def run(batch):
    return train_step.run_step(strategy, eval_step, batch)

  def evaluate(
    dataset, before_batch: Callable[[], None] = lambda: None
  ) -> dict[str, float]:
    # One program for batches of all lengths: two need not give the same bits.
    program = run.get_concrete_function(dataset.element_spec)
    sums, parts = None, []
    for batch in dataset:
      before_batch()
      part, rows = program(batch)
      sums = part if sums is None else objective.add(sums, part)
      parts.append(prediction.real_rows(batch, rows))
    if sums is None:
      raise ValueError("there is no held-out example to evaluate on.")
    values = objective.quotients(sums)
    if not math.isfinite(values["loss"]):
      raise objective.Divergence(
        f"the held-out loss is not finite ({objective.brief(values)}): the "
        "model has diverged, or the held-out data has labels that do not "
        "exist."
      )
    if not predicts:
      return values
    return _merged(values, task.score(prediction.collect(parts)))

  return evaluate


class _AskedOnce:
  """A model that answers the same question once in a graph.

  Losses and predictions of a classifier come from the same logits. TensorFlow
  does not see that by itself, because variables might change between two reads.
  """

  def __init__(self, model):
    self._model = model
    self._answers: list[tuple[Any, Any]] = []

  def __getattr__(self, name: str):
    return getattr(self._model, name)

  def __call__(self, inputs, **settings):
    if any(
      value is not None and value is not False for value in settings.values()
    ):
      return self._model(inputs, **settings)
    known = [y for x, y in self._answers if _same(x, inputs)]
    answer = known[0] if known else self._model(inputs, **settings)
    if not known:
      self._answers.append((inputs, answer))
    # What one of them adds to its dict is not for the other.
    return dict(answer) if isinstance(answer, dict) else answer


def _same(a, b) -> bool:
  """Whether they are, or hold, the same tensors."""
  if isinstance(a, Mapping) and isinstance(b, Mapping):
    return a.keys() == b.keys() and all(a[name] is b[name] for name in a)
  return a is b


def _merged(
  values: Mapping[str, float], scores: Mapping[str, float]
) -> dict[str, float]:
  both = sorted(values.keys() & scores.keys())
  if both:
    raise ValueError(
      f"score() and forward() both give {', '.join(both)}: rename one of them."
    )
  return {**values, **{name: float(x) for name, x in scores.items()}}
