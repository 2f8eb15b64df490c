"""Tags the pieces of texts in the graph; `tags` joins them to spans in Python.

A text is split into overlapping windows, as by `examples.make_windows`.

Letters: B texts, W windows, S sequence, C classes, T pieces of the longest
text.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from official_albert import serving
from official_albert.serving import Tensors
from official_albert.tasks.tagging import examples
from official_albert.tokenization import in_graph


class ServedTags(serving.ServedLogits):
  """Returns `tags` <string>[B, T], and the characters of each piece.

  `tag_probabilities` <float32>[B, T] are those of the tags, `starts` and `ends`
  <int32>[B, T] the characters of pieces; rows are padded with "" and 0. `ids`
  and `examples` return `tags` [B, S], and `probabilities` and `logits`
  [B, S, C].

  Attributes:
    labels: the classes in the head's order.
    max_windows: the maximum windows of a request, a limit on a server's memory.
  """

  kind = "token_classification"
  text_signatures = ("tag",)
  depth_inputs = ()
  max_windows = 256

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    labels: Optional[Sequence[str]],
  ):
    """Serves an `AlbertForTokenClassification`; see `ServedModule`."""
    super().__init__(model, text_layer, max_seq_length)
    classes = range(model.classifier.num_classes)
    self.labels = tuple(labels or (f"LABEL_{i}" for i in classes))

  def ids_outputs(self, features: Tensors) -> Tensors:
    logits = self.traced(features)["logits"]
    best = tf.argmax(logits, -1, tf.int32)
    return {
      "tags": tf.gather(tf.constant(self.labels), best),
      "probabilities": tf.nn.softmax(logits),
      "logits": logits,
    }

  def text_functions(self) -> dict[str, serving.TextFunction]:
    return {"tag": (("text",), self._tag)}

  def _tag(self, text: tf.Tensor) -> Tensors:
    most = serving.TOKEN_BYTES * self.max_windows * self.max_seq_length
    text = serving.limit_bytes(text, most, "texts")
    encoded = self.text_layer.tokenize_with_offsets(text)
    features, is_own = self.make_windows(encoded.ids)
    outputs = self.ids_outputs(features)
    tags, chances = (
      encoded.ids.with_flat_values(tf.boolean_mask(x, is_own))
      for x in (outputs["tags"], tf.reduce_max(outputs["probabilities"], -1))
    )
    return {
      "tags": tags.to_tensor(),
      "tag_probabilities": chances.to_tensor(),
      "starts": encoded.starts.to_tensor(),
      "ends": encoded.ends.to_tensor(),
    }

  def make_windows(self, ids: tf.RaggedTensor) -> tuple[Tensors, tf.Tensor]:
    """Makes windows of pieces <int32>[B, (pieces)].

    Returns:
      The features <int32>[W, S], and <bool>[W, S] where a window's own pieces
      are. These are in the order of `ids`.
    """
    space = self.max_seq_length - 2
    margin, step = examples.overlap(space)
    pieces = ids.row_lengths()  # [B]
    steps = (tf.maximum(pieces - space, 0) + step - 1) // step
    counts = serving.limit_windows(steps + 1, self.max_windows, "texts")
    numbers = tf.ragged.range(counts)  # [B, (windows)]
    rows, number = numbers.value_rowids(), numbers.flat_values  # [W]
    is_last = number == tf.gather(steps, rows)
    begin, count = number * step, tf.gather(pieces, rows)
    first = tf.gather(ids.row_starts(), rows) + begin
    places = tf.ragged.range(first, first + tf.minimum(count - begin, space))
    parts = places.with_flat_values(
      tf.gather(ids.flat_values, places.flat_values)
    )
    layer = self.text_layer
    features = in_graph.pack_pair(
      parts, None, self.max_seq_length, layer.cls_id, layer.sep_id
    )
    length = tf.shape(features["input_ids"], tf.int64)[1]
    # Of the pieces of a window, behind [CLS].
    place = tf.range(length)[None] - 1  # [1, S]
    own_begin = margin * tf.cast(number > 0, tf.int64)[:, None]
    next_begin = tf.constant(margin + step, tf.int64)
    own_end = tf.where(is_last, count - begin, next_begin)[:, None]
    return features, (place >= own_begin) & (place < own_end)

  def settings(self) -> dict[str, Any]:
    return {"labels": list(self.labels), "max_windows": self.max_windows}
