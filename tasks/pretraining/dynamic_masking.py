"""Dynamic masking: swaps segments and masks n-grams during training.

Records of `--masking=dynamic` hold unmasked text. In `tf.data`, this module
does for whole batches what `data.examples` and `data.masking` do for one
example: it swaps A and B half of the time, then chooses and replaces n-grams
of words. The distribution is the same, but the masks differ in each epoch.

The random numbers of an example are a pure function of the seed and of its
place in the stream of examples over all epochs. So the masks do not depend on
the batch size or an interruption, and no state is saved.

Deviation: the original draws masks dupe_factor (40) times when it writes the
records, and repeats them in each epoch. Dynamic masking is from arXiv
1907.11692, section 4.1.
"""

from __future__ import annotations

import dataclasses
from typing import Sequence

import numpy as np
import tensorflow as tf

import tfrecords
from tasks.pretraining import batch_masking, data

# Upper halves of the generator's counters, so that training and evaluation have
# different numbers even with the same seed.
TRAIN, EVALUATION = 1, 2

_WORDS_PER_COUNTER = 4  # Philox makes four 32-bit words of each counter.
# For each token: the order of the units, their n, the kind of replacement and
# the random piece. Another group of four is for the swap.
_DRAWS_PER_TOKEN = 4


class DynamicMasking:
  """Masks batches; see `__call__`."""

  def __init__(
    self,
    settings: data.ExampleSettings,
    mask_id: int,
    replacement_ids: Sequence[int],
    seed: int,
    purpose: int,
  ):
    """Prepares tables.

    Args:
      settings: settings of the records.
      mask_id: id of [MASK].
      replacement_ids: the pieces to draw random ones from.
      seed: seed of all random numbers.
      purpose: `TRAIN` or `EVALUATION`.
    """
    self._settings = settings
    self._mask_id = mask_id
    self._replacement_ids = np.asarray(replacement_ids, np.int32)
    self._seed, self._purpose = seed, purpose
    self._budgets = np.array(
      [
        data.num_to_predict(
          length, settings.masked_lm_prob, settings.max_predictions_per_seq
        )
        for length in range(settings.max_seq_length + 1)
      ],
      np.int32,
    )

  @classmethod
  def from_manifest(
    cls, manifest: tfrecords.Manifest, seed: int, purpose: int
  ) -> DynamicMasking:
    """Makes the masking for a folder of unmasked records.

    Raises:
      ValueError: the manifest lacks a setting, or a setting is out of range.
    """
    names = [field.name for field in dataclasses.fields(data.ExampleSettings)]
    missing = {*names, "mask_id", "special_ids"} - manifest.settings.keys()
    if missing:
      raise ValueError(
        f"the data's manifest lacks {', '.join(sorted(missing))}, which "
        "dynamic masking needs: build the folder again with "
        "tools.create_pretraining_data --masking=dynamic."
      )
    settings = {name: manifest.settings[name] for name in names}
    pieces = np.arange(manifest.tokenizer.vocab_size)
    return cls(
      data.ExampleSettings(**settings),
      manifest.settings["mask_id"],
      np.delete(pieces, manifest.settings["special_ids"]),
      seed,
      purpose,
    )

  def __call__(
    self, batch: batch_masking.Batch, first_example: tf.Tensor
  ) -> batch_masking.Batch:
    """Masks a batch.

    Args:
      batch: features of `schemas.unmasked_schema`, <int32>[B, S] and, for
        `next_sentence_labels`, <int32>[B, 1].
      first_example: <int64>[], the place of the first example in the stream
        of examples over all epochs.

    Returns:
      The batch with masked `input_ids` and the other features of
      `schemas.pretraining_schema`: `masked_lm_positions` (ascending) and
      `masked_lm_ids` <int32>[B, P], and `masked_lm_weights` <float32>[B, P].
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
      batch = batch_masking.swap_segments(batch, swap[:, 0] < 0.5)
    ids, real = batch["input_ids"], batch["input_mask"] > 0
    length = tf.reduce_sum(batch["input_mask"], axis=1)
    separator = batch_masking.first_separator(batch)
    if settings.do_whole_word_mask:
      # A segment starts with a unit, even if its first word has been cut.
      columns = tf.range(sequence)
      starts = (batch["token_boundary"] > 0) | (columns == 1)
      starts |= columns == separator[:, None] + 1
    else:
      starts = real
    chosen = batch_masking.choose_ngrams(
      starts,
      separator,
      tf.gather(self._budgets, length),
      settings.ngram_thresholds,
      order,
      ngram,
    )
    chosen = chosen > 0
    shown = batch_masking.replace_tokens(
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
  """Draws W random numbers for each of B examples.

  Row i depends on (seed, purpose, first_example + i, W) only: Philox turns each
  counter into four words, and each example has W / 4 counters.

  Args:
    seed: any integer; its lowest 64 bits are used.
    purpose: from 0 to 2^63 - 1; each purpose has its own numbers.
    first_example: <int64>[].
    shape: B and W; W is a multiple of 4.

  Returns:
    <float64>[B, W], multiples of 2^-32 in [0, 1).
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
