"""Changes the positions or the vocabulary of a checkpoint.

The functions change the configuration, the values and the notes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np

from official_albert import modeling, tokenization
from official_albert.checkpoints import portable, tokenizer_file


def resize_positions(
  checkpoint: portable.PortableCheckpoint, max_position_embeddings: int
) -> None:
  """Changes the number of position embeddings.

  A shorter table keeps the first rows, and a longer one repeats them, as in
  Longformer (arXiv 2004.05150, section 5). Outputs up to the shorter length do
  not change.
  """
  config, new = checkpoint.config, max_position_embeddings
  old = config.max_position_embeddings
  _change_tables(
    checkpoint,
    dataclasses.replace(config, max_position_embeddings=new),
    ("bert/embeddings/position_embeddings",),
    lambda table: table[np.arange(new) % old],
  )
  how = "the old table is repeated" if new > old else "the first ones"
  checkpoint.notes.append(f"{new} positions instead of {old}: {how}.")


def change_vocabulary(
  checkpoint: portable.PortableCheckpoint,
  tokenizer: tokenizer_file.TokenizerFile,
) -> None:
  """Reorders the word table and the output bias for another vocabulary.

  A piece in both vocabularies keeps its row. A new piece is cut into the
  longest old pieces and gets the mean of their rows. If there are none, it
  gets the mean of all ordinary rows. Random values near zero would make the
  model predict it everywhere (John Hewitt, "Initializing New Word Embeddings
  for Pretrained Language Models", 2021).

  Raises:
    ValueError: the old vocabulary is unknown or does not have one piece per
      row, or the vocabularies are of different kinds.
  """
  if not checkpoint.tokenizer:
    raise ValueError(
      "the vocabulary can only be changed if the old one is known: give it "
      "with --spm_model_file or --vocab_file."
    )
  before, after = checkpoint.tokenizer.open(), tokenizer.open()
  if before.kind != after.kind:
    raise ValueError(
      f"the old vocabulary is of {before.kind}, the new one of {after.kind}: "
      "both must be of the same kind, as their pieces differ."
    )
  if before.vocab_size != checkpoint.config.vocab_size:
    raise ValueError(
      f"the old vocabulary has {before.vocab_size} pieces, but the model has "
      f"vocab_size {checkpoint.config.vocab_size}: give the vocabulary that it "
      "was trained with."
    )
  special = tokenization.SPECIAL_PIECES
  if before.kind == "wordpiece":
    special = tokenization.WORDPIECE_SPECIAL_PIECES
  old, new = _pieces(before), _pieces(after)
  ids = {piece: i for i, piece in enumerate(old)}
  ordinary = {piece: i for piece, i in ids.items() if piece not in special}
  # The old rows of which each new row is the mean; [] for the mean of all.
  sources = []
  copied = cut = 0
  for piece in new:
    if piece in ids:
      sources.append([ids[piece]])
      copied += 1
      continue
    parts = _cut(piece.lower() if before.lower_case else piece, ordinary)
    cut += bool(parts)
    sources.append(parts)

  def reorder(table: np.ndarray) -> np.ndarray:
    mean = functools.partial(np.mean, axis=0, dtype=np.float64)
    mean_of_all = mean(table[list((ordinary or ids).values())])
    rows = [mean(table[ids]) if ids else mean_of_all for ids in sources]
    return np.stack(rows).astype(table.dtype)

  _change_tables(
    checkpoint,
    dataclasses.replace(checkpoint.config, vocab_size=len(new)),
    ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"),
    reorder,
  )
  checkpoint.tokenizer = tokenizer
  checkpoint.notes.append(
    f"another vocabulary: {copied} pieces copied, {cut} new ones made from the "
    f"old pieces they are cut into, {len(new) - copied - cut} from the mean of "
    f"all, {len(set(old) - set(new))} old ones dropped."
  )


def _change_tables(
  checkpoint: portable.PortableCheckpoint,
  config: modeling.AlbertConfig,
  tables: tuple[str, ...],
  change: Callable[[np.ndarray], np.ndarray],
) -> None:
  """Changes some tables, and the configuration."""
  checkpoint.config = config
  checkpoint.tensors = {
    name: change(np.asarray(value)) if name in tables else value
    for name, value in checkpoint.tensors.items()
  }


def _pieces(tokenizer: tokenization.Tokenizer) -> list[str]:
  return [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]


def _cut(piece: str, ids: Mapping[str, int]) -> list[int]:
  """Cuts a piece into the longest known pieces, from left to right.

  For example, "▁harbourfront" becomes the ids of "▁harbour" and "front".
  Characters that are in no known piece are skipped.
  """
  mark = tokenization.CONTINUATION
  is_inside = piece.startswith(mark)
  text = piece.removeprefix(mark)
  found, start = [], 0
  while start < len(text):
    for end in range(len(text), start, -1):
      part = text[start:end]
      part = mark + part if is_inside and mark + part in ids else part
      if part in ids and part != tokenization.WORD_START:
        found.append(ids[part])
        break
    else:
      end = start + 1
    start, is_inside = end, True
  return found
