"""Measures how layers change their input and where attention heads look.

Figure 2 of arXiv 1909.11942 shows the L2 distance and the angle between the
input and the output of each layer: smaller and smoother from layer to layer
with shared weights than without, and not converging to 0.

A layer is an application of a block; with `inner_group_num` above 1 there are
several in each of the configuration's layers.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf
from scipy import special

from official_albert import checkpoints, modeling, tokenization

_BATCH_SIZE = 16
# The numbers of a layer and of a head.
LAYER = ("l2_distance", "degrees")
HEAD = ("distance", "entropy", "cls_share", "sep_share", "self_share")


class InspectedModel(NamedTuple):
  """An encoder, its tokenizer if there is one, and its checkpoint."""

  model: modeling.AlbertModel
  tokenizer: Optional[tokenization.Tokenizer]
  source: str


class Findings(NamedTuple):
  """Measurements on sentences; `maps` and `pieces` are of the first one."""

  values: dict[str, Any]  # `layers`, `attention`, `sentences` of the JSON.
  maps: list[np.ndarray]  # Attention of each layer, <float32>[N, S, S].
  pieces: list[str]


def open_model(
  path: str,
  albert_config_file: str = "",
  num_hidden_layers: int = 0,
  tokenizer: Optional[tokenization.Tokenizer] = None,
) -> InspectedModel:
  """Reads an encoder in float32; see `AlbertModel.from_checkpoint`.

  0 for `num_hidden_layers` keeps the number; `tokenizer` replaces the one next
  to the weights. A tokenizer of another model is a ValueError.
  """
  with checkpoints.unpacked_archive(path) as folder:
    weights = checkpoints.read_checkpoint(folder, albert_config_file)
    config = weights.config
    if num_hidden_layers:
      config = config.at_depth(num_hidden_layers)
    model = modeling.AlbertModel(config, dtype="float32")
    checkpoints.fill(model, weights)
    if tokenizer is None and weights.tokenizer:
      tokenizer = weights.tokenizer.open()
  if tokenizer and tokenizer.vocab_size != config.vocab_size:
    raise ValueError(
      f"the tokenizer has {tokenizer.vocab_size} pieces, but {path} has "
      f"vocab_size {config.vocab_size}: set --spm_model_file or --vocab_file "
      "to the model's own."
    )
  source = weights.source.replace(folder, path, 1)
  return InspectedModel(model, tokenizer, source)


def look_into(
  opened: InspectedModel,
  sentences: Sequence[str],
  max_seq_length: int,
  path: str,
) -> Findings:
  """Measures layers and heads, as means over all tokens.

  Sentences are truncated to `max_seq_length`; `path` is for messages.
  """
  tokenizer = opened.tokenizer
  if tokenizer is None:
    raise ValueError(
      f"{path} has no tokenizer: set --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  special = tokenizer.cls_id, tokenizer.sep_id
  rows, cut = [], 0
  for text in sentences:
    ids = tokenizer.encode(text)
    row, _ = tokenization.pack_pair(ids, None, max_seq_length, *special)
    rows.append(row)
    cut += len(row) < len(ids) + 2
  layers = heads = np.float64(0)
  by_length = sorted(rows, key=len)
  for start in range(0, len(rows), _BATCH_SIZE):
    ids, mask = pad(by_length[start : start + _BATCH_SIZE], tokenizer.pad_id)
    is_sep, real = ids == tokenizer.sep_id, mask > 0
    found = [
      (
        compare(before[real], after[real]).sum(axis=0),
        head_statistics(probs, is_sep)[real].sum(axis=0),
      )
      for before, after, probs in run(opened.model, ids, mask)
    ]
    layers = layers + [of_layer for of_layer, _ in found]
    heads = heads + [of_heads for _, of_heads in found]
  count = sum(map(len, rows))
  values = {
    "layers": _numbered("layer", LAYER, (layers / count).tolist()),
    "attention": [
      {"layer": number, "heads": _numbered("head", HEAD, of_layer)}
      for number, of_layer in enumerate((heads / count).tolist(), 1)
    ],
    "sentences": {"count": len(rows), "tokens": count, "cut": cut},
  }
  first = pad(rows[:1], tokenizer.pad_id)
  maps = [probs[0] for *_, probs in run(opened.model, *first)]
  pieces = [tokenizer.marked_piece(id) for id in rows[0]]
  return Findings(values, maps, pieces)


def _numbered(
  kind: str, names: Sequence[str], rows: Iterable[Sequence[float]]
) -> list[dict[str, float]]:
  return [
    {kind: number, **dict(zip(names, row))}
    for number, row in enumerate(rows, 1)
  ]


def pad(
  rows: Sequence[list[int]], pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns ids and mask, <int32>[B, S], as long as the longest row."""
  ids = tf.ragged.constant(rows, tf.int32)
  mask = tf.ones_like(ids).to_tensor()
  return ids.to_tensor(pad_id).numpy(), mask.numpy()


def run(
  model: modeling.AlbertModel, ids: np.ndarray, mask: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
  """Yields the input, output and attention probabilities of each layer.

  They are <float32>[B, S, H] twice and <float32>[B, N, S, S]. The first input
  is the projected embedding.
  """
  features = {"input_ids": tf.constant(ids), "input_mask": tf.constant(mask)}
  x, _ = model.embedding(features["input_ids"], None)
  outputs = model(features, training=False)["encoder_outputs"]
  for (attention, _), y in zip(model.encoder.blocks(), outputs):
    probs = attention(x, features["input_mask"], return_probs=True)
    yield x.numpy(), y.numpy(), probs.numpy()
    x = y


def compare(before: np.ndarray, after: np.ndarray) -> np.ndarray:
  """Returns L2 distances and angles in degrees, 0 to 180, as <float64>[..., 2].

  The vectors are <float>[..., H]. Vectors without a direction, or that are not
  finite, are a ValueError.
  """
  before, after = (np.asarray(x, np.float64) for x in (before, after))
  distances = np.linalg.norm(after - before, axis=-1)
  norms = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (before, after)]
  if not all(np.isfinite(norm).all() and (norm > 0).all() for norm in norms):
    raise ValueError(
      "a hidden state is 0 or not finite, so a layer's input and output have "
      "no angle: the weights are unusable."
    )
  a, b = before / norms[0], after / norms[1]
  # arccos is inaccurate near a cosine of 1. The diagonals of the rhombus that
  # two unit vectors span give the exact angle.
  diagonals = (np.linalg.norm(x, axis=-1) for x in (a - b, a + b))
  angles = np.degrees(2 * np.arctan2(*diagonals))
  return np.stack([distances, angles], axis=-1)


def head_statistics(probs: np.ndarray, is_sep: np.ndarray) -> np.ndarray:
  """Returns the numbers of `HEAD` for each token, <float64>[B, S, N, 5].

  They are the positions between a token and what it attends to, the entropy in
  nats, and the probabilities of [CLS], of all [SEP], and of the token itself.
  `probs` are <float>[B, N, S, S], `is_sep` <bool>[B, S].
  """
  positions = np.arange(probs.shape[-1])
  distance = np.abs(positions[:, None] - positions)  # [S, S]
  numbers = (  # [B, N, S] each
    (probs * distance).sum(axis=-1),
    special.entr(probs).sum(axis=-1),
    probs[..., 0],
    (probs * is_sep[:, None, None, :]).sum(axis=-1),
    np.diagonal(probs, axis1=-2, axis2=-1),
  )
  return np.stack(numbers, axis=-1).astype(np.float64).swapaxes(1, 2)
