"""Text to ids and back: SentencePiece, WordPiece, offsets, packing.

The same tokenizers as TensorFlow operations are in `in_graph`. This package
itself loads no TensorFlow, so that data workers start at once.
"""

from official_albert.tokenization.coverage import (
  coverage_note,
  unknown_note,
  vocabulary_note,
)
from official_albert.tokenization.file_tokenizer import (
  TOKENIZER_FILES,
  TextRules,
  available_tokens,
  bucket_lengths,
  check_texts,
  pack_pair,
)
from official_albert.tokenization.normalization import (
  WORD_START,
  EncodedText,
  character_class,
)
from official_albert.tokenization.sentencepiece_tokenizer import (
  SPECIAL_PIECES,
  TOKENIZERS,
  SentencePieceTokenizer,
  Tokenizer,
  ends_in_digit_comma,
  normalize_text,
  open_tokenizer,
  round_scores,
)
from official_albert.tokenization.wordpiece import (
  CONTINUATION,
  WORDPIECE_SPECIAL_PIECES,
  WordPieceTokenizer,
  read_vocabulary,
)
