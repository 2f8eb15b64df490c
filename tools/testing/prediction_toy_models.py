"""SavedModels with the signatures of exports and few weights.

The outputs are sums of weights of the pieces of a text, so that tests can
compute them.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import numpy as np
import tensorflow as tf

from official_albert.tokenization import in_graph
from tools.testing import toy_runs

LABELS = ("bad", "good", "so so")
MAX_SEQ_LENGTH = 13
_TEXT = tf.TensorSpec([None], tf.string)
_IDS = tf.TensorSpec([None, None], tf.int32)
KINDS = {
  "classify": "text_classification",
  "score": "text_regression",
  "choose": "race",
  "answer": "squad_v2",
  "encode": "pretraining",
}


class Toy(tf.Module):
  """A table of weights behind a tokenizer.

  Attributes:
    text_layer: the tokenizer.
    table: <float32>[V, 3], what each piece adds.
  """

  def __init__(self, tokenizer_file: str):
    super().__init__(name="toy")
    self.text_layer = in_graph.SentencePieceTextLayer(tokenizer_file)
    rng = np.random.default_rng(3)
    size = self.text_layer.vocab_size, len(LABELS)
    self.table = tf.constant(rng.normal(size=size), tf.float32)

  @tf.function(input_signature=[_IDS, _IDS, _IDS])
  def ids(self, input_ids, input_mask, segment_ids):
    """Returns `label`, `probabilities` and `logits` of token ids."""
    inside = tf.debugging.Assert(
      tf.reduce_all((input_ids >= 0) & (input_ids < self.table.shape[0])),
      [f"input_ids has an id outside of 0 to {self.table.shape[0] - 1}."],
    )
    with tf.control_dependencies([inside]):
      # Before it looks a piece up.
      input_ids = tf.identity(input_ids)
    weights = tf.cast(input_mask * (1 + segment_ids), tf.float32)
    rows = tf.gather(self.table, input_ids)
    logits = tf.einsum("bsc,bs->bc", rows, weights)
    return {
      "label": tf.gather(tf.constant(LABELS), tf.argmax(logits, -1)),
      "probabilities": tf.nn.softmax(logits),
      "logits": logits,
    }

  @tf.function(input_signature=[_TEXT])
  def classify(self, text):
    """Returns the outputs of `ids` for [CLS] text [SEP]."""
    pieces = self.text_layer.tokenize(text)[:, : MAX_SEQ_LENGTH - 2]
    one = tf.ones([pieces.nrows(), 1], tf.int32)
    ids = tf.concat(
      [self.text_layer.cls_id * one, pieces, self.text_layer.sep_id * one], 1
    )
    mask = tf.ones_like(ids).to_tensor()
    return self.ids(ids.to_tensor(), mask, tf.zeros_like(mask))

  @tf.function(input_signature=[_TEXT])
  def score(self, text):
    """Returns the first logit."""
    return {"score": self.classify(text)["logits"][:, 0]}

  @tf.function(input_signature=[_TEXT])
  def encode(self, text):
    """Returns the logits as the pooled output."""
    logits = self.classify(text)["logits"]
    return {"pooled_output": logits, "sequence_output": logits[:, None]}

  @tf.function(
    input_signature=[_TEXT, _TEXT, tf.TensorSpec([None, 4], tf.string)]
  )
  def choose(self, passage, question, options):
    """Returns the option with the highest first logit."""
    questions = tf.repeat(question[:, None], 4, axis=1)
    texts = tf.strings.join([questions, options], " ")
    scores = self.classify(tf.reshape(texts, [-1]))["logits"][:, 0]
    scores = tf.reshape(scores, [-1, 4])
    del passage
    return {
      "choice": tf.argmax(scores, -1, tf.int32),
      "probabilities": tf.nn.softmax(scores),
    }

  @tf.function(input_signature=[_TEXT, _TEXT])
  def answer(self, question, context):
    """Returns characters 2 to 5, or 1 to 3; none if the question is "?"."""
    none = tf.equal(question, "?")
    zero = tf.zeros_like(none, tf.int32)
    texts = [
      tf.strings.substr(context, begin + zero, length + zero, "UTF8_CHAR")
      for begin, length in ((2, 3), (1, 2))
    ]
    like = tf.cast(zero, tf.float32)
    return {
      "answer": tf.where(none, "", texts[0]),
      "probability": like + 0.75,
      "start": tf.where(none, 0, zero + 2),
      "end": tf.where(none, 0, zero + 5),
      "n_best_answers": tf.stack(texts, 1),
      "n_best_probabilities": tf.stack([like + 0.75, like + 0.25], 1),
      "n_best_starts": tf.stack([zero + 2, zero + 1], 1),
      "n_best_ends": tf.stack([zero + 5, zero + 3], 1),
      "null_score_diff": tf.where(none, like + 3, like - 2),
    }


def write(folder: str, kind: str = "classify", ids_only: bool = False) -> Toy:
  """Writes a SavedModel to a new folder; returns its model.

  Args:
    folder: does not exist yet.
    kind: its text signature, one of `KINDS`.
    ids_only: leave the text signature out.
  """
  os.makedirs(folder)
  toy_runs.write_tokenizer(folder)
  file = os.path.join(folder, "tokenizer.model")
  toy = Toy(file)
  signatures: dict[str, Any] = {"ids": toy.ids}
  if not ids_only:
    signatures[kind] = getattr(toy, kind)
  signatures["serving_default"] = list(signatures.values())[-1]
  # The toy itself would add all its functions.
  module = tf.Module()
  if not ids_only:
    module.text_layer = toy.text_layer
  tf.saved_model.save(module, folder, signatures)
  shutil.move(file, os.path.join(folder, "assets", "tokenizer.model"))
  info = {
    "kind": kind,
    "task": KINDS[kind],
    "max_seq_length": MAX_SEQ_LENGTH,
    "lower_case": True,
    "tokenizer": {"file": "tokenizer.model", "kind": "sentencepiece"},
    "signatures": list(signatures)[:-1],
    "serving_default": list(signatures)[-2],
    "labels": list(LABELS) if kind == "classify" else [],
    "settings": {},
    "vocab_size": int(toy.table.shape[0]),
  }
  path = os.path.join(folder, "assets", "export.json")
  with open(path, "w", encoding="utf-8") as file:
    json.dump(info, file)
  return toy
