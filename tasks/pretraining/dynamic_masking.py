"""Dynamic masking: swaps segments and masks n-grams during training.

Records of `--masking=dynamic` hold unmasked text. In `tf.data`, this module
does for whole batches what `data.examples` does for one example. The
distribution is the same, but the masks differ in each epoch.

The random numbers of an example are a pure function of the seed and of its
position in the stream of examples over all epochs. So the masks do not depend
on the batch size or on interruptions, and no state is saved.

Deviation: the original draws masks dupe_factor (40) times when it writes the
records, and repeats them in each epoch. Dynamic masking is from arXiv
1907.11692, section 4.1.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping

import numpy as np
import tensorflow as tf

from official_albert import tfrecords
from official_albert.tasks.pretraining import data

Batch = Mapping[str, tf.Tensor]

# The upper halves of the generator's counters. They differ, so training and
# evaluation have different numbers even with the same seed.
TRAIN, EVALUATION = 1, 2

_WORDS_PER_COUNTER = 4  # Philox makes four 32-bit words of each counter.
# Each token needs four: for the order of the units, their n, the kind of
# replacement and the random piece. The swap needs another group of four.
_DRAWS_PER_TOKEN = 4


class DynamicMasking:
  """Masks batches; see `__call__`."""

  def __init__(
    self,
    manifest: tfrecords.Manifest,
    seed: int,
    purpose: int,
    masked_lm_prob: float = 0.0,
  ):
    """Prepares tables for a folder of unmasked records.

    `masked_lm_prob` replaces the share of masked tokens, and with it the number
    of predictions, if it is above 0.
    """
    names = [field.name for field in dataclasses.fields(data.ExampleSettings)]
    missing = {*names, "mask_id", "special_ids"} - manifest.settings.keys()
    if missing:
      raise ValueError(
        f"the data's manifest lacks {', '.join(sorted(missing))}, which "
        "dynamic masking needs: build the folder again with "
        "tools.create_pretraining_data --masking=dynamic."
      )
    values = {name: manifest.settings[name] for name in names}
    if masked_lm_prob:
      values.update(masked_lm_prob=masked_lm_prob, max_predictions_per_seq=None)
    self.settings = settings = data.ExampleSettings(**values)
    self._mask_id = manifest.settings["mask_id"]
    pieces = np.arange(manifest.tokenizer.vocab_size, dtype=np.int32)
    self._replacement_ids = np.delete(pieces, manifest.settings["special_ids"])
    self._seed, self._purpose = seed, purpose
    lengths = range(settings.max_seq_length + 1)
    budgets = [settings.num_to_predict(length) for length in lengths]
    self._budgets = np.array(budgets, np.int32)

  def __call__(self, batch: Batch, first_example: tf.Tensor) -> Batch:
    """Masks a batch.

    Args:
      batch: features of `tfrecords.unmasked_schema`, <int32>[B, S] and, for
        `next_sentence_labels`, <int32>[B, 1].
      first_example: <int64>[], the position of the first example in the stream
        of examples over all epochs.

    Returns:
      The batch with masked `input_ids` and the other features of
      `tfrecords.pretraining_schema`: `masked_lm_positions` (ascending) and
      `masked_lm_ids` <int32>[B, P], and `masked_lm_weights` <float32>[B, P].
    """
    settings, replacements = self.settings, self._replacement_ids
    batch_size, sequence = batch["input_ids"].shape
    draws = uniform_draws(
      self._seed,
      self._purpose,
      first_example,
      (batch_size, _DRAWS_PER_TOKEN * (sequence + 1)),
    )
    swap, order, ngram, choice, piece = tf.split(
      draws, [_DRAWS_PER_TOKEN, *[sequence] * _DRAWS_PER_TOKEN], axis=1
    )
    batch = dict(batch)
    if settings.sentence_pair == "sop":
      batch = _swap_segments(batch, swap[:, 0] < 0.5)
    ids = batch["input_ids"]
    columns = tf.range(sequence)
    separator = _first_separator(batch)
    starts = batch["input_mask"] > 0
    if settings.do_whole_word_mask:
      # A segment starts with a unit, even if its first word has been cut.
      starts = (batch["token_boundary"] > 0) | (columns == 1)
      starts |= columns == separator[:, None] + 1
    length = tf.reduce_sum(batch["input_mask"], axis=1)
    budget = tf.gather(self._budgets, length)
    thresholds = settings.ngram_thresholds
    chosen = _choose_ngrams(starts, separator, budget, thresholds, order, ngram)
    shown = tf.where(choice < data.MASK_SHARE, self._mask_id, ids)
    random = tf.cast(piece * len(replacements), tf.int32)
    random = tf.gather(replacements, random)
    is_random = choice >= data.MASK_SHARE + data.KEEP_SHARE
    shown = tf.where(is_random, random, shown)
    shape = [batch_size, settings.max_predictions_per_seq]

    def gather(values):
      return tf.ragged.boolean_mask(values, chosen).to_tensor(shape=shape)

    return {
      **batch,
      "input_ids": tf.where(chosen, shown, ids),
      "masked_lm_positions": gather(tf.broadcast_to(columns, ids.shape)),
      "masked_lm_ids": gather(ids),
      "masked_lm_weights": gather(tf.ones(ids.shape)),
    }


def uniform_draws(
  seed: int, purpose: int, first_example: tf.Tensor, shape: tuple[int, int]
) -> tf.Tensor:
  """Draws W random numbers for each of B examples.

  Row i depends only on (seed, purpose, first_example + i, W). Philox turns each
  counter into four words, and each example has W / 4 counters. Only the lowest
  64 bits of the seed are used, and `purpose` is not negative. `shape` is B and
  W, a multiple of 4.

  Returns:
    <float64>[B, W], multiples of 2^-32 in [0, 1).
  """
  counters = tf.cast(shape[1] // _WORDS_PER_COUNTER, tf.uint64)
  first_counter = tf.cast(first_example, tf.uint64) * counters
  words = tf.raw_ops.StatelessRandomUniformFullIntV2(
    shape=shape,
    key=tf.constant([seed % 2**64], tf.uint64),
    counter=tf.stack([first_counter, tf.constant(purpose, tf.uint64)]),
    alg=tf.random.Algorithm.PHILOX.value,
    dtype=tf.uint32,
  )
  return tf.cast(words, tf.float64) * 2.0**-32


def _first_separator(batch: Batch) -> tf.Tensor:
  """Returns the position of the first [SEP], <int32>[B]."""
  first = batch["input_mask"] - batch["segment_ids"]
  return tf.reduce_sum(first, axis=1) - 1


def _swap_segments(batch: Batch, swap: tf.Tensor) -> dict[str, tf.Tensor]:
  """Turns `[CLS] A [SEP] B [SEP]` into `[CLS] B [SEP] A [SEP]`, labeled 1.

  `swap` <bool>[B] selects the rows to swap; the others do not change.
  """
  length = tf.reduce_sum(batch["input_mask"], axis=1, keepdims=True)
  separator = _first_separator(batch)[:, None]
  new_separator = length - 1 - separator  # After [CLS] and B.
  columns = tf.range(batch["input_ids"].shape[1])
  in_b = (columns > 0) & (columns < new_separator)
  in_a = (columns > new_separator) & (columns < length - 1)
  source = tf.where(in_b, columns + separator, columns)
  source = tf.where(in_a, columns - new_separator, source)
  source = tf.where(columns == new_separator, separator, source)
  source = tf.where(swap[:, None], source, columns)
  # [CLS] and [SEP] stay, so segment ids are computed instead of moved.
  border = tf.where(swap[:, None], new_separator, separator)
  in_second = (columns > border) & (columns < length)
  # Ids and boundaries move together; ids are below 2^30.
  both = 2 * batch["input_ids"] + batch["token_boundary"]
  both = tf.gather(both, source, batch_dims=1)
  return {
    **batch,
    "input_ids": both // 2,
    "token_boundary": both % 2,
    "segment_ids": tf.cast(in_second, tf.int32),
    "next_sentence_labels": tf.cast(swap[:, None], tf.int32),
  }


def _choose_ngrams(
  starts: tf.Tensor,
  separator: tf.Tensor,
  budget: tf.Tensor,
  thresholds: np.ndarray,
  order: tf.Tensor,
  ngram: tf.Tensor,
) -> tf.Tensor:
  """Chooses n-grams like `data.examples.choose_ngrams`, for B sequences.

  That function visits the units of one sequence until the budget is spent. A
  visit depends on those before it, but not on other rows. So step k visits the
  k-th unit of all rows at once, until the last row is done.

  Units start where `starts` <bool>[B, S] is True, as it is at [CLS] and both
  [SEP]. `separator` <int32>[B] is the position of the first [SEP], and `budget`
  <int32>[B] the maximum number of tokens. `order` and `ngram` <float64>[B, S]
  are the random numbers for the order of the units and the lengths of n-grams.
  Returns the chosen tokens, <bool>[B, S].
  """
  columns = tf.range(starts.shape[1])
  # Column i is the start of unit i, or the end of unit i - 1.
  edges = tf.ragged.boolean_mask(tf.broadcast_to(columns, starts.shape), starts)
  edges = edges.to_tensor(shape=starts.shape)

  def count(mask):
    return tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True)

  last = count(starts) - 1
  middle = count(starts & (columns < separator[:, None]))
  is_unit = (columns > 0) & (columns != middle) & (columns < last)
  # From here on, columns are visits. Each row has last - 2 of them.
  num_visits = last[:, 0] - 2
  order = tf.where(is_unit, order, -1.0)
  units = tf.math.top_k(order, k=starts.shape[1]).indices
  lengths = 1 + sum(tf.cast(ngram >= t, tf.int32) for t in thresholds)
  segment_end = tf.where(units < middle, middle, last)
  start = tf.gather(edges, units, batch_dims=1)
  visits = [start]
  for n in range(1, len(thresholds) + 2):
    end = tf.minimum(units + tf.minimum(n, lengths), segment_end)
    visits.append(tf.gather(edges, end, batch_dims=1) - start)
  visits = tf.stack([tf.transpose(part) for part in visits], axis=2)

  def is_unfinished(visit, budget, taken):
    del taken
    return tf.reduce_any((budget > 0) & (visit < num_visits))

  def one_visit(visit, budget, taken):
    start, sizes = tf.split(visits[visit], [1, len(thresholds) + 1], axis=1)
    # The most units that fit; none if the first one does not.
    left = tf.where(visit < num_visits, budget, 0)[:, None]
    sizes = tf.where(sizes <= left, sizes, 0)
    size = tf.reduce_max(sizes, axis=1, keepdims=True)
    reach = (columns >= start) & (columns < start + size)
    overlaps = tf.reduce_any(reach & taken, axis=1, keepdims=True)
    taken |= reach & ~overlaps
    budget -= tf.where(overlaps, 0, size)[:, 0]
    return visit + 1, budget, taken

  _, _, taken = tf.while_loop(
    is_unfinished,
    one_visit,
    (tf.constant(0), budget, tf.zeros(starts.shape, tf.bool)),
    parallel_iterations=1,
  )
  return taken
