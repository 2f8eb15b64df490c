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
import itertools
import math
import os
import re
from typing import Any, Mapping, Optional, Sequence

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

_TOKENS_FILE, _ADDED_FILE = "special_tokens_map.json", "added_tokens.json"
_CONFIG_FILE = "config.json"
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
# The same for tokenizer.json and for its steps.
_FAST: dict[str, Any] = {
  "padding": {"direction": "Right"},
  "truncation": {"direction": "Right"},
  "model": {
    "unk_token": "[UNK]",
    "continuing_subword_prefix": tokenization.CONTINUATION,
  },
}
_STEP = {"clean_text": True, "replacement": tokenization.WORD_START}
# The steps that AlbertTokenizer and BertTokenizer write before a model, in this
# order; a step that replaces one text by another is named by both. Some may be
# missing.
_SPACES, _SPLIT = (" {2,}", " "), "WhitespaceSplit"
_STEPS: dict[str, list[Any]] = {
  "sentencepiece": [
    *[("``", '"'), ("''", '"'), "NFKD", "StripAccents", "Lowercase"],
    *["Precompiled", _SPACES, _SPLIT, "Metaspace"],
  ],
  "wordpiece": ["BertNormalizer", "BertPreTokenizer"],
}
_NEEDED = {"Metaspace", *_STEPS["wordpiece"]}
# The classes of characters that `hf_tokenizer` writes. The version of Unicode
# decides what is in them.
_CLASS = re.compile(r"\[(\\x\{[0-9a-f]+\}-?)+\]")
_FINAL_SIGMA = "\u03c2"
_DIFFERENCES = (
  "transformers changes `` and '' to \", and with tokenizer.json it may keep a "
  "space at the end of a text as a token and remove vowel signs of Indic "
  "scripts; this package does not, as the original."
)
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
    if value and isinstance(value, Mapping) and isinstance(found, Mapping):
      _check(file, found, value, f"{part}{name}.")
    elif found is not None and found != value:
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
  reader = _Reader(folder)
  if not reader.found and not reader.fast:
    return None
  problem = ""
  try:
    notes += reader.read()
  except _Unsupported as error:
    problem = str(error)
  except _DAMAGED as error:
    reason = f"{type(error).__name__} {error}"
    problem = f"one of its files is damaged ({reason!s:.80})"
  if problem:
    given = "vocab_file" if reader.kind == "wordpiece" else "spm_model_file"
    problem = (
      f"the tokenizer of {folder} is not supported, because {problem}, so that "
      "transformers would give other ids: save it without that, or ignore it "
      f"with --{given} (tokenizer= in Python)."
    )
  return tokenizer_file.TokenizerFile(
    reader.path, reader.kind, reader.rules, problem, reader.made
  )


