"""Tokenizer files of transformers, whose `AutoTokenizer` gives our ids.

tokenizer.json states the rules of `tokenization` and `wordpiece` as steps of
the `tokenizers` package, which transformers runs as they are. What such steps
cannot state is listed in the folder's README.md.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import unicodedata
from typing import Any, Callable, Mapping, Optional

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.checkpoints import portable as portable_checkpoint

FAST_FILE = "tokenizer.json"
_SETTINGS = "tokenizer_config.json"
_README = "README.md"
_FILES = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}
# The class that runs tokenizer.json as it is. AlbertTokenizer and BertTokenizer
# of transformers 5 take its vocabulary only, and rules of their own.
_FAST_CLASS = "PreTrainedTokenizerFast"
_CLASSES = {"sentencepiece": "AlbertTokenizer", "wordpiece": "BertTokenizer"}
# Above it no character is white space, has case or combines with another.
_END_OF_LETTERS = 0x20000
_SPECIAL: Mapping[str, dict[str, Any]] = {
  "sentencepiece": {
    "bos_token": "[CLS]",
    "cls_token": "[CLS]",
    "eos_token": "[SEP]",
    "mask_token": {
      "content": "[MASK]",
      "lstrip": True,
      "normalized": False,
      "rstrip": False,
      "single_word": False,
    },
    "pad_token": "<pad>",
    "sep_token": "[SEP]",
    "unk_token": "<unk>",
  },
  "wordpiece": {
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
  },
}


def special_ids(
  tokenizer: Optional[portable_checkpoint.TokenizerFile],
) -> dict[str, int]:
  """Of padding, beginning and end, for config.json."""
  first, last = 2, 3
  if tokenizer and tokenizer.kind == "wordpiece":
    with open(tokenizer.path, encoding="utf-8") as file:
      pieces = [line.rstrip("\n") for line in file]
    try:
      first, last = pieces.index("[CLS]"), pieces.index("[SEP]")
    except ValueError as error:
      raise ValueError(
        f"{tokenizer.path} has no [CLS] or no [SEP]: it is no vocabulary of a "
        "BERT or ALBERT."
      ) from error
  return {"pad_token_id": 0, "bos_token_id": first, "eos_token_id": last}


def read(
  folder: str, notes: list[str]
) -> Optional[portable_checkpoint.TokenizerFile]:
  """The tokenizer in a folder; None if there is none that can be carried.

  Args:
    folder: of a Hugging Face model.
    notes: what does not mean the same here is added to it.

  Raises:
    ValueError: its settings are not valid JSON.
  """
  settings: dict[str, Any] = {}
  path = os.path.join(folder, _SETTINGS)
  if os.path.exists(path):
    with open(path, encoding="utf-8") as file:
      try:
        settings = json.load(file)
        lower_case = bool(settings.get("do_lower_case", True))
      except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not a valid JSON object.") from error
  lower_case = bool(settings.get("do_lower_case", True))
  for name, default in (("keep_accents", False), ("remove_space", True)):
    if settings.get(name, default) != default:
      notes.append(
        f"{_SETTINGS} says {name} {settings[name]}, which this package's "
        "tokenizer does not do: some texts will have other pieces."
      )
  for kind, name in _FILES.items():
    path = os.path.join(folder, name)
    if os.path.exists(path):
      return portable_checkpoint.TokenizerFile(path, kind, lower_case)
  if os.path.exists(os.path.join(folder, "tokenizer.json")):
    notes.append(
      "tokenizer.json is not carried: this package needs spiece.model or "
      "vocab.txt."
    )
  return None


def write(
  tokenizer: portable_checkpoint.TokenizerFile, folder: str, max_length: int
) -> str:
  """Writes the tokenizer, what says how to open it, and a README.md.

  Args:
    tokenizer: which.
    folder: of the model.
    max_length: longest sequence of the model.

  Returns:
    Why there is no tokenizer.json; "" if there is one.

  Raises:
    ValueError: the tokenizer's file is damaged.
    OSError: it cannot be written.
  """
  kind = tokenizer.kind
  shutil.copyfile(tokenizer.path, os.path.join(folder, _FILES[kind]))
  if kind == "sentencepiece":
    model = _read_model(tokenizer.path)
    obstacle = _obstacle(model)
    fast = {} if obstacle else _sentencepiece_json(model, tokenizer.lower_case)
  else:
    obstacle = ""
    fast = _wordpiece_json(tokenizer.path, tokenizer.lower_case)
  settings = {
    "tokenizer_class": _FAST_CLASS if fast else _CLASSES[kind],
    "do_lower_case": tokenizer.lower_case,
    "model_max_length": max_length,
    # transformers 5 leaves token types out unless they are named.
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    **{
      name: value if isinstance(value, str) else value["content"]
      for name, value in _SPECIAL[kind].items()
    },
  }
  if kind == "sentencepiece":
    settings.update(keep_accents=False, remove_space=True)
  for name, values in (
    (_SETTINGS, settings),
    ("special_tokens_map.json", _SPECIAL[kind]),
  ):
    path = os.path.join(folder, name)
    files.write_json(path, values, indent=2, sort_keys=True)
  if fast:
    path = os.path.join(folder, FAST_FILE)
    files.write_json(path, fast, indent=None, ensure_ascii=False)
  files.write_text(os.path.join(folder, _README), _readme(kind, obstacle, fast))
  return obstacle


def _read_model(path: str) -> sentencepiece_model_pb2.ModelProto:
  model = sentencepiece_model_pb2.ModelProto()
  with open(path, "rb") as file:
    try:
      model.ParseFromString(file.read())
    except Exception as error:  # DecodeError of whichever protobuf there is.
      raise ValueError(f"{path} is not a SentencePiece model.") from error
  return model


def _obstacle(model: sentencepiece_model_pb2.ModelProto) -> str:
  """Why a model has no tokenizer.json; "" if it can have one."""
  trainer, normalizer = model.trainer_spec, model.normalizer_spec
  if trainer.model_type != trainer.UNIGRAM:
    return "its SentencePiece model is no unigram model"
  if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
    return "its SentencePiece model does not mark spaces in front of words"
  return ""


def _sentencepiece_json(
  model: sentencepiece_model_pb2.ModelProto, lower_case: bool
) -> dict[str, Any]:
  """tokenizer.json of a unigram model."""
  mark = tokenization.WORD_START
  kinds = model.SentencePiece
  scores = [p.score for p in model.pieces if p.type == kinds.NORMAL]
  vocabulary = []
  for piece in model.pieces:
    text, score = piece.piece, piece.score
    if piece.type == kinds.USER_DEFINED:
      # unigram_model.cc, EncodeOptimized: the file's own score says nothing.
      score = len(text.encode()) * max(scores, default=0.0) - 0.1
    never = piece.type in (kinds.CONTROL, kinds.UNUSED)
    if (never and text not in tokenization.SPECIAL_PIECES) or (
      tokenization.ends_in_digit_comma(text)
    ):
      text += " "  # No text has a space when pieces are looked for.
    vocabulary.append([text, score])
  special = {
    tokenization.SPECIAL_PIECES[i]: i
    for i in range(len(tokenization.SPECIAL_PIECES))
  }
  metaspace = {
    "type": "Metaspace",
    "replacement": mark,
    # "first": what follows [MASK] without a space goes on within its word.
    "prepend_scheme": (
      "first" if model.normalizer_spec.add_dummy_prefix else "never"
    ),
    "split": not any(
      mark in p.piece[1:] for p in model.pieces if p.type == kinds.NORMAL
    ),
  }
  return _fast_json(
    special,
    _normalizers(model, lower_case),
    metaspace,
    metaspace,
    {
      "type": "Unigram",
      "unk_id": special["<unk>"],
      "vocab": vocabulary,
      "byte_fallback": model.trainer_spec.byte_fallback,
    },
  )


def _normalizers(
  model: sentencepiece_model_pb2.ModelProto, lower_case: bool
) -> list[dict[str, Any]]:
  """`tokenization.normalize_text`, then the model's own normalization."""
  processor = sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(model.SerializeToString())

  def is_dropped(char: str) -> bool:
    if unicodedata.combining(char):
      return True
    return (
      unicodedata.category(char) in ("Cc", "Cf")
      and not char.isspace()
      and processor.normalize(f"a{char}a") == processor.normalize("aa")
    )

  marks = _characters(lambda char: unicodedata.combining(char) > 0)
  steps = [
    _replace(f"{_characters(str.isspace)}+", " "),
    _replace(" $", ""),
    {"type": "NFKD"},
    # A text that lost its first character is no longer seen as the first
    # part, so a space stands in for it.
    _replace(f"^{_characters(is_dropped)}+", " "),
    _replace(f"{marks}+", ""),
  ]
  if lower_case:
    steps += [_final_sigma(), {"type": "Lowercase"}]
  if processor.normalize("\u1100\u1161").endswith("\uac00"):
    # The model puts Hangul together again. Precompiled looks at three bytes
    # of a syllable at a time, and would not.
    steps.append({"type": "NFC"})
  spec = model.normalizer_spec
  if spec.precompiled_charsmap:
    rules = base64.b64encode(spec.precompiled_charsmap).decode("ascii")
    steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
  if spec.remove_extra_whitespaces:
    steps += [_replace(" {2,}", " "), _replace(" $", "")]
  return steps


