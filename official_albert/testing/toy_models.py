"""Small configurations, vocabularies and golden inputs that tests share."""

from __future__ import annotations

import pathlib

import numpy as np

from official_albert import AlbertConfig, modeling, tokenization

GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"
GROUPS = ("one_group", "two_groups")


def config(vocab_size, max_position_embeddings, **changes) -> AlbertConfig:
  """Returns a model of two layers whose sizes all differ."""
  values = {
    "embedding_size": 6,
    "hidden_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 14,
    "initializer_range": 0.2,
    **changes,
  }
  return AlbertConfig(
    vocab_size=vocab_size,
    max_position_embeddings=max_position_embeddings,
    **values,
  )


def wordpiece(folder, *words: str) -> tokenization.WordPieceTokenizer:
  """Returns a tokenizer of these words, which have the ids from 5 on."""
  path = folder / "vocab.txt"
  specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
  path.write_text("\n".join(specials + words), "utf-8")
  return tokenization.WordPieceTokenizer(path)


def golden_config(group: str) -> AlbertConfig:
  """Returns the configuration of one of `GROUPS`."""
  return AlbertConfig.from_json_file(str(GOLDEN / group / "albert_config.json"))


def golden_inputs(group: str) -> dict[str, np.ndarray]:
  """Returns the ids, mask and segments that the original code was run on."""
  path = GOLDEN / group / "pretraining_batch.npz"
  stored = np.load(path, allow_pickle=False)
  return {name: stored[name] for name in modeling.INPUTS}
