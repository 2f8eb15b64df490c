"""Says when a vocabulary does not cover a text, in notes for the user.

Such a model trains and answers without an error, but knows little of the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from official_albert.tokenization import sentencepiece_tokenizer, text_offsets

# A good vocabulary leaves far less than 1% of the tokens unknown.
MAX_SHARE = 0.05
# A sample tells the share, and tokenizing twice takes time.
_MAX_CHARACTERS = 300_000


def vocabulary_note(tokenizer: sentencepiece_tokenizer.Tokenizer) -> str:
  """Returns a note if no text gives many of the pieces, else "".

  Text is changed first. Under lower case, these are pieces with capitals;
  without `keep_accents`, those with accents, for WordPiece also Hangul.
  """
  ids = set(range(tokenizer.vocab_size)) - tokenizer.special_ids
  pieces = sorted(map(tokenizer.id_to_piece, ids))
  dead = list(filter(tokenizer.changes, pieces))
  if len(dead) <= MAX_SHARE * tokenizer.vocab_size:
    return ""
  advice = [
    *["--do_lower_case=false (lower_case=False)"] * tokenizer.lower_case,
    *["--keep_accents (keep_accents=True)"] * (not tokenizer.keep_accents),
  ]
  return (
    f"{len(dead):,} of the {tokenizer.vocab_size:,} pieces of the vocabulary "
    f"occur in no text, such as {dead[len(dead) // 2]!r:.40}, because text "
    "loses its capital letters or its accents first: give "
    f"{' or '.join(advice)} if the vocabulary was made for other text."
  )


def unknown_note(unknown: int, tokens: int, what: str) -> str:
  """Returns a note if too many of the tokens of `what` are unknown, else ""."""
  if unknown <= MAX_SHARE * tokens:
    return ""
  return (
    f"{unknown / tokens:.0%} of the tokens of {what} are unknown, because the "
    "vocabulary lacks them: use a model and a vocabulary for its language and "
    "writing, or train one by tools.train_vocabulary."
  )


class Watch:
  """Counts the unknown tokens of texts, of a sample if there are many."""

  def __init__(self, tokenizer: Optional[sentencepiece_tokenizer.Tokenizer]):
    """Without a tokenizer, there is never a note."""
    self._tokenizer = tokenizer
    self._characters = self._unknown = self._tokens = self._lost = 0

  def see(self, values: Iterable[Any]) -> None:
    """Counts the tokens of texts, or of lists of texts."""
    tokenizer = self._tokenizer
    for value in values:
      if tokenizer is None or self._characters >= _MAX_CHARACTERS:
        return
      if isinstance(value, str):
        ids = tokenizer.encode(value.replace("[MASK]", " "))
        unknown = ids.count(tokenizer.unk_id)
        space = tokenizer.piece_to_id(text_offsets.WORD_START)
        self._characters += len(value)
        self._unknown += unknown
        self._tokens += len(ids)
        self._lost += unknown > 0 and {*ids} <= {tokenizer.unk_id, space}
      elif isinstance(value, Iterable) and not isinstance(value, bytes):
        self.see(value)

  def note(self) -> str:
    """Returns a note on the texts so far, or ""."""
    notes = [unknown_note(self._unknown, self._tokens, "the text")]
    if self._lost > 1:
      notes.append(
        f"{self._lost:,} texts have only unknown tokens, so that those of the "
        "same length get the same answer."
      )
    if self._tokenizer and any(notes):
      notes.append(vocabulary_note(self._tokenizer))
    return " ".join(filter(None, notes))
