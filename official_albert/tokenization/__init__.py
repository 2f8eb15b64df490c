"""Text to ids and back: SentencePiece, WordPiece, offsets, packing.

The same tokenizers as TensorFlow operations are in `in_graph`. This package
itself loads no TensorFlow, so that data workers start at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "file_tokenizer": [
      "available_tokens",
      "bucket_lengths",
      "pack_pair",
    ],
    "sentencepiece_tokenizer": [
      "SPECIAL_PIECES",
      "SentencePieceTokenizer",
      "Tokenizer",
      "ends_in_digit_comma",
      "normalize_text",
      "open_tokenizer",
    ],
    "sentencepiece_tokenizer_test": ["train_model"],
    "text_offsets": [
      "EncodedText",
      "GONE",
      "SPACE",
      "WORD_START",
      "character_spans",
      "visible_form",
    ],
    "wordpiece": [
      "CONTINUATION",
      "MAX_WORD_CHARACTERS",
      "WORDPIECE_SPECIAL_PIECES",
      "WordPieceTokenizer",
      "character_ranges",
      "is_chinese",
      "is_control",
      "is_punctuation",
      "is_space",
      "read_vocabulary",
    ],
  },
)

# The file of a tokenizer in a folder of this package, by the tokenizer's kind.
TOKENIZER_FILES = {"sentencepiece": "tokenizer.model", "wordpiece": "vocab.txt"}
