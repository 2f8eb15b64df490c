"""Opens weights with their tokenizer, and sends sentences through them."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from official_albert import checkpoints, modeling, tokenization
from tools.inspection import attention_maps, layer_similarity
from tools.inspection import sentences as inspection_sentences


class InspectedModel(NamedTuple):
  """A model and what makes its ids; None where there is no tokenizer.

  Attributes:
    model: the encoder.
    tokenizer: makes its ids.
    source: the checkpoint that the weights are from.
  """

  model: modeling.AlbertModel
  tokenizer: Optional[tokenization.Tokenizer]
  source: str


class Findings(NamedTuple):
  """What sentences show.

  Attributes:
    values: `layers`, `attention` and `sentences` of inspection.json.
    layers: first to last.
    maps: of each layer, on the first sentence: <float32>[N, S, S].
    pieces: that sentence.
  """

  values: dict[str, Any]
  layers: list[layer_similarity.LayerSimilarity]
  maps: list[np.ndarray]
  pieces: list[str]


def open_model(
  path: str,
  albert_config_file: str = "",
  num_hidden_layers: int = 0,
  tokenizer: Optional[tokenization.Tokenizer] = None,
) -> InspectedModel:
  """Reads an encoder, in float32.

  Args:
    path: whatever `AlbertModel.from_checkpoint` reads.
    albert_config_file: as there.
    num_hidden_layers: how many times the one layer is applied that a model
      has; 0: as it was trained.
    tokenizer: instead of the one beside the weights.

  Raises:
    ValueError, OSError: the weights cannot be read, have layers that differ
      and no fixed number of which can be applied, or the tokenizer is another
      model's.
  """
  with checkpoints.unpacked_archive(path) as folder:
    weights = checkpoints.read_checkpoint(folder, albert_config_file)
    config = weights.config
    if num_hidden_layers:
      config = config.at_depth(num_hidden_layers)
    model = modeling.AlbertModel(config)
    checkpoints.fill(model, weights)
    if tokenizer is None and weights.tokenizer:
      # SentencePiece reads all of its file at once: the folder may go.
      tokenizer = weights.tokenizer.open()
  if tokenizer and tokenizer.vocab_size != config.vocab_size:
    raise ValueError(
      f"the tokenizer has {tokenizer.vocab_size} pieces, but {path} has "
      f"vocab_size {config.vocab_size}: give the model's own with "
      "--spm_model_file or --vocab_file."
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
    max_seq_length: longer ones lose their end.
    path: of the model, for messages.

  Raises:
    ValueError: there is no tokenizer, or the model computes nothing of use.
  """
  model, tokenizer = opened.model, opened.tokenizer
  if tokenizer is None:
    raise ValueError(
      f"no tokenizer lies beside {path}: name its own with --spm_model_file, "
      "or --vocab_file for WordPiece."
    )
  read = inspection_sentences.batch(sentences, tokenizer, max_seq_length)
  layers = layer_similarity.measure(model, read.batches)
  heads = attention_maps.measure(model, read.batches, tokenizer.sep_id)
  values = {
    "layers": [
      {"layer": number, **layer._asdict()}
      for number, layer in enumerate(layers, 1)
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
    "sentences": {"count": read.count, "tokens": read.tokens, "cut": read.cut},
  }
  maps = [probs[0] for probs in attention_maps.maps(model, read.first)]
  return Findings(values, layers, maps, read.pieces)
