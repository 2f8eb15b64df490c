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
import tempfile
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

from google.protobuf import message
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.checkpoints import tokenizer_file

SETTINGS_FILE, FAST_FILE = "tokenizer_config.json", "tokenizer.json"
FILES = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}
_SPECIAL = {
  "sentencepiece": tokenization.SPECIAL_PIECES,
  "wordpiece": tokenization.WORDPIECE_SPECIAL_PIECES,
}
# In the order of `_SPECIAL`.
SPECIAL_NAMES = (
  "pad_token",
  "unk_token",
  "cls_token",
  "sep_token",
  "mask_token",
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
# Settings with the only value that is supported; None stands for it, too.
_COMMON = {"padding_side": "right", "truncation_side": "right", "auto_map": {}}
_FIXED: dict[str, dict[str, Any]] = {
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
# What a step does that replaces one text by another, as AlbertTokenizer or this
# package writes it.
_REPLACEMENTS = {
  ("``", '"'): "quotes",
  ("''", '"'): "quotes",
  (" {2,}", " "): "spaces",
  (" $", ""): "Strip",
}
# What the regular expressions that `hf_tokenizer` writes are replaced by, and
# so do: to combining marks, white space, or a final sigma.
_FINAL_SIGMA = "\u03c2"
_OWN = {"": "marks", " ": "spaces", _FINAL_SIGMA: ""}
_STEPS = (
  *("NFKD", "StripAccents", "Lowercase", "Precompiled", "Strip"),
  *(*_REPLACEMENTS.values(), *_OWN.values()),
)
_QUOTES = "changes `` and '' to \""
# The longest word of BertTokenizer.
_MAX_WORD_CHARACTERS = 100


# Errors for files of another form.
_DAMAGED = (
  *(ValueError, LookupError, TypeError, AttributeError, message.DecodeError),
)


class _Unsupported(ValueError):
  """The reason why a folder is refused: a file, and what it says."""


def _check_values(
  file: str, values: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
  """Refuses values other than the expected ones; None stands for these."""
  for name, value in expected.items():
    found = values.get(name)
    if found is not None and found != value:
      raise _Unsupported(f"{file} has {name} {found!r:.60}, not {value!r}")


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
  path, kind, temporary = os.path.join(folder, FAST_FILE), "sentencepiece", None
  rules, problem = tokenization.TextRules(), ""
  try:
    kind = _kind(folder, settings, found, fast)
    steps = _unigram_steps(fast) if fast and kind == "sentencepiece" else None
    if kind in found:
      path = os.path.join(folder, FILES[kind])
      content = files.read_bytes(path)
    else:
      temporary = tempfile.TemporaryDirectory(prefix="tokenizer-")
      path = os.path.join(temporary.name, FILES[kind])
      content = _vocabulary_of(fast, steps)
      files.write_bytes(path, content)
      notes.append(
        f"{FILES[kind]} is made from {os.path.join(folder, FAST_FILE)}."
      )
    rules = _rules(kind, settings, fast, steps, content)
    _check_special(kind, folder, settings, fast, _special_ids(kind, content))
    if kind == "sentencepiece":
      base = str(settings.get("tokenizer_class", "")).removesuffix("Fast")
      done = [] if base in _GENERAL else [_QUOTES]
      if done := steps.differences if steps else done:
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
  return tokenizer_file.TokenizerFile(path, kind, rules, problem, temporary)


def _read_json(folder: str, name: str) -> dict[str, Any]:
  """Returns the content of a file; {} if it does not exist."""
  path = os.path.join(folder, name)
  if not files.exists(path):
    return {}
  return files.read_json(path, dict[str, Any], "copy the file again")


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
  base = str(name or "").removesuffix("Fast")
  by_class = [kind for kind, names in _CLASSES.items() if base in names]
  if not base or base in _GENERAL:
    by_class = list(_CLASSES)
  if fast:
    model = fast["model"]
    kinds = {"Unigram": "sentencepiece", "WordPiece": "wordpiece"}
    # Old files do not name the model of WordPiece.
    fast_type = model.get("type") or "WordPiece"
    if fast_type not in kinds:
      raise _Unsupported(f"{FAST_FILE} has a model of type {fast_type!r:.40}")
    by_class = [kind for kind in by_class if kind == kinds[fast_type]]
    found = found or by_class
  kinds_left = [kind for kind in found if kind in by_class]
  if not kinds_left:
    raise _Unsupported(
      f"{where} has tokenizer_class {name!r:.40}, which does not read "
      + (" and ".join(FILES[kind] for kind in found) or FAST_FILE)
      if name
      else f"{FAST_FILE} has another kind of model than {FILES[found[0]]}"
    )
  return kinds_left[0]


def _text_of(token: Any) -> Any:
  """Returns the text of a token, which may be an object with settings."""
  return token.get("content") if isinstance(token, dict) else token


def _special_ids(kind: str, content: bytes) -> dict[str, int]:
  """Returns the ids of the special tokens."""
  pieces: Sequence[str] = _SPECIAL[kind]
  if kind == "wordpiece":
    pieces = tokenization.read_vocabulary(content)
  # Of a repeated piece the last line counts.
  return {x: i for i, x in enumerate(pieces) if x in _SPECIAL[kind]}


def _check_special(
  kind: str,
  folder: str,
  settings: Mapping[str, Any],
  fast: Mapping[str, Any],
  ids: Mapping[str, int],
) -> None:
  """Refuses special tokens of other names and ids, and added tokens."""
  names = _SPECIAL[kind]
  map_file, added_file = "special_tokens_map.json", "added_tokens.json"
  for file, tokens in (
    (map_file, _read_json(folder, map_file)),
    (SETTINGS_FILE, settings),
  ):
    texts = {name: _text_of(token) for name, token in tokens.items()}
    _check_values(file, texts, dict(zip(SPECIAL_NAMES, names)))
    for name in (
      "bos_token",
      "eos_token",
      "additional_special_tokens",
      "extra_special_tokens",
    ):
      more = tokens.get(name) or []
      if isinstance(more, str) or "content" in more:
        more = [more]
      more = more.values() if isinstance(more, dict) else more
      for token in map(_text_of, more):
        if token not in names:
          raise _Unsupported(f"{file} has {token!r:.60} in {name}")
  decoder = settings.get("added_tokens_decoder") or {}
  added: list[tuple[str, Any, Any]] = [
    *((added_file, i, x) for x, i in _read_json(folder, added_file).items()),
    *((SETTINGS_FILE, i, _text_of(x)) for i, x in decoder.items()),
    *((FAST_FILE, x["id"], x["content"]) for x in fast.get("added_tokens", [])),
  ]
  for file, number, token in added:
    if token not in ids:
      raise _Unsupported(f"{file} adds the token {token!r:.60}")
    if str(number) != str(ids[token]):
      raise _Unsupported(
        f"{file} gives {token} id {number!s:.20} instead of {ids[token]}"
      )
  if fast:
    base = str(settings.get("tokenizer_class", "")).removesuffix("Fast")
    _check_joined(fast, ids, *names[2:4], class_adds=base not in _GENERAL)


def _rules(
  kind: str,
  settings: Mapping[str, Any],
  fast: Mapping[str, Any],
  steps: Optional[_UnigramSteps],
  content: bytes,
) -> tokenization.TextRules:
  """Returns the rules of the settings; tokenizer.json must have the same."""
  _check_values(SETTINGS_FILE, settings, _FIXED[kind])
  # Without tokenizer.json, or where BertTokenizerFast replaces its rules.
  rules = tokenization.TextRules()
  if kind == "wordpiece":
    _check_lines(content)
    rules = dataclasses.replace(rules, max_word_characters=_MAX_WORD_CHARACTERS)
  said = {}
  for field, name in _RULES[kind].items():
    value = settings.get(name)
    if value is None:
      continue
    if not isinstance(value, bool):
      raise _Unsupported(f"{SETTINGS_FILE} has {name} {value!r:.60}")
    said[field] = value if name != "strip_accents" else not value
  rules = dataclasses.replace(rules, **said)
  if not fast:
    return rules
  if steps:
    found = tokenization.TextRules(steps.lower_case, steps.keep_accents or None)
    _check_same_model(fast, steps, content)
  else:
    found = _wordpiece_rules(fast)
    _check_same_lines(fast, content)
  for name in ("padding", "truncation"):
    _check_values(FAST_FILE, fast.get(name) or {}, {"direction": "Right"})
  base = str(settings.get("tokenizer_class", "")).removesuffix("Fast")
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


def _wordpiece_rules(fast: Mapping[str, Any]) -> tokenization.TextRules:
  """Returns the rules of a tokenizer.json of WordPiece."""
  model = fast["model"]
  _check_values(
    FAST_FILE,
    model,
    {
      "unk_token": "[UNK]",
      "continuing_subword_prefix": tokenization.CONTINUATION,
    },
  )
  steps = [
    x for x in _steps(fast["normalizer"]) if x.get("content") != _FINAL_SIGMA
  ]
  names = [step["type"] for step in steps]
  if names != ["BertNormalizer"] or not steps[0]["clean_text"]:
    raise _Unsupported(
      f"{FAST_FILE} normalizes by {', '.join(names) or 'nothing'!s:.80}"
    )
  _check_pre_tokenizer(fast, "BertPreTokenizer")
  strips = steps[0]["strip_accents"]
  return tokenization.TextRules(
    steps[0]["lowercase"],
    None if strips is None or strips == steps[0]["lowercase"] else not strips,
    steps[0]["handle_chinese_chars"],
    model.get("max_input_chars_per_word", _MAX_WORD_CHARACTERS),
  )


class _UnigramSteps(NamedTuple):
  """What a tokenizer.json of a unigram model does before the model.

  Attributes:
    lower_case, keep_accents: as in `TextRules`.
    charsmap: the rules of SentencePiece.
    marks_first_word: whether the first word of a text has the mark of spaces.
    differences: what the original ALBERT does not do.
  """

  lower_case: bool
  keep_accents: bool
  charsmap: bytes
  marks_first_word: bool
  differences: list[str]


def _unigram_steps(fast: Mapping[str, Any]) -> _UnigramSteps:
  """Reads the steps that AlbertTokenizer, or this package, writes."""
  done, charsmap, is_own = set[str](), "", False
  for step in _steps(fast["normalizer"]):
    name = step["type"]
    if name == "Replace":
      pattern, content = step["pattern"], step["content"]
      text = pattern.get("String", pattern.get("Regex", ""))
      name = _REPLACEMENTS.get((text, content), f"replacing {text!r:.60}")
      is_ours = text.lstrip("^(?<=").startswith("[\\x{")
      if is_ours and content in _OWN:
        # Spaces at the start stay.
        is_own, name = True, "" if text[0] == "^" else _OWN[content]
    elif name == "Precompiled":
      charsmap = step["precompiled_charsmap"] or ""
    elif is_own and name in ("NFC", "NFKC"):  # SentencePiece does it.
      name = ""
    if name not in _STEPS:
      raise _Unsupported(f"{FAST_FILE} normalizes by {name!s:.80}")
    done.add(name)
  _check_pre_tokenizer(fast, "Metaspace", "WhitespaceSplit")
  spaces: Mapping[str, Any] = {}
  for step in _steps(fast["pre_tokenizer"], "pretokenizers"):
    if step["type"] == "Metaspace":
      spaces = step
    else:
      done |= {"spaces", "Strip"}
  _check_values(FAST_FILE, spaces, {"replacement": tokenization.WORD_START})
  scheme = spaces.get("prepend_scheme")
  if "spaces" not in done:
    raise _Unsupported(f"{FAST_FILE} keeps several spaces")
  if ("NFKD" in done) != bool(done & {"StripAccents", "marks"}):
    raise _Unsupported(f"{FAST_FILE} has only one of NFKD and StripAccents")
  differences = {
    _QUOTES: "quotes" in done,
    "keeps a space at the end of a text as a token": "Strip" not in done,
    "removes vowel signs of Indic scripts": "StripAccents" in done,
  }
  return _UnigramSteps(
    lower_case="Lowercase" in done,
    keep_accents="NFKD" not in done,
    charsmap=base64.b64decode(charsmap),
    marks_first_word=(
      scheme != "never" if scheme else spaces.get("add_prefix_space", True)
    ),
    differences=[text for text, is_so in differences.items() if is_so],
  )


def _steps(
  part: Optional[Mapping[str, Any]], key: str = "normalizers"
) -> Iterator[Mapping[str, Any]]:
  """Yields the steps of a part that may be a sequence of sequences."""
  if part and part["type"] == "Sequence":
    for inner in part[key]:
      yield from _steps(inner, key)
  elif part:
    yield part


def _check_pre_tokenizer(fast: Mapping[str, Any], *names: str) -> None:
  steps = list(_steps(fast["pre_tokenizer"], "pretokenizers"))
  kinds = [step["type"] for step in steps]
  if names[0] not in kinds or not set(kinds) <= {*names}:
    raise _Unsupported(
      f"{FAST_FILE} splits by {', '.join(kinds) or 'nothing'!s:.80}"
    )


def _check_joined(
  fast: Mapping[str, Any],
  ids: Mapping[str, int],
  cls: str,
  sep: str,
  class_adds: bool,
) -> None:
  """Refuses anything but [CLS] A [SEP] B [SEP] with segments 0 and 1.

  `class_adds`: the class of the tokenizer adds them if tokenizer.json does not.
  """
  steps = list(_steps(fast.get("post_processor"), "processors"))
  if not steps and not class_adds:
    raise _Unsupported(f"{FAST_FILE} adds no {cls} and {sep}")
  single = [f"{cls}:0", "A:0", f"{sep}:0"]
  expected = [*single, *single, "B:1", f"{sep}:1"]
  for step in steps:
    if step["type"] == "BertProcessing":
      found, joined = dict((step["cls"], step["sep"])), expected
    elif step["type"] == "TemplateProcessing":
      found = {x: step["special_tokens"][x]["ids"][0] for x in (cls, sep)}
      joined = [
        f"{x['id']}:{x['type_id']}"
        for part in (*step["single"], *step["pair"])
        for x in part.values()
      ]
    else:
      raise _Unsupported(f"{FAST_FILE} joins texts by {step['type']!r:.60}")
    if joined != expected:
      raise _Unsupported(f"{FAST_FILE} joins texts as {' '.join(joined):.80}")
    if found != {x: ids[x] for x in (cls, sep)}:
      raise _Unsupported(f"{FAST_FILE} joins texts by the ids {found!s:.60}")


def _check_same_model(
  fast: Mapping[str, Any], steps: _UnigramSteps, content: bytes
) -> None:
  """Refuses a spiece.model that is not the one in tokenizer.json."""
  model = sentencepiece_model_pb2.ModelProto.FromString(content)
  name, vocabulary = FILES["sentencepiece"], fast["model"]["vocab"]
  # `hf_tokenizer` renames pieces that are never used.
  if len(model.pieces) != len(vocabulary) or any(
    one.piece != other[0].removesuffix(" ")
    for one, other in zip(model.pieces, vocabulary)
  ):
    raise _Unsupported(f"{FAST_FILE} has other pieces than {name}")
  for one, (_, score) in zip(model.pieces, vocabulary):
    # `tokenizers` has no kind of a piece, so that others have scores of theirs.
    if one.type == one.NORMAL and not math.isclose(
      one.score, score, rel_tol=1e-5, abs_tol=1e-6
    ):
      raise _Unsupported(
        f"{FAST_FILE} gives {one.piece!r:.40} another score than {name}"
      )
  if steps.charsmap != model.normalizer_spec.precompiled_charsmap:
    raise _Unsupported(
      f"{FAST_FILE} has another precompiled_charsmap than {name}"
    )
  if steps.marks_first_word != model.normalizer_spec.add_dummy_prefix:
    raise _Unsupported(
      f"{FAST_FILE} and {name} differ in a space before the first word"
    )


def _check_same_lines(fast: Mapping[str, Any], content: bytes) -> None:
  """Refuses a vocab.txt whose pieces are not those of tokenizer.json."""
  pieces = tokenization.read_vocabulary(content)
  # Of a repeated piece the last line counts.
  ids = {piece: i for i, piece in enumerate(pieces)}
  if ids != fast["model"]["vocab"]:
    raise _Unsupported(
      f"{FAST_FILE} has other pieces than {FILES['wordpiece']}"
    )


def _vocabulary_of(
  fast: Mapping[str, Any], steps: Optional[_UnigramSteps]
) -> bytes:
  """Returns the file of the vocabulary in a tokenizer.json."""
  vocabulary = fast["model"]["vocab"]
  if not steps:
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
      raise _Unsupported(f"{FAST_FILE} leaves out ids of its vocabulary")
    if any("\n" in piece for piece in pieces):
      raise _Unsupported(f"{FAST_FILE} has a piece with a line break")
    return "".join(f"{piece}\n" for piece in pieces).encode("utf-8")
  model = sentencepiece_model_pb2.ModelProto()
  kinds, unknown = model.SentencePiece, fast["model"].get("unk_id")
  uses_bytes = bool(fast["model"].get("byte_fallback"))
  for i, (piece, score) in enumerate(vocabulary):
    kind_of = kinds.NORMAL
    if i == unknown:
      kind_of = kinds.UNKNOWN
    elif piece in tokenization.SPECIAL_PIECES:
      kind_of = kinds.CONTROL
    elif uses_bytes and piece.startswith("<0x"):
      kind_of = kinds.BYTE
    model.pieces.add(piece=piece, score=score, type=kind_of)
  spec, normalizer = model.trainer_spec, model.normalizer_spec
  spec.model_type, spec.byte_fallback = spec.UNIGRAM, uses_bytes
  spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = 0, unknown or 0, -1, -1
  normalizer.add_dummy_prefix = steps.marks_first_word
  normalizer.remove_extra_whitespaces = True
  normalizer.escape_whitespaces = True
  normalizer.precompiled_charsmap = steps.charsmap
  return model.SerializeToString()
