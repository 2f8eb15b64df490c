"""RACE's model, and how it is served: which of four options is correct.

Reference: google-research/albert race_utils.py (create_model): cross entropy
of a softmax over the options.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import modeling, serving
from official_albert.serving import Tensors
from official_albert.tasks.race.examples import LETTERS, check_lengths
from official_albert.tokenization import in_graph

_BLANK = "_"
_QA_BYTES = 2**16


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForMultipleChoice(modeling.AlbertForSequenceClassification):
  """Scores each option as a sequence of its own."""

  _is_regression_of_one = False

  def __init__(self, config: modeling.AlbertConfig, *args, **kwargs):
    super().__init__(config, 1, *args, **kwargs)

  @modeling.without_autograph
  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    logits_only: bool = False,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Scores O options of each example, <int32>[B, O, S].

    Returns:
      `logits` <float32>[B, O] and, unless `logits_only`, the outputs of
      `AlbertModel` for B * O sequences.
    """
    inputs, _ = self.named_inputs(features)
    ids = inputs["input_ids"]
    if len(ids.shape) == 2:  # The constructor creates the variables with it.
      return super().call(inputs, training, dropout_seed, logits_only)
    options, length = ids.shape[1], tf.shape(ids)[2]
    flat = {name: tf.reshape(x, [-1, length]) for name, x in inputs.items()}
    outputs = super().call(
      flat, training, dropout_seed, logits_only, num_layers
    )
    outputs["logits"] = tf.reshape(outputs["logits"], [-1, options])
    return outputs

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    del config["num_classes"]
    return config


class ServedMultipleChoice(serving.ServedLogits):
  """Returns `choice` <int32>[B], 0 to 3, and `probabilities` <float32>[B, 4].

  Attributes:
    max_qa_length: the maximum tokens of question and option.
  """

  kind = "multiple_choice"
  text_signatures = ("choose",)
  depth_inputs = ()
  options = len(LETTERS)
  takes_pairs = True

  def __init__(
    self,
    model: tf.keras.Model,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    max_qa_length: int,
  ):
    """Serves an `AlbertForMultipleChoice`; see `ServedModule`."""
    super().__init__(model, text_layer, max_seq_length)
    check_lengths(max_seq_length, max_qa_length)
    self.max_qa_length = max_qa_length

  def ids_outputs(self, features: Tensors) -> Tensors:
    logits = self.traced(features)["logits"]
    return {
      "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
      "probabilities": tf.nn.softmax(logits),
    }

  def text_functions(self) -> dict[str, serving.TextFunction]:
    def choose(**texts):
      return self.ids_outputs(self.pack_options(**texts))

    return {"choose": (("passage", "question", "options"), choose)}

  def pack_options(
    self, passage: tf.Tensor, question: tf.Tensor, options: tf.Tensor
  ) -> Tensors:
    """Packs texts in the graph like `make_all_inputs` of examples.py.

    Passages and questions are <string>[B], options are <string>[B, 4].

    Returns:
      `input_ids`, `input_mask`, `segment_ids` <int32>[B, 4, S].
    """
    layer, longest, number = self.text_layer, self.max_seq_length, self.options
    options = serving.check_rank("options", options, "B 4")
    shape, rows = serving.shape_of(options), tf.size(question)
    check = serving.refuse_unless(
      tf.reduce_all(tf.equal(shape, [rows, number])),
      f"options must hold {number} texts for each question, but the number of "
      "questions and the shape of options are",
      rows,
      shape,
    )
    options = serving.after_checks([check], options)
    # Before they are joined, see tasks/race/examples.py.
    if hasattr(layer, "normalize"):
      # This takes tens of bytes for each byte.
      texts = tf.concat([question[:, None], options], axis=1)
      check = _refuse_long(tf.strings.length(texts))
      texts = layer.normalize(serving.after_checks([check], texts))
      question, options = texts[:, 0], texts[:, 1:]
    tail = layer.tokenize(_with_options(question, options))
    tail = tail[:, -self.max_qa_length :]  # [B * 4, (tokens)]
    context = layer.tokenize(passage, longest)
    context = tf.gather(context, tf.repeat(tf.range(rows), number))
    # Only the passage is truncated, to the length that the others leave.
    space = longest - 3 - tail.row_lengths()
    kept = tf.ragged.range(tf.minimum(context.row_lengths(), space))
    context = tf.gather(context, kept, batch_dims=1)
    packed = in_graph.pack_pair(
      context, tail, longest, layer.cls_id, layer.sep_id
    )
    length = tf.shape(packed["input_ids"])[1]
    return {
      name: tf.reshape(x, [-1, number, length]) for name, x in packed.items()
    }

  def settings(self) -> dict[str, Any]:
    return {"max_qa_length": self.max_qa_length}


def _refuse_long(sizes: tf.Tensor) -> tf.Operation:
  return serving.refuse_unless(
    tf.reduce_all(sizes <= _QA_BYTES),
    f"a question and an option may have at most {_QA_BYTES} bytes when the "
    "option is in each blank: shorten them, or leave out blanks",
  )


def _with_options(question: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
  """Returns <string>[B * 4], see `make_all_inputs` of examples.py."""
  has_blank = tf.strings.regex_full_match(question, f"(?s).*{_BLANK}.*")
  question = tf.where(
    has_blank, question, tf.strings.join([question, f" {_BLANK}"])
  )
  # Many blanks with a long option would take all memory. The last tokens are
  # used, so the texts cannot be cut.
  without_blanks = tf.strings.regex_replace(question, _BLANK, "")
  rest, size, option_sizes = (
    tf.cast(tf.strings.length(x), tf.int64)
    for x in (without_blanks, question, options)
  )
  sizes = size[:, None] + (size - rest)[:, None] * option_sizes  # [B, 4]
  question = serving.after_checks([_refuse_long(sizes)], question)
  # In a rewrite, a backslash begins a reference.
  options = tf.strings.regex_replace(tf.reshape(options, [-1]), r"\\", r"\\\\")
  return tf.map_fn(
    lambda texts: tf.strings.regex_replace(texts[0], _BLANK, texts[1]),
    (tf.repeat(question, len(LETTERS)), options),
    fn_output_signature=tf.string,
  )
