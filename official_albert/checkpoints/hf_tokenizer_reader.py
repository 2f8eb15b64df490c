"""Reads tokenizer files of Hugging Face: what they say is obeyed or refused.

A folder holds a vocabulary (spiece.model or vocab.txt), settings
(tokenizer_config.json and others) and, in most cases, tokenizer.json, which has
all rules as steps of the package `tokenizers`. transformers reads it where it
can, so its rules must be those of the settings, and if its vocabulary is
another one, or the only one, it is taken.

Source: tokenization_albert.py, tokenization_bert.py, convert_slow_tokenizer.py
and tokenization_utils_fast.py of transformers 4.57.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
from typing import Any, Iterable, Mapping, Optional, Sequence

from google.protobuf import message
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.checkpoints import hf_tokenizer, tokenizer_file
from official_albert.checkpoints.hf_tokenizer import (
  FAST_FILE,
  FILES,
  SETTINGS_FILE,
  SPECIAL_NAMES,
  SPECIAL_PIECES,
)
from official_albert.settings import check_number

_TOKENS_FILE, _ADDED_FILE = "special_tokens_map.json", "added_tokens.json"
_CONFIG_FILE, _ADDED = "config.json", "added_tokens"
# Other settings with special tokens.
_FURTHER = "bos_token eos_token additional_special_tokens extra_special_tokens"
# Classes that run tokenizer.json unchanged; "" is that of no name. "Fast" may
# follow each name.
_GENERAL = ("", "PreTrainedTokenizer", "TokenizersBackend")
_CLASSES = {"sentencepiece": "AlbertTokenizer", "wordpiece": "BertTokenizer"}
_MODELS = {"Unigram": "sentencepiece", "WordPiece": "wordpiece"}
# Settings that are obeyed, and the field of `TextRules` that each decides. That
# of `strip_accents` is its opposite.
_OBEYED = {
  "sentencepiece": {
    "do_lower_case": "lower_case",
    "keep_accents": "keep_accents",
  },
  "wordpiece": {
    "do_lower_case": "lower_case",
    "strip_accents": "keep_accents",
    "tokenize_chinese_chars": "split_chinese",
  },
}
# Settings with only one value here, for which None stands, too: of all
# tokenizers, of SentencePiece and of WordPiece.
_FIXED: dict[str, Any] = {
  "padding_side": "right",
  "truncation_side": "right",
  "auto_map": {},
  "remove_space": True,
  "sp_model_kwargs": {},
  "add_prefix_space": True,
  "do_basic_tokenize": True,
  "never_split": [],
  "clean_text": True,
  "wordpieces_prefix": tokenization.CONTINUATION,
}
# The same for tokenizer.json and for its steps.
_FIXED_FAST: dict[str, Any] = {
  "padding": {"direction": "Right"},
  "truncation": {"direction": "Right"},
  "model": {
    "unk_token": "[UNK]",
    "continuing_subword_prefix": tokenization.CONTINUATION,
  },
}
_FIXED_STEP = {"clean_text": True, "replacement": tokenization.WORD_START}
# The steps of a Replace that AlbertTokenizer writes.
_QUOTES, _SPACES = [("``", '"'), ("''", '"')], (" {2,}", " ")
# The classes of characters that `hf_tokenizer` writes. The version of Unicode
# decides what is in them.
_CLASS = re.compile(r"\[(\\x\{[0-9a-f]+\}-?)+\]")
# The longest word of BertTokenizer.
_MAX_WORD_CHARACTERS = 100
# Errors for files of another form. SentencePiece raises a RuntimeError.
_DAMAGED = (
  *(ValueError, LookupError, TypeError, AttributeError, message.DecodeError),
  RuntimeError,
)


class _Unsupported(ValueError):
  """The reason why a folder is refused: a file, and what it says."""


def read(
  folder: str, notes: list[str]
) -> Optional[tokenizer_file.TokenizerFile]:
  """Returns the tokenizer in a folder, or None if there is none.

  If the folder says something that this package does not do, the tokenizer has
  a `problem`, so that it cannot be used; the weights can. `notes` get remarks.

  Raises:
    ValueError: a file is not JSON.
  """

  def read_json(name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    if not files.exists(path):
      return {}
    return files.read_json(path, dict[str, Any], "copy the file again")

  names = (SETTINGS_FILE, FAST_FILE, _TOKENS_FILE, _ADDED_FILE, _CONFIG_FILE)
  contents = {name: read_json(name) for name in names}
  try:
    return _read(folder, contents, notes)
  except _DAMAGED as error:
    reason = str(error)
    if not isinstance(error, _Unsupported):
      reason = f"a file is damaged ({type(error).__name__} {reason:.80})"
  problem = (
    f"the tokenizer of {folder} is not supported, because {reason:.130}: save "
    "it without that, or give another by --spm_model_file or --vocab_file "
    "(tokenizer= in Python)."
  )
  # The rules are those of the tokenizer that is given instead.
  obeyed = {**_OBEYED["sentencepiece"], **_OBEYED["wordpiece"]}
  said = {
    field: contents[SETTINGS_FILE][name] != (name == "strip_accents")
    for name, field in obeyed.items()
    if isinstance(contents[SETTINGS_FILE].get(name), bool)
  }
  return tokenizer_file.TokenizerFile(
    folder, "sentencepiece", tokenization.TextRules(**said), problem
  )


def max_length(folder: str) -> int:
  """Returns the maximum tokens of a text, or 0 if a folder does not say it.

  Raises:
    ValueError: it is negative or no integer.
  """
  path = os.path.join(folder, SETTINGS_FILE)
  if not files.exists(path):
    return 0
  settings = files.read_json(path, dict[str, Any], "copy the file again")
  # transformers 2 wrote max_len, which is still read.
  length = settings.get("model_max_length", settings.get("max_len")) or 0
  if isinstance(length, float) and length.is_integer():
    length = int(length)  # 1e30 means that there is no maximum.
  check_number(f"model_max_length of {path}", length, least=0, whole=True)
  return length


def _read(
  folder: str, contents: Mapping[str, Any], notes: list[str]
) -> Optional[tokenizer_file.TokenizerFile]:
  """Returns the tokenizer, or raises one of `_DAMAGED`.

  `contents` are those of the JSON files by their names.
  """
  settings, fast = contents[SETTINGS_FILE], contents[FAST_FILE]
  paths = {kind: os.path.join(folder, name) for kind, name in FILES.items()}
  found = [kind for kind, path in paths.items() if files.exists(path)]
  if not fast and not found:
    return None
  kind = found[0] if found else ""
  if fast:  # Old files do not name the model of WordPiece.
    model = fast["model"].get("type") or "WordPiece"
    if model not in _MODELS:
      raise _Unsupported(f"{FAST_FILE} has a model of type {model!r:.40}")
    kind = _MODELS[model]
  named = settings.get("tokenizer_class")
  named = named or contents[_CONFIG_FILE].get("tokenizer_class") or ""
  is_general = named.removesuffix("Fast") in _GENERAL
  if not is_general and named.removesuffix("Fast") != _CLASSES[kind]:
    raise _Unsupported(
      f"tokenizer_class is {named!r:.40}, not {_CLASSES[kind]} as for {kind}"
    )
  path, content, made = paths[kind], b"", None
  if kind in found:
    content = files.read_bytes(path)
  rules: dict[str, Any] = {}
  if fast:
    _check(FAST_FILE, fast, _FIXED_FAST)
    steps = _steps(fast, "normalizer", "normalizers")
    steps += _steps(fast, "pre_tokenizer", "pretokenizers")
    for step in steps:
      _check(FAST_FILE, step, _FIXED_STEP, f"{step['type']}.")
    of_kind = _of_wordpiece if kind == "wordpiece" else _of_unigram
    made, rules = of_kind(fast["model"], steps, content)
    if made != content:
      path, content = os.path.join(folder, FAST_FILE), made
  pieces = [*SPECIAL_PIECES[kind]]
  if kind == "wordpiece":
    _check_lines(content)
    pieces = tokenization.read_vocabulary(content)
  # Of a repeated piece the last line counts.
  ids = {x: i for i, x in enumerate(pieces) if x in SPECIAL_PIECES[kind]}
  _check_tokens(kind, ids, contents)
  if fast and is_general and not fast.get("post_processor"):
    raise _Unsupported(f"{FAST_FILE} has no post_processor")
  for step in _steps(fast, "post_processor", "processors"):
    pair = hf_tokenizer.joined_texts(ids)
    _check(FAST_FILE, step, pair, "post_processor.")
  inputs = settings.get("model_input_names")
  # Only version 5 writes a backend. Its default for other classes has none.
  is_five = "backend" in settings and named != _CLASSES["wordpiece"]
  if "token_type_ids" not in (inputs or ()) and (inputs or is_five):
    notes.append(
      f"{SETTINGS_FILE} has no token_type_ids in model_input_names, so that "
      "transformers gives both texts of a pair segment 0; here the second one "
      "has segment 1."
    )
  return tokenizer_file.TokenizerFile(
    path,
    kind,
    _rules_of(kind, settings, rules),
    content=made if path not in paths.values() else None,
  )


def _check(
  file: str,
  values: Mapping[str, Any],
  expected: Mapping[str, Any],
  part: str = "",
) -> None:
  """Refuses values other than the expected ones; None stands for these."""
  for name, value in expected.items():
    found = values.get(name)
    if value and isinstance(value, Mapping) and isinstance(found, Mapping):
      _check(file, found, value, f"{part}{name}.")
    elif found is not None and found != value:
      raise _Unsupported(
        f"{file} has {part}{name} {found!r:.40}, not {value!s:.40}"
      )


def _rules_of(
  kind: str, settings: Mapping[str, Any], fast: Mapping[str, Any]
) -> tokenization.TextRules:
  """Returns the rules; those of tokenizer.json must be those of the settings.

  `fast` are the rules of tokenizer.json, {} without the file.
  """
  _check(SETTINGS_FILE, settings, _FIXED)
  is_wordpiece = kind == "wordpiece"
  rules: dict[str, Any] = {"lower_case": True, **fast}
  for name, field in _OBEYED[kind].items():
    value = settings.get(name)
    if not isinstance(value, (bool, type(None))):
      raise _Unsupported(f"{SETTINGS_FILE} has {name} {value!r:.60}")
    if value is not None:
      rules[field] = value != (name == "strip_accents")
      if fast and rules[field] != fast[field]:
        raise _Unsupported(f"{FAST_FILE} and {SETTINGS_FILE} differ in {name}")
  if is_wordpiece:
    rules.setdefault("max_word_characters", _MAX_WORD_CHARACTERS)
  loses_accents = not is_wordpiece or rules["lower_case"]
  if rules.get("keep_accents") != loses_accents:
    rules["keep_accents"] = None  # As in the original.
  return tokenization.TextRules(**rules)


def _check_tokens(
  kind: str, ids: Mapping[str, int], contents: Mapping[str, Any]
) -> None:
  """Refuses special tokens of other names and ids, and added tokens.

  `ids` are those of the special pieces.
  """
  expected = dict(zip(SPECIAL_NAMES, SPECIAL_PIECES[kind]))
  for file in (_TOKENS_FILE, SETTINGS_FILE):
    for name in (*SPECIAL_NAMES, *_FURTHER.split()):
      for token in _texts_of(contents[file].get(name)):
        if token not in ids or token != expected.get(name, token):
          raise _Unsupported(f"{file} has {name} {token!r:.60}")
  decoder = contents[SETTINGS_FILE].get("added_tokens_decoder") or {}
  for file, added in (
    (_ADDED_FILE, [(x, i) for x, i in contents[_ADDED_FILE].items()]),
    (SETTINGS_FILE, [(x, i) for i, x in decoder.items()]),
    (FAST_FILE, [(x, x["id"]) for x in contents[FAST_FILE].get(_ADDED, [])]),
  ):
    for value, number in added:
      (token,) = _texts_of(value)
      if str(number) != str(ids.get(token)):
        raise _Unsupported(f"{file} adds {token!r:.60} with id {number!s:.20}")


def _texts_of(value: Any) -> list[Any]:
  """Returns the texts of a token, or of a list or an object of tokens.

  A token may be an object with settings.
  """
  if isinstance(value, dict):
    value = value["content"] if "content" in value else list(value.values())
  if isinstance(value, list):
    return [text for token in value for text in _texts_of(token)]
  return [value] if value else []


def _check_lines(content: bytes) -> None:
  """Refuses lines of a vocab.txt that transformers reads as other pieces."""
  for number, line in enumerate(content.decode("utf-8").split("\n"), 1):
    line = line.removesuffix("\r")
    if line.strip() and line.split() != [line]:
      raise _Unsupported(
        f"line {number} of {FILES['wordpiece']} has white space in {line!r:.60}"
      )


def _steps(fast: Mapping[str, Any], part: str, key: str) -> list[Any]:
  """Returns the steps of a part, which may be a sequence of sequences."""

  def flat(step: Mapping[str, Any]) -> list[Any]:
    if step["type"] == "Sequence":
      return [inner for x in step[key] for inner in flat(x)]
    return [step]

  return flat(fast[part]) if fast.get(part) else []


def _names(steps: Iterable[Mapping[str, Any]]) -> list[Any]:
  """Returns what identifies steps: the type, or the texts of a Replace.

  The step for a final sigma, which both kinds may have, is left out.
  """
  names: list[Any] = []
  for step in steps:
    names.append(step["type"])
    if step["type"] == "Replace":
      text = step["pattern"].get("String", step["pattern"].get("Regex"))
      names[-1] = _CLASS.sub("[]", text), step["content"]
  return [name for name in names if name[1] != "\u03c2"]


def _check_names(found: Sequence[Any], expected: Sequence[Any]) -> None:
  """Refuses other names of steps than the expected ones."""
  for name, other in itertools.zip_longest(found, expected):
    if name != other:
      raise _Unsupported(
        f"{FAST_FILE} has the step {name!s:.80} instead of {other!s}"
      )


def _of_wordpiece(
  model: Mapping[str, Any], steps: Sequence[Any], content: bytes
) -> tuple[bytes, dict[str, Any]]:
  """Returns the vocab.txt of a tokenizer.json, and its rules.

  `content` is that of the vocab.txt beside it, which is returned if its pieces
  are the same.
  """
  _check_names(_names(steps), ["BertNormalizer", "BertPreTokenizer"])
  vocabulary, rules = model["vocab"], steps[-2]
  pieces = tokenization.read_vocabulary(content)
  # Of a repeated piece the last line counts.
  if {piece: i for i, piece in enumerate(pieces)} != vocabulary:
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
      raise _Unsupported(f"{FAST_FILE} leaves out ids of its vocabulary")
    content = "".join(f"{piece}\n" for piece in pieces).encode("utf-8")
  lower_case, strips = rules["lowercase"], rules["strip_accents"]
  return content, {
    "lower_case": lower_case,
    "keep_accents": not (lower_case if strips is None else strips),
    "split_chinese": rules["handle_chinese_chars"],
    "max_word_characters": model.get(
      "max_input_chars_per_word", _MAX_WORD_CHARACTERS
    ),
  }


def _of_unigram(
  unigram: Mapping[str, Any], steps: Sequence[Any], content: bytes
) -> tuple[bytes, dict[str, Any]]:
  """Returns the SentencePiece model of a tokenizer.json, and its rules.

  `content` is that of the spiece.model beside it, which is returned if its
  pieces and settings are the same. The steps must be those that `hf_tokenizer`
  or AlbertTokenizer writes.
  """
  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  vocabulary = [(piece, score) for piece, score in unigram["vocab"]]
  # `hf_tokenizer` renames pieces that are never used.
  names = [piece.removesuffix(" ") for piece, _ in vocabulary]
  if not content or [x.piece for x in model.pieces] != names:
    model = _new_model(unigram)
  rounded = sentencepiece_model_pb2.ModelProto()
  rounded.CopyFrom(model)
  tokenization.round_scores(rounded)
  for x, y, (_, score) in zip(model.pieces, rounded.pieces, vocabulary):
    # `tokenizers` has no kinds of pieces, so that others have other scores;
    # and `hf_tokenizer` writes rounded ones.
    is_same = min(abs(x.score - score), abs(y.score - score)) <= 1e-5
    if x.type == x.NORMAL and not is_same:
      x.score = score
  settings: dict[str, Any] = {"precompiled_charsmap": b""}
  for step in steps:
    charsmap = step.get("precompiled_charsmap") or ""
    settings["precompiled_charsmap"] += base64.b64decode(charsmap)
    scheme = step.get("prepend_scheme")
    settings["add_dummy_prefix"] = (
      scheme != "never" if scheme else step.get("add_prefix_space", True)
    )
  for name, value in settings.items():
    if getattr(model.normalizer_spec, name) != value:
      setattr(model.normalizer_spec, name, value)
  if sentencepiece_model_pb2.ModelProto.FromString(content) != model:
    content = model.SerializeToString()
  found = _names(steps)
  rules = {
    "lower_case": "Lowercase" in found,
    "keep_accents": "NFKD" not in found,
  }
  ours = hf_tokenizer.normalizers(model, tokenization.TextRules(**rules))
  if found == [*_names(ours), "Metaspace"]:
    return content, rules
  # It writes one of these two, or both.
  one_space = [x for x in (_SPACES, "WhitespaceSplit") if x in found]
  if not one_space:
    raise _Unsupported(f"{FAST_FILE} keeps several spaces")
  expected = [
    *_QUOTES,
    *([] if rules["keep_accents"] else ["NFKD", "StripAccents"]),
    *[x for x in ("Lowercase", "Precompiled") if x in found],
    *[*one_space, "Metaspace"],
  ]
  _check_names(found, expected)
  return content, rules


def _new_model(
  unigram: Mapping[str, Any],
) -> sentencepiece_model_pb2.ModelProto:
  """Returns a SentencePiece model with the pieces of a tokenizer.json.

  Normal pieces take the place of kinds that `tokenizers` does not know.
  """
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
