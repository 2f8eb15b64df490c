"""Weights for a model with more groups, other positions or another vocabulary.

The functions take an `AlbertConfig` and values by TF1 names, such as
"bert/pooler/dense/kernel" <float32>[H, H], and return new ones; the arguments
stay as they are. Unchanged values are passed on without a copy, and one array
may have several names: do not write into them.

Optimizer slots, "NAME/adam_m" and "NAME/adam_v", are mapped as the variable
NAME, so that training can continue from the result. All other values, such as
fine-tuned heads and the step, are passed on.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

import numpy as np

from official_albert import modeling, tokenization
from official_albert.checkpoints import POSITION_METHODS, portable

Tensors = Mapping[str, np.ndarray]

_WORDS = "bert/embeddings/word_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"
_OUTPUT_BIAS = "cls/predictions/output_bias"
_GROUP = re.compile(r"^(bert/encoder/transformer/group_)(\d+)(/.+)$")


def expand_groups(
  config: modeling.AlbertConfig, tensors: Tensors, num_hidden_groups: int
) -> tuple[modeling.AlbertConfig, dict[str, np.ndarray]]:
  """Increases the number of groups; each new group copies an old one.

  The model computes the same until it is trained further. With as many groups
  as layers nothing is shared, as in BERT.

  Slots are copied too. A gradient is a sum over the layers that share a
  variable, so the copied moments are those of larger gradients: for about
  1 / (1 - beta_2) steps, the updates are smaller than they could be.

  Raises:
    ValueError: two layers would share a group that did not before (multiples
      of the old number always work), the layers share less than everything, or
      a group's values are missing or of other shapes.
  """
  if config.sharing != "all":
    raise ValueError(
      f"a model with sharing={config.sharing!r} cannot be given more groups: "
      "its layers must share all weights."
    )
  wider = dataclasses.replace(config, num_hidden_groups=num_hidden_groups)
  source: dict[int, int] = {}  # Old groups by new ones.
  for layer in range(config.num_hidden_layers):
    old, new = config.group_of_layer(layer), wider.group_of_layer(layer)
    if source.setdefault(new, old) != old:
      raise ValueError(
        f"{num_hidden_groups} groups cannot replace "
        f"{config.num_hidden_groups}: layers {layer - 1} and {layer} of "
        f"{config.num_hidden_layers} would share their weights, and do not "
        "now; choose a multiple of the current number."
      )
  groups, result = _split_groups(config, tensors)
  for new, old in sorted(source.items()):
    for suffix, value in groups[old].items():
      result[f"bert/encoder/transformer/group_{new}{suffix}"] = value
  return wider, result


def _split_groups(
  config: modeling.AlbertConfig, tensors: Tensors
) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, np.ndarray]]:
  """Returns the values of each group by name suffix, and all other values."""
  groups: dict[int, dict[str, np.ndarray]] = collections.defaultdict(dict)
  others = {}
  for name, value in tensors.items():
    match = _GROUP.match(name)
    if match:
      groups[int(match[2])][match[3]] = value
    else:
      others[name] = value
  if sorted(groups) != list(range(config.num_hidden_groups)):
    raise ValueError(
      f"the checkpoint has the groups {sorted(groups)}, but its configuration "
      f"has num_hidden_groups {config.num_hidden_groups}: use the "
      "albert_config.json that belongs to it."
    )
  first = portable.shapes_of(groups[0])
  for group, values in groups.items():
    shapes = portable.shapes_of(values)
    for suffix in sorted(set(first) | set(shapes)):
      if first.get(suffix) != shapes.get(suffix):
        raise ValueError(
          f"groups 0 and {group} of the checkpoint differ in {suffix[1:]}: it "
          "is missing in one of them, or has another shape."
        )
  return dict(groups), others


def resize_positions(
  config: modeling.AlbertConfig,
  tensors: Tensors,
  max_position_embeddings: int,
  method: str = "tile",
) -> tuple[modeling.AlbertConfig, dict[str, np.ndarray]]:
  """Makes the table of positions longer or shorter.

  "tile" repeats the table: position p gets row p mod P, as in Longformer
  (arXiv 2004.05150, section 5). Up to the old length the model computes the
  same as before. "interpolate" stretches the table by linear interpolation, as
  ViT does for larger images (arXiv 2010.11929, section 3.2). The first and the
  last row stay the same, so [CLS] keeps its embedding, but those of all other
  positions change, in short texts too. Both methods need some training at the
  new length.

  A shorter table keeps the first rows, whatever the method.

  Raises:
    ValueError: the method is unknown, the length is below 1, or the table is
      missing or of another length than in the configuration.
  """
  if method not in POSITION_METHODS:
    raise ValueError(
      f"unknown method {method!r} for positions; choose one of "
      f"{', '.join(POSITION_METHODS)}."
    )
  resized = dataclasses.replace(
    config, max_position_embeddings=max_position_embeddings
  )
  old, new = config.max_position_embeddings, max_position_embeddings

  def resize(table: np.ndarray) -> np.ndarray:
    if new <= old:
      return table[:new].copy()
    if method == "tile":
      return table[np.arange(new) % old]
    place = np.arange(new) * (old - 1) / (new - 1)
    below = place.astype(int)
    above = np.minimum(below + 1, old - 1)
    # The weight is exactly 0 where a row is used unchanged.
    weight = (place - below)[:, None]
    rows = table[below] * (1 - weight) + table[above] * weight
    return rows.astype(table.dtype)

  return resized, _map_rows(tensors, (_POSITIONS,), old, resize)


@dataclasses.dataclass(frozen=True)
class VocabularyReport:
  """Sources of the rows of a new vocabulary.

  Attributes:
    copied: number of pieces in both vocabularies.
    from_parts: new pieces that got the mean of the old pieces in their text.
    from_mean: new pieces that got the mean of all old pieces.
    dropped: old pieces that the new vocabulary lacks.
  """

  copied: int
  from_parts: tuple[str, ...]
  from_mean: tuple[str, ...]
  dropped: tuple[str, ...]

  def __str__(self) -> str:
    return (
      f"{self.copied} pieces copied, {len(self.from_parts)} new ones made from "
      f"the old pieces they are cut into, {len(self.from_mean)} from the mean "
      f"of all, {len(self.dropped)} old ones dropped"
    )


def change_vocabulary(
  config: modeling.AlbertConfig,
  tensors: Tensors,
  old_pieces: Sequence[str],
  new_pieces: Sequence[str],
  cut: Optional[Callable[[str], Iterable[str]]] = None,
) -> tuple[modeling.AlbertConfig, dict[str, np.ndarray], VocabularyReport]:
  """Reorders the word table and the output bias for another vocabulary.

  A piece in both vocabularies keeps its row. A new piece gets the mean of the
  rows of the old pieces that `cut` returns for it. If there are none, it gets
  the mean of all rows except those of special pieces. Random values near zero
  would be worse: trained models give most pieces very negative logits, so new
  pieces would be predicted everywhere. With the mean of the embeddings a new
  piece is at most as likely as the average one (exp is convex; John Hewitt,
  "Initializing New Word Embeddings for Pretrained Language Models", 2021).

  Args:
    config: with one row per old piece.
    tensors: its values; the output bias is optional.
    old_pieces: V pieces in the order of their ids, see `pieces_of`. If a piece
      occurs twice, the last one counts.
    new_pieces: those of the new vocabulary, of the same kind.
    cut: returns the old pieces of a new one, see `cutter`. Special and unknown
      pieces and a bare "▁" are ignored.

  Raises:
    ValueError: the vocabularies are of different kinds or lack special pieces,
      or the table is missing or does not have one row per old piece.
  """
  special = _special_pieces(old_pieces, new_pieces)
  if len(old_pieces) != config.vocab_size:
    raise ValueError(
      f"the old vocabulary has {len(old_pieces)} pieces, but the model has "
      f"vocab_size {config.vocab_size}: give the vocabulary that it was "
      "trained with."
    )
  changed = dataclasses.replace(config, vocab_size=len(new_pieces))
  ids = {piece: i for i, piece in enumerate(old_pieces)}
  ignored = special | {tokenization.WORD_START}
  kept, parts, means = [], {}, []
  for new_id, piece in enumerate(new_pieces):
    if piece in ids:
      kept.append((new_id, ids[piece]))
      continue
    found = [
      ids[part]
      for part in (cut(piece) if cut else ())
      if part in ids and part not in ignored
    ]
    if found:
      parts[new_id] = found
    else:
      means.append(new_id)
  ordinary = [i for piece, i in ids.items() if piece not in special]

  def reorder(table: np.ndarray) -> np.ndarray:
    result = np.empty((len(new_pieces), *table.shape[1:]), table.dtype)
    targets, sources = np.array(kept).T
    result[targets] = table[sources]
    for new_id, found in parts.items():
      result[new_id] = table[found].mean(axis=0, dtype=np.float64)
    if means:
      rows = table[ordinary or list(ids.values())]
      result[means] = rows.mean(axis=0, dtype=np.float64)
    return result

  report = VocabularyReport(
    copied=len(kept),
    from_parts=tuple(new_pieces[i] for i in parts),
    from_mean=tuple(new_pieces[i] for i in means),
    dropped=tuple(sorted(set(old_pieces) - set(new_pieces))),
  )
  optional = (_OUTPUT_BIAS,) if _OUTPUT_BIAS in tensors else ()
  tables = (_WORDS, *optional)
  return changed, _map_rows(tensors, tables, len(old_pieces), reorder), report


def _special_pieces(
  old_pieces: Sequence[str], new_pieces: Sequence[str]
) -> frozenset[str]:
  """Returns the special pieces, which both vocabularies must have."""
  kinds = (tokenization.SPECIAL_PIECES, tokenization.WORDPIECE_SPECIAL_PIECES)
  old = set(old_pieces)
  # The old vocabulary determines the kind.
  special = max(kinds, key=lambda kind: len(old & set(kind)))
  for which, pieces in (("old", old), ("new", set(new_pieces))):
    missing = [piece for piece in special if piece not in pieces]
    if missing:
      raise ValueError(
        f"the {which} vocabulary lacks {', '.join(missing)}: both must have "
        f"{', '.join(special)}, so both must be of the same kind, "
        "SentencePiece or WordPiece."
      )
  return frozenset(special)


def _map_rows(
  tensors: Tensors,
  tables: tuple[str, ...],
  rows: int,
  change: Callable[[np.ndarray], np.ndarray],
) -> dict[str, np.ndarray]:
  """Returns all values, with some tables and their slots changed."""
  for name in tables:
    if name not in tensors:
      raise ValueError(
        f"the checkpoint has no {name}: its values must have the names of the "
        "TF1 releases."
      )
  result = dict(tensors)
  for name, value in tensors.items():
    if not any(name == t or name.startswith(f"{t}/") for t in tables):
      continue
    if value.ndim < 1 or len(value) != rows:
      raise ValueError(
        f"{name} has shape {list(value.shape)}, but the configuration has "
        f"{rows} rows: use the albert_config.json that belongs to it."
      )
    result[name] = change(value)
  return result


# Unicode's private use area, which ordinary texts do not contain.
_PRIVATE_USE = [chr(code) for code in range(0xE000, 0xF900)]


def pieces_of(tokenizer: tokenization.Tokenizer) -> list[str]:
  """Returns a tokenizer's V pieces in the order of their ids."""
  return [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]


