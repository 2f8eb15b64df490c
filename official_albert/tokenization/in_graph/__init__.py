"""The tokenizers as TensorFlow operations, for models that take raw text.

Each layer returns the ids and offsets of the corresponding tokenizer in
`official_albert.tokenization`.
"""

from official_albert.tokenization.in_graph.normalization_layer import (
  EncodedTexts,
)
from official_albert.tokenization.in_graph.packed_text_layer import (
  FillMaskTextLayer,
  PackedTextLayer,
  make_text_layer,
  pack_available,
  pack_pair,
)
from official_albert.tokenization.in_graph.sentencepiece_layer import (
  SentencePieceTextLayer,
)
from official_albert.tokenization.in_graph.text_layer import (
  TextLayer,
  character_class,
)
from official_albert.tokenization.in_graph.wordpiece_layer import (
  WordPieceTextLayer,
)
