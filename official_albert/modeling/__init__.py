"""The model: its configuration, Keras layers, heads and `AlbertModel`.

`AlbertModel` consists of `FactorizedEmbedding` (V x E, then E x H),
`SharedTransformerEncoder` (made of `SelfAttention` and `FeedForward`) and a
pooler. `fused_ops` holds matrix products and the element-wise chains between.
"""

from official_albert.config import PRESETS, AlbertConfig, Pooling
from official_albert.modeling.attention_program import (
  attention_as,
  attention_is_one_program,
  computed_as,
)
from official_albert.modeling.classifier import (
  AlbertForSequenceClassification,
  AlbertForTokenClassification,
)
from official_albert.modeling.factorized_embedding import FactorizedEmbedding
from official_albert.modeling.fused_ops import (
  MASKED_SCORE,
  cross_entropy,
  plain_operations_only,
  where_products_round,
  wide,
)
from official_albert.modeling.heads import (
  ClassificationHead,
  MaskedLMHead,
  fold_target_scale,
)
from official_albert.modeling.inputs import (
  INPUTS,
  FeatureModel,
  check_ids,
  with_prefix_masks,
)
from official_albert.modeling.layers import (
  LayerNorm,
  dense,
  fold_in,
  normal,
  seeded_dropout,
  without_autograph,
)
from official_albert.modeling.model import AlbertModel, HeadModel, pool
from official_albert.modeling.packing import Packing, without_padding
from official_albert.modeling.shared_transformer_encoder import (
  SharedTransformerEncoder,
)
from official_albert.modeling.transformer_block import (
  FeedForward,
  SelfAttention,
)
