"""Predictions of a run of tools.run_finetuning or tools.run_pretraining.

The run's folder says which task it was, with which classes, columns and
lengths; texts are made to ids as for its training data. What is said of a row
has the names of a SavedModel's outputs.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling, tokenization, training
from tasks import common, race
from tasks.classification import glue
from tools import finetuning
from tools.prediction import ids as prediction_ids
from tools.prediction import output as prediction_output
from tools.prediction import program as prediction_program
from tools.prediction.stream import Part


class Encoder(NamedTuple):
  """What texts become, and for which model."""

  config: modeling.AlbertConfig
  tokenizer: tokenization.Tokenizer


@dataclasses.dataclass(frozen=True)
class Settings:
  """How a run predicts.

  Attributes:
    devices: what it computes on.
    batch_size: sequences of a batch at most.
    max_seq_length: tokens of a sequence at most; 0: as in training.
    null_score_diff_threshold: of SQuAD 2.0; None: the run's own.
    top_k: pieces for each mask, of a pretraining run.
    checkpoint: see `checkpoint_files.find_prefix`.
  """

  devices: finetuning.run.Devices
  batch_size: int
  max_seq_length: int = 0
  null_score_diff_threshold: Optional[float] = None
  top_k: int = 5
  checkpoint: str = ""


def load_weights(
  model: tf.keras.Model, model_dir: str, checkpoint: str = ""
) -> str:
  """Fills a model with a run's weights.

  Args:
    model: of the run's configuration.
    model_dir: the run's folder.
    checkpoint: see `checkpoint_files.find_prefix`.

  Returns:
    The prefix of the checkpoint.

  Raises:
    FileNotFoundError: there is none.
    ValueError: it is of another model.
  """
  path = finetuning.run.find_weights(model_dir, checkpoint)
  report = training.warm_start(model, path)
  if report.missing:
    raise ValueError(
      f"{path} is no checkpoint of what {model_dir} says it is: it lacks "
      f"{report.missing[0]}."
    )
  return path


def sequence_length(
  run: finetuning.trained_run.TrainedRun,
  encoder: Encoder,
  settings: Settings,
) -> int:
  """S of the predictions.

  Raises:
    ValueError: the model cannot take as many, or has another vocabulary.
  """
  length = settings.max_seq_length or run.max_seq_length
  common.check_fits(encoder.config, encoder.tokenizer.vocab_size, length)
  return length


class TextBackend:
  """GLUE, RACE and the user's own texts; a `prediction_stream.Backend`.

  Attributes:
    roles: what a row has to have.
    columns: of a role the column that it was trained with, if it has a name.
    layout: of the predictions.
    source: what predicts, for messages.
  """

  def __init__(
    self,
    run: finetuning.trained_run.TrainedRun,
    encoder: Encoder,
    settings: Settings,
  ):
    """Reads the weights.

    Raises:
      OSError, ValueError: the run has no checkpoint, or one of another model.
    """
    self.about = f"{run.model_dir} is a run of {run.task}"
    kind = finetuning.registry.find(run.task, run.model_dir)
    self.roles = kind.roles
    self.columns = trained_columns(run, self.roles)
    labels = run.labels
    if run.task in glue.GLUE_TASKS:
      labels = glue.get_glue_task(run.task).labels
    with settings.devices.strategy.scope():
      model = finetuning.registry.make_model(
        kind.head, encoder.config, len(labels or "1")
      )
    predict, names = _OUTPUTS[kind.head]
    self.source = load_weights(model, run.model_dir, settings.checkpoint)
    self.layout = prediction_output.layout_of(names, labels or ())
    self._labels = labels
    self._program = prediction_program.Program(
      model, predict, settings.devices.strategy, settings.batch_size
    )
    recipe = race.RECIPES["race"]
    self._ids = prediction_ids.Ids(
      encoder.tokenizer,
      sequence_length(run, encoder, settings),
      self.roles,
      run.settings.get("max_qa_length", recipe.max_qa_length),
      self._program.fixed_length,
    )

  def parts(self, cells: Mapping[str, Any]) -> list[Part]:
    """The row's sequence."""
    return [self._ids.part(cells)]

  def run(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """What the model says of each sequence."""
    said = self._program(self._ids.batch(inputs))
    return [dict(zip(said, row)) for row in zip(*said.values())]

  def answer(
    self,
    cells: Mapping[str, Any],
    parts: Sequence[Part],
    outputs: Sequence[Mapping[str, Any]],
  ) -> dict[str, Any]:
    """A number, or probabilities with the best label or option."""
    said = dict(outputs[0])
    if "score" not in said:
      best = int(np.argmax(said["probabilities"]))
      said["choice"] = best
      if self._labels:
        said["label"] = self._labels[best]
    return said


def trained_columns(
  run: finetuning.trained_run.TrainedRun, roles: Sequence[str]
) -> dict[str, str]:
  """The columns of the user's own data by the roles of predictions."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {
    role: run.columns[names[role]]
    for role in (*roles, "id")
    if run.columns.get(names.get(role, ""))
  }


def _probabilities(model, batch) -> dict[str, tf.Tensor]:
  logits = model(batch, training=False, logits_only=True)["logits"]
  return {"probabilities": tf.nn.softmax(logits)}


def _score(model, batch) -> dict[str, tf.Tensor]:
  logits = model(batch, training=False, logits_only=True)["logits"]
  return {"score": logits[:, 0]}


# By the head: what predicts, and what it is called in the output.
_OUTPUTS = {
  "multiple_choice": (_probabilities, ("choice",)),
  "classification": (_probabilities, ("label",)),
  "regression": (_score, ("score",)),
}
