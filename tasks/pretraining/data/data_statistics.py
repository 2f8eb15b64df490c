"""Counts documents and examples, and computes the manifest's statistics.

Counts are sums, so the total does not depend on how the work is divided among
processes. Only `summarize_text` and `summarize_examples` compute quotients.
"""

from __future__ import annotations

import collections
import math
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from official_albert.tasks.pretraining.data import sentence_pairs


class Counts(collections.defaultdict[str, Any]):
  """Numbers and arrays of numbers by name, 0 by default.

  Besides those of the functions below, these are known while examples are made:

    duplicate_documents: those whose text occurs before.
    dropped_chunks: chunks of documents that did not become examples.
    truncated_tokens: tokens that did not fit into the examples.
  """

  def __init__(self, **counts: Any):
    super().__init__(int, counts)

  def add(self, other: Mapping[str, Any]) -> None:
    """Adds other counts, whose arrays may be lists, as in JSON."""
    for name, value in other.items():
      self[name] += np.array(value) if isinstance(value, list) else value


def count_document(
  document: sentence_pairs.Document, vocab_size: int
) -> Counts:
  """Counts a document, once for any number of duplicates.

  `pieces` <int64>[V] are the occurrences of each piece.
  """
  return Counts(
    pieces=np.bincount(document.ids, minlength=vocab_size),
    documents=1,
    segments=len(document.offsets) - 1,
  )


def count_examples(
  features: Mapping[str, np.ndarray],
  mask_id: int,
  ngram: int = 0,
  ngram_lengths: Sequence[int] = (),
) -> Counts:
  """Counts N examples, given the result of `examples.pad_instances`.

  `ngram` is the maximum number of words in an n-gram, and `ngram_lengths` are
  those of the masked n-grams.

  Returns:
    ngrams: <int64>[ngram], the number of masked n-grams for each n.
    instances: N.
    slots, tokens: positions of the examples with and without padding.
    segment_a_tokens: tokens with segment id 0.
    predictions: tokens to predict; 0 with dynamic masking.
    masked, kept: predictions whose input is [MASK], or the token itself.
    label_1: examples with the sentence-order label 1.
    unequal_pairs: examples whose segments differ in length.
    told_by_length: those of them whose label is 1 exactly if the first segment
      is longer.
  """
  real = features["input_mask"] > 0
  shown = label = np.zeros(0, np.int32)
  if "masked_lm_weights" in features:
    row, column = np.nonzero(features["masked_lm_weights"] > 0)
    position = features["masked_lm_positions"][row, column]
    shown = features["input_ids"][row, position]
    label = features["masked_lm_ids"][row, column]
  lengths = np.asarray(ngram_lengths, np.int64)
  labels = features["next_sentence_labels"][:, 0]
  # [CLS] A [SEP] has one token more than B [SEP].
  of_b = (real & (features["segment_ids"] > 0)).sum(axis=1)
  difference = real.sum(axis=1) - 2 * of_b - 1
  unequal = difference != 0
  return Counts(
    ngrams=np.bincount(lengths - 1, minlength=ngram),
    instances=len(real),
    slots=real.size,
    tokens=int(real.sum()),
    segment_a_tokens=int((real & (features["segment_ids"] == 0)).sum()),
    predictions=len(shown),
    masked=int((shown == mask_id).sum()),
    kept=int((shown == label).sum()),
    label_1=int(labels.sum()),
    unequal_pairs=int(unequal.sum()),
    told_by_length=int((unequal & ((difference > 0) == (labels == 1))).sum()),
  )


def summarize_text(
  counts: Counts, special_ids: Iterable[int], unk_id: int
) -> dict[str, Any]:
  """Returns the statistics of the documents for the manifest.

  The entropy of the tokens that are not special is the loss of the best masked
  LM that ignores the context.
  """
  text_tokens = int(counts["pieces"].sum())
  pieces = np.delete(counts["pieces"], sorted(special_ids))
  shares = pieces[pieces > 0] / max(1, pieces.sum())
  # The last digit of NumPy's logarithms differs between its releases.
  entropy = -math.fsum(share * math.log(share) for share in shares.tolist())
  return {
    "documents": counts["documents"],
    "segments": counts["segments"],
    "text_tokens": text_tokens,
    "unknown_share": _share(int(counts["pieces"][unk_id]), text_tokens),
    "unigram_entropy_nats": entropy + 0.0,  # No "-0.0".
    "duplicate_documents": counts["duplicate_documents"],
  }


def summarize_examples(counts: Counts) -> dict[str, Any]:
  """Returns the statistics of the examples for the manifest.

  `kept_share` includes random pieces that happen to equal the token. Examples
  without predictions have no statistics of masks. `truncated_share` is relative
  to the tokens of all pairs before truncation. `length_only_accuracy` is that
  of a guess by lengths alone (swapped if the first segment is longer) where
  they differ; with dynamic masks, the one expected for the swaps of training.
  """
  # Without [CLS], [SEP] and [SEP].
  text_tokens = counts["tokens"] - 3 * counts["instances"]
  summary = {
    "instances": counts["instances"],
    "dropped_chunks": counts["dropped_chunks"],
    "truncated_tokens": counts["truncated_tokens"],
    "truncated_share": _share(
      counts["truncated_tokens"], counts["truncated_tokens"] + text_tokens
    ),
    "tokens": counts["tokens"],
    "mean_length": _share(counts["tokens"], counts["instances"]),
    "padding_share": _share(
      counts["slots"] - counts["tokens"], counts["slots"]
    ),
    "segment_a_share": _share(counts["segment_a_tokens"], counts["tokens"]),
    "label_1_share": _share(counts["label_1"], counts["instances"]),
    "length_only_accuracy": _share(
      counts["told_by_length"], counts["unequal_pairs"]
    ),
  }
  if counts["instances"] and not counts["predictions"]:
    # The swaps are drawn in training, like the masks.
    if not counts["label_1"]:
      del summary["label_1_share"]
    return summary
  random = counts["predictions"] - counts["masked"] - counts["kept"]
  ngrams = np.atleast_1d(counts["ngrams"]).tolist()
  return {
    **summary,
    "predictions": counts["predictions"],
    "mean_predictions": _share(counts["predictions"], counts["instances"]),
    "masked_share_of_tokens": _share(counts["predictions"], counts["tokens"]),
    "mask_token_share": _share(counts["masked"], counts["predictions"]),
    "kept_share": _share(counts["kept"], counts["predictions"]),
    "random_share": _share(random, counts["predictions"]),
    "ngram_length_share": {
      str(n): _share(count, sum(ngrams)) for n, count in enumerate(ngrams, 1)
    },
  }


def _share(part: int, whole: int) -> float:
  return part / whole if whole else 0.0


def format_table(splits: Mapping[str, Mapping[str, Any]]) -> str:
  """Formats a table with a column for each split, a row for each statistic."""
  import tabulate  # Workers do not need it.

  rows: dict[str, dict[str, str]] = {}
  for split, statistics in splits.items():
    for key, value in statistics.items():
      if not isinstance(value, Mapping):
        value = {"": value}
      for inner, number in value.items():
        text = f"{number:,}" if isinstance(number, int) else f"{number:.4f}"
        rows.setdefault(f"{key} {inner}".strip(), {})[split] = text
  return tabulate.tabulate(
    [[name, *map(row.get, splits)] for name, row in rows.items()],
    ["", *splits],
    tablefmt="plain",
    colalign=["left", *["right"] * len(splits)],
    disable_numparse=True,
  )
