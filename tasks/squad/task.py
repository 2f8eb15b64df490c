"""SQuAD 1.1 and 2.0 as a task of the training loop.

Reference: google-research/albert squad_utils.py (v1_model_fn_builder,
v2_model_fn_builder). The loss is the mean of the cross entropies of start and
end; 2.0 adds half the cross entropy of "there is no answer".
"""

from __future__ import annotations

import os
from typing import Any, Iterator, Optional, Sequence

import tensorflow as tf

from official_albert import files, modeling, tfrecords
from official_albert.tasks import common
from official_albert.tasks.common import finetuning_task
from official_albert.tasks.squad import examples as examples_lib
from official_albert.tasks.squad import metrics, serving
from official_albert.tasks.squad import model as model_lib

_VERSIONS = {"squad_v1": "v1.1", "squad_v2": "v2.0"}


class SquadTask(finetuning_task.FinetuningTask):
  """SQuAD 1.1 or 2.0: train-v1.1.json and so on, or files of that format.

  Predicts answer spans, and in 2.0 whether there is an answer.

  Attributes:
    has_impossible: whether questions may have no answer, as in SQuAD 2.0.
  """

  def __init__(self, name: str, options: common.TaskOptions):
    super().__init__(name, options, examples_lib.RECIPES[name])
    self.has_impossible = name == "squad_v2"
    self.best_metric = "f1"
    if self.has_impossible and options.null_score_diff_threshold is None:
      self.best_metric = "best_f1"  # Each checkpoint has its own threshold.
    self._windows: dict[str, Sequence[examples_lib.Window]] = {}
    # The threshold is set by the evaluation, and used for other splits after
    # it; and that of the metrics, by split.
    self._threshold = options.null_score_diff_threshold
    if self._threshold is None:
      self._threshold = options.chosen_threshold
    self._scored: dict[str, Optional[float]] = {}

  def sources(self, split: str) -> list[str]:
    if path := self.options.file_of(split):
      return [path]
    name = f"{split}-{_VERSIONS[self.name]}.json"
    data_dir = self.options.data_dir
    for path in (os.path.join(data_dir, name + end) for end in ("", ".gz")):
      if data_dir and files.exists(path):
        return [path]
    raise FileNotFoundError(
      f"{data_dir or '--data_dir'} has no {name}: give the folder with that "
      f"file, or --{split}_file."
    )

  def read(self, split: str) -> Sequence[examples_lib.SquadExample]:
    path = self.sources(split)[0]
    invalid = common.InvalidRows(self.options.skip_invalid)
    examples = examples_lib.read_examples(
      path,
      split == "train",
      split in self.eval_splits,
      self.has_impossible,
      invalid,
    )
    invalid.finish(path, examples, self.options.note)
    return examples

  def windows(self, split: str) -> Sequence[examples_lib.Window]:
    """Returns the windows of a split's questions; makes them once."""
    if split not in self._windows:
      windows = examples_lib.make_windows(
        self.examples(split),
        self.options.tokenizer,
        self.max_seq_length,
        self.recipe.doc_stride,
        self.recipe.max_query_length,
      )
      self._windows[split] = list(windows)
    return self._windows[split]

  def num_train_examples(self) -> int:
    return len(self.windows("train"))

  def features(self, split: str) -> Iterator[dict[str, Any]]:
    for window in self.windows(split):
      yield {
        "input_ids": window.input_ids,
        "segment_ids": window.segment_ids(),
        "start_positions": window.start_position,
        "end_positions": window.end_position,
        "is_impossible": window.start_position == 0,
      }

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    names = ("start_positions", "end_positions", "is_impossible")
    labels = (tfrecords.Feature(name, "int64", ()) for name in names)
    return tfrecords.finetuning_schema([self.max_seq_length], *labels)

  def record_settings(self, split: str) -> dict[str, Any]:
    return {
      "doc_stride": self.recipe.doc_stride,
      "max_query_length": self.recipe.max_query_length,
    }

  def has_label(self, example: examples_lib.SquadExample) -> bool:
    return bool(example.answers or example.is_impossible)

  def majority(self, split: str) -> dict[str, float]:
    """Scores that no question has an answer; nothing for SQuAD 1.1.

    An answer there is a span of one context, and no span is in most contexts.
    """
    if not self.has_impossible:
      return {}
    gold = metrics.gold_answers(self.examples(split))
    nothing = metrics.QuestionAnswers([metrics.Candidate("", 1.0)], 0.0)
    return metrics.score_answers(gold, dict.fromkeys(gold, nothing), 0.0)

  def describe(self) -> dict[str, Any]:
    """Extends `FinetuningTask.describe` by the settings of decoding.

    Later predictions with the run's model use the same decoding as its
    evaluation. The threshold is in the results of the evaluation.
    """
    described = super().describe()
    for name in "n_best_size max_answer_length start_n_top end_n_top".split():
      described["settings"][name] = getattr(self.recipe, name)
    return described

  def build_model(self) -> tf.keras.Model:
    if not self.has_impossible:
      return model_lib.AlbertForSpans(self.config, **self.model_options())
    return model_lib.AlbertForSpansOrNone(
      self.config,
      self.recipe.start_n_top,
      self.recipe.end_n_top,
      self.recipe.classifier_dropout,
      **self.model_options(),
    )

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Any, training: bool
  ) -> finetuning_task.Losses:
    """Returns the summed loss in nats, and accuracies of starts and ends."""
    if self.has_impossible:
      scores = outputs["start_log_probs"], outputs["end_log_probs"]
    else:
      # Deviation: in the original, padding competes with the text, so the
      # loss depends on the length to which a batch is padded.
      padding = 1 - tf.cast(batch["input_mask"], tf.float32)
      scores = tuple(
        outputs[name] + model_lib.NEVER * padding
        for name in ("start_logits", "end_logits")
      )
    weight = batch["example_weight"]
    loss, ratios = 0.0, {}
    for name, logits in zip(("start", "end"), scores):
      labels = batch[f"{name}_positions"]
      loss += 0.5 * modeling.cross_entropy(logits, labels)
      ratios[f"{name}_accuracy"] = finetuning_task.accuracy_sums(
        logits, labels, weight
      )
    if self.has_impossible:
      loss += 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(
        tf.cast(batch["is_impossible"], tf.float32), outputs["cls_logits"]
      )
    return {self.name: tf.reduce_sum(loss * weight)}, ratios

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Any
  ) -> dict[str, tf.Tensor]:
    """Returns the scores of each window for `serving.decode`."""
    scores = {name: outputs[name] for name in model.scores}
    if not self.has_impossible:
      # Pads to S, so that batches of all lengths have one shape.
      missing = self.max_seq_length - tf.shape(batch["input_ids"])[1]
      shape = [None, self.max_seq_length]
      scores = {
        name: tf.ensure_shape(tf.pad(x, [[0, 0], [0, missing]]), shape)
        for name, x in scores.items()
      }
    return {"example_id": batch["example_id"], **scores}

  def answers(self, split: str, predictions: Any) -> metrics.Answers:
    return serving.decode(
      self.windows(split),
      [example.context for example in self.examples(split)],
      {k: v for k, v in predictions.items() if k != "example_id"},
      self.recipe.n_best_size,
      self.recipe.max_answer_length,
    )

  def score(self, predictions: Any) -> dict[str, float]:
    """Returns the official metrics that are logged during training."""
    values = super().score(predictions)
    names = ("exact_match", "exact", "f1", "best_exact", "best_f1")
    return {name: values[name] for name in names if name in values}

  def score_answers(self, split: str, answers: Any) -> dict[str, float]:
    threshold = self.options.null_score_diff_threshold
    if split != self.eval_split:  # Test data chooses nothing.
      threshold = self._threshold or metrics.NULL_SCORE_DIFF_THRESHOLD
    values = metrics.score_answers(
      metrics.gold_answers(self.examples(split)), answers, threshold
    )
    applied = values.get("null_score_diff_threshold")
    # A new dict: the tasks of several runs are copies of one.
    self._scored = {**self._scored, split: applied}
    if split == self.eval_split:
      self._threshold = values.get(metrics.CHOSEN_THRESHOLD, applied)
    return values

  def write_answers(self, split: str, answers: Any, folder: str) -> list[str]:
    """Writes predictions.json and the other files to `folder/split`.

    A split that was scored has the answers of its `exact` and `f1`.
    """
    return metrics.write_predictions(
      os.path.join(folder, split),
      answers,
      self._scored.get(split, self._threshold),
    )
