"""Counts examples, and computes the manifest's statistics.

Counts are sums, which `collections.Counter.update` adds, so the total does not
depend on how the work is divided. Quotients are computed at the end.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping

import numpy as np


def count_examples(
  features: Mapping[str, np.ndarray], mask_id: int
) -> dict[str, int]:
  """Counts N examples, given the result of `examples.pad_instances`.

  Returns:
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
  shown: np.ndarray = np.zeros(0, np.int32)
  label = shown
  if "masked_lm_weights" in features:
    row, column = np.nonzero(features["masked_lm_weights"] > 0)
    position = features["masked_lm_positions"][row, column]
    shown = features["input_ids"][row, position]
    label = features["masked_lm_ids"][row, column]
  labels = features["next_sentence_labels"][:, 0]
  # [CLS] A [SEP] has one token more than B [SEP].
  of_b = (real & (features["segment_ids"] > 0)).sum(axis=1)
  difference = real.sum(axis=1) - 2 * of_b - 1
  unequal = difference != 0
  return dict(
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
  counts: Mapping[str, int],
  pieces: np.ndarray,
  special_ids: Iterable[int],
  unk_id: int,
) -> dict[str, Any]:
  """Returns the statistics of the documents for the manifest.

  `pieces` <int64>[V] are the occurrences of each piece in the text. Used tokens
  are those of each duplicate; `truncated_share` of them is in no example ("nsp"
  hides a part by its random segments). The entropy of the tokens that are not
  special is the loss of the best masked LM that ignores the context.
  """
  text_tokens = int(pieces.sum())
  plain = np.delete(pieces, sorted(special_ids))
  shares = plain[plain > 0] / max(1, plain.sum())
  # The last digit of NumPy's logarithms differs between its releases.
  entropy = -math.fsum(share * math.log(share) for share in shares.tolist())
  # Without [CLS], [SEP] and [SEP].
  in_examples = counts["tokens"] - 3 * counts["instances"]
  used = counts["used_tokens"]
  return {
    "documents": counts["documents"],
    "segments": counts["segments"],
    "text_tokens": text_tokens,
    "unknown_share": _share(int(pieces[unk_id]), text_tokens),
    "unigram_entropy_nats": entropy + 0.0,  # No "-0.0".
    "duplicate_documents": counts["duplicate_documents"],
    "truncated_share": _share(max(0, used - in_examples), used),
  }


def summarize_examples(counts: Mapping[str, int]) -> dict[str, Any]:
  """Returns the statistics of the examples for the manifest.

  `kept_share` includes random pieces that happen to equal the token. Examples
  without predictions have no statistics of masks. `length_only_accuracy` is
  that of a guess by lengths alone (swapped if the first segment is longer)
  where they differ; with dynamic masks, the one expected for training.
  """
  instances, tokens = counts["instances"], counts["tokens"]
  predictions, unequal = counts["predictions"], counts["unequal_pairs"]
  summary = {
    "instances": instances,
    "tokens": tokens,
    "mean_length": _share(tokens, instances),
    "padding_share": _share(counts["slots"] - tokens, counts["slots"]),
    "segment_a_share": _share(counts["segment_a_tokens"], tokens),
    "label_1_share": _share(counts["label_1"], instances),
    "length_only_accuracy": _share(counts["told_by_length"], unequal),
  }
  if instances and not predictions:
    # The swaps are drawn in training, like the masks.
    if not counts["label_1"]:
      del summary["label_1_share"]
    return summary
  random = predictions - counts["masked"] - counts["kept"]
  return {
    **summary,
    "predictions": predictions,
    "mean_predictions": _share(predictions, instances),
    "masked_share_of_tokens": _share(predictions, tokens),
    "mask_token_share": _share(counts["masked"], predictions),
    "kept_share": _share(counts["kept"], predictions),
    "random_share": _share(random, predictions),
  }


def _share(part: int, whole: int) -> float:
  return part / whole if whole else 0.0