def _final_sigma() -> dict[str, Any]:
  """The sigma that ends a word, in lower case (Unicode's SpecialCasing.txt).

  Lower-casing looks at single characters in `tokenizers`.
  """
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


def _wordpiece_json(path: str, lower_case: bool) -> dict[str, Any]:
  """tokenizer.json of a vocab.txt."""
  with open(path, "rb") as file:
    pieces = tokenization.read_vocabulary(file.read())
  vocabulary = {piece: i for i, piece in enumerate(pieces)}
  return _fast_json(
    {
      piece: vocabulary[piece]
      for piece in tokenization.WORDPIECE_SPECIAL_PIECES
    },
    [
      *([_final_sigma()] if lower_case else []),
      {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": lower_case,
        "lowercase": lower_case,
      },
    ],
    {"type": "BertPreTokenizer"},
    {"type": "WordPiece", "prefix": tokenization.CONTINUATION, "cleanup": True},
    {
      "type": "WordPiece",
      "unk_token": "[UNK]",
      "continuing_subword_prefix": tokenization.CONTINUATION,
      "max_input_chars_per_word": tokenization.MAX_WORD_CHARACTERS,
      "vocab": vocabulary,
    },
  )


def _fast_json(
  special: Mapping[str, int],
  normalizers: list[dict[str, Any]],
  pre_tokenizer: Mapping[str, Any],
  decoder: Mapping[str, Any],
  model: Mapping[str, Any],
) -> dict[str, Any]:
  """The parts of a tokenizer.json, with what every ALBERT has.

  Args:
    special: ids by special pieces.
    normalizers: one after the other.
    pre_tokenizer: cuts words.
    decoder: from pieces to text.
    model: cuts words into pieces.
  """

  def part(name: str, segment: int) -> dict[str, Any]:
    kind = "Sequence" if name in "AB" else "SpecialToken"
    return {kind: {"id": name, "type_id": segment}}

  first = [part("[CLS]", 0), part("A", 0), part("[SEP]", 0)]
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
    "pre_tokenizer": pre_tokenizer,
    "post_processor": {
      "type": "TemplateProcessing",
      "single": first,
      "pair": [*first, part("B", 1), part("[SEP]", 1)],
      "special_tokens": {
        piece: {"id": piece, "ids": [special[piece]], "tokens": [piece]}
        for piece in ("[CLS]", "[SEP]")
      },
    },
    "decoder": decoder,
    "model": model,
  }


