"""Opens a model with its tokenizer, and runs sentences through it."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from official_albert import checkpoints, modeling, tokenization
from tools.inspection import layers

_BATCH_SIZE = 16


class InspectedModel(NamedTuple):
  """An encoder, its tokenizer if there is one, and its checkpoint."""

  model: modeling.AlbertModel
  tokenizer: Optional[tokenization.Tokenizer]
  source: str


class Sentences(NamedTuple):
  """Sentences as batches.

  Attributes:
    batches: `input_ids`, `input_mask` and `segment_ids`, <int32>[B, S] each,
      of [CLS] sentence [SEP]; sorted by length.
    first: the first sentence alone, [1, S].
    pieces: of the first sentence, for labels.
    count: number of sentences.
    tokens: of all sentences, including [CLS] and [SEP].
    cut: number of truncated sentences.
  """

  batches: list[dict[str, np.ndarray]]
  first: dict[str, np.ndarray]
  pieces: list[str]
  count: int
  tokens: int
  cut: int


class Findings(NamedTuple):
  """What sentences show.

  Attributes:
    values: `layers`, `attention` and `sentences` of inspection.json.
    maps: attention of each layer on the first sentence, <float32>[N, S, S].
    pieces: of the first sentence.
  """

  values: dict[str, Any]
  maps: list[np.ndarray]
  pieces: list[str]


def open_model(
  path: str,
  albert_config_file: str = "",
  num_hidden_layers: int = 0,
  tokenizer: Optional[tokenization.Tokenizer] = None,
) -> InspectedModel:
  """Reads an encoder in float32.

  Args:
    path: what `AlbertModel.from_checkpoint` reads.
    albert_config_file: likewise.
    num_hidden_layers: how often the shared layer is applied; 0: as trained.
    tokenizer: replaces the one next to the weights.

  Raises:
    ValueError, OSError: the weights cannot be read, layers that are not shared
      cannot be applied so often, or the tokenizer belongs to another model.
  """
  with checkpoints.unpacked_archive(path) as folder:
    weights = checkpoints.read_checkpoint(folder, albert_config_file)
    config = weights.config
    if num_hidden_layers:
      config = config.at_depth(num_hidden_layers)
    model = modeling.AlbertModel(config)
    checkpoints.fill(model, weights)
    if tokenizer is None and weights.tokenizer:
      # Reads the whole file, so the folder may be removed.
      tokenizer = weights.tokenizer.open()
  if tokenizer and tokenizer.vocab_size != config.vocab_size:
    raise ValueError(
      f"the tokenizer has {tokenizer.vocab_size} pieces, but {path} has "
      f"vocab_size {config.vocab_size}: set --spm_model_file or --vocab_file "
      "to the model's own."
    )
  return InspectedModel(
    model, tokenizer, weights.source.replace(folder, path, 1)
  )


def look_into(
  opened: InspectedModel,
  sentences: Sequence[str],
  max_seq_length: int,
  path: str,
) -> Findings:
  """Measures layers and heads.

  Args:
    opened: the model.
    sentences: at least one.
    max_seq_length: longer ones are truncated.
    path: of the model, for messages.

  Raises:
    ValueError: there is no tokenizer, or hidden states are unusable.
  """
  model, tokenizer = opened.model, opened.tokenizer
  if tokenizer is None:
    raise ValueError(
      f"{path} has no tokenizer: set --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  batched = make_batches(sentences, tokenizer, max_seq_length)
  similarity = layers.measure_similarity(model, batched.batches)
  heads = layers.measure_attention(model, batched.batches, tokenizer.sep_id)
  values = {
    "layers": [
      {"layer": number, **layer._asdict()}
      for number, layer in enumerate(similarity, 1)
    ],
    "attention": [
      {
        "layer": number,
        "heads": [
          {"head": head, **statistics._asdict()}
          for head, statistics in enumerate(layer, 1)
        ],
      }
      for number, layer in enumerate(heads, 1)
    ],
    "sentences": {
      "count": batched.count,
      "tokens": batched.tokens,
      "cut": batched.cut,
    },
  }
  maps = [probs[0] for probs in layers.attention_maps(model, batched.first)]
  return Findings(values, maps, batched.pieces)


def make_batches(
  sentences: Sequence[str],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
) -> Sentences:
  """Tokenizes sentences.

  Args:
    sentences: at least one.
    tokenizer: the model's.
    max_seq_length: longer sentences are truncated.

  Raises:
    ValueError: `max_seq_length` leaves no room for a token.
  """
  encoded = [tokenizer.encode(text) for text in sentences]
  rows = [
    tokenization.pack_pair(
      ids, None, max_seq_length, tokenizer.cls_id, tokenizer.sep_id
    )[0]
    for ids in encoded
  ]
  by_length = sorted(rows, key=len)
  return Sentences(
    batches=[
      _pad(by_length[start : start + _BATCH_SIZE], tokenizer.pad_id)
      for start in range(0, len(rows), _BATCH_SIZE)
    ],
    first=_pad(rows[:1], tokenizer.pad_id),
    pieces=[tokenizer.marked_piece(id) for id in rows[0]],
    count=len(rows),
    tokens=sum(map(len, rows)),
    cut=sum(len(row) < len(ids) + 2 for row, ids in zip(rows, encoded)),
  )


def _pad(rows: Sequence[list[int]], pad_id: int) -> dict[str, np.ndarray]:
  shape = [len(rows), max(map(len, rows))]
  ids, mask = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
  for i, row in enumerate(rows):
    ids[i, : len(row)] = row
    mask[i, : len(row)] = 1
  return {
    "input_ids": ids,
    "input_mask": mask,
    "segment_ids": np.zeros(shape, np.int32),
  }
