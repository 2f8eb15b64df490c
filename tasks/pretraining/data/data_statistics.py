"""What is counted while pretraining data is made, and the statistics of it.

Counts are sums, so the counts of many processes add up to the same total
however the work is divided. Only `summarize_text` and `summarize_examples`
divide.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from tasks.pretraining.data import examples, sentence_pairs


@dataclasses.dataclass
class TextCounts:
  """Counts of documents, each counted once whatever the number of duplicates.

  Attributes:
    documents, segments: number of documents and segments with tokens.
    pieces: <int64>[V], occurrences of each piece.
  """

  documents: int
  segments: int
  pieces: np.ndarray

  @classmethod
  def of(
    cls, documents: Iterable[sentence_pairs.Document], vocab_size: int
  ) -> TextCounts:
    """Counts documents with token ids below `vocab_size`."""
    counts = cls(0, 0, np.zeros(vocab_size, np.int64))
    for document in documents:
      counts.documents += 1
      counts.segments += len(document.offsets) - 1
      counts.pieces += np.bincount(document.ids, minlength=vocab_size)
    return counts

  def __add__(self, other: TextCounts) -> TextCounts:
    return TextCounts(
      self.documents + other.documents,
      self.segments + other.segments,
      self.pieces + other.pieces,
    )

  def __sub__(self, other: TextCounts) -> TextCounts:
    return TextCounts(
      self.documents - other.documents,
      self.segments - other.segments,
      self.pieces - other.pieces,
    )

  def unigram_entropy(self, special_ids: Iterable[int]) -> float:
    """Returns the entropy of the tokens that are not special, in nats.

    This is the loss of the best masked LM that does not look at the context.
    """
    counts = np.delete(self.pieces, sorted(special_ids))
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(-(shares * np.log(shares)).sum()) + 0.0  # No "-0.0".


@dataclasses.dataclass
class ExampleCounts:
  """Counts of N examples.

  Examples for dynamic masking have no predictions. `ngrams`, `dropped_chunks`
  and `truncated_tokens` are only known while the examples are made; they are
  empty or 0 for records that are read.

  Attributes:
    ngrams: <int64>[ngram], the masked n-grams of each number of words.
    instances: N.
    dropped_chunks: chunks of a document that did not become examples.
    truncated_tokens: tokens that did not fit into the examples.
    slots: N x S, padding included.
    tokens: tokens without padding.
    segment_a_tokens: tokens with segment id 0.
    predictions: tokens to predict.
    masked, kept: predictions that are [MASK], or the token itself, in the
      input.
    label_1: examples with the sentence-order label 1.
  """

  ngrams: np.ndarray
  instances: int = 0
  dropped_chunks: int = 0
  truncated_tokens: int = 0
  slots: int = 0
  tokens: int = 0
  segment_a_tokens: int = 0
  predictions: int = 0
  masked: int = 0
  kept: int = 0
  label_1: int = 0

  def to_json(self) -> dict[str, Any]:
    """Returns the counts as JSON values."""
    return {**vars(self), "ngrams": self.ngrams.tolist()}

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> ExampleCounts:
    """Returns the counts that `to_json` was called on."""
    return cls(**{**value, "ngrams": np.array(value["ngrams"], np.int64)})

  def __add__(self, other: ExampleCounts) -> ExampleCounts:
    return ExampleCounts(
      **{
        field.name: getattr(self, field.name) + getattr(other, field.name)
        for field in dataclasses.fields(self)
      }
    )


def count_examples(
  features: Mapping[str, np.ndarray],
  mask_id: int,
  ngram: int = 0,
  ngram_lengths: Sequence[int] = (),
  dropped_chunks: int = 0,
  truncated_tokens: int = 0,
) -> ExampleCounts:
  """Counts N examples.

  Args:
    features: features as `examples.pad_instances` makes them, masked or not.
    mask_id: id of [MASK].
    ngram: most words of an n-gram.
    ngram_lengths: number of words of each masked n-gram.
    dropped_chunks: see `ExampleCounts`.
    truncated_tokens: see `ExampleCounts`.
  """
  real = features["input_mask"] > 0
  shown = label = np.zeros(0, np.int32)
  if "masked_lm_weights" in features:
    row, column = np.nonzero(features["masked_lm_weights"] > 0)
    position = features["masked_lm_positions"][row, column]
    shown = features["input_ids"][row, position]
    label = features["masked_lm_ids"][row, column]
  return ExampleCounts(
    ngrams=np.bincount(
      np.asarray(ngram_lengths, np.int64) - 1, minlength=ngram
    ),
    instances=len(real),
    dropped_chunks=dropped_chunks,
    truncated_tokens=truncated_tokens,
    slots=real.size,
    tokens=int(real.sum()),
    segment_a_tokens=int((real & (features["segment_ids"] == 0)).sum()),
    predictions=len(shown),
    masked=int((shown == mask_id).sum()),
    kept=int((shown == label).sum()),
    label_1=int(features["next_sentence_labels"].sum()),
  )


def summarize_text(
  text: TextCounts, vocabulary: examples.Vocabulary, unk_id: int
) -> dict[str, Any]:
  """Returns the statistics of the documents for the manifest."""
  text_tokens = int(text.pieces.sum())
  return {
    "documents": text.documents,
    "segments": text.segments,
    "text_tokens": text_tokens,
    "unknown_share": _share(int(text.pieces[unk_id]), text_tokens),
    "unigram_entropy_nats": text.unigram_entropy(vocabulary.special_ids),
  }


def summarize_examples(counts: ExampleCounts) -> dict[str, Any]:
  """Returns the statistics of the examples for the manifest.

  `kept_share` includes the rare random pieces that happen to be the token
  itself. Examples without predictions have no statistics of masks.
  `truncated_share` is a share of the tokens of all pairs before truncation.
  """
  # Without [CLS], [SEP] and [SEP].
  text_tokens = counts.tokens - 3 * counts.instances
  summary = {
    "instances": counts.instances,
    "dropped_chunks": counts.dropped_chunks,
    "truncated_tokens": counts.truncated_tokens,
    "truncated_share": _share(
      counts.truncated_tokens, counts.truncated_tokens + text_tokens
    ),
    "tokens": counts.tokens,
    "mean_length": _share(counts.tokens, counts.instances),
    "padding_share": _share(counts.slots - counts.tokens, counts.slots),
    "segment_a_share": _share(counts.segment_a_tokens, counts.tokens),
    "label_1_share": _share(counts.label_1, counts.instances),
  }
  if counts.instances and not counts.predictions:
    return summary
  random = counts.predictions - counts.masked - counts.kept
  ngrams = counts.ngrams.tolist()
  return {
    **summary,
    "predictions": counts.predictions,
    "mean_predictions": _share(counts.predictions, counts.instances),
    "masked_share_of_tokens": _share(counts.predictions, counts.tokens),
    "mask_token_share": _share(counts.masked, counts.predictions),
    "kept_share": _share(counts.kept, counts.predictions),
    "random_share": _share(random, counts.predictions),
    "ngram_length_share": {
      str(n): _share(count, sum(ngrams)) for n, count in enumerate(ngrams, 1)
    },
  }


def _share(part: int, whole: int) -> float:
  return part / whole if whole else 0.0


def format_table(splits: Mapping[str, Mapping[str, Any]]) -> str:
  """Formats a table with a column for each split, a row for each statistic."""
  rows = [("", *splits)]
  flat = {
    split: {
      f"{key} {inner}" if isinstance(value, Mapping) else key: number
      for key, value in statistics.items()
      for inner, number in (
        value.items() if isinstance(value, Mapping) else [("", value)]
      )
    }
    for split, statistics in splits.items()
  }
  names = dict.fromkeys(name for column in flat.values() for name in column)
  for name in names:
    rows.append((name, *(_cell(flat[split].get(name)) for split in splits)))
  widths = [max(map(len, column)) for column in zip(*rows)]
  return "\n".join(
    "  ".join(
      [row[0].ljust(widths[0])]
      + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
    ).rstrip()
    for row in rows
  )


def _cell(value: Any) -> str:
  if value is None:
    return ""
  return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
