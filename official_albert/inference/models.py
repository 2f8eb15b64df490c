"""The models of the fine-tuning tasks, and what serves them."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import modeling, serving
from official_albert.tasks import race, registry, squad, trained_run
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tasks.race import model as race_model
from official_albert.tasks.squad import model as squad_model
from official_albert.tasks.squad import serving as squad_serving
from official_albert.tokenization import in_graph


def make_model(
  head: str,
  config: modeling.AlbertConfig,
  classes: int = 1,
  settings: Optional[Mapping[str, Any]] = None,
  dtype: Any = None,
) -> tf.keras.Model:
  """Returns a model with random weights; `head` is one of `checkpoints.HEADS`.

  `settings` are those of a run's record, with start_n_top and end_n_top for
  SQuAD 2.0. `dtype` is that of Keras: None is the global policy.
  """
  options = {"name": "model", "dtype": dtype}
  if head in ("pretraining", "masked_lm"):
    return model_lib.AlbertForPretraining(config, **options)
  if head in ("classification", "regression"):
    return modeling.AlbertForSequenceClassification(config, classes, **options)
  if head == "multiple_choice":
    return race_model.AlbertForMultipleChoice(config, **options)
  if head == "squad1":
    return squad_model.AlbertForSpans(config, **options)
  if head == "squad2":
    recipe, settings = squad.RECIPES["squad_v2"], settings or {}
    return squad_model.AlbertForSpansOrNone(
      config,
      settings.get("start_n_top", recipe.start_n_top),
      settings.get("end_n_top", recipe.end_n_top),
      **options,
    )
  return modeling.AlbertModel(config, dtype=dtype)


def make_served(
  run: trained_run.TrainedRun,
  model: tf.keras.Model,
  text_layer: Optional[in_graph.TextLayer],
  max_seq_length: int,
) -> serving.ServedModule:
  """Returns the module that serves a model of a run.

  Without `text_layer`, it serves only ids; `max_seq_length` is that of texts.
  """
  kind = registry.get(run.task, run.model_dir)
  arguments = model, text_layer, max_seq_length
  if kind.is_text:
    return serving.ServedTextTask(
      *arguments, run.labels, kind.roles == registry.PAIR
    )
  if kind.head == "multiple_choice":
    default = race.RECIPES["race"].max_qa_length
    return race_model.ServedMultipleChoice(
      *arguments, run.settings.get("max_qa_length", default)
    )
  return squad_serving.AnswerQuestions(
    *arguments, run.settings, run.null_score_diff_threshold
  )
