"""Text to ids and back: SentencePiece, WordPiece, offsets, packing.

The same tokenizers as TensorFlow operations are in `in_graph`. This package
itself loads no TensorFlow, so that data workers start at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# The file of a tokenizer in a folder of this package, by the tokenizer's kind.
TOKENIZER_FILES = {"sentencepiece": "tokenizer.model", "wordpiece": "vocab.txt"}
