"""The original's pairs and masks, quirks included, for repeating old runs.

`--masking=compat` puts these in the place of `sentence_pairs.create_pairs`,
`masking.choose_ngrams` and the pieces that random replacements are drawn from.
Each quirk below changes what a model sees, which is why the other ways of
masking leave it out:

1. A chunk of a single segment is paired with a random one and labelled 1, with
   "sop" too, so that more than half of the labels are 1.
2. A random segment may come from the document itself, after ten vain draws; a
   document alone in its corpus is always paired with itself.
3. Words and n-grams reach across the [SEP] between A and B, as if it was not
   there.
4. A random replacement is any piece: [PAD], [CLS], [SEP] and [MASK] as well.

The distribution is the original's, the very draws are not: its lengths of
n-grams come from a generator that no seed of its own reaches, so that no two
of its runs agree either.

Reference: google-research/albert create_pretraining_data.py
(create_instances_from_document, create_masked_lm_predictions).
"""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from tasks.pretraining.data import masking, sentence_pairs

_DRAWS_OF_ANOTHER_DOCUMENT = 10


def create_pairs(
  documents: Sequence[sentence_pairs.Document],
  index: int,
  rng: np.random.Generator,
  *,
  max_tokens: int,
  short_seq_prob: float,
  kind: str,
  word_start_table: np.ndarray,
) -> Iterator[sentence_pairs.Pair]:
  """Pairs from document `index`, with quirks 1 and 2.

  Args:
    documents: documents[index] is cut up; any other may be drawn from.
    index: of the document.
    rng: all that is random.
    max_tokens: A and B together, at most.
    short_seq_prob: see `sentence_pairs.create_pairs`.
    kind: one of `example_settings.COMPAT_PAIR_KINDS`.
    word_start_table: not looked at; here because the other way needs it.

  Yields:
    A pair for every chunk; none is dropped.
  """
  del word_start_table
  ids, offsets = documents[index]
  target = sentence_pairs.draw_target(max_tokens, short_seq_prob, rng)
  first = 0
  while first < len(offsets) - 1:
    end, a_end = sentence_pairs.draw_chunk(offsets, first, target, rng)
    a = ids[offsets[first] : offsets[a_end]]
    b = ids[offsets[a_end] : offsets[end]]
    label = 0
    # Only "nsp" draws for pairs that need not be random.
    if not len(b) or (kind == "nsp" and rng.random() < 0.5):
      label = 1
      other = documents[_another(len(documents), index, rng)]
      b = sentence_pairs.random_segments(other, target - len(a), rng)
      end = a_end  # The other segments are for the next chunk.
    elif kind == "sop" and rng.random() < 0.5:
      a, b, label = b, a, 1
    first = end
    yield sentence_pairs.fitted_pair(a, b, label, max_tokens, rng)


def _another(count: int, index: int, rng: np.random.Generator) -> int:
  """Another document's number, or its own after ten draws of it."""
  for _ in range(_DRAWS_OF_ANOTHER_DOCUMENT):
    other = int(rng.integers(count))
    if other != index:
      break
  return other


def choose_ngrams(
  starts: np.ndarray,
  first_separator: int,
  budget: int,
  thresholds: np.ndarray,
  rng: np.random.Generator,
) -> tuple[np.ndarray, list[int]]:
  """Chooses n-grams of the text without its [SEP]: quirk 3.

  A piece at the head of B that starts no word goes on with the last word of A.

  Args and returns are those of `masking.choose_ngrams`.
  """
  text = np.delete(np.arange(len(starts) - 1), [0, first_separator])
  edges = np.flatnonzero(starts[text])
  # The first piece is a unit's start, whatever it is; the end closes the last.
  edges = np.concatenate([[0], edges[edges > 0], [len(text)]])
  last = len(edges) - 1
  units = rng.permutation(last)
  lengths = 1 + np.searchsorted(thresholds, rng.random(last), "right")
  ends = np.minimum(units + lengths, last)
  covered, taken = masking.take_ngrams(edges, units, ends, budget)
  return text[covered], taken


def replacement_ids(vocab_size: int) -> np.ndarray:
  """<int32>[V]: every piece, special ones too: quirk 4."""
  return np.arange(vocab_size, dtype=np.int32)