class _Reader:
  """Reads the files of a folder.

  Attributes:
    found: the paths of the vocabularies, by their kinds.
    fast: the content of tokenizer.json.
    path, kind, rules, made: what `TokenizerFile` takes.
  """

  def __init__(self, folder: str):
    def read_json(name: str) -> dict[str, Any]:
      path = os.path.join(folder, name)
      if not files.exists(path):
        return {}
      return files.read_json(path, dict[str, Any], "copy the file again")

    paths = {kind: os.path.join(folder, name) for kind, name in FILES.items()}
    self.found = {k: path for k, path in paths.items() if files.exists(path)}
    self.fast = read_json(FAST_FILE)
    self._settings = read_json(SETTINGS_FILE)
    self._tokens, self._added = map(read_json, (_TOKENS_FILE, _ADDED_FILE))
    self._class_file = SETTINGS_FILE
    self._class = self._settings.get("tokenizer_class")
    if not self._class:
      self._class_file = _CONFIG_FILE
      self._class = read_json(_CONFIG_FILE).get("tokenizer_class")
    self._base = str(self._class or "").removesuffix("Fast")
    self.path, self.kind = os.path.join(folder, FAST_FILE), "sentencepiece"
    self.rules = tokenization.TextRules()
    self.made: Optional[bytes] = None

  def read(self) -> list[str]:
    """Sets the attributes, or raises `_Unsupported`; returns notes."""
    notes, fast = [], self.fast
    self.kind = kind = self._find_kind()
    if kind in self.found:
      self.path = self.found[kind]
      content = files.read_bytes(self.path)
    else:
      make = _vocabulary_file if kind == "wordpiece" else _model_file
      content = self.made = make(fast)
      notes.append(f"{FILES[kind]} is made from {self.path}.")
    if kind == "wordpiece":
      _check_lines(content)
    values: dict[str, Any] = {}
    differs = kind == "sentencepiece" and self._base not in _GENERAL
    if fast:
      _check(FAST_FILE, fast, _FAST)
      for step in _steps(fast):
        _check(FAST_FILE, step, _STEP, f"{step['type']}.")
      if kind == "wordpiece":
        values = _wordpiece_rules(fast, content)
      else:
        values, is_ours = _unigram_rules(fast, content)
        differs = not is_ours
    self._find_rules(values)
    self._check_tokens(content)
    if differs:
      notes.append(_DIFFERENCES)
    inputs = self._settings.get("model_input_names")
    if inputs and "token_type_ids" not in inputs:
      notes.append(
        f"{SETTINGS_FILE} has no token_type_ids in model_input_names, so that "
        "transformers gives both texts of a pair segment 0; here the second "
        "one has segment 1."
      )
    return notes

  def _find_kind(self) -> str:
    """Returns the kind of tokenizer that the class in the settings reads."""
    kinds = [
      kind
      for kind, names in _CLASSES.items()
      if self._base in ("", *_GENERAL, *names)
    ]
    names = [FILES[kind] for kind in self.found] or [FAST_FILE]
    if self.fast:
      # Old files do not name the model of WordPiece.
      model = self.fast["model"].get("type") or "WordPiece"
      if model not in _MODELS:
        raise _Unsupported(f"{FAST_FILE} has a model of type {model!r:.40}")
      kinds = [kind for kind in kinds if kind == _MODELS[model]]
    for kind in kinds:
      if kind in self.found or not self.found:
        return kind
    raise _Unsupported(
      f"{self._class_file} has tokenizer_class {self._class!r:.40}, which does "
      f"not read {' and '.join(names)}"
      if self._class
      else f"{FAST_FILE} has another kind of model than {names[0]}"
    )

  def _find_rules(self, fast: dict[str, Any]) -> None:
    """Sets the rules; those of tokenizer.json must be those of the settings."""
    is_wordpiece = self.kind == "wordpiece"
    _check(SETTINGS_FILE, self._settings, _SETTINGS[self.kind])
    said = {}
    for field, name in _RULES[self.kind].items():
      value = self._settings.get(name)
      if isinstance(value, bool):
        said[field] = value != (name == "strip_accents")
      elif value is not None:
        raise _Unsupported(f"{SETTINGS_FILE} has {name} {value!r:.60}")
    values: dict[str, Any] = {"lower_case": True, **said}
    values.setdefault("keep_accents", is_wordpiece and not values["lower_case"])
    # BertTokenizerFast replaces the rules of tokenizer.json.
    obeys_settings = is_wordpiece and self._base in _CLASSES["wordpiece"]
    for field, name in _RULES[self.kind].items() if fast else ():
      other = values.get(field, True)
      if fast[field] != other and (field in said or obeys_settings):
        raise _Unsupported(f"{FAST_FILE} and {SETTINGS_FILE} differ in {name}")
    if is_wordpiece:
      values["max_word_characters"] = _MAX_WORD_CHARACTERS
    values |= fast
    if values["keep_accents"] == (is_wordpiece and not values["lower_case"]):
      values["keep_accents"] = None  # As in the original.
    self.rules = tokenization.TextRules(**values)

  def _check_tokens(self, content: bytes) -> None:
    """Refuses special tokens of other names and ids, added tokens, other pairs.

    `content` is that of the vocabulary.
    """
    names = SPECIAL_PIECES[self.kind]
    pieces: Sequence[str] = names
    if self.kind == "wordpiece":
      pieces = tokenization.read_vocabulary(content)
    # Of a repeated piece the last line counts.
    ids = {piece: i for i, piece in enumerate(pieces) if piece in names}
    expected = {name: {piece} for name, piece in zip(SPECIAL_NAMES, names)}
    expected |= dict.fromkeys(_FURTHER_TOKENS, {*names})
    for file, values in (
      (_TOKENS_FILE, self._tokens),
      (SETTINGS_FILE, self._settings),
    ):
      for name, allowed in expected.items():
        for token in _texts_of(values.get(name)):
          if token not in allowed:
            raise _Unsupported(f"{file} has {name} {token!r:.60}")
    decoder = self._settings.get("added_tokens_decoder") or {}
    added: list[tuple[str, Any, Any]] = [
      *((_ADDED_FILE, i, token) for token, i in self._added.items()),
      *((SETTINGS_FILE, i, token) for i, token in decoder.items()),
      *((FAST_FILE, x["id"], x) for x in self.fast.get("added_tokens", [])),
    ]
    for file, number, value in added:
      (token,) = _texts_of(value)
      if token not in ids:
        raise _Unsupported(f"{file} adds the token {token!r:.60}")
      if str(number) != str(ids[token]):
        raise _Unsupported(
          f"{file} gives {token} id {number!s:.20} instead of {ids[token]}"
        )
    if not self.fast:
      return
    steps = _flat(self.fast, "post_processor", "processors")
    if not steps and self._base in _GENERAL:
      raise _Unsupported(f"{FAST_FILE} has no post_processor")
    for step in steps:
      pair = hf_tokenizer.joined_texts(ids)
      if step["type"] == "BertProcessing":
        pair = {x[1:4].lower(): [x, ids[x]] for x in ("[CLS]", "[SEP]")}
      _check(FAST_FILE, step, pair, "post_processor.")


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