def _replace(pattern: str, text: str) -> dict[str, Any]:
  return {"type": "Replace", "pattern": {"Regex": pattern}, "content": text}


def _characters(test: Callable[[str], bool]) -> str:
  """A class of a regular expression, of the characters that pass a test.

  Written out, so that it does not depend on the Unicode version of its reader.
  """
  codes = [
    code
    for code in range(_END_OF_LETTERS)
    if not 0xD800 <= code < 0xE000 and test(chr(code))
  ]
  firsts = [c for i, c in enumerate(codes) if not i or codes[i - 1] != c - 1]
  lasts = [
    c for i, c in enumerate(codes, 1) if i == len(codes) or codes[i] != c + 1
  ]
  spans = (
    rf"\x{{{first:x}}}" + (rf"-\x{{{last:x}}}" if last > first else "")
    for first, last in zip(firsts, lasts)
  )
  return f"[{''.join(spans)}]"


def _readme(kind: str, obstacle: str, fast: Mapping[str, Any]) -> str:
  """What a user of the folder has to know of its tokenizer."""
  name = {"sentencepiece": "Albert", "wordpiece": "Bert"}[kind]
  if obstacle:
    return _README_TOP + _README_WITHOUT.format(obstacle=obstacle, name=name)
  newer = {"sentencepiece": "U+1FBF0", "wordpiece": "U+061D"}[kind]
  text = _README_TOP + _README_WITH.format(name=name, newer=newer)
  if kind == "sentencepiece":
    pieces = fast["model"]["vocab"]
    if any(piece.endswith(", ") for piece, _ in pieces):
      text += _README_COMMA
    text += _README_TIES
  return text


_README_TOP = """\
# ALBERT for transformers

Written by `tools.convert_checkpoint` of official_albert. `conversion.json`
lists what was carried and how it was checked.

## Tokenizer

"""
_README_WITHOUT = """\
This folder has no `tokenizer.json`: {obstacle}.
`{name}Tokenizer` of transformers gives other ids than the model was trained
with for some texts, such as those with `` or '', which it replaces by ".
"""
_README_WITH = """\
`AutoTokenizer` and `pipeline` use `tokenizer.json`, which gives the ids that
the model was trained with. Exceptions:

- A special token that is written in a text, such as `[MASK]` or `[SEP]`,
  becomes that token. official_albert tokenizes it like any other text.
- `{name}Tokenizer` and `{name}TokenizerFast`, if named instead of
  `AutoTokenizer`, may apply rules of their own, depending on the version of
  transformers.
- Characters that are newer than the Unicode version of either program may be
  normalized by one of them only, such as {newer}.
"""
_README_COMMA = """\
- A word with a digit and a comma inside it may be cut at other places.
  official_albert cuts the comma off pieces such as `\u25812005,`, which
  `tokenizer.json` never uses. The ids of `2005,` are the same, those of
  `2005,000` may not be: its pieces are `\u25812005 , 000` in official_albert
  and `\u2581200 5,000` in transformers.
"""
_README_TIES = """\
- If two ways to cut a word have the same score, either may be chosen.
"""
