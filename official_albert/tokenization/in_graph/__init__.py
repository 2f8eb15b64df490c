"""The tokenizers as TensorFlow operations, for models that take raw text.

Each layer returns the ids and offsets of the corresponding tokenizer in
`official_albert.tokenization`.
"""

from official_albert.tokenization.in_graph.text_layers import (
  TEXT_LAYERS,
  SentencePieceTextLayer,
  TextLayer,
  WordPieceTextLayer,
  pack_pair,
)
