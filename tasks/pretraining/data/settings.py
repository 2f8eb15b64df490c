"""Settings of pretraining records, for flags, workers and dynamic masking."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import re
from typing import Any, Mapping, Optional

import numpy as np

from official_albert import tfrecords, tokenization
from official_albert.settings import check, setting

TRAIN, HELDOUT = "train", "heldout"
# Shares of the chosen tokens; the rest becomes random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1
# The paper's share of tokens to mask.
MASKED_LM_PROB = 0.15

# Attention over more would need more than 200 GB, with 12 heads in bfloat16.
_LONGEST = 2**16
# The names of shards have five digits.
_MAX_SHARDS = 99_999


@dataclasses.dataclass(frozen=True)
class ReaderSettings:
  """The settings for reading documents from files."""

  split_sentences: bool = setting(
    False,
    "Split the lines of plain text, which are paragraphs, into sentences; the "
    "texts of JSON lines are always split.",
  )
  sentence_language: str = setting(
    "en", "ISO code of the text that is split into sentences, such as de or zh."
  )
  text_column: str = setting(
    "text",
    "Field of JSON lines, or column of Parquet and Arrow files, with the text.",
  )

  def __post_init__(self):
    # For other names, sentencex would split as in English.
    if not re.fullmatch("[a-z]{2,3}([-_]\\w+)*", self.sentence_language):
      raise ValueError(
        f"sentence_language is {self.sentence_language!r}, but must be an ISO "
        "code such as en, de or zh."
      )


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
  """Settings of an example, named as in google-research/albert.

  Deviation: the number of predictions follows from the other settings. The
  original's is 20 for any length, which is 3.9% of 512 tokens.
  """

  max_seq_length: int = setting(
    512, "Tokens of an example with [CLS] and [SEP].", least=5, most=_LONGEST
  )
  max_predictions_per_seq: Optional[int] = setting(
    None,
    "Maximum number of masked tokens of an example; default: masked_lm_prob x "
    "max_seq_length, rounded.",
    least=1,
    most=_LONGEST,
  )
  masked_lm_prob: float = setting(
    MASKED_LM_PROB, "Share of tokens to mask.", above=0, most=1
  )
  ngram: int = setting(
    3, "Maximum length of an n-gram.", least=1, most=_LONGEST
  )
  favor_shorter_ngram: bool = setting(
    True, "Draw n with p(n) ~ 1/n, or in reverse."
  )
  do_whole_word_mask: bool = setting(True, "Mask all pieces of a word or none.")
  short_seq_prob: float = setting(
    0.1, "Share of documents cut to a random shorter length.", least=0, most=1
  )
  masking: str = setting(
    "static",
    "static: masks are drawn here, once for each duplicate; dynamic: in each "
    "epoch of the training, as are the swaps of sop; compat: here, with the "
    "original's quirks.",
    ("static", "dynamic", "compat"),
  )
  sentence_pair: str = setting(
    "sop",
    "sop: A and B in order (label 0) or swapped (1); nsp: B follows A (0) or "
    "is from another document (1); none: always in order.",
    ("sop", "nsp", "none"),
  )

  def __post_init__(self):
    check(self)
    if self.max_predictions_per_seq is None:
      predictions = num_to_predict(self.max_seq_length, self.masked_lm_prob)
      object.__setattr__(self, "max_predictions_per_seq", predictions)
    if (self.masking, self.sentence_pair) == ("compat", "none"):
      raise ValueError(
        "sentence_pair is 'none', but masking compat has only the kinds of "
        "the original: sop, nsp."
      )

  @functools.cached_property
  def ngram_thresholds(self) -> np.ndarray:
    """The cumulative probabilities except 1, <float64>[ngram - 1].

    p(n) ~ 1/n for n = 1..ngram, or the reverse; for ngram 3 they are 6/11, 3/11
    and 2/11. n is 1 plus the number of thresholds that a uniform draw reaches.
    """
    weights = 1.0 / np.arange(1, self.ngram + 1)
    probabilities = weights / weights.sum()
    if not self.favor_shorter_ngram:
      probabilities = probabilities[::-1]
    return np.cumsum(probabilities)[:-1]

  def num_to_predict(self, length: int) -> int:
    """Returns the number of predictions in a sequence of these settings."""
    wanted = num_to_predict(length, self.masked_lm_prob)
    return min(self.max_predictions_per_seq or wanted, wanted)


def num_to_predict(length: int, masked_lm_prob: float = MASKED_LM_PROB) -> int:
  """Returns the number of predictions in a sequence, at least 1.

  `length` includes [CLS] and [SEP]. Halves are rounded to even, as in the
  original.
  """
  return max(1, int(round(length * masked_lm_prob)))


@dataclasses.dataclass(frozen=True)
class BuildSettings:
  """All settings of a dataset.

  `input_files` are names and globs for `documents.find_files`. Either a
  SentencePiece model or a WordPiece vocabulary is given.
  """

  input_files: str
  output_dir: str
  spm_model_file: str = ""
  vocab_file: str = ""
  reading: ReaderSettings = ReaderSettings()
  examples: ExampleSettings = ExampleSettings()
  do_lower_case: bool = setting(
    True, "Lower-case the text, as for training the model."
  )
  keep_accents: bool = setting(
    False, "Keep accents and other marks, as for training the model."
  )
  dupe_factor: Optional[int] = setting(
    None,
    "How often each document is used, with different cuts and masks; default: "
    "40, or 10 with --masking=dynamic.",
    least=1,
    most=10_000,  # The number of pieces in memory grows with it.
  )
  random_seed: int = setting(
    12345, "Seed of all choices.", least=0, most=2**63 - 1
  )
  drop_duplicates: bool = setting(
    False, "Use one document of each text only; all are counted."
  )
  heldout_share: float = setting(
    0.01, "Share of documents for evaluation, each used once.", least=0, below=1
  )
  num_shards: int = setting(
    8, "Files of the training split.", least=1, most=_MAX_SHARDS
  )
  num_heldout_shards: int = setting(
    1, "Files of the held-out split.", least=1, most=_MAX_SHARDS
  )
  num_workers: int = setting(
    0, "Number of processes; 0: one for each processor.", least=0, most=1024
  )
  overwrite: bool = setting(False, "Replace the dataset in output_dir.")

  def __post_init__(self):
    check(self)
    if self.dupe_factor is None:
      cuts = 10 if self.examples.masking == "dynamic" else 40
      object.__setattr__(self, "dupe_factor", cuts)

  def open_tokenizer(self) -> tokenization.Tokenizer:
    """Opens the tokenizer."""
    return tokenization.open_tokenizer(
      self.spm_model_file,
      self.vocab_file,
      self.do_lower_case,
      # Without the flag, the original's rule.
      keep_accents=self.keep_accents or None,
    )

  @property
  def shards(self) -> dict[str, list[str]]:
    """The names of the shards of each split."""
    counts = {TRAIN: self.num_shards}
    if self.heldout_share:
      counts[HELDOUT] = self.num_heldout_shards
    return {
      name: [tfrecords.shard_name(name, i, count) for i in range(count)]
      for name, count in counts.items()
    }

  def content(self, weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns what shapes the records, given the weight of each input file."""
    sentencex = importlib.metadata.version("sentencex")
    names = (
      "do_lower_case keep_accents dupe_factor drop_duplicates heldout_share"
    )
    return {
      "input_files": [os.path.basename(path) for path in weights],
      "input_weights": [*weights.values()],
      **dataclasses.asdict(self.reading),
      "sentence_splitter": f"sentencex {sentencex}",
      **dataclasses.asdict(self.examples),
      **{name: getattr(self, name) for name in names.split()},
    }
