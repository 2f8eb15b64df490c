"""The model: its configuration, Keras layers, heads and `AlbertModel`.

`AlbertModel` consists of `FactorizedEmbedding` (V x E, then E x H),
`SharedTransformerEncoder` (made of `SelfAttention` and `FeedForward`) and a
pooler. `fused_ops` holds matrix products and the element-wise chains between.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
