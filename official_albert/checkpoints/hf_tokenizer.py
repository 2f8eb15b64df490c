"""Writes tokenizer files that give transformers' `AutoTokenizer` the same ids.

tokenizer.json expresses the rules of `tokenization` as steps of the package
`tokenizers`, which transformers runs unchanged. docs/checkpoints.md lists the
rules that such steps cannot express.
"""

from __future__ import annotations

import base64
import functools
import os
import unicodedata
from typing import Any, Callable, Mapping, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.checkpoints import tokenizer_file

SETTINGS_FILE, FAST_FILE = "tokenizer_config.json", "tokenizer.json"
FILES = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}
SPECIAL_PIECES = {
  "sentencepiece": tokenization.SPECIAL_PIECES,
  "wordpiece": tokenization.WORDPIECE_SPECIAL_PIECES,
}
# In the order of `SPECIAL_PIECES`.
SPECIAL_NAMES = (
  *("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
)


def write(
  tokenizer: tokenizer_file.TokenizerFile, folder: str, max_length: int
) -> None:
  """Writes the tokenizer and its settings.

  Raises:
    ValueError: it is a SentencePiece model whose ids no tokenizer.json gives.
  """
  kind: str = tokenizer.kind
  python: Any = tokenizer.open()
  settings: dict[str, Any] = {
    # This class runs tokenizer.json unchanged. AlbertTokenizer and
    # BertTokenizer of transformers 5 apply rules of their own.
    "tokenizer_class": "PreTrainedTokenizerFast",
    **dict(zip(SPECIAL_NAMES, SPECIAL_PIECES[kind])),
    "do_lower_case": tokenizer.rules.lower_case,
    "model_max_length": max_length,
    # transformers 5 omits token types that are not listed.
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
  }
  if kind == "wordpiece":
    fast = _wordpiece_json(tokenizer)
    settings.update(
      strip_accents=not python.keep_accents,
      tokenize_chinese_chars=tokenizer.rules.split_chinese,
    )
  else:
    model = sentencepiece_model_pb2.ModelProto.FromString(python.model)
    trainer = model.trainer_spec
    if (
      trainer.model_type != trainer.UNIGRAM
      or trainer.treat_whitespace_as_suffix
      or not model.normalizer_spec.escape_whitespaces
    ):
      raise ValueError(
        f"{tokenizer.path} is not a unigram model that marks spaces in front "
        f"of words, so that no {FAST_FILE} gives its ids: to convert the "
        "weights alone, move it to another folder."
      )
    fast = _sentencepiece_json(model, tokenizer.rules)
    settings.update(
      bos_token="[CLS]",
      eos_token="[SEP]",
      keep_accents=python.keep_accents,
      remove_space=True,
    )
  files.write_bytes(os.path.join(folder, FILES[kind]), tokenizer.read())
  path = os.path.join(folder, SETTINGS_FILE)
  files.write_json(path, settings, indent=2, sort_keys=True)
  path = os.path.join(folder, FAST_FILE)
  files.write_json(path, fast, indent=None, ensure_ascii=False)


def _sentencepiece_json(
  model: sentencepiece_model_pb2.ModelProto, rules: tokenization.TextRules
) -> dict[str, Any]:
  """Returns the tokenizer.json of a unigram model."""
  mark, kinds = tokenization.WORD_START, model.SentencePiece
  normal = [piece for piece in model.pieces if piece.type == kinds.NORMAL]
  vocabulary = []
  for piece in model.pieces:
    text = piece.piece
    is_unused = (
      piece.type in (kinds.CONTROL, kinds.UNUSED)
      and text not in tokenization.SPECIAL_PIECES
    )
    if is_unused or tokenization.ends_in_digit_comma(text):
      text += " "  # Never matches, because texts have no spaces at this point.
    vocabulary.append([text, piece.score])
  metaspace = {
    "type": "Metaspace",
    "replacement": mark,
    # With "first", text directly after [MASK] does not start a word.
    "prepend_scheme": (
      "first" if model.normalizer_spec.add_dummy_prefix else "never"
    ),
    "split": not any(mark in piece.piece[1:] for piece in normal),
  }
  return _fast_json(
    {piece: i for i, piece in enumerate(tokenization.SPECIAL_PIECES)},
    normalizers(model, rules),
    pre_tokenizer=metaspace,
    decoder=metaspace,
    model={
      "type": "Unigram",
      "unk_id": tokenization.SPECIAL_PIECES.index("<unk>"),
      "vocab": vocabulary,
      "byte_fallback": model.trainer_spec.byte_fallback,
    },
  )


def normalizers(
  model: sentencepiece_model_pb2.ModelProto, rules: tokenization.TextRules
) -> list[dict[str, Any]]:
  """Returns the steps of `normalize_text`, followed by the model's own."""
  processor = sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(model.SerializeToString())

  def is_dropped(char: str) -> bool:
    if unicodedata.combining(char):
      return not rules.keep_accents
    return (
      unicodedata.category(char) in ("Cc", "Cf")
      and not char.isspace()
      and processor.normalize(f"a{char}a") == processor.normalize("aa")
    )

  marks = _characters(lambda char: unicodedata.combining(char) > 0)
  dropped = _characters(is_dropped)
  spec = model.normalizer_spec
  has_prefix = spec.add_dummy_prefix
  # Otherwise, a space at the start would become one.
  at_start = [] if has_prefix else [_replace("^ ", "")]
  steps = [
    _replace(f"{_characters(str.isspace)}+", " "),
    _replace(" $", ""),
    *at_start,
    *([] if rules.keep_accents else [{"type": "NFKD"}]),
    # If the first character is removed, the text no longer counts as the first
    # part, so a space replaces it.
    *([_replace(f"^{dropped}+", " " * has_prefix)] if dropped else []),
    *([] if rules.keep_accents else [_replace(f"{marks}+", "")]),
  ]
  if rules.lower_case:
    steps += [_final_sigma(), {"type": "Lowercase"}]
  if processor.normalize("\u1100\u1161").endswith("\uac00"):
    # The model composes Hangul syllables. Precompiled does not, as it looks at
    # three bytes at a time. After NFKD, NFC is enough.
    steps.append({"type": "NFKC" if rules.keep_accents else "NFC"})
  if spec.precompiled_charsmap:
    charsmap = base64.b64encode(spec.precompiled_charsmap).decode("ascii")
    steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
  if spec.remove_extra_whitespaces:
    steps += [_replace(" {2,}", " "), _replace(" $", ""), *at_start]
  return steps


def _final_sigma() -> dict[str, Any]:
  # `tokenizers` lower-cases each character on its own, without the rule for a
  # sigma at the end of a word in Unicode's SpecialCasing.txt.
  cased = _characters(lambda char: char.lower() != char or char.upper() != char)
  between = _characters(
    lambda char: (
      unicodedata.category(char) in ("Mn", "Me", "Cf", "Lm", "Sk")
      or char in "'.:\xb7\u2018\u2019\u2024\u2027"
    )
  )
  return _replace(
    f"(?<={cased}{between}*)\u03a3(?!{between}*{cased})", "\u03c2"
  )


def _wordpiece_json(tokenizer: tokenizer_file.TokenizerFile) -> dict[str, Any]:
  """Returns the tokenizer.json of a vocab.txt."""
  pieces = tokenization.read_vocabulary(tokenizer.read())
  vocabulary = {piece: i for i, piece in enumerate(pieces)}
  mark, rules = tokenization.CONTINUATION, tokenizer.rules
  return _fast_json(
    {p: vocabulary[p] for p in tokenization.WORDPIECE_SPECIAL_PIECES},
    [
      *([_final_sigma()] if rules.lower_case else []),
      {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": rules.split_chinese,
        "strip_accents": not tokenizer.open().keep_accents,
        "lowercase": rules.lower_case,
      },
    ],
    pre_tokenizer={"type": "BertPreTokenizer"},
    decoder={"type": "WordPiece", "prefix": mark, "cleanup": True},
    model={
      "type": "WordPiece",
      "unk_token": "[UNK]",
      "continuing_subword_prefix": mark,
      "max_input_chars_per_word": rules.max_word_characters,
      "vocab": vocabulary,
    },
  )


def _fast_json(
  special: Mapping[str, int],
  normalizers: Sequence[Mapping[str, Any]],
  **parts: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns a tokenizer.json with the special tokens and pairs of ALBERT.

  `parts` are the pre_tokenizer, the decoder and the model.
  """
  return {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
      {
        "id": id,
        "content": piece,
        "single_word": False,
        "lstrip": piece == "[MASK]",
        "rstrip": False,
        "normalized": False,
        "special": True,
      }
      for piece, id in sorted(special.items(), key=lambda item: item[1])
    ],
    "normalizer": {"type": "Sequence", "normalizers": normalizers},
    "post_processor": joined_texts(special),
    **parts,
  }


def joined_texts(ids: Mapping[str, int]) -> dict[str, Any]:
  """Returns the step that joins texts as [CLS] A [SEP] B [SEP]."""

  def part(name: str, segment: int) -> dict[str, Any]:
    kind = "Sequence" if name in "AB" else "SpecialToken"
    return {kind: {"id": name, "type_id": segment}}

  first = [part("[CLS]", 0), part("A", 0), part("[SEP]", 0)]
  return {
    "type": "TemplateProcessing",
    "single": first,
    "pair": [*first, part("B", 1), part("[SEP]", 1)],
    "special_tokens": {
      piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]}
      for piece in ("[CLS]", "[SEP]")
    },
  }


def _replace(pattern: str, text: str) -> dict[str, Any]:
  return {"type": "Replace", "pattern": {"Regex": pattern}, "content": text}


@functools.cache
def _without_letters() -> str:
  """Returns the assigned characters that are not letters without case.

  None after U+20000 is white space, has case or combines with another.
  """
  others = ("Lo", "Cn", "Co", "Cs")
  characters = map(chr, range(0x20000))
  return "".join(x for x in characters if unicodedata.category(x) not in others)


def _characters(test: Callable[[str], bool]) -> str:
  return tokenization.character_class(test, _without_letters())
