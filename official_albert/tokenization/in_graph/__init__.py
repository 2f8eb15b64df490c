"""The tokenizers as TensorFlow operations, for models that take raw text.

Each layer returns the ids and offsets of the corresponding tokenizer in
`official_albert.tokenization`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
