"""Formats a pretraining record as text that a person can check.

    A: [CLS] in mathematics , {[MASK]:especially} order theory , ...

`{shown:label}` is a token to predict; the input shows [MASK], a random piece
or, as `{=label}`, the piece itself. With color there are no braces: [MASK] is
yellow, a random piece red, a kept piece green, and the label follows, faint.
Pieces are joined to words as the tokenizer does.
"""

from __future__ import annotations

import os
import re
import textwrap
from typing import Mapping, Optional, TextIO

import numpy as np

from official_albert import tokenization

_WORD_START = tokenization.WORD_START
_COLOR_OF_KIND = {"masked": "33", "random": "31", "kept": "32"}
_FAINT = "2"
# While lines are wrapped, these enclose the kind, input and label of a token to
# predict. No vocabulary contains them.
_MARK = "\x01{kind}\x02{shown}\x03{label}\x04"
_MARKED = re.compile("\x01([^\x02]*)\x02([^\x03]*)\x03([^\x04]*)\x04")


def use_color(color: str, stream: TextIO) -> bool:
  """Returns whether to write colors to `stream`, given the value of --color.

  "auto" means on a terminal, unless NO_COLOR is set (no-color.org).
  """
  if color != "auto":
    return color == "always"
  return stream.isatty() and not os.environ.get("NO_COLOR")


def legend(color: bool) -> str:
  """Returns a line that explains how tokens to predict are marked."""
  marks = [
    _MARK.format(kind="masked", shown="[MASK]", label="masked"),
    _MARK.format(kind="random", shown="random", label="replaced"),
    _MARK.format(kind="kept", shown="", label="kept"),
  ]
  return _render(f"To predict: {', '.join(marks)}", color)


def describe(
  record: Mapping[str, np.ndarray], tokenizer, color: bool = False
) -> str:
  """Returns several lines: the record with marks, then its text.

  Masks may be missing. An unknown id is a ValueError.
  """
  length = int(record["input_mask"].sum())
  labels, masks = {}, " (not masked)"
  if "masked_lm_weights" in record:
    used = record["masked_lm_weights"] > 0
    positions = record["masked_lm_positions"][used].tolist()
    labels = dict(zip(positions, record["masked_lm_ids"][used].tolist()))
    masks = ""
  order = int(record["next_sentence_labels"][0])
  lines = [
    f"{length} of {len(record['input_ids'])} tokens, {len(labels)} to predict"
    f"{masks}, next_sentence_labels {order} "
    f"({'swapped or random' if order else 'in order'})"
  ]
  ids = record["input_ids"][:length].tolist()
  texts = []
  for name, segment in (("A", 0), ("B", 1)):
    places = np.flatnonzero(record["segment_ids"][:length] == segment).tolist()
    pieces = [_piece(ids[at], labels.get(at), tokenizer) for at in places]
    text = " ".join("".join(pieces).split())
    lines += [_render(line, color) for line in _wrap(f"{name}: {text}")]
    original = [labels.get(at, ids[at]) for at in places]
    texts += _wrap(f"text {name}: {tokenizer.decode(original)}")
  return "\n".join(lines + texts)


def _wrap(text: str) -> list[str]:
  return textwrap.wrap(
    text,
    width=78,
    subsequent_indent="   ",
    break_long_words=False,
    break_on_hyphens=False,
  )


def _piece(shown_id: int, label_id: Optional[int], tokenizer) -> str:
  shown = tokenizer.marked_piece(shown_id)
  if label_id is None:
    space = " " if shown_id in tokenizer.special_ids else ""
    return f"{space}{shown.replace(_WORD_START, ' ')}{space}"
  label = tokenizer.marked_piece(label_id)
  space = " " if label.startswith(_WORD_START) else ""
  kind = "masked" if shown_id == tokenizer.mask_id else "random"
  # A piece may consist of the word mark alone.
  label = label.lstrip(_WORD_START) or label
  shown = shown.lstrip(_WORD_START) or shown
  if shown_id == label_id:
    kind, shown = "kept", ""
  return space + _MARK.format(kind=kind, shown=shown, label=label)


def _render(line: str, color: bool) -> str:
  """Replaces marked tokens by colors or braces."""

  def replace(match: re.Match) -> str:
    kind, shown, label = match.groups()
    if not color:
      return f"{{={label}}}" if kind == "kept" else f"{{{shown}:{label}}}"
    start = f"\x1b[{_COLOR_OF_KIND[kind]}m"
    if kind == "kept":
      return f"{start}{label}\x1b[0m"
    return f"{start}{shown}\x1b[0m\x1b[{_FAINT}m({label})\x1b[0m"

  return _MARKED.sub(replace, line)
