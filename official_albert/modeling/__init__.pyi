from .classifier import (
  AlbertForSequenceClassification as AlbertForSequenceClassification,
)
from .config import AlbertConfig as AlbertConfig, PRESETS as PRESETS
from .factorized_embedding import FactorizedEmbedding as FactorizedEmbedding
from .fused_ops import (
  MASKED_SCORE as MASKED_SCORE,
  adam_direction as adam_direction,
  cross_entropy as cross_entropy,
  plain_operations_only as plain_operations_only,
  product as product,
  where_products_round as where_products_round,
)
from .heads import (
  ClassificationHead as ClassificationHead,
  MaskedLMHead as MaskedLMHead,
  SentenceOrderHead as SentenceOrderHead,
  fold_target_scale as fold_target_scale,
)
from .inputs import (
  INPUTS as INPUTS,
  check_ids as check_ids,
  named_inputs as named_inputs,
)
from .layers import (
  LayerNorm as LayerNorm,
  Dense as Dense,
  fold_in as fold_in,
  seeded_dropout as seeded_dropout,
  without_autograph as without_autograph,
)
from .model import (
  AlbertModel as AlbertModel,
  FeatureModel as FeatureModel,
  HeadModel as HeadModel,
  warn_of_random_weights as warn_of_random_weights,
)
from .neighbor_attention import attend_to_neighbors as attend_to_neighbors
from .shared_transformer_encoder import (
  SharedTransformerEncoder as SharedTransformerEncoder,
)
from .transformer_block import (
  FeedForward as FeedForward,
  SelfAttention as SelfAttention,
)
