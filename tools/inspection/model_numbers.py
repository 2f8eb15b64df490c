"""Counts a model's parameters and operations, and measures its layers.

Figure 2 of arXiv 1909.11942 shows the L2 distance and the angle between the
input and the output of each layer: smaller and smoother from layer to layer
with shared weights than without, and not converging to 0.

A layer is an application of a block; with `inner_group_num` above 1 there are
several in each of the configuration's layers.
"""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import numpy as np
import tabulate
import tensorflow as tf

from official_albert import modeling, tokenization
from official_albert.tasks.pretraining import data as data_lib


def describe(config: modeling.AlbertConfig, length: int) -> str:
  """Returns sizes, parameters and operations of a configuration as text.

  Operations are those of matrix products of sequences of `length` tokens; a
  multiply-add counts as two. Training includes the heads, and the last block
  computes only what they need.
  """
  counts = parameters(config)
  shares = [
    [name.replace("_", " "), count, f"{count / counts['pretraining']:.1%}"]
    for name, count in counts.items()
  ]
  predictions = data_lib.num_to_predict(length)
  flops = [
    ["forward", config.forward_flops(length) / length / 1e6],
    ["training", config.pretraining_flops(length, predictions) / length / 1e6],
  ]
  head = f"MFLOP per token, {length:,} tokens per sequence"
  parts = [
    f"layers {config.num_hidden_layers}, groups {config.num_hidden_groups}, "
    f"sharing {config.sharing}, V {config.vocab_size:,}, "
    f"E {config.embedding_size:,}, H {config.hidden_size:,}, "
    f"I {config.intermediate_size:,}, heads {config.num_attention_heads}"
    + (f", adapter rank {config.adapter_rank}" if config.adapter_rank else ""),
    tabulate.tabulate(shares, ["parameters", "", "share"], "plain", intfmt=","),
    tabulate.tabulate(flops, [head, ""], "plain", floatfmt=",.1f"),
  ]
  return "\n\n".join(parts)


def parameters(config: modeling.AlbertConfig) -> dict[str, int]:
  """Returns the parameters of each part, and two sums.

  `encoder` is from embeddings to pooler; `pretraining` includes the heads.
  """
  v, e, h = config.vocab_size, config.embedding_size, config.hidden_size
  heads = {
    # Dense H -> E, LayerNorm, a bias per piece; the word table is shared.
    "masked_lm_head": (h * e + e) + 2 * e + v,
    "sentence_order_head": 2 * h + 2,
  }
  total = config.parameter_count()
  sums = {"encoder": total, "pretraining": total + sum(heads.values())}
  return {**config.parameters_by_part(), **heads, **sums}


def measure_layers(
  model: modeling.AlbertModel,
  tokenizer: tokenization.Tokenizer,
  sentences: Sequence[str],
  max_seq_length: int,
) -> np.ndarray:
  """Returns L2 distances and angles of layers, <float64>[layers, 2].

  They are means over all tokens of the sentences, which are truncated to
  `max_seq_length`. A tokenizer with too many pieces is a ValueError.
  """
  model.config.check_fits(tokenizer.vocab_size, max_seq_length)
  special = tokenizer.cls_id, tokenizer.sep_id
  total: Any = np.float64(0)
  tokens = 0
  for text in sentences:
    ids = tokenizer.encode(text)
    ids, _ = tokenization.pack_pair(ids, None, max_seq_length, *special)
    pairs = itertools.pairwise(run(model, ids))
    total = total + [compare(*pair).sum(axis=0) for pair in pairs]
    tokens += len(ids)
  return total / tokens


def run(model: modeling.AlbertModel, ids: Sequence[int]) -> list[np.ndarray]:
  """Returns a sequence's projected embedding and layer outputs, [S, H] each."""
  batch = tf.constant([ids], tf.int32)
  x, _ = model.embedding(batch, None)
  outputs = model({"input_ids": batch}, training=False)["encoder_outputs"]
  return [state.numpy()[0] for state in (x, *outputs)]


def compare(before: np.ndarray, after: np.ndarray) -> np.ndarray:
  """Returns L2 distances and angles in degrees of vectors, <float64>[S, 2]."""
  before, after = (np.asarray(x, np.float64) for x in (before, after))
  distances = np.linalg.norm(after - before, axis=-1)
  norms = np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1)
  cosines = np.clip((before * after).sum(axis=-1) / norms, -1, 1)
  return np.stack([distances, np.degrees(np.arccos(cosines))], axis=-1)
