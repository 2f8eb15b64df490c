"""Small SentencePiece vocabularies and random texts for tests of tokenizers.

All vocabularies begin like that of ALBERT: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3,
[MASK] 4.
"""

from __future__ import annotations

import io
import random
from typing import Any, Callable, Iterable, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2


def train(lines: Iterable[str], vocab_size: int, **options: Any) -> bytes:
  """Returns a .model file of a unigram model, as tools.train_vocabulary does.

  Few lines give a smaller vocabulary. `options` are those of sentencepiece's
  trainer.
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
  """Returns a .model file whose pieces after the special ones are numbers."""
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


def odd_texts(
  letters: Sequence[str],
  count: int,
  seed: int,
  further: Callable[[random.Random], str],
) -> list[str]:
  """Returns texts of up to 24 letters; `further` draws another one, or ""."""
  rng = random.Random(seed)
  texts = []
  for _ in range(count):
    drawn = [*rng.choices(letters, k=rng.randrange(25)), further(rng)]
    drawn = [letter for letter in drawn if letter]
    rng.shuffle(drawn)
    texts.append("".join(drawn))
  return texts
