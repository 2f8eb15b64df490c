"""Vectors of texts by this package, or by sentence-transformers (a variant).

The second runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import pathlib

from official_albert.tools.benchmarks.peers import protocol

PEER = "sentence_transformers"


def build(workload: protocol.Workload) -> tuple[protocol.Step, protocol.Facts]:
  """Builds the program; a step is the vectors of all texts."""
  folder = pathlib.Path(workload.models_dir)
  texts = (folder / "texts.txt").read_text("utf-8").splitlines()
  path = str(folder / workload.variant)
  if workload.variant == PEER:
    import sentence_transformers
    import torch

    torch.set_num_threads(workload.threads)
    peer = sentence_transformers.SentenceTransformer(
      path, device="cpu", model_kwargs={"attn_implementation": "sdpa"}
    )
    versions = torch.__version__, sentence_transformers.__version__
    about = "sdpa; torch {}, sentence-transformers {}".format(*versions)
    embed = peer.encode
  else:
    import tensorflow as tf

    import official_albert

    tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
    about = f"load(...).embed; tensorflow {tf.__version__}"
    embed = official_albert.load(path).embed

  def step() -> float:
    return float(abs(embed(texts, **workload.settings)).mean())

  return step, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve(build)
