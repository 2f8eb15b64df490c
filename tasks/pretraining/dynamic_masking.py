"""Masks drawn while training: the order swap and n-gram masking as a graph.

Records of `--masking=dynamic` hold their text as it is. Here whole batches of
them get, on the host and inside `tf.data`, what `examples` and `masking` would
have given them when they were made: A and B are swapped half of the time, then
n-grams of words are chosen and replaced. The distribution is the same; the
draw is a new one in each epoch.

Every example has random numbers of its own, a pure function of the seed and
its place in the stream of examples over all epochs. So neither the batch size
nor an interruption can be seen in the masks, and no state has to be saved.

`masking` walks through the units of one sequence until its budget is spent.
The walk of each row is a chain of decisions, but the rows have nothing to do
with each other: here step k visits the k-th unit of all rows at once.

arXiv 1909.11942 section 3.1 and 4.1; reference: google-research/albert
create_pretraining_data.py (create_masked_lm_predictions). RoBERTa's dynamic
masking: arXiv 1907.11692 section 4.1.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tasks.pretraining import examples, masking
from tfrecords import schemas

# Counters of the generator above 2^64, so that training and evaluation share
# no numbers even with the same seed.
TRAIN, EVALUATION = 1, 2

_WORDS_PER_COUNTER = 4  # Philox makes four 32-bit words of each counter.
# Numbers for each token: order of the units, their n, what becomes of a
# masked token, and the random piece. One more is for the swap.
_DRAWS_PER_TOKEN = 4

Batch = Mapping[str, tf.Tensor]


class DynamicMasking:
  """Unmasked batches to masked ones; see `__call__`."""

  def __init__(
    self,
    settings: examples.ExampleSettings,
    mask_id: int,
    replacement_ids: Sequence[int],
    seed: int,
    purpose: int,
  ):
    """Prepares tables.

    Args:
      settings: those that the records were made with.
      mask_id: id of [MASK].
      replacement_ids: the pieces that a random one is drawn from.
      seed: of all draws.
      purpose: `TRAIN` or `EVALUATION`.
    """
    self._settings = settings
    self._mask_id = mask_id
    self._replacement_ids = np.asarray(replacement_ids, np.int32)
    self._seed, self._purpose = seed, purpose
    self._budgets = np.array(
      [
        masking.num_to_predict(
          length, settings.masked_lm_prob, settings.max_predictions_per_seq
        )
        for length in range(settings.max_seq_length + 1)
      ],
      np.int32,
    )

  @classmethod
  def from_manifest(
    cls, manifest: schemas.Manifest, seed: int, purpose: int
  ) -> DynamicMasking:
    """The masking that a folder of unmasked records asks for.

    Raises:
      ValueError: the manifest lacks a setting that masking needs, or has one
        that is out of range.
    """
    names = [
      field.name for field in dataclasses.fields(examples.ExampleSettings)
    ]
    missing = {*names, "mask_id", "special_ids"} - manifest.settings.keys()
    if missing:
      raise ValueError(
        f"the data's manifest lacks {', '.join(sorted(missing))}, which masking "
        "while training needs: make the folder again with "
        "tools.create_pretraining_data --masking=dynamic."
      )
    settings = {name: manifest.settings[name] for name in names}
    pieces = np.arange(manifest.tokenizer.vocab_size)
    return cls(
      examples.ExampleSettings(**settings),
      manifest.settings["mask_id"],
      np.delete(pieces, manifest.settings["special_ids"]),
      seed,
      purpose,
    )

  def __call__(self, batch: Batch, first_example: tf.Tensor) -> Batch:
    """Masks a batch.

    Args:
      batch: features of `schemas.unmasked_schema`, <int32>[B, S] and, for
        `next_sentence_labels`, <int32>[B, 1].
      first_example: <int64>[], the place of the first one in the stream of
        examples, counted on over the epochs.

    Returns:
      The batch with what `schemas.pretraining_schema` has beyond it:
      `masked_lm_positions`, `masked_lm_ids` <int32>[B, P], positions
      ascending, and `masked_lm_weights` <float32>[B, P].
    """
    settings = self._settings
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
      batch = swap_segments(batch, swap[:, 0] < 0.5)
    ids, real = batch["input_ids"], batch["input_mask"] > 0
    length = tf.reduce_sum(batch["input_mask"], axis=1)
    separator = first_separator(batch)
    if settings.do_whole_word_mask:
      # A segment begins with a unit, even if its first word has been cut.
      columns = tf.range(sequence)
      starts = (batch["token_boundary"] > 0) | (columns == 1)
      starts |= columns == separator[:, None] + 1
    else:
      starts = real
    chosen = choose_ngrams(
      starts,
      separator,
      tf.gather(self._budgets, length),
      settings.ngram_thresholds,
      order,
      ngram,
    )
    chosen = chosen > 0
    shown = replace_tokens(
      ids, chosen, self._mask_id, self._replacement_ids, choice, piece
    )
    shape = [batch_size, settings.max_predictions_per_seq]

    def gather(values):
      return tf.ragged.boolean_mask(values, chosen).to_tensor(shape=shape)

    positions = tf.broadcast_to(tf.range(sequence), ids.shape)
    batch["input_ids"] = shown
    batch["masked_lm_positions"] = gather(positions)
    batch["masked_lm_ids"] = gather(ids)
    batch["masked_lm_weights"] = gather(tf.ones(ids.shape))
    return batch


def uniform_draws(
  seed: int, purpose: int, first_example: tf.Tensor, shape: tuple[int, int]
) -> tf.Tensor:
  """Random numbers for B examples, W for each.

  Row i is a function of (seed, purpose, first_example + i, W) alone: Philox
  turns each counter into four words, and an example owns W / 4 counters.

  Args:
    seed: any integer; its lowest 64 bits count.
    purpose: from 0 to 2^63 - 1; other purposes have other numbers.
    first_example: <int64>[].
    shape: B, W; W is a multiple of 4.

  Returns:
    <float64>[B, W], multiples of 2^-32 from 0 to below 1.
  """
  counters = tf.cast(shape[1] // _WORDS_PER_COUNTER, tf.uint64)
  words = tf.raw_ops.StatelessRandomUniformFullIntV2(
    shape=shape,
    key=tf.constant([seed % 2**64], tf.uint64),
    counter=tf.stack(
      [
        tf.cast(first_example, tf.uint64) * counters,
        tf.constant(purpose, tf.uint64),
      ]
    ),
    alg=tf.random.Algorithm.PHILOX.value,
    dtype=tf.uint32,
  )
  return tf.cast(words, tf.float64) * 2.0**-32


def first_separator(batch: Batch) -> tf.Tensor:
  """<int32>[B], the position of the first [SEP], the last of segment 0."""
  first = batch["input_mask"] - batch["segment_ids"]
  return tf.reduce_sum(first, axis=1) - 1


def swap_segments(batch: Batch, swap: tf.Tensor) -> dict[str, tf.Tensor]:
  """`[CLS] A [SEP] B [SEP]` to `[CLS] B [SEP] A [SEP]`, labelled 1.

  Args:
    batch: as in `DynamicMasking.__call__`.
    swap: <bool>[B], which rows; the others are as they were.

  Returns:
    The batch with other `input_ids`, `token_boundary`, `segment_ids` and
    `next_sentence_labels`.
  """
  length = tf.reduce_sum(batch["input_mask"], axis=1, keepdims=True)
  separator = first_separator(batch)[:, None]
  new_separator = length - 1 - separator  # One after as many tokens as B has.
  columns = tf.range(batch["input_ids"].shape[1])
  in_b = (columns > 0) & (columns < new_separator)
  in_a = (columns > new_separator) & (columns < length - 1)
  source = tf.where(in_b, columns + separator, columns)
  source = tf.where(in_a, columns - new_separator, source)
  source = tf.where(columns == new_separator, separator, source)
  source = tf.where(swap[:, None], source, columns)
  # [CLS] and [SEP] have no segment that they could be moved with.
  in_1 = (columns > tf.where(swap[:, None], new_separator, separator)) & (
    columns < length
  )
  # Ids and boundaries move together; ids are below 2^30.
  both = 2 * batch["input_ids"] + batch["token_boundary"]
  both = tf.gather(both, source, batch_dims=1)
  return {
    **batch,
    "input_ids": both // 2,
    "token_boundary": both % 2,
    "segment_ids": tf.cast(in_1, tf.int32),
    "next_sentence_labels": tf.cast(swap[:, None], tf.int32),
  }


def choose_ngrams(
  starts: tf.Tensor,
  separator: tf.Tensor,
  budget: tf.Tensor,
  thresholds: np.ndarray,
  order: tf.Tensor,
  ngram: tf.Tensor,
) -> tf.Tensor:
  """`masking.choose_ngrams` for B sequences at once.

  Args:
    starts: <bool>[B, S], True where a unit starts and at [CLS] and both
      [SEP], False in the padding.
    separator: <int32>[B], position of the first [SEP].
    budget: <int32>[B], tokens to choose at most.
    thresholds: <float64>[ngram - 1], see `masking.ngram_thresholds`.
    order: <float64>[B, S], draws that units are ordered by.
    ngram: <float64>[B, S], draws of the lengths of n-grams.

  Returns:
    <int32>[B, S]: 0, or k + 1 for the tokens of the n-gram that was taken at
    visit k.
  """
  columns = tf.range(starts.shape[1])
  # Here a column is an edge: a unit goes from its own edge to the next.
  edges = tf.ragged.boolean_mask(tf.broadcast_to(columns, starts.shape), starts)
  edges = edges.to_tensor(shape=starts.shape)
  last = tf.reduce_sum(tf.cast(starts, tf.int32), axis=1, keepdims=True) - 1
  middle = tf.reduce_sum(
    tf.cast(starts & (columns < separator[:, None]), tf.int32),
    axis=1,
    keepdims=True,
  )
  is_unit = (columns > 0) & (columns != middle) & (columns < last)
  # From here on a column is a visit, and visits beyond last - 2 are none.
  num_visits = last[:, 0] - 2
  units = tf.math.top_k(
    tf.where(is_unit, order, -1.0), k=starts.shape[1]
  ).indices
  lengths = 1 + sum(tf.cast(ngram >= t, tf.int32) for t in thresholds)
  segment_end = tf.where(units < middle, middle, last)
  start = tf.gather(edges, units, batch_dims=1)
  visits = [start]
  for n in range(1, len(thresholds) + 2):
    end = tf.minimum(units + tf.minimum(n, lengths), segment_end)
    visits.append(tf.gather(edges, end, batch_dims=1) - start)
  visits = tf.stack([tf.transpose(part) for part in visits], axis=2)

  def goes_on(visit, budget, taken):
    del taken
    return tf.reduce_any((budget > 0) & (visit < num_visits))

  def one_visit(visit, budget, taken):
    start, sizes = tf.split(visits[visit], [1, len(thresholds) + 1], axis=1)
    # The most units that fit; none where not even the first one does.
    left = tf.where(visit < num_visits, budget, 0)[:, None]
    size = tf.reduce_max(
      tf.where(sizes <= left, sizes, 0), axis=1, keepdims=True
    )
    reach = (columns >= start) & (columns < start + size)
    overlaps = tf.reduce_any(reach & (taken > 0), axis=1, keepdims=True)
    taken = tf.where(reach & ~overlaps, visit + 1, taken)
    budget -= tf.where(overlaps, 0, size)[:, 0]
    return visit + 1, budget, taken

  _, _, taken = tf.while_loop(
    goes_on,
    one_visit,
    (tf.constant(0), budget, tf.zeros(starts.shape, tf.int32)),
    parallel_iterations=1,
  )
  return taken


def replace_tokens(
  ids: tf.Tensor,
  chosen: tf.Tensor,
  mask_id: int,
  replacement_ids: np.ndarray,
  choice: tf.Tensor,
  piece: tf.Tensor,
) -> tf.Tensor:
  """`masking.replace_tokens` for B sequences at once.

  Args:
    ids: <int32>[B, S].
    chosen: <bool>[B, S], the tokens to predict.
    mask_id: id of [MASK].
    replacement_ids: <int32>[R].
    choice: <float64>[B, S], draws of what becomes of a token.
    piece: <float64>[B, S], draws of random pieces.

  Returns:
    <int32>[B, S].
  """
  random = tf.gather(
    replacement_ids, tf.cast(piece * len(replacement_ids), tf.int32)
  )
  shown = tf.where(choice < masking.MASK_SHARE, mask_id, ids)
  replaced = choice >= masking.MASK_SHARE + masking.KEEP_SHARE
  shown = tf.where(replaced, random, shown)
  return tf.where(chosen, shown, ids)
