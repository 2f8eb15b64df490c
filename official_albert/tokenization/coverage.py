"""Notes on text that a vocabulary does not cover.

Such a model trains and answers without an error, but knows little of the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from official_albert.tokenization import normalization, sentencepiece_tokenizer

# A good vocabulary leaves far less than 1% of the tokens unknown.
MAX_SHARE = 0.05
# A sample tells the share, and to tokenize twice takes time.
_MAX_CHARACTERS = 300_000


def vocabulary_note(tokenizer: sentencepiece_tokenizer.Tokenizer) -> str:
  """Returns a note if no text gives many of the pieces, else "".

  Without capitals or accents, which text loses first, no piece has them.
  """
  ids = set(range(tokenizer.vocab_size)) - tokenizer.special_ids
  pieces = sorted(map(tokenizer.id_to_piece, ids))
  dead = list(filter(tokenizer.changes, pieces))
  if len(dead) <= MAX_SHARE * tokenizer.vocab_size:
    return ""
  return (
    f"{len(dead):,} of the {tokenizer.vocab_size:,} pieces of the vocabulary "
    f"occur in no text, such as {dead[len(dead) // 2]!r:.40}, because text "
    "loses its capital letters or its accents first: give "
    "--do_lower_case=false (lower_case=False) or --keep_accents "
    "(keep_accents=True) if the vocabulary was made for other text."
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


def coverage_note(
  tokenizer: Optional[sentencepiece_tokenizer.Tokenizer], texts: Iterable[str]
) -> str:
  """Returns a note if `tokenizer` knows little of the first texts, else ""."""
  if tokenizer is None:
    return ""
  mark = tokenizer.piece_to_id(normalization.WORD_START)
  characters = unknown = tokens = lost = 0
  for text in texts:
    ids = tokenizer.encode(text.replace("[MASK]", " "))
    unknown += ids.count(tokenizer.unk_id)
    tokens += len(ids)
    lost += tokenizer.unk_id in ids and {*ids} <= {tokenizer.unk_id, mark}
    characters += len(text)
    if characters > _MAX_CHARACTERS:
      break
  note = unknown_note(unknown, tokens, "the text")
  if lost > 1:
    note += (
      f" {lost:,} texts have only unknown tokens, so that those of the same "
      "length get the same answer."
    )
  return note.strip()
