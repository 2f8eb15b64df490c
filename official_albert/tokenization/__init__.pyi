from .coverage import (
  Watch as Watch,
  dead_pieces as dead_pieces,
  unknown_note as unknown_note,
  vocabulary_note as vocabulary_note,
)
from .file_tokenizer import (
  MAX_WORD_CHARACTERS as MAX_WORD_CHARACTERS,
  TextRules as TextRules,
  available_tokens as available_tokens,
  bucket_lengths as bucket_lengths,
  check_texts as check_texts,
  pack_pair as pack_pair,
)
from .sentencepiece_tokenizer import (
  SPECIAL_PIECES as SPECIAL_PIECES,
  SentencePieceTokenizer as SentencePieceTokenizer,
  TOKENIZERS as TOKENIZERS,
  Tokenizer as Tokenizer,
  ends_in_digit_comma as ends_in_digit_comma,
  normalize_text as normalize_text,
  open_tokenizer as open_tokenizer,
)
from .text_offsets import (
  EncodedText as EncodedText,
  GONE as GONE,
  SPACE as SPACE,
  WORD_START as WORD_START,
  character_spans as character_spans,
  visible_form as visible_form,
)
from .wordpiece import (
  CONTINUATION as CONTINUATION,
  WORDPIECE_SPECIAL_PIECES as WORDPIECE_SPECIAL_PIECES,
  WordPieceTokenizer as WordPieceTokenizer,
  character_ranges as character_ranges,
  is_chinese as is_chinese,
  is_control as is_control,
  is_punctuation as is_punctuation,
  is_space as is_space,
  read_vocabulary as read_vocabulary,
)

TOKENIZER_FILES: dict[str, str]
