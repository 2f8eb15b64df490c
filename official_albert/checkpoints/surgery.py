"""Weights for another model: more groups, other positions, another vocabulary.

Everything here is a pure function on a checkpoint in memory: its
`AlbertConfig`, and its values by the names of the TF1 releases, such as
"bert/pooler/dense/kernel" <float32>[H, H]. What is returned is new; the inputs
stay as they are. Values that do not change are handed on, not copied, and one
array may stand under several names: do not write into them.

The slots of an optimizer, "NAME/adam_m" and "NAME/adam_v", go through the same
map as the variable NAME, so that training can go on from the result. All other
values, fine-tuned heads and the step among them, pass through.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

import numpy as np

from official_albert import modeling, tokenization
from official_albert.checkpoints import POSITION_METHODS

Tensors = Mapping[str, np.ndarray]

_WORDS = "bert/embeddings/word_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"
_OUTPUT_BIAS = "cls/predictions/output_bias"
_GROUP = re.compile(r"^(bert/encoder/transformer/group_)(\d+)(/.+)$")


def expand_groups(
  config: modeling.AlbertConfig, tensors: Tensors, num_hidden_groups: int
) -> tuple[modeling.AlbertConfig, dict[str, np.ndarray]]:
  """Gives the layers more groups, each with a copy of what it used before.

  The model computes the same; only training on sets the copies apart. With as
  many groups as layers nothing is shared any more, as in BERT. Inner groups
  stay within their group.

  Slots are copied too. A gradient is a sum over the layers that share a
  variable, so the copies' moments are those of larger gradients: the first
  thousand or so steps (1 / (1 - beta_2)) are smaller than they could be, which
  errs on the safe side.

  Raises:
    ValueError: some layers would have to share a group that did not before
      (a multiple of the groups always works), the model shares only parts of
      its layers, or a group's values are missing or of other shapes.
  """
  if config.sharing != "all":
    raise ValueError(
      f"a model with sharing={config.sharing!r} cannot be given more groups: "
      "only whole layers are divided into them."
    )
  wider = dataclasses.replace(config, num_hidden_groups=num_hidden_groups)
  source: dict[int, int] = {}  # From new groups to old ones.
  for layer in range(config.num_hidden_layers):
    old, new = config.group_of_layer(layer), wider.group_of_layer(layer)
    if source.setdefault(new, old) != old:
      raise ValueError(
        f"{num_hidden_groups} groups cannot take the place of "
        f"{config.num_hidden_groups}: layers {layer - 1} and {layer} of "
        f"{config.num_hidden_layers} would share their weights, and do not "
        "now; choose a multiple of the present number."
      )
  groups, result = _split_groups(config, tensors)
  for new, old in sorted(source.items()):
    for suffix, value in groups[old].items():
      result[f"bert/encoder/transformer/group_{new}{suffix}"] = value
  return wider, result


def _split_groups(
  config: modeling.AlbertConfig, tensors: Tensors
) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, np.ndarray]]:
  """The values of each group by what follows its number, and the others."""
  groups: dict[int, dict[str, np.ndarray]] = collections.defaultdict(dict)
  others = {}
  for name, value in tensors.items():
    match = _GROUP.match(name)
    if match:
      groups[int(match[2])][match[3]] = value
    else:
      others[name] = value
  expected = range(config.num_hidden_groups)
  if sorted(groups) != list(expected):
    raise ValueError(
      f"the checkpoint has the groups {sorted(groups)}, but its configuration "
      f"says num_hidden_groups {config.num_hidden_groups}: take the "
      "albert_config.json that belongs to it."
    )
  for group in expected:
    for suffix in sorted(set(groups[0]) | set(groups[group])):
      # What is missing has the shape of a scalar, which none of them is.
      shapes = [np.shape(groups[g].get(suffix)) for g in (0, group)]
      if shapes[0] != shapes[1]:
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

  "tile" repeats the table: position p of the longer one is p mod P of the old
  one, as Longformer began (arXiv 2004.05150, section 5). Up to the old length
  the model computes the same as before, and neighbours stay neighbours, but at
  the seams. "interpolate" stretches it: linear interpolation between the two
  nearest rows, as ViT does for larger images (arXiv 2010.11929, section 3.2).
  The first and the last row stay, so that [CLS] keeps its place, but all
  between them move and short texts change too. Either wants some training at
  the new length.

  A shorter table is cut after its first rows, whatever the method: those are
  the positions that short texts had.

  Raises:
    ValueError: an unknown method, a length below 1, or a table that is missing
      or of another length than the configuration says.
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
    # Where rows are read unchanged the weight is exactly 0.
    weight = (place - below)[:, None]
    rows = table[below] * (1 - weight) + table[above] * weight
    return rows.astype(table.dtype)

  return resized, _map_rows(tensors, (_POSITIONS,), old, resize)


@dataclasses.dataclass(frozen=True)
class VocabularyReport:
  """Where the rows of a new vocabulary come from.

  Attributes:
    copied: how many pieces both vocabularies have.
    from_parts: new pieces, the mean of the old ones that they are cut into.
    from_mean: new pieces, the mean of all old ones.
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
  """Puts the rows of the word table, and its output bias, in a new order.

  A piece that both vocabularies have keeps its row. A new one gets the mean of
  the rows of the pieces into which the old vocabulary cuts it, or, without
  `cut` or where that knows none of it, the mean of all rows but the special
  pieces'. Not random values about zero: their logit would be about zero too,
  where a trained model gives most pieces far less, and they would be predicted
  everywhere. The mean's logit is the mean of the others', so that a new piece
  is at most as likely as the average one (exp is convex; John Hewitt,
  "Initializing New Word Embeddings for Pretrained Language Models", 2021).
  Equal rows part in training, as their pieces stand in different texts.

  Args:
    config: with one row per old piece.
    tensors: its values; without MLM head the bias is left out.
    old_pieces: V pieces in the order of their ids, see
      `pieces_of`; the last of equal ones counts.
    new_pieces: those of the new vocabulary, of the same kind.
    cut: the old pieces of a new one, see `cutter`. Passed over
      are special and unknown pieces, and a bare "▁", which says nothing.

  Raises:
    ValueError: the vocabularies are of different kinds or lack special pieces,
      or the table is missing or has another number of rows than old pieces.
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
  silent = special | {tokenization.WORD_START}
  kept, parts, means = [], {}, []
  for new_id, piece in enumerate(new_pieces):
    if piece in ids:
      kept.append((new_id, ids[piece]))
      continue
    found = [
      ids[part]
      for part in (cut(piece) if cut else ())
      if part in ids and part not in silent
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
  """Those that both vocabularies have to have."""
  kinds = (tokenization.SPECIAL_PIECES, tokenization.WORDPIECE_SPECIAL_PIECES)
  # The kind is the one that the old vocabulary has more of.
  old = set(old_pieces)
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
  """All values, those of some tables and of their slots changed."""
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
        f"{name} has shape {list(value.shape)}, but the configuration says "
        f"{rows} rows: take the albert_config.json that belongs to it."
      )
    result[name] = change(value)
  return result


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
