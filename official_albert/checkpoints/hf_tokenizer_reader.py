"""Reads tokenizer files of Hugging Face: what they say is obeyed or refused.

A folder holds a vocabulary (spiece.model or vocab.txt), settings
(tokenizer_config.json and others) and, in most cases, tokenizer.json, which has
all rules as steps of the package `tokenizers`. transformers reads it where it
can. So its rules must be those of the settings, and a folder with nothing else
is read from it.

Source: tokenization_albert.py, tokenization_bert.py, convert_slow_tokenizer.py
and tokenization_utils_fast.py of transformers 4.57.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import os
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from google.protobuf import message
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.checkpoints import tokenizer_file
from official_albert.checkpoints.hf_tokenizer import (
  FAST_FILE,
  FILES,
  SETTINGS_FILE,
  SPECIAL_NAMES,
  SPECIAL_PIECES,
  joined_texts,
)

_TOKENS_FILE, _ADDED_FILE = "special_tokens_map.json", "added_tokens.json"
# Other settings with special tokens.
_FURTHER_TOKENS = (
  *("bos_token", "eos_token"),
  *("additional_special_tokens", "extra_special_tokens"),
)
# Classes that run tokenizer.json unchanged.
_GENERAL = ("PreTrainedTokenizer", "TokenizersBackend")
_CLASSES = {
  "sentencepiece": ("AlbertTokenizer",),
  "wordpiece": (
    "BertTokenizer",
    "ConvBertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "MobileBertTokenizer",
  ),
}
_MODELS = {"Unigram": "sentencepiece", "WordPiece": "wordpiece"}
# Settings with the only value that is supported; None stands for it, too.
_COMMON = {"padding_side": "right", "truncation_side": "right", "auto_map": {}}
_SETTINGS: dict[str, dict[str, Any]] = {
  "sentencepiece": {
    **_COMMON,
    "remove_space": True,
    "sp_model_kwargs": {},
    "add_prefix_space": True,
  },
  "wordpiece": {
    **_COMMON,
    "do_basic_tokenize": True,
    "never_split": [],
    "clean_text": True,
    "wordpieces_prefix": tokenization.CONTINUATION,
  },
}
# Fields of `TextRules` and their settings. That of `strip_accents` is negated.
_RULES = {
  "sentencepiece": {
    "lower_case": "do_lower_case",
    "keep_accents": "keep_accents",
  },
  "wordpiece": {
    "lower_case": "do_lower_case",
    "keep_accents": "strip_accents",
    "split_chinese": "tokenize_chinese_chars",
  },
}
# Steps of tokenizer.json: the keys of their sequences.
_PARTS = {
  "normalizer": "normalizers",
  "pre_tokenizer": "pretokenizers",
  "post_processor": "processors",
}
# What the steps before a unigram model do that AlbertTokenizer or this package
# writes; a step that replaces one text by another is named by both.
_STEPS: dict[Any, str] = {
  **{
    name: name
    for name in ("NFKD", "StripAccents", "Lowercase", "Precompiled", "Strip")
  },
  ("``", '"'): "quotes",
  ("''", '"'): "quotes",
  (" {2,}", " "): "spaces",
  (" $", ""): "Strip",
}
# What the regular expressions that `hf_tokenizer` writes are replaced by, and
# so do: to combining marks, white space, or a final sigma.
_FINAL_SIGMA = "\u03c2"
_OWN = {"": "marks", " ": "spaces", _FINAL_SIGMA: ""}
_QUOTES = "changes `` and '' to \""
# The longest word of BertTokenizer.
_MAX_WORD_CHARACTERS = 100
# Errors for files of another form.
_DAMAGED = (
  *(ValueError, LookupError, TypeError, AttributeError, message.DecodeError),
)


class _Unsupported(ValueError):
  """The reason why a folder is refused: a file, and what it says."""


def _check(
  file: str,
  values: Mapping[str, Any],
  expected: Mapping[str, Any],
  part: str = "",
) -> None:
  """Refuses values other than the expected ones; None stands for these."""
  for name, value in expected.items():
    found = values.get(name)
    if found is not None and found != value:
      raise _Unsupported(
        f"{file} has {part}{name} {found!r:.80}, not {value!s:.80}"
      )


def read(
  folder: str, notes: list[str]
) -> Optional[tokenizer_file.TokenizerFile]:
  """Returns the tokenizer in a folder, or None if there is none.

  If the folder says something that this package does not do, the tokenizer has
  a `problem`, so that it cannot be used; the weights can. `notes` get remarks.

  Raises:
    ValueError: a file is not JSON.
  """
  settings = _read_json(folder, SETTINGS_FILE)
  found = [
    kind
    for kind, name in FILES.items()
    if files.exists(os.path.join(folder, name))
  ]
  fast = _read_json(folder, FAST_FILE)
  if not found and not fast:
    return None
  path, kind = os.path.join(folder, FAST_FILE), "sentencepiece"
  rules, problem = tokenization.TextRules(), ""
  made: Optional[bytes] = None
  try:
    kind = _kind(folder, settings, found, fast)
    unigram = _read_unigram(fast) if fast and kind == "sentencepiece" else None
    if kind in found:
      path = os.path.join(folder, FILES[kind])
      content = files.read_bytes(path)
    else:
      content = made = (
        unigram.model.SerializeToString() if unigram else _lines_of(fast)
      )
      notes.append(f"{FILES[kind]} is made from {path}.")
    base = _without_fast(settings.get("tokenizer_class"))
    rules = _rules(kind, settings, fast, unigram, content, base)
    _check_special(kind, folder, settings, fast, content, base)
    if kind == "sentencepiece":
      done = [] if base in _GENERAL else [_QUOTES]
      if done := unigram.differences if unigram else done:
        notes.append(
          f"transformers {', '.join(done)}, which this package does not, as "
          "the original."
        )
    inputs = settings.get("model_input_names")
    if inputs and "token_type_ids" not in inputs:
      notes.append(
        f"{SETTINGS_FILE} has no token_type_ids in model_input_names, so that "
        "transformers gives both texts of a pair segment 0; here the second "
        "one has segment 1."
      )
  except _Unsupported as error:
    problem = str(error)
  except _DAMAGED as error:
    reason = f"{type(error).__name__} {error}"
    problem = f"one of its files is damaged ({reason!s:.80})"
  if problem:
    given = "vocab_file" if kind == "wordpiece" else "spm_model_file"
    problem = (
      f"the tokenizer of {folder} is not supported, because {problem}, so that "
      "transformers would give other ids: save it without that, or ignore it "
      f"with --{given} (tokenizer= in Python)."
    )
  return tokenizer_file.TokenizerFile(path, kind, rules, problem, made)


def _read_json(folder: str, name: str) -> dict[str, Any]:
  """Returns the content of a file; {} if it does not exist."""
  path = os.path.join(folder, name)
  if not files.exists(path):
    return {}
  return files.read_json(path, dict[str, Any], "copy the file again")


def _without_fast(name: Any) -> str:
  return str(name or "").removesuffix("Fast")


def _kind(
  folder: str,
  settings: Mapping[str, Any],
  found: list[str],
  fast: Mapping[str, Any],
) -> str:
  """Returns the kind of the tokenizer that the class in the settings reads."""
  where, name = SETTINGS_FILE, settings.get("tokenizer_class")
  if not name:
    where = "config.json"
    name = _read_json(folder, where).get("tokenizer_class")
  base = _without_fast(name)
  kinds = [
    kind for kind, names in _CLASSES.items() if base in ("", *_GENERAL, *names)
  ]
  if fast:
    # Old files do not name the model of WordPiece.
    model = fast["model"].get("type") or "WordPiece"
    if model not in _MODELS:
      raise _Unsupported(f"{FAST_FILE} has a model of type {model!r:.40}")
    kinds = [kind for kind in kinds if kind == _MODELS[model]]
    found = found or kinds
  kinds_left = [kind for kind in found if kind in kinds]
  if not kinds_left:
    raise _Unsupported(
      f"{where} has tokenizer_class {name!r:.40}, which does not read "
      + (" and ".join(FILES[kind] for kind in found) or FAST_FILE)
      if name
      else f"{FAST_FILE} has another kind of model than {FILES[found[0]]}"
    )
  return kinds_left[0]


def _texts_of(value: Any) -> list[Any]:
  """Returns the texts of a token, or of a list or an object of tokens.

  A token may be an object with settings.
  """
  if isinstance(value, dict):
    value = value["content"] if "content" in value else list(value.values())
  if isinstance(value, list):
    return [text for token in value for text in _texts_of(token)]
  return [value] if value else []


def _check_special(
  kind: str,
  folder: str,
  settings: Mapping[str, Any],
  fast: Mapping[str, Any],
  content: bytes,
  base: str,
) -> None:
  """Refuses special tokens of other names and ids, added tokens, other pairs.

  `base` is the class of the tokenizer.
  """
  names = SPECIAL_PIECES[kind]
  pieces: Sequence[str] = names
  if kind == "wordpiece":
    pieces = tokenization.read_vocabulary(content)
  # Of a repeated piece the last line counts.
  ids = {piece: i for i, piece in enumerate(pieces) if piece in names}
  for file, tokens in (
    (_TOKENS_FILE, _read_json(folder, _TOKENS_FILE)),
    (SETTINGS_FILE, settings),
  ):
    texts = {name: _texts_of(tokens.get(name)) for name in SPECIAL_NAMES}
    texts = {name: text[0] for name, text in texts.items() if text}
    _check(file, texts, dict(zip(SPECIAL_NAMES, names)))
    for name in _FURTHER_TOKENS:
      for token in _texts_of(tokens.get(name)):
        if token not in names:
          raise _Unsupported(f"{file} has {token!r:.60} in {name}")
  decoder = settings.get("added_tokens_decoder") or {}
  added: list[tuple[str, Any, Any]] = [
    *((_ADDED_FILE, i, x) for x, i in _read_json(folder, _ADDED_FILE).items()),
    *((SETTINGS_FILE, i, x) for i, x in decoder.items()),
    *((FAST_FILE, x["id"], x) for x in fast.get("added_tokens", [])),
  ]
  for file, number, value in added:
    (token,) = _texts_of(value)
    if token not in ids:
      raise _Unsupported(f"{file} adds the token {token!r:.60}")
    if str(number) != str(ids[token]):
      raise _Unsupported(
        f"{file} gives {token} id {number!s:.20} instead of {ids[token]}"
      )
  processors = _steps(fast, "post_processor")
  if fast and not processors and base in _GENERAL:
    raise _Unsupported(f"{FAST_FILE} has no post_processor for [CLS] and [SEP]")
  for processor in processors:
    expected = joined_texts(ids)
    tokens = expected.pop("special_tokens")
    if processor["type"] == "BertProcessing":
      expected = {
        "cls": ["[CLS]", ids["[CLS]"]],
        "sep": ["[SEP]", ids["[SEP]"]],
      }
    else:
      found = processor.get("special_tokens", {})
      _check(FAST_FILE, found, tokens, "special_tokens ")
    _check(FAST_FILE, processor, expected, "post_processor ")


def _rules(
  kind: str,
  settings: Mapping[str, Any],
  fast: Mapping[str, Any],
  unigram: Optional[_Unigram],
  content: bytes,
  base: str,
) -> tokenization.TextRules:
  """Returns the rules of the settings; tokenizer.json must have the same."""
  _check(SETTINGS_FILE, settings, _SETTINGS[kind])
  # Without tokenizer.json, or where BertTokenizerFast replaces its rules.
  rules = tokenization.TextRules()
  if kind == "wordpiece":
    _check_lines(content)
    rules = dataclasses.replace(rules, max_word_characters=_MAX_WORD_CHARACTERS)
  said = {}
  for field, name in _RULES[kind].items():
    value = settings.get(name)
    if isinstance(value, bool):
      said[field] = value != (name == "strip_accents")
    elif value is not None:
      raise _Unsupported(f"{SETTINGS_FILE} has {name} {value!r:.60}")
  rules = dataclasses.replace(rules, **said)
  if not fast:
    return rules
  if unigram:
    found = unigram.rules
    _check_same_model(unigram.model, content)
  else:
    found = _read_wordpiece(fast)
    pieces = tokenization.read_vocabulary(content)
    # Of a repeated piece the last line counts.
    if {x: i for i, x in enumerate(pieces)} != fast["model"]["vocab"]:
      raise _Unsupported(
        f"{FAST_FILE} has other pieces than {FILES['wordpiece']}"
      )
  for name in ("padding", "truncation"):
    _check(FAST_FILE, fast.get(name) or {}, {"direction": "Right"}, f"{name}.")
  obeys_settings = kind == "wordpiece" and base in _CLASSES[kind]
  for field, name in _RULES[kind].items():
    one, other = (_resolved(kind, x, field) for x in (found, rules))
    if one != other and (field in said or obeys_settings):
      raise _Unsupported(f"{FAST_FILE} and {SETTINGS_FILE} differ in {name}")
  return found


def _resolved(kind: str, rules: tokenization.TextRules, field: str) -> Any:
  value = getattr(rules, field)
  if field == "keep_accents" and value is None:
    return kind == "wordpiece" and not rules.lower_case
  return value


def _check_lines(content: bytes) -> None:
  """Refuses lines of a vocab.txt that transformers reads as other pieces."""
  for number, line in enumerate(content.decode("utf-8").split("\n"), 1):
    line = line.removesuffix("\r")
    if line.strip() and line.split() != [line]:
      raise _Unsupported(
        f"line {number} of {FILES['wordpiece']} has white space in {line!r:.60}"
      )


def _steps(fast: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
  """Returns the steps of a part that may be a sequence of sequences."""

  def flat(step: Optional[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if step and step["type"] == "Sequence":
      return [inner for x in step[_PARTS[part]] for inner in flat(x)]
    return [step] if step else []

  return flat(fast.get(part))


def _steps_of_types(
  fast: Mapping[str, Any], part: str, *types: list[str]
) -> list[Mapping[str, Any]]:
  """Returns the steps of a part, which must have one of these lists of types.

  The step for a final sigma is left out.
  """
  steps = [x for x in _steps(fast, part) if _own_text(x) != _FINAL_SIGMA]
  found = [step["type"] for step in steps]
  if found not in types:
    names = ", ".join(found) or "nothing"
    raise _Unsupported(f"{FAST_FILE} has {part} {names:.80}")
  return steps


def _own_text(step: Mapping[str, Any]) -> Optional[str]:
  """Returns the new text of a step that `hf_tokenizer` writes, else None."""
  pattern = step.get("pattern", {}).get("Regex", "")
  is_own = pattern.lstrip("^(?<=").startswith("[\\x{")
  return step["content"] if is_own and step["content"] in _OWN else None


def _read_wordpiece(fast: Mapping[str, Any]) -> tokenization.TextRules:
  """Returns the rules of a tokenizer.json of WordPiece."""
  model, mark = fast["model"], tokenization.CONTINUATION
  expected = {"unk_token": "[UNK]", "continuing_subword_prefix": mark}
  _check(FAST_FILE, model, expected, "model.")
  (step,) = _steps_of_types(fast, "normalizer", ["BertNormalizer"])
  _check(FAST_FILE, step, {"clean_text": True}, "normalizer.")
  _steps_of_types(fast, "pre_tokenizer", ["BertPreTokenizer"])
  strips = step["strip_accents"]
  return tokenization.TextRules(
    step["lowercase"],
    None if strips is None or strips == step["lowercase"] else not strips,
    step["handle_chinese_chars"],
    model.get("max_input_chars_per_word", _MAX_WORD_CHARACTERS),
  )


def _lines_of(fast: Mapping[str, Any]) -> bytes:
  """Returns the vocab.txt of a tokenizer.json of WordPiece."""
  vocabulary = fast["model"]["vocab"]
  pieces = sorted(vocabulary, key=vocabulary.__getitem__)
  if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
    raise _Unsupported(f"{FAST_FILE} leaves out ids of its vocabulary")
  if any("\n" in piece for piece in pieces):
    raise _Unsupported(f"{FAST_FILE} has a piece with a line break")
  return "".join(f"{piece}\n" for piece in pieces).encode("utf-8")


class _Unigram(NamedTuple):
  """A tokenizer.json of a unigram model.

  Attributes:
    rules: how text is changed before the model.
    model: the model, with normal pieces in place of those of other kinds that
      `tokenizers` does not know.
    differences: what transformers does, and the original ALBERT does not.
  """

  rules: tokenization.TextRules
  model: sentencepiece_model_pb2.ModelProto
  differences: list[str]


def _read_unigram(fast: Mapping[str, Any]) -> _Unigram:
  """Reads what AlbertTokenizer, or this package, writes."""
  done, charsmap, is_own = set[str](), "", False
  for step in _steps(fast, "normalizer"):
    name = step["type"]
    if name == "Precompiled":
      charsmap = step["precompiled_charsmap"] or ""
    if name == "Replace":
      pattern = step["pattern"]
      text = pattern.get("String", pattern.get("Regex", ""))
      does = _STEPS.get((text, step["content"]))
      name = f"replacing {text!r:.60}"
      if (own := _own_text(step)) is not None:
        # Spaces at the start stay.
        is_own, does = True, "" if text[0] == "^" else _OWN[own]
    elif is_own and name in ("NFC", "NFKC"):  # SentencePiece does it.
      does = ""
    else:
      does = _STEPS.get(name)
    if does is None:
      raise _Unsupported(f"{FAST_FILE} has normalizer {name:.80}")
    done.add(does)
  *words, spaces = _steps_of_types(
    fast, "pre_tokenizer", ["Metaspace"], ["WhitespaceSplit", "Metaspace"]
  )
  if words:
    done |= {"spaces", "Strip"}
  mark = {"replacement": tokenization.WORD_START}
  _check(FAST_FILE, spaces, mark, "pre_tokenizer.")
  if "spaces" not in done:
    raise _Unsupported(f"{FAST_FILE} keeps several spaces")
  if ("NFKD" in done) != bool(done & {"StripAccents", "marks"}):
    raise _Unsupported(f"{FAST_FILE} has only one of NFKD and StripAccents")
  model = _model_of(fast["model"])
  normalizer, scheme = model.normalizer_spec, spaces.get("prepend_scheme")
  normalizer.precompiled_charsmap = base64.b64decode(charsmap)
  normalizer.add_dummy_prefix = (
    scheme != "never" if scheme else spaces.get("add_prefix_space", True)
  )
  differences = {
    _QUOTES: "quotes" in done,
    "keeps a space at the end of a text as a token": "Strip" not in done,
    "removes vowel signs of Indic scripts": "StripAccents" in done,
  }
  keeps_accents = "NFKD" not in done
  return _Unigram(
    tokenization.TextRules("Lowercase" in done, keeps_accents or None),
    model,
    [text for text, is_so in differences.items() if is_so],
  )


def _model_of(unigram: Mapping[str, Any]) -> sentencepiece_model_pb2.ModelProto:
  """Returns a SentencePiece model with the pieces in a tokenizer.json."""
  model = sentencepiece_model_pb2.ModelProto()
  kinds, unknown = model.SentencePiece, unigram.get("unk_id")
  uses_bytes = bool(unigram.get("byte_fallback"))
  for i, (piece, score) in enumerate(unigram["vocab"]):
    kind = kinds.NORMAL
    if i == unknown:
      kind = kinds.UNKNOWN
    elif piece in tokenization.SPECIAL_PIECES:
      kind = kinds.CONTROL
    elif uses_bytes and piece.startswith("<0x"):
      kind = kinds.BYTE
    model.pieces.add(piece=piece, score=score, type=kind)
  spec, normalizer = model.trainer_spec, model.normalizer_spec
  spec.model_type, spec.byte_fallback = spec.UNIGRAM, uses_bytes
  spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = 0, unknown or 0, -1, -1
  normalizer.remove_extra_whitespaces = True
  normalizer.escape_whitespaces = True
  return model


def _check_same_model(
  fast: sentencepiece_model_pb2.ModelProto, content: bytes
) -> None:
  """Refuses a spiece.model that is not the one in tokenizer.json."""
  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  name = FILES["sentencepiece"]
  # `hf_tokenizer` renames pieces that are never used.
  ours = [piece.piece for piece in model.pieces]
  if ours != [piece.piece.removesuffix(" ") for piece in fast.pieces]:
    raise _Unsupported(f"{FAST_FILE} has other pieces than {name}")
  for one, other in zip(model.pieces, fast.pieces):
    # `tokenizers` has no kind of a piece, so that others have scores of theirs.
    if one.type == one.NORMAL and not math.isclose(
      one.score, other.score, rel_tol=1e-5, abs_tol=1e-6
    ):
      raise _Unsupported(
        f"{FAST_FILE} gives {one.piece!r:.40} another score than {name}"
      )
  for rule in ("precompiled_charsmap", "add_dummy_prefix"):
    specs = (x.normalizer_spec for x in (model, fast))
    if len({getattr(spec, rule) for spec in specs}) > 1:
      raise _Unsupported(f"{FAST_FILE} has another {rule} than {name}")
