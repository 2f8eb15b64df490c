"""Small SentencePiece vocabularies for tests.

Both begin as ALBERT's do: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4.
"""

from __future__ import annotations

import io
from typing import Any, Iterable

import sentencepiece
from sentencepiece import sentencepiece_model_pb2


def train(lines: Iterable[str], vocab_size: int, **options: Any) -> bytes:
  """Trains a unigram model, as tools.train_vocabulary does.

  Args:
    lines: of text.
    vocab_size: V at most; of few lines it may become smaller.
    **options: of sentencepiece's trainer.

  Returns:
    The .model file.
  """
  file = io.BytesIO()
  settings = {
    "hard_vocab_limit": False,
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": "[CLS],[SEP],[MASK]",
    "minloglevel": 2,
    **options,
  }
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines),
    model_writer=file,
    vocab_size=vocab_size,
    **settings,
  )
  return file.getvalue()


def numbers(vocab_size: int) -> bytes:
  """Returns a .model file whose pieces after ALBERT's own are numbers."""
  model = sentencepiece_model_pb2.ModelProto()
  kinds = model.SentencePiece
  for piece in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"):
    model.pieces.add(piece=piece, type=kinds.USER_DEFINED)
  model.pieces[0].type, model.pieces[1].type = kinds.CONTROL, kinds.UNKNOWN
  for number in range(5, vocab_size):
    model.pieces.add(piece=f"\u2581{number}", type=kinds.NORMAL)
  spec = model.trainer_spec
  spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = 0, 1, -1, -1
  return model.SerializeToString()
