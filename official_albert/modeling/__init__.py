"""The model: its configuration, Keras layers, heads and `AlbertModel`.

`AlbertModel` consists of `FactorizedEmbedding` (V x E, then E x H),
`SharedTransformerEncoder` (made of `SelfAttention` and `FeedForward`) and a
pooler. `fused_ops` holds the element-wise chains between matrix products.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "classifier": ["AlbertForSequenceClassification"],
    "config": ["AlbertConfig", "PRESETS"],
    "factorized_embedding": ["FactorizedEmbedding"],
    "fused_ops": [
      "MASKED_SCORE",
      "adam_direction",
      "cross_entropy",
      "plain_operations_only",
    ],
    "heads": ["ClassificationHead", "MaskedLMHead", "SentenceOrderHead"],
    "layers": ["LayerNorm", "fold_in", "seeded_dropout"],
    "model": [
      "AlbertModel",
      "FeatureModel",
      "HeadModel",
      "INPUTS",
      "check_ids",
      "named_inputs",
      "warn_of_random_weights",
    ],
    "shared_transformer_encoder": ["SharedTransformerEncoder"],
    "transformer_block": ["FeedForward", "SelfAttention"],
  },
)
