"""Token classification as a task of the training loop.

The first piece of a word has its tag, and other pieces have none, as in
transformers' examples. The loss is the mean over the words of a batch.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
from typing import Any, Iterator, Sequence

import tensorflow as tf

from official_albert import checkpoints, files, modeling, tfrecords
from official_albert.tasks import common
from official_albert.tasks.common import finetuning_task, own_files, rows
from official_albert.tasks.tagging import examples as examples_lib
from official_albert.tasks.tagging import tags as tags_lib

# The tags and the probabilities of the words of each text.
_Answers = list[tuple[list[str], list[float]]]


class TaggingTask(own_files.OwnFiles):
  """Tags of words in the user's own files; see `examples.read_examples`."""

  recipe = common.Recipe(
    2e-5, 32, 0, 0, max_seq_length=128, num_train_epochs=3.0
  )
  call_options = {"logits_only": True}
  has_pairs = False
  labels: Sequence[str]

  def __init__(self, name: str, options: common.TaskOptions):
    super().__init__(name, options)
    self._windows: dict[str, Sequence[examples_lib.Window]] = {}
    self._pieces: dict[str, list[list[tuple[int, bool]]]] = {}
    self.labels = options.labels or ()
    if not self.labels:
      path = self.sources("train")[0]
      self.labels = examples_lib.find_labels(self.examples("train"), path)
    self.has_entities = tags_lib.make_entities(self.labels)
    self.best_metric = "f1" if self.has_entities else "accuracy"

  @property
  def head(self) -> checkpoints.Head:  # type: ignore[override]
    return checkpoints.Head("token_classification", tuple(self.labels))

  def names(self, examples: Sequence[examples_lib.TaggedText]) -> set[Any]:
    return {tag[2:] for x in examples for tag in x.tags or ()}

  def read_file(
    self, split: str, path: str, invalid: common.InvalidRows
  ) -> Sequence[examples_lib.TaggedText]:
    options, check = self.options, functools.partial(self._check_tags, split)
    examples = examples_lib.read_examples(
      path, options.columns, check, invalid, options.note, self.labels
    )
    headers = map(examples_lib.header, rows.find_tables(path))
    self.finds_ids |= any(options.id_column in header for header in headers)
    return examples

  def _check_tags(self, split: str, example: examples_lib.TaggedText) -> None:
    if example.tags is None and split not in self.test_splits:
      raise common.InvalidRow(example.where, " has no tags", ": add them.")
    if split != "train" or self.options.labels:
      for tag in {*(example.tags or ())} - {*self.labels}:
        common.check_label(example.where, tag, self.labels)

  def has_label(self, example: examples_lib.TaggedText) -> bool:
    return example.tags is not None

  def windows(self, split: str) -> Sequence[examples_lib.Window]:
    """Returns the windows of a split's texts; makes them once."""
    if split not in self._windows:
      tokenizer, examples = self.options.tokenizer, self.examples(split)
      encoded = [tokenizer.encode_with_offsets(x.text) for x in examples]
      self._pieces[split] = [
        tags_lib.first_pieces(x.starts, x.ends, example.words)
        for x, example in zip(encoded, examples)
      ]
      self._windows[split] = [
        *examples_lib.make_windows(encoded, tokenizer, self.max_seq_length)
      ]
    return self._windows[split]

  def num_train_examples(self) -> int:
    return len(self.windows("train"))

  def features(self, split: str) -> Iterator[dict[str, Any]]:
    # Of the pieces of each text: 0 for no tag, else the class plus 1.
    class_of = {label: i for i, label in enumerate(self.labels, 1)}
    windows, classes = self.windows(split), []
    for pieces, example in zip(self._pieces[split], self.examples(split)):
      both = zip(pieces, example.tags or ())
      classes.append({i: class_of[tag] for (i, is_own), tag in both if is_own})
    for window in windows:
      begin, found = window.begin - 1, classes[window.example]
      own, places = window.own, range(begin, begin + len(window.input_ids))
      yield {
        "input_ids": window.input_ids,
        "segment_ids": [0] * len(places),
        "label_ids": [found.get(i, 0) if i in own else 0 for i in places],
      }

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    # The class of a token plus 1; 0 for tokens without a tag.
    labels = tfrecords.Feature("label_ids", "int64", (self.max_seq_length,))
    return tfrecords.finetuning_schema([self.max_seq_length], labels)

  def record_settings(self, split: str) -> dict[str, Any]:
    columns = {k: self.options.columns[k] for k in ("text", "label", "id")}
    return {
      **super().record_settings(split),
      "labels": list(self.labels),
      "columns": columns,
    }

  def build_model(self) -> modeling.AlbertForTokenClassification:
    return modeling.AlbertForTokenClassification(
      self.config,
      len(self.labels),
      self.recipe.classifier_dropout,
      **self.model_options(),
    )

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Any, training: bool
  ) -> finetuning_task.Losses:
    """Returns the summed cross entropy of the words, and their accuracy."""
    weights = _word_weights(batch)
    arguments = outputs["logits"], tf.maximum(batch["label_ids"] - 1, 0)
    loss = tf.reduce_sum(modeling.cross_entropy(*arguments) * weights)
    accuracy = finetuning_task.accuracy_sums(*arguments, weights)
    metrics = {f"{self.name}_accuracy": accuracy} if training else {}
    return {self.name: loss}, metrics

  def loss_weights(self, batch: Any) -> dict[str, tf.Tensor]:
    """Returns the number of words with a tag; a batch may have none."""
    return {self.name: tf.maximum(tf.reduce_sum(_word_weights(batch)), 1e-6)}

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Any
  ) -> dict[str, tf.Tensor]:
    """Returns the best class of each piece, and its probability, [B, S]."""
    chances = tf.nn.softmax(outputs["logits"])
    found = {  # Of the logits, like exports: softmax may make two equal.
      "classes": tf.argmax(outputs["logits"], -1, tf.int32),
      "probabilities": tf.reduce_max(chances, -1),
    }
    # Batches of all lengths have one shape.
    missing = self.max_seq_length - tf.shape(batch["input_ids"])[1]
    for name, x in found.items():
      padded = tf.pad(x, [[0, 0], [0, missing]])
      found[name] = tf.ensure_shape(padded, [None, self.max_seq_length])
    return {"example_id": batch["example_id"], **found}

  def answers(self, split: str, predictions: Any) -> _Answers:
    numbers: list[list[Any]] = [[] for _ in self.examples(split)]
    for row, window in enumerate(self.windows(split)):
      begin = window.begin - 1  # Of the [CLS] in front.
      own = slice(window.own.start - begin, window.own.stop - begin)
      columns = (predictions[x][row, own] for x in ("classes", "probabilities"))
      numbers[window.example] += zip(*columns)
    found = []
    for pieces, values in zip(self._pieces[split], numbers):
      tags = [self.labels[i] for i, _ in values]
      found.append(
        tags_lib.of_words(pieces, tags, [float(x) for _, x in values])
      )
    return found

  def score_answers(self, split: str, answers: _Answers) -> dict[str, float]:
    return tags_lib.scores(
      self._gold(split), [tags for tags, _ in answers], self.has_entities
    )

  def decided(self, split: str, answers: _Answers) -> finetuning_task.Decided:
    """Returns the labels of spans; see `tags.span_classes`."""
    predicted = [tags for tags, _ in answers]
    return tags_lib.span_classes(
      self._gold(split), predicted, self.has_entities
    )

  def _gold(self, split: str) -> list[Sequence[str]]:
    return [example.tags or () for example in self.examples(split)]

  def write_answers(
    self, split: str, answers: _Answers, folder: str
  ) -> list[str]:
    """Writes the spans of each text."""
    lines = []
    for example, found in zip(self.examples(split), answers):
      spans = tags_lib.find_spans(
        example.text, example.words, *found, self.has_entities
      )
      line = {"id": example.guid, "text": example.text, "prediction": spans}
      lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    path = os.path.join(folder, f"{split}.jsonl")
    files.write_text(path, "".join(lines))
    return [path]

  def majority(self, split: str) -> dict[str, float]:
    """Scores the most frequent tag of the training data."""
    most = statistics.mode(itertools.chain(*self._gold("train")))
    gold = self._gold(split)
    constant = [[most] * len(tags) for tags in gold]
    return tags_lib.scores(gold, constant, self.has_entities)


def _word_weights(batch: Any) -> tf.Tensor:
  """Returns 1.0 at the first piece of each word with a tag, <float32>[B, S]."""
  is_word = tf.cast(batch["label_ids"] > 0, tf.float32)
  return is_word * batch["example_weight"][:, None]