def cutter(tokenizer: tokenization.Tokenizer) -> Callable[[str], list[str]]:
  """Returns a function that tokenizes the text of another vocabulary's piece.

  A piece from within a word is tokenized as within a word, if the vocabulary
  has such pieces. Unknown text is returned as `tokenize` does.

      cut = cutter(SentencePieceTokenizer("30k-clean.model"))
      cut("▁harbourfront")  # ["▁harbour", "front"]
  """
  if tokenizer.kind == "wordpiece":
    return lambda piece: _cut_wordpiece(tokenizer, piece)
  seen = set("".join(pieces_of(tokenizer)))
  marker = next(char for char in _PRIVATE_USE if char not in seen)
  return lambda piece: _cut_sentencepiece(tokenizer, piece, marker)


def _cut_sentencepiece(
  tokenizer: tokenization.SentencePieceTokenizer, piece: str, marker: str
) -> list[str]:
  text = piece.replace(tokenization.WORD_START, " ")
  if text.startswith(" "):
    return tokenizer.tokenize(text)
  # Text after a character that is in no piece does not start a word.
  pieces = tokenizer.tokenize(marker + text)
  for i, found in enumerate(pieces):
    if marker in found:
      # Adjacent unknown characters are one piece.
      unknown = found.partition(marker)[2]
      return ([unknown] if unknown else []) + pieces[i + 1 :]
  return tokenizer.tokenize(text)  # With byte fallback.


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
