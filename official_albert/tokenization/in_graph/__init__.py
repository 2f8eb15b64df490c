"""The tokenizers as TensorFlow operations, for models that take raw text.

Each layer returns the ids and offsets of the corresponding tokenizer in
`official_albert.tokenization`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "offset_text_layer": ["EncodedTexts", "make_offset_layer"],
    "packed_text_layer": [
      "FillMaskTextLayer",
      "PackedTextLayer",
      "make_text_layer",
      "pack_available",
      "pack_pair",
    ],
    "sentencepiece_layer": ["SentencePieceTextLayer"],
    "text_layer": ["TextLayer", "character_class"],
    "wordpiece_layer": ["WordPieceTextLayer"],
  },
)
