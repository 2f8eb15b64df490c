"""The two question-answering models, for SQuAD 1.1 and SQuAD 2.0.

The first scores each token as start and end. The second has the head of XLNet:
ends are scored given the hidden state of the start, and a question may have no
answer. Reference: google-research/albert squad_utils.py (create_v1_model,
create_v2_model).

Letters: B batch, S sequence, H hidden, K best starts, M best ends of each.
"""

from __future__ import annotations

import functools
from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import modeling
from official_albert.settings import check_number

# The features of the records besides the encoder's inputs.
_FEATURES = (
  "p_mask start_positions end_positions is_impossible example_id example_weight"
).split()
# Score of positions that cannot be in an answer, as in the original.
NEVER = -1e30


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForSpans(modeling.HeadModel):
  """Scores each token as start and as end, for SQuAD 1.1.

  Attributes:
    scores: the outputs from which answers are decoded.
  """

  other_features = _FEATURES
  scores = ("start_logits", "end_logits")

  def __init__(self, config: modeling.AlbertConfig, *args, **kwargs):
    """Creates the variables; see `HeadModel`."""
    super().__init__(config, *args, **kwargs)
    self.output_weights = self.add_weight(
      "output_weights",
      [2, config.hidden_size],
      initializer=modeling.normal(config),
      experimental_autocast=False,
    )
    self.output_bias = self.add_weight(
      "output_bias", [2], initializer="zeros", experimental_autocast=False
    )
    self._create_variables()

  @modeling.without_autograph
  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Returns `AlbertModel`'s outputs and the logits, <float32>[B, S] each."""
    inputs, _ = self.named_inputs(features)
    outputs = self.albert(
      inputs,
      training=training,
      dropout_seed=dropout_seed,
      num_layers=num_layers,
    )
    x = outputs["sequence_output"]  # [B, S, H]
    x = tf.cast(x, modeling.wide(x.dtype))
    scores = tf.einsum("bsh,kh->kbs", x, tf.cast(self.output_weights, x.dtype))
    scores += tf.cast(self.output_bias, x.dtype)[:, None, None]
    outputs["start_logits"], outputs["end_logits"] = tf.unstack(scores)
    return outputs


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForSpansOrNone(modeling.HeadModel):
  """Scores starts, ends given the start, and answerability, for SQuAD 2.0."""

  other_features = _FEATURES
  scores = (
    "start_top_log_probs start_top_index end_top_log_probs end_top_index "
    "cls_logits"
  ).split()

  def __init__(
    self,
    config: modeling.AlbertConfig,
    start_n_top: int = 5,
    end_n_top: int = 5,
    classifier_dropout_prob: float = 0.1,
    *args,
    **kwargs,
  ):
    """Creates the variables; see `HeadModel` for the other arguments.

    K is `start_n_top` and M is `end_n_top`. The dropout is that of the hidden
    layer for answerability.
    """
    super().__init__(config, *args, **kwargs)
    check_number(
      "classifier_dropout_prob", classifier_dropout_prob, least=0, below=1
    )
    self.start_n_top = start_n_top
    self.end_n_top = end_n_top
    self.classifier_dropout_prob = classifier_dropout_prob
    dense = functools.partial(modeling.dense, self, is_wide=True)
    self.start_dense = dense(1, "start_dense")
    self.end_hidden = dense(config.hidden_size, "end_hidden")
    self.end_norm = modeling.LayerNorm(name="end_norm", dtype=self.dtype_policy)
    self.end_dense = dense(1, "end_dense")
    self.answer_hidden = dense(config.hidden_size, "answer_hidden")
    self.answer_dense = dense(1, "answer_dense", use_bias=False)
    # Built here: the two halves of its kernel are used without a call.
    self.end_hidden.build([None, 2 * config.hidden_size])
    self._create_variables("input_mask", "segment_ids")

  @modeling.without_autograph
  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Scores starts and ends.

    Features are those of `AlbertModel`; in training `start_positions`
    <int32>[B]; and `p_mask` [B, S], 1 where no answer may begin or end. By
    default, these are the question, each [SEP] and the padding, not [CLS],
    which represents "no answer".

    Returns:
      The outputs of `AlbertModel`, `start_log_probs` <float32>[B, S] and
      `cls_logits` <float32>[B] (high: no answer). With `start_positions`,
      `end_log_probs` <float32>[B, S] given the true start. The best starts,
      `start_top_log_probs` and `start_top_index` [B, K], and the best ends of
      each, `end_top_log_probs` and `end_top_index` [B, K * M], by start.
    """
    inputs, others = self.named_inputs(features)
    outputs = self.albert(
      inputs,
      training=training,
      dropout_seed=modeling.fold_in(dropout_seed, 0),
      num_layers=num_layers,
    )
    x = outputs["sequence_output"]  # [B, S, H]
    x = tf.cast(x, modeling.wide(x.dtype))
    p_mask = others.get("p_mask")
    if p_mask is None:
      p_mask = _outside_context(inputs["input_mask"], inputs["segment_ids"])
    p_mask = tf.cast(p_mask, x.dtype)  # [B, S]

    def log_probs(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
      return tf.nn.log_softmax(scores * (1 - mask) + NEVER * mask)

    start_scores = self.start_dense(x)[..., 0]  # [B, S]
    start_log_probs = log_probs(start_scores, p_mask)
    outputs["start_log_probs"] = start_log_probs
    if "start_positions" in others:
      start = tf.gather(
        x, tf.cast(others["start_positions"], tf.int32), batch_dims=1
      )  # [B, H]
      ends = self._end_scores(x, start[:, None], training)[:, 0]
      outputs["end_log_probs"] = log_probs(ends, p_mask)
    # Also in training: a functional Keras model needs the same outputs in both
    # modes, and a training graph prunes them.
    top = tf.nn.top_k(
      start_log_probs, tf.minimum(self.start_n_top, tf.shape(x)[1])
    )
    starts = tf.gather(x, top.indices, batch_dims=1)  # [B, K, H]
    ends = self._end_scores(x, starts, training)  # [B, K, S]
    end_top = tf.nn.top_k(
      log_probs(ends, p_mask[:, None]),
      tf.minimum(self.end_n_top, tf.shape(x)[1]),
    )  # [B, K, M]
    batch = tf.shape(x)[0]
    outputs["start_top_log_probs"] = top.values
    outputs["start_top_index"] = top.indices
    outputs["end_top_log_probs"] = tf.reshape(end_top.values, [batch, -1])
    outputs["end_top_index"] = tf.reshape(end_top.indices, [batch, -1])
    # The hidden state of the expected start, and that of [CLS].
    summary = tf.einsum("bsh,bs->bh", x, tf.exp(start_log_probs))
    y = tf.tanh(self.answer_hidden(tf.concat([summary, x[:, 0]], -1)))
    y = modeling.seeded_dropout(
      y,
      self.classifier_dropout_prob,
      training,
      modeling.fold_in(dropout_seed, 1),
    )
    outputs["cls_logits"] = self.answer_dense(y)[:, 0]
    return outputs

  def _end_scores(
    self, x: tf.Tensor, starts: tf.Tensor, training: Optional[bool]
  ) -> tf.Tensor:
    """Scores all ends for some starts: [B, S, H], [B, K, H] -> [B, K, S]."""
    # [x, start] W = x W_x + start W_s, without storing all pairs.
    w_x, w_s = tf.split(tf.cast(self.end_hidden.kernel, x.dtype), 2)
    by_token = tf.matmul(x, w_x)[:, None]  # [B, 1, S, H]
    by_start = tf.matmul(starts, w_s)[:, :, None]  # [B, K, 1, H]
    y = tf.tanh(by_token + by_start + tf.cast(self.end_hidden.bias, x.dtype))
    y = self.end_norm(y, training=training)
    return self.end_dense(y)[..., 0]

  def get_config(self) -> dict[str, Any]:
    return {
      **super().get_config(),
      "start_n_top": self.start_n_top,
      "end_n_top": self.end_n_top,
      "classifier_dropout_prob": self.classifier_dropout_prob,
    }


def _outside_context(
  input_mask: tf.Tensor, segment_ids: tf.Tensor
) -> tf.Tensor:
  """Returns <int>[B, S], 0 at the context's tokens and at [CLS], else 1."""
  # A context token is followed by another one or by [SEP].
  followed = tf.pad(input_mask[:, 1:], [[0, 0], [0, 1]])
  is_context = input_mask * followed * segment_ids
  is_cls = tf.one_hot([0], tf.shape(input_mask)[1], dtype=is_context.dtype)
  return (1 - is_context) * (1 - is_cls)
