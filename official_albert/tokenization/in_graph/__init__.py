"""The tokenizers as TensorFlow operations, for models that take raw text.

Each layer returns the ids and offsets of the corresponding tokenizer in
`official_albert.tokenization`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "graph_text": [
      "character_class",
    ],
    "offset_text_layer": [
      "EncodedTexts",
      "make_offset_layer",
    ],
    "packed_text_layer": [
      "PackedTextLayer",
      "pack_pair",
    ],
    "sentencepiece_layers": [
      "FillMaskTextLayer",
      "SentencePieceTextLayer",
      "TextLayer",
      "make_text_layer",
    ],
    "wordpiece_layer": [
      "WordPieceTextLayer",
    ],
  },
)
