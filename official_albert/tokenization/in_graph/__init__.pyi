from .offset_text_layer import (
  EncodedTexts as EncodedTexts,
  make_offset_layer as make_offset_layer,
)
from .packed_text_layer import (
  FillMaskTextLayer as FillMaskTextLayer,
  PackedTextLayer as PackedTextLayer,
  make_text_layer as make_text_layer,
  pack_available as pack_available,
  pack_pair as pack_pair,
)
from .sentencepiece_layer import (
  SentencePieceTextLayer as SentencePieceTextLayer,
)
from .text_layer import (
  TextLayer as TextLayer,
  character_class as character_class,
)
from .wordpiece_layer import WordPieceTextLayer as WordPieceTextLayer
