"""Small SentencePiece vocabularies and random texts for tests of tokenizers.

All vocabularies begin like that of ALBERT: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3,
[MASK] 4.
"""

from __future__ import annotations

import io
import random
from typing import Any, Iterable

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


# Letters that are lengthened, shortened, decomposed, composed, deleted or
# separated, or that depend on their neighbors.
ODD_LETTERS = {
  "marks": "aeAÉÅệ\u0301\u0308\u0327\u0344\u0345\u05b0\u0f73\u0338=\u3099か",
  "emoji": "👩👧👍🏽\u200d\ufe0f❤🇩🇪🙂\u20e3#1",
  "hangul": "한각국\u1112\u1161\u11abㄱㅏﾡ가\u302e",
  "thai": "ภาษาไทยน้ำก็ที่ำ\u0e33อ",
  "full width": "ＡＢｚ１９，．（ｶﾞﾊﾟ\u3000～￥＿",
  "controls": "\0\x01\t\n\r\x0b\x1c\x7f\x85\xa0\xad\u061c\u200b\u202e\ufeff",
  "spaces and no characters": "  \u2003\u2028\u3000\ufffd\ufdd0\ufffe\uffff▁",
  "compatibility": "ﬁﬃ½①㍿ⅷ™…㎏ĳ\ufdfa\xa8´ªº²⁄\u1d2c▁",
  "case": "ΣΣσςΑάİIıßẞǅK\u212b𝚺ϹΩ\u2126:'.",
  "chinese": "中国人。、\U0002f81a\uf900㐀々〆ガ゛日",
  "indic and semitic": "क्षिहिन्दी ୋ\u0b47\u0b3e\u0dd9\u0ddd\u1b44עִבְ الْعَرَ",
  "digits": "19,7,22,(-/)½٣",
}


def odd_texts(each: int, seed: int) -> list[str]:
  """Returns texts of each category, and of any characters of Unicode."""
  rng = random.Random(seed)
  texts = []
  for letters in [*ODD_LETTERS.values(), ""]:
    for _ in range(each):
      drawn = [
        rng.choice(letters) if letters else chr(rng.randrange(0x30000))
        for _ in range(rng.randrange(16))
      ]
      drawn += rng.choices("aBz 19,.", k=rng.randrange(9))
      rng.shuffle(drawn)
      texts.append("".join(drawn).encode("utf-8", "ignore").decode("utf-8"))
  return texts
