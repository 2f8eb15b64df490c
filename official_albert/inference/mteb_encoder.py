"""Lets mteb 2 measure the vectors of a loaded model; see docs/embeddings.md.

Source: models/models_protocols.py of mteb 2.26, `EncoderProtocol`.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from official_albert.inference.loaded_model import LoadedModel

# Their vectors differ if models, poolings or maximum lengths do.
_PROBES = ("It rains.", " ".join(map(str, range(1000))))


class MtebEncoder:
  """A model with the interface of mteb's encoders.

  mteb keeps scores by name and revision, so the revision is a hash of vectors.
  """

  def __init__(
    self,
    model: LoadedModel,
    name: str = "official_albert/model",
    **options: Any,
  ):
    """Initializes it; `name` is USER/NAME, and options are those of `embed`."""
    self._model, self._name, self._options = model, name, options

  @functools.cached_property
  def mteb_model_meta(self) -> Any:
    """The `ModelMeta` of the model."""
    from mteb.models import ModelMeta

    vectors = self._model.embed(_PROBES, **self._options)
    meta = {
      "name": self._name,
      "revision": hashlib.sha256(vectors.tobytes()).hexdigest()[:16],
      "embed_dim": vectors.shape[1],
      "framework": ["TensorFlow"],
    }
    return ModelMeta.create_empty(overwrites=meta)

  def encode(
    self,
    inputs: Iterable[Mapping[str, Sequence[str]]],
    *,
    batch_size: int = 32,
    **unused: Any,
  ) -> np.ndarray:
    """Returns the vectors <float32>[N, H] of batches of texts, of any task."""
    texts = [text for batch in inputs for text in batch["text"]]
    options = {"batch_size": batch_size, **self._options}
    return self._model.embed(texts, **options)

  def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
    """Returns the cosines [N, M] as mteb needs them, a tensor of PyTorch."""
    from mteb import similarity_functions

    return similarity_functions.cos_sim(embeddings1, embeddings2)

  def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
    """Returns the cosines [N] of pairs, a tensor of PyTorch."""
    from mteb import similarity_functions

    return similarity_functions.pairwise_cos_sim(embeddings1, embeddings2)
