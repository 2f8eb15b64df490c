"""Answers to questions about contexts, of a run on SQuAD 1.1 or 2.0.

A long context goes through the model in several windows; the answer is the best
of all of them, with its place in the context in characters.
"""

from __future__ import annotations

import functools
from typing import Any, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tasks import squad
from tools import finetuning
from tools.prediction import ids as prediction_ids
from tools.prediction import output as prediction_output
from tools.prediction import program as prediction_program
from tools.prediction import run as prediction_run
from tools.prediction.stream import Part

_NAMES_V1 = ("start_logits", "end_logits")
_NAMES_V2 = (
  "start_top_log_probs",
  "start_top_index",
  "end_top_log_probs",
  "end_top_index",
  "cls_logits",
)
# Of a question, whose windows are decoded by themselves.
_ID = "question"
# Tokens of a batch: with fewer, fewer starts would be kept than elsewhere.
_SHORTEST = 8


class QuestionBackend:
  """Implements `prediction_stream.Backend`; see `TextBackend`."""

  roles = ("question", "context")
  columns: Mapping[str, str] = {}

  def __init__(
    self,
    run: finetuning.trained_run.TrainedRun,
    encoder: prediction_run.Encoder,
    settings: prediction_run.Settings,
  ):
    """Reads the weights.

    Raises:
      OSError, ValueError: the run has no checkpoint, or one of another model.
    """
    self.about = f"{run.model_dir} is a run of {run.task}"
    recipe = squad.RECIPES[run.task]

    def setting(name: str) -> int:
      return run.settings.get(name, getattr(recipe, name))

    self._has_impossible = run.task == "squad_v2"
    strategy = settings.devices.strategy
    with strategy.scope():
      model = finetuning.registry.make_model(
        finetuning.registry.TASKS[run.task].head,
        encoder.config,
        settings=run.settings,
      )
    self.source = prediction_run.load_weights(
      model, run.model_dir, settings.checkpoint
    )
    self._length = prediction_run.sequence_length(run, encoder, settings)
    self._program = prediction_program.Program(
      model,
      functools.partial(
        _scores, _NAMES_V2 if self._has_impossible else _NAMES_V1, self._length
      ),
      strategy,
      settings.batch_size,
    )
    self._make_windows = functools.partial(
      squad.make_windows,
      tokenizer=encoder.tokenizer,
      max_seq_length=self._length,
      doc_stride=setting("doc_stride"),
      max_query_length=setting("max_query_length"),
    )
    self._decode = functools.partial(
      squad.decode_v2 if self._has_impossible else squad.decode_v1,
      n_best_size=setting("n_best_size"),
      max_answer_length=setting("max_answer_length"),
    )
    self._threshold = None
    names = ["answer"]
    if self._has_impossible:
      names.append("null_score_diff")
      self._threshold = settings.null_score_diff_threshold
      if self._threshold is None:
        self._threshold = run.null_score_diff_threshold
    self.layout = prediction_output.layout_of(names)

  def parts(self, cells: Mapping[str, Any]) -> list[Part]:
    """The windows of a question."""
    example = squad.SquadExample(_ID, cells["question"], cells["context"])
    made = self._make_windows(example)
    return [Part(len(window.input_ids), window) for window in made]

  def run(self, inputs: Sequence[squad.Window]) -> list[dict[str, Any]]:
    """The scores that decoding takes, of each window."""
    length = max(_SHORTEST, *(len(window.input_ids) for window in inputs))
    if self._program.fixed_length or length > self._length:
      length = self._length
    arrays = prediction_ids.pad(
      [(window.input_ids, window.segment_ids) for window in inputs], length
    )
    if self._has_impossible:
      arrays["p_mask"] = np.array(
        [squad.p_mask(window, length) for window in inputs], np.float32
      )
    said = self._program(arrays)
    return [dict(zip(said, row)) for row in zip(*said.values())]

  def answer(
    self,
    cells: Mapping[str, Any],
    parts: Sequence[Part],
    outputs: Sequence[Mapping[str, Any]],
  ) -> dict[str, Any]:
    """The best answer of all windows, and the n best."""
    scores = {
      name: np.stack([output[name] for output in outputs])
      for name in outputs[0]
    }
    made = [part.inputs for part in parts]
    said = self._decode(made, {_ID: cells["context"]}, **scores)[_ID]
    return to_outputs(said, said.text(self._threshold))


def to_outputs(said: squad.QuestionAnswers, text: str) -> dict[str, Any]:
  """What a model says to a question, by the names of a SavedModel's outputs.

  Args:
    said: its candidates.
    text: the answer, the first of them; "" if there is none.
  """
  best = said.n_best[0]
  has_answer = bool(text)
  probability = best.probability
  if best.text and not has_answer:
    # The head has learnt the odds as a logit.
    probability = float(tf.sigmoid(tf.cast(said.null_odds, tf.float64)))
  result = {
    "answer": text,
    "probability": probability,
    "start": best.start_char or 0 if has_answer else 0,
    "end": best.end_char or 0 if has_answer else 0,
    "n_best_answers": [c.text for c in said.n_best],
    "n_best_probabilities": [c.probability for c in said.n_best],
    "n_best_starts": [c.start_char or 0 for c in said.n_best],
    "n_best_ends": [c.end_char or 0 for c in said.n_best],
  }
  if said.null_odds is not None:
    result["null_score_diff"] = said.null_odds
  return result


def _scores(names, length, model, batch) -> dict[str, tf.Tensor]:
  outputs = model(batch, training=False)
  if names == _NAMES_V2:
    return {name: outputs[name] for name in names}
  # One shape for batches of all lengths.
  missing = length - tf.shape(batch["input_ids"])[1]
  return {
    name: tf.ensure_shape(
      tf.pad(outputs[name], [[0, 0], [0, missing]]), [None, length]
    )
    for name in names
  }
