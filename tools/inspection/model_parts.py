"""Parameters by part and operations a token, from a configuration alone."""

from __future__ import annotations

from official_albert import modeling
from tasks import pretraining


def head_parameters(config: modeling.AlbertConfig) -> dict[str, int]:
  """Those of the pretraining heads; the word table that one uses is not new."""
  v, e, h = config.vocab_size, config.embedding_size, config.hidden_size
  return {
    # Dense H -> E, LayerNorm, a bias for each piece.
    "masked_lm_head": (h * e + e) + 2 * e + v,
    "sentence_order_head": 2 * h + 2,
  }


def parameters(config: modeling.AlbertConfig) -> dict[str, int]:
  """Of each part, then `encoder` (embeddings to pooler) and `pretraining`.

  The last two are sums, without and with the heads of pretraining.
  """
  encoder, heads = config.parameters_by_part(), head_parameters(config)
  total = sum(encoder.values())
  return {
    **encoder,
    **heads,
    "encoder": total,
    "pretraining": total + sum(heads.values()),
  }


def default_predictions(max_seq_length: int) -> int:
  """15% of the tokens, as the original masks."""
  return max(1, int(0.15 * max_seq_length))


def flops_per_token(
  config: modeling.AlbertConfig, max_seq_length: int, predictions: int
) -> dict[str, float]:
  """Operations of matrix products for each token of a full sequence.

  A multiply and an add are two.

  Args:
    config: the model.
    max_seq_length: S; attention costs more a token the longer a sequence is.
    predictions: masked tokens P of a training sequence.

  Returns:
    `forward` of the encoder, every position of its output computed; `training`
    with the heads of pretraining, forward and gradient, where the last block
    computes what the heads need.
  """
  training = pretraining.training_flops(config, max_seq_length, predictions)
  return {
    "forward": config.forward_flops(max_seq_length) / max_seq_length,
    "training": training / max_seq_length,
  }