def _flat(fast: Mapping[str, Any], part: str, key: str) -> list[Any]:
  """Returns the steps of a part that may be a sequence of sequences."""

  def steps(step: Mapping[str, Any]) -> list[Any]:
    if step["type"] == "Sequence":
      return [inner for x in step[key] for inner in steps(x)]
    return [step]

  return steps(fast[part]) if fast.get(part) else []


def _steps(fast: Mapping[str, Any]) -> list[Any]:
  """Returns the steps before the model, without that for a final sigma."""
  steps = _flat(fast, "normalizer", "normalizers")
  steps += _flat(fast, "pre_tokenizer", "pretokenizers")
  return [step for step in steps if step.get("content") != _FINAL_SIGMA]


def _name(step: Mapping[str, Any]) -> Any:
  """Returns what identifies a step: its type, or the texts of a Replace."""
  if step["type"] != "Replace":
    return step["type"]
  text = step["pattern"].get("String", step["pattern"].get("Regex"))
  return _CLASS.sub("[]", text), step["content"]


def _check_steps(fast: Mapping[str, Any], kind: str, ours: list[Any]) -> bool:
  """Returns whether the steps are ours; others must be those of `_STEPS`."""
  steps = _steps(fast)
  names = [_name(step) for step in steps]
  if names == ours:
    return True
  expected = [name for name in _STEPS[kind] if name in {*names, *_NEEDED}]
  for step, name, other in itertools.zip_longest(steps, names, expected):
    if name != other:
      raise _Unsupported(f"{FAST_FILE} has {step!s:.80} instead of {other!s}")
  if ("NFKD" in names) != ("StripAccents" in names):
    raise _Unsupported(f"{FAST_FILE} has only one of NFKD and StripAccents")
  if kind == "sentencepiece" and not {_SPACES, _SPLIT} & {*names}:
    raise _Unsupported(f"{FAST_FILE} keeps several spaces")
  return kind == "wordpiece"


def _wordpiece_rules(fast: Mapping[str, Any], content: bytes) -> dict[str, Any]:
  """Returns the rules of a tokenizer.json of WordPiece, and checks the rest."""
  _check_steps(fast, "wordpiece", [])
  model, (step, _) = fast["model"], _steps(fast)
  pieces = tokenization.read_vocabulary(content)
  # Of a repeated piece the last line counts.
  if {piece: i for i, piece in enumerate(pieces)} != model["vocab"]:
    raise _Unsupported(
      f"{FAST_FILE} has other pieces than {FILES['wordpiece']}"
    )
  lower_case, strips = step["lowercase"], step["strip_accents"]
  return {
    "lower_case": lower_case,
    "keep_accents": not (lower_case if strips is None else strips),
    "split_chinese": step["handle_chinese_chars"],
    "max_word_characters": model.get(
      "max_input_chars_per_word", _MAX_WORD_CHARACTERS
    ),
  }


def _unigram_rules(
  fast: Mapping[str, Any], content: bytes
) -> tuple[dict[str, Any], bool]:
  """Returns the rules of a unigram's tokenizer.json, and whether it is ours."""
  types = {step["type"] for step in _steps(fast)}
  values = {
    "lower_case": "Lowercase" in types,
    "keep_accents": "NFKD" not in types,
  }
  ours = hf_tokenizer.normalizers(
    _check_same_model(fast, content), tokenization.TextRules(**values)
  )
  names = [_name(x) for x in ours if x.get("content") != _FINAL_SIGMA]
  return values, _check_steps(fast, "sentencepiece", [*names, "Metaspace"])


def _vocabulary_file(fast: Mapping[str, Any]) -> bytes:
  """Returns the vocab.txt of a tokenizer.json of WordPiece."""
  vocabulary = fast["model"]["vocab"]
  pieces = sorted(vocabulary, key=vocabulary.__getitem__)
  if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
    raise _Unsupported(f"{FAST_FILE} leaves out ids of its vocabulary")
  if any("\n" in piece for piece in pieces):
    raise _Unsupported(f"{FAST_FILE} has a piece with a line break")
  return "".join(f"{piece}\n" for piece in pieces).encode("utf-8")


def _model_file(fast: Mapping[str, Any]) -> bytes:
  """Returns the SentencePiece model of a tokenizer.json.

  Normal pieces take the place of kinds that `tokenizers` does not know.
  """
  model, unigram = sentencepiece_model_pb2.ModelProto(), fast["model"]
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
  for step in _steps(fast):
    charsmap = step.get("precompiled_charsmap") or ""
    normalizer.precompiled_charsmap += base64.b64decode(charsmap)
    scheme = step.get("prepend_scheme")
    normalizer.add_dummy_prefix = (
      scheme != "never" if scheme else step.get("add_prefix_space", True)
    )
  return model.SerializeToString()


def _check_same_model(
  tokenizer: Mapping[str, Any], content: bytes
) -> sentencepiece_model_pb2.ModelProto:
  """Returns the model of a tokenizer.json; refuses another spiece.model."""
  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  fast = sentencepiece_model_pb2.ModelProto.FromString(_model_file(tokenizer))
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
  return fast
