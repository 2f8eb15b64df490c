"""Formats a pretraining record as text that a person can check.

    A: [CLS] in mathematics , {[MASK]:especially} order theory , ...

`{shown:label}` is a token to predict; the input shows [MASK], a random piece
or, as `{=label}`, the piece itself. With color there are no braces: [MASK] is
yellow, a random piece red, a kept piece green, and the label follows, faint.
Pieces are joined to words as the tokenizer does. In a record without masks, |
marks a word that begins without a space.
"""

from __future__ import annotations

import os
import re
import textwrap
from typing import Mapping, TextIO

import numpy as np

from official_albert import tokenization

COLORS = ("auto", "always", "never")

_WIDTH = 78
_WORD_START = tokenization.WORD_START
_YELLOW, _RED, _GREEN, _FAINT, _PLAIN = (
  f"\x1b[{code}m" for code in ("33", "31", "32", "2", "0")
)
# While lines are wrapped, these enclose a token's kind, input and label. No
# vocabulary contains them.
_OPEN, _MIDDLE, _CLOSE = "\x01\x02\x03"
_MASK, _RANDOM, _KEPT = "mrk"
_WORD_BEGINS = "\x04"
_MARKED = re.compile("\x01(.)([^\x02]*)\x02([^\x03]*)\x03")


def use_color(color: str, stream: TextIO) -> bool:
  """Returns whether to write colors to `stream`.

  Args:
    color: one of `COLORS`; "auto" means on a terminal, unless NO_COLOR is set
      (no-color.org).
    stream: the output.
  """
  if color != "auto":
    return color == "always"
  return (
    stream.isatty()
    and not os.environ.get("NO_COLOR")
    and os.environ.get("TERM") != "dumb"
  )


def legend(color: bool) -> str:
  """Returns a line that explains how tokens to predict are marked."""
  samples = (
    (_MASK, "[MASK]", "masked"),
    (_RANDOM, "random", "replaced"),
    (_KEPT, "", "kept"),
  )
  return "To predict: " + ", ".join(
    _render(f"{_OPEN}{kind}{shown}{_MIDDLE}{label}{_CLOSE}", color)
    for kind, shown, label in samples
  )


def describe(
  record: Mapping[str, np.ndarray], tokenizer, color: bool = False
) -> str:
  """Returns several lines: the record with marks, then its text.

  Args:
    record: features of `tfrecords.pretraining_schema`; masks may be missing.
    tokenizer: the one that made the record.
    color: whether to use colors.

  Raises:
    ValueError: an id is outside the tokenizer's vocabulary.
  """
  length = int(record["input_mask"].sum())
  has_masks = "masked_lm_weights" in record
  labels = {}
  if has_masks:
    used = record["masked_lm_weights"] > 0
    labels = dict(
      zip(
        record["masked_lm_positions"][used].tolist(),
        record["masked_lm_ids"][used].tolist(),
      )
    )
  label = int(record["next_sentence_labels"][0])
  ids = record["input_ids"][:length].tolist()
  segments = record["segment_ids"][:length]
  count = f"{len(labels)} to predict{'' if has_masks else ' (not masked)'}"
  lines = [
    f"{length} of {len(record['input_ids'])} tokens, {count}, "
    f"next_sentence_labels {label} "
    f"({'swapped or random' if label else 'in order'})"
  ]
  names = (("A", 0), ("B", 1))
  for name, segment in names:
    pieces = []
    for p in np.flatnonzero(segments == segment).tolist():
      # Without masks, show which words would be masked as a whole.
      boundary = not has_masks and bool(record["token_boundary"][p])
      pieces.append(_piece(ids[p], labels.get(p), boundary, tokenizer))
    text = "".join(pieces).replace(f" {_WORD_BEGINS}", " ")
    text = " ".join(text.replace(_WORD_BEGINS, "|").split())
    lines += [_render(line, color) for line in _wrap(f"{name}: {text}")]
  for name, segment in names:
    original = [
      labels.get(p, ids[p])
      for p in np.flatnonzero(segments == segment).tolist()
    ]
    lines += _wrap(f"text {name}: {tokenizer.decode(original)}")
  return "\n".join(lines)


def _wrap(text: str) -> list[str]:
  return textwrap.wrap(
    text,
    _WIDTH,
    subsequent_indent="   ",
    break_long_words=False,
    break_on_hyphens=False,
  )


def _piece(shown_id, label_id, boundary, tokenizer) -> str:
  shown = tokenizer.marked_piece(shown_id)
  if label_id is None:
    space = " " if shown_id in tokenizer.special_ids else ""
    mark = boundary and not space and not shown.startswith(_WORD_START)
    shown = shown.replace(_WORD_START, " ")
    return f"{space}{_WORD_BEGINS if mark else ''}{shown}{space}"
  label = tokenizer.marked_piece(label_id)
  space = " " if label.startswith(_WORD_START) else ""
  # A piece may consist of the word mark alone.
  label = label.lstrip(_WORD_START) or label
  shown = shown.lstrip(_WORD_START) or shown
  kind = _MASK if shown_id == tokenizer.mask_id else _RANDOM
  if shown_id == label_id:
    kind, shown = _KEPT, ""
  return f"{space}{_OPEN}{kind}{shown}{_MIDDLE}{label}{_CLOSE}"


def _render(line: str, color: bool) -> str:
  """Replaces marked tokens by colors or braces."""

  def replace(match: re.Match) -> str:
    kind, shown, label = match.groups()
    if not color:
      return f"{{={label}}}" if kind == _KEPT else f"{{{shown}:{label}}}"
    if kind == _KEPT:
      return f"{_GREEN}{label}{_PLAIN}"
    shade = _YELLOW if kind == _MASK else _RED
    return f"{shade}{shown}{_PLAIN}{_FAINT}({label}){_PLAIN}"

  return _MARKED.sub(replace, line)
