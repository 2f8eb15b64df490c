"""The pairs and masks of the original with its quirks, to repeat old runs.

With `--masking=compat` these functions replace `sentence_pairs.create_pairs`
and `masking.choose_ngrams`, and `examples` draws random pieces from all pieces.
The other kinds of masking do not have these quirks, each of which changes the
examples:

1. A chunk of a single segment is paired with a random one and labeled 1, also
   with "sop", so more than half of the labels are 1.
2. After drawing it ten times, a random segment comes from the document itself.
   The only document of a corpus is always paired with itself.
3. Words and n-grams reach across the [SEP] between A and B.
4. A random replacement can be any piece, including [PAD], [CLS], [SEP] and
   [MASK].

The distribution is that of the original, but the random numbers are not: its
n-gram lengths come from a generator that it does not seed, so its own runs
differ from each other too.

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
  """Cuts document `index` into pairs, with quirks 1 and 2.

  Args:
    documents: all documents; random ones are read besides documents[index].
    index: see `sentence_pairs.create_pairs`.
    rng: see `sentence_pairs.create_pairs`.
    max_tokens: see `sentence_pairs.create_pairs`.
    short_seq_prob: see `sentence_pairs.create_pairs`.
    kind: one of `example_settings.COMPAT_PAIR_KINDS`.
    word_start_table: ignored.

  Yields:
    A pair for every chunk.
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
    # "sop" draws random segments for single segments only.
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
  """Draws another document, or `index` if ten draws gave only that."""
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

  A piece at the start of B that does not start a word belongs to the last word
  of A. The arguments and results are those of `masking.choose_ngrams`.
  """
  text = np.delete(np.arange(len(starts) - 1), [0, first_separator])
  edges = np.flatnonzero(starts[text])
  # The first piece always starts a unit; the end of the text closes the last.
  edges = np.concatenate([[0], edges[edges > 0], [len(text)]])
  last = len(edges) - 1
  units = rng.permutation(last)
  lengths = 1 + np.searchsorted(thresholds, rng.random(last), "right")
  ends = np.minimum(units + lengths, last)
  covered, taken = masking.take_ngrams(edges, units, ends, budget)
  return text[covered], taken
