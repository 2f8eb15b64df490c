"""The model: configuration, Keras layers, heads and `AlbertModel`.

The layers are `FactorizedEmbedding` (V x E, then E x H) and
`SharedTransformerEncoder` over `SelfAttention` and `FeedForward`; `fused_ops`
holds the element-wise chains between matrix products. Nothing here knows of
training, checkpoints or serving.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "config": [
      "AlbertConfig",
      "PRESETS",
    ],
    "dropout": [
      "fold_in",
      "seeded_dropout",
    ],
    "factorized_embedding": [
      "FactorizedEmbedding",
    ],
    "fused_ops": [
      "MASKED_SCORE",
      "adam_direction",
      "cross_entropy",
      "plain_operations_only",
    ],
    "heads": [
      "ClassificationHead",
      "MaskedLMHead",
      "SentenceOrderHead",
    ],
    "layer_norm": [
      "LayerNorm",
    ],
    "model": [
      "AlbertModel",
      "FeatureModel",
      "INPUTS",
      "named_inputs",
    ],
    "sequence_classifier": [
      "AlbertForSequenceClassification",
    ],
    "shapes": [
      "check_ids",
    ],
    "shared_transformer_encoder": [
      "SharedTransformerEncoder",
    ],
    "transformer_block": [
      "AttentionWeights",
      "FeedForward",
      "SelfAttention",
    ],
  },
)
