"""What training on a sequence costs, in floating-point operations.

Without TensorFlow, so that programs which only plan can ask.
"""

from __future__ import annotations

from official_albert import modeling


def training_flops(
  config: modeling.AlbertConfig, sequence_length: int, predictions: int
) -> int:
  """Floating-point operations of training on one sequence.

  Forward, and twice that for the gradient, with the masked LM head.
  """
  head = 2 * predictions * config.embedding_size
  head *= config.hidden_size + config.vocab_size
  # The heads need the masked positions and the first one of the last block.
  rows = min(predictions + 1, sequence_length)
  return 3 * (config.forward_flops(sequence_length, rows) + head)
