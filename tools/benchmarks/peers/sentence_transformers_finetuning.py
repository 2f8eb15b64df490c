"""Trains embeddings by sentence-transformers, as a run of this project does.

The argument is that of `huggingface_finetuning`, whose loop this is. Model and
loss are the library's. Runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses, modules

from official_albert.tools.benchmarks.peers import huggingface_finetuning


def main(text: str) -> None:
  """Trains the model."""
  x = types.SimpleNamespace(**json.loads(text))
  torch.manual_seed(x.seed)
  encoder = modules.Transformer(x.model, max_seq_length=x.max_seq_length)
  width = encoder.get_embedding_dimension()
  pooling = modules.Pooling(width, pooling_mode=x.pooling)
  model = SentenceTransformer(modules=[encoder, pooling], device="cpu")
  kind = losses.MultipleNegativesRankingLoss
  if x.form == "scores":
    kind = losses.CoSENTLoss
  loss = kind(model, scale=x.similarity_scale)

  def loss_of(rows: list[dict]) -> torch.Tensor:
    scores = torch.tensor([row["label_ids"] for row in rows])
    return loss(_texts(rows), scores)

  def outputs_of(rows: list[dict]) -> np.ndarray:
    """Returns <float32>[N, K, H]."""
    vectors = [model(x)["sentence_embedding"].numpy() for x in _texts(rows)]
    return np.stack(vectors, 1)

  huggingface_finetuning.train(x, model, loss_of, outputs_of)


def _texts(rows: list[dict]) -> list[dict[str, torch.Tensor]]:
  """Returns the padded inputs of the first texts of rows, and so on."""
  found = []
  for k in range(len(rows[0]["input_ids"])):
    ids = [torch.tensor(row["input_ids"][k]) for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = (padded != 0).long()
    types_of = torch.zeros_like(padded)
    found.append(
      {"input_ids": padded, "attention_mask": mask, "token_type_ids": types_of}
    )
  return found


if __name__ == "__main__":
  main(sys.argv[1])
