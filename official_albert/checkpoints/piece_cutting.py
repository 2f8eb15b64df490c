"""How one vocabulary would write another one's pieces.

For a model that changes its vocabulary: see
`checkpoint_surgery.change_vocabulary`.
"""

from __future__ import annotations

from collections.abc import Callable

from official_albert import tokenization

# For private use in Unicode, so that no text has them.
_STRANGERS = [chr(code) for code in range(0xE000, 0xF900)]


def pieces_of(tokenizer: tokenization.Tokenizer) -> list[str]:
  """Its V pieces in the order of their ids."""
  return [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]


def cutter(tokenizer: tokenization.Tokenizer) -> Callable[[str], list[str]]:
  """From a piece of another vocabulary to this one's pieces of its text.

  A piece from within a word is cut as within a word, where the vocabulary has
  what that takes. What it does not know comes back as `tokenize` writes it.

      cut = cutter(SentencePieceTokenizer("30k-clean.model"))
      cut("▁harbourfront")  # ["▁harbour", "front"]
  """
  if tokenizer.kind == "wordpiece":
    return lambda piece: _cut_wordpiece(tokenizer, piece)
  seen = set("".join(pieces_of(tokenizer)))
  stranger = next(char for char in _STRANGERS if char not in seen)
  return lambda piece: _cut_sentencepiece(tokenizer, piece, stranger)


def _cut_sentencepiece(
  tokenizer: tokenization.SentencePieceTokenizer, piece: str, stranger: str
) -> list[str]:
  text = piece.replace(tokenization.WORD_START, " ")
  if text.startswith(" "):
    return tokenizer.tokenize(text)
  # A text begins a word; behind a character that no piece has, it does not.
  pieces = tokenizer.tokenize(stranger + text)
  for i, found in enumerate(pieces):
    if stranger in found:
      # Unknown characters beside each other are one piece.
      unknown = found.partition(stranger)[2]
      return ([unknown] if unknown else []) + pieces[i + 1 :]
  return tokenizer.tokenize(text)  # The model cuts the unknown into bytes.


def _cut_wordpiece(
  tokenizer: tokenization.WordPieceTokenizer, piece: str
) -> list[str]:
  mark = tokenization.CONTINUATION
  if not piece.startswith(mark) or piece == mark:
    return tokenizer.tokenize(piece)
  text = piece[len(mark) :]
  pieces, start = [], 0
  while start < len(text):
    ends = range(len(text), start, -1)
    tries = (mark + text[start:end] for end in ends)
    known = (p for p in tries if tokenizer.piece_to_id(p) != tokenizer.unk_id)
    found = next(known, "")
    if not found:
      return tokenizer.tokenize(text)
    pieces.append(found)
    start += len(found) - len(mark)
  return pieces
