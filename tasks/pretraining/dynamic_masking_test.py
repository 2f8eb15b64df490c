"""Tests of masks drawn while training: that they are those of the records."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfrecords
from tasks.pretraining import batch_masking, data, dynamic_masking

_V = 97
_SPECIAL = (0, 1, 2, 3, 4)
_MASK = 4
_VOCABULARY = data.Vocabulary(np.arange(_V) % 3 != 0, frozenset(_SPECIAL))


def _settings(**changes):
  defaults = {"max_seq_length": 37, "max_predictions_per_seq": 7}
  return data.ExampleSettings(**{**defaults, **changes})


def _dynamic(seed=3, purpose=dynamic_masking.TRAIN, **changes):
  settings = _settings(masking="dynamic", **changes)
  return dynamic_masking.DynamicMasking(
    settings, _MASK, _VOCABULARY.replacement_ids, seed, purpose
  )


def _pairs(count, max_tokens=34, **arguments):
  """Pairs in order, of toy documents; a third of them are short."""
  rng = np.random.default_rng(8)
  documents = [
    data.Document.from_segments(
      [rng.integers(5, _V, size=rng.integers(1, 15)) for _ in range(20)]
    )
    for _ in range(count)
  ]
  pairs = []
  for index in range(count):
    made = data.create_pairs(
      documents,
      index,
      rng,
      max_tokens=max_tokens,
      short_seq_prob=0.3,
      kind="none",
      word_start_table=_VOCABULARY.word_start_table,
    )
    pairs += [pair for pair in made if pair]
  return pairs[:count]


def _unmasked(pairs):
  settings = _settings(masking="dynamic")
  rng = np.random.default_rng(0)
  features = data.pad_instances(
    [data.create_instance(p, _VOCABULARY, settings, rng) for p in pairs],
    settings,
  )
  return {name: tf.constant(value) for name, value in features.items()}


def _offline(pairs, rng, **changes):
  """What the records of `--masking=static` would hold; lengths of n-grams."""
  settings = _settings(**changes)
  instances = []
  for pair in pairs:
    if settings.sentence_pair == "sop" and rng.random() < 0.5:
      pair = data.Pair(pair.b, pair.a, 1)
    instances.append(data.create_instance(pair, _VOCABULARY, settings, rng))
  features = data.pad_instances(instances, settings)
  return features, [i.masked.ngram_lengths for i in instances]


def _online(pairs, draws, monkeypatch, **changes):
  """The same, drawn while training in `draws` epochs."""
  mask = _dynamic(**changes)
  batch = _unmasked(pairs)
  parts, lengths = [], []

  def spy(starts, *arguments):
    taken = choose_ngrams(starts, *arguments)
    for row, row_starts in zip(taken.numpy(), starts.numpy()):
      units = np.bincount(row[row_starts])[1:]
      lengths.append(units[units > 0].tolist())
    return taken

  choose_ngrams = batch_masking.choose_ngrams
  monkeypatch.setattr(batch_masking, "choose_ngrams", spy)
  for epoch in range(draws):
    first = tf.constant(epoch * len(pairs), tf.int64)
    parts.append({k: v.numpy() for k, v in mask(batch, first).items()})
  return {
    name: np.concatenate([part[name] for part in parts]) for name in parts[0]
  }, lengths


def _observe(features, ngram_lengths):
  """For each example: what we want to know the mean of, <float>[N, ...]."""
  rows = np.arange(len(ngram_lengths))[:, None]
  used = features["masked_lm_weights"] > 0
  positions, labels = features["masked_lm_positions"], features["masked_lm_ids"]
  shown = features["input_ids"][rows, positions]
  chosen = np.zeros(features["input_ids"].shape)
  chosen[np.nonzero(used)[0], positions[used]] = 1
  mask, kept = shown == _MASK, shown == labels
  counts = [np.bincount(lengths, minlength=9) for lengths in ngram_lengths]
  segment_b = features["segment_ids"]
  return {
    "ngrams": np.stack(counts),
    "first ngram": np.eye(9)[[(n or [0])[0] for n in ngram_lengths]],
    "predictions": used.sum(1),
    "masked": (used & mask).sum(1),
    "kept": (used & kept).sum(1),
    "random": (used & ~mask & ~kept).sum(1),
    "random piece": np.where(used & ~mask & ~kept, shown, 0).sum(1),
    "position": chosen,
    "neighbours": (chosen[:, 1:] * chosen[:, :-1]).sum(1),
    "in segment B": (chosen * segment_b).sum(1),
    "word starts": (chosen * features["token_boundary"]).sum(1),
    "swapped": features["next_sentence_labels"][:, 0],
    "length of A": (1 - segment_b).sum(1),
  }


def _assert_same_means(ours, theirs):
  """Each within 4.5 standard errors: in a hundred numbers, 7e-4 to fail."""
  for name in ours:
    a, b = (np.asarray(x[name], float) for x in (ours, theirs))
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    worst = np.abs(a.mean(0) - b.mean(0)) - 4.5 * error
    assert (worst <= 1e-12).all(), (name, a.mean(0), b.mean(0), error)


@pytest.mark.parametrize(
  ("pairs", "changes"),
  [
    ({}, {}),
    ({}, {"favor_shorter_ngram": False}),
    ({}, {"do_whole_word_mask": False}),
    ({}, {"ngram": 1}),
    ({}, {"ngram": 1, "do_whole_word_mask": False}),
    # The budget spent to the last word, and a budget of one token.
    ({}, {"masked_lm_prob": 0.8, "max_predictions_per_seq": 37}),
    ({}, {"max_predictions_per_seq": 1}),
    ({"max_tokens": 5}, {"masked_lm_prob": 0.5, "ngram": 5}),
    ({}, {"sentence_pair": "none"}),
  ],
)
def test_distribution_is_that_of_the_records(pairs, changes, monkeypatch):
  pairs = _pairs(500, **pairs)
  rng = np.random.default_rng(5)
  offline = [_observe(*_offline(pairs, rng, **changes)) for _ in range(6)]
  offline = {
    name: np.concatenate([part[name] for part in offline])
    for name in offline[0]
  }
  online = _observe(*_online(pairs, 6, monkeypatch, **changes))
  _assert_same_means(online, offline)
  total = online["predictions"].sum()
  for name, share in (("masked", 0.8), ("kept", 0.1), ("random", 0.1)):
    # 1 of 92 random pieces is the token that was there.
    expected = share + {"masked": 0, "kept": 1, "random": -1}[name] * 0.1 / 92
    error = np.sqrt(expected * (1 - expected) / total)
    assert abs(online[name].sum() / total - expected) < 4 * error
  swapped = online["swapped"].mean()
  if changes.get("sentence_pair") == "none":
    assert swapped == 0
  else:
    assert abs(swapped - 0.5) < 4 * 0.5 / np.sqrt(3000)


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"do_whole_word_mask": False, "ngram": 5, "masked_lm_prob": 1.0},
    {"sentence_pair": "none"},
  ],
)
def test_every_example_keeps_the_rules(changes):
  pairs = _pairs(300)
  masked = _dynamic(**changes)(_unmasked(pairs), tf.constant(7, tf.int64))
  settings = _settings(**changes)
  schema = tfrecords.pretraining_schema(37, settings.max_predictions_per_seq)
  assert masked.keys() == {feature.name for feature in schema}
  for feature in schema:
    value = masked[feature.name]
    dtype = {"int64": tf.int32, "float32": tf.float32}[feature.dtype]
    assert (value.shape, value.dtype) == ((300, *feature.shape), dtype)
  filled = 0
  for row, pair in enumerate(pairs):
    f = {name: value[row].numpy() for name, value in masked.items()}
    length = int(f["input_mask"].sum())
    count = int(f["masked_lm_weights"].sum())
    budget = data.num_to_predict(
      length, settings.masked_lm_prob, settings.max_predictions_per_seq
    )
    assert count <= budget
    filled += count == budget
    assert f["masked_lm_weights"].tolist() == [1] * count + [0] * (
      settings.max_predictions_per_seq - count
    )
    positions = f["masked_lm_positions"]
    labels = f["masked_lm_ids"]
    assert not positions[count:].any()
    assert not labels[count:].any()
    positions, labels = positions[:count], labels[:count]
    assert (np.diff(positions) > 0).all()
    assert not set(labels) & set(_SPECIAL)
    shown = f["input_ids"][positions]
    assert set(shown) & set(_SPECIAL) <= {_MASK}
    # The labels put back give the text, in its order or swapped.
    restored = f["input_ids"].copy()
    restored[positions] = labels
    label = f["next_sentence_labels"][0]
    a, b = (pair.b, pair.a) if label else (pair.a, pair.b)
    padding = [0] * (37 - length)
    assert restored.tolist() == [2, *a, 3, *b, 3, *padding]
    assert f["segment_ids"].tolist() == (
      [0] * (len(a) + 2) + [1] * (len(b) + 1) + padding
    )
    words = [int(i % 3 != 0 or i == 3) for i in restored[:length]]
    assert f["token_boundary"].tolist() == words + padding
    if settings.do_whole_word_mask:
      starts = np.array(words) > 0
      starts[[1, len(a) + 2]] = True
      chosen = np.isin(np.arange(length), positions)
      for unit in np.split(chosen, np.flatnonzero(starts)[1:]):
        assert unit.all() or not unit.any()
  assert filled > 250


def test_row_of_one_word_in_each_segment():
  """Each of the two is chosen in half of the draws: the budget is one word."""
  pair = data.Pair(np.array([7]), np.array([8]), 0)
  mask = _dynamic(sentence_pair="none", ngram=3)
  masked = mask(_unmasked([pair] * 1000), tf.constant(0, tf.int64))
  assert masked["masked_lm_weights"].numpy().sum(1).tolist() == [1.0] * 1000
  positions = masked["masked_lm_positions"].numpy()[:, 0]
  assert set(positions) == {1, 3}
  assert abs((positions == 1).mean() - 0.5) < 4 * 0.5 / np.sqrt(1000)


@pytest.mark.parametrize("label", [0, 1])
def test_word_cut_by_truncation_is_a_unit_of_its_own(label):
  """A segment that starts inside a word: 9 and 12 go on with one."""
  a, b = np.array([9, 12, 8]), np.array([12, 7, 8])
  pair = data.Pair(*((b, a) if label else (a, b)), 0)
  mask = _dynamic(sentence_pair="none", ngram=1, masked_lm_prob=0.2)
  # 20% of 9 tokens are two: one word of two pieces or two of one.
  batch = mask(_unmasked([pair] * 300), tf.constant(0, tf.int64))
  chosen = set(map(tuple, batch["masked_lm_positions"].numpy()[:, :2].tolist()))
  if label:
    assert chosen == {(5, 6), (1, 2), (1, 3), (1, 7), (2, 3), (2, 7), (3, 7)}
  else:
    assert chosen == {(1, 2), (3, 5), (3, 6), (3, 7), (5, 6), (5, 7), (6, 7)}


def test_half_is_rounded_to_even():
  """10 tokens with 0.25 are 2.5, so 2; 14 are 3.5, so 4."""
  mask = _dynamic(masked_lm_prob=0.25, ngram=1)
  ones = np.full(7, 7)  # A word each.
  for length, count in ((10, 2), (14, 4)):
    pair = data.Pair(ones[: length - 7], ones[:4], 0)
    masked = mask(_unmasked([pair] * 3), tf.constant(0, tf.int64))
    assert masked["masked_lm_weights"].numpy().sum(1).tolist() == [count] * 3


def test_draws_belong_to_the_example_and_not_to_the_batch():
  def draws(first, count, seed=5, purpose=1):
    first = tf.constant(first, tf.int64)
    return dynamic_masking.uniform_draws(
      seed, purpose, first, (count, 12)
    ).numpy()

  whole = draws(0, 30)
  assert whole.dtype == np.float64
  assert (whole >= 0).all()
  assert (whole < 1).all()
  assert len(np.unique(whole)) == whole.size
  for first in range(30):
    np.testing.assert_array_equal(draws(first, 1)[0], whole[first])
  np.testing.assert_array_equal(draws(11, 7), whole[11:18])
  for other in (draws(0, 30, seed=6), draws(0, 30, purpose=2), draws(30, 30)):
    assert not np.isin(other, whole).any()
  # Beyond 32 bits of examples, and seeds below 0 and beyond 32 bits.
  late = draws(2**40, 5)
  np.testing.assert_array_equal(draws(2**40 + 3, 2), late[3:])
  assert not np.isin(late, whole).any()
  assert not np.isin(draws(0, 30, seed=5 + 2**32), whole).any()
  assert draws(0, 1, seed=-1).shape == (1, 12)


def test_draws_are_the_same_on_any_machine():
  """Philox4x32-10 of counter 0 and key 0, as Random123 lists it."""
  draws = dynamic_masking.uniform_draws(0, 0, tf.constant(0, tf.int64), (1, 4))
  words = (draws.numpy()[0] * 2**32).astype(np.uint32)
  assert [f"{word:08x}" for word in words] == [
    "6627e8d5",
    "e169c58d",
    "bc57ac4c",
    "9b00dbd8",
  ]


def test_masks_do_not_depend_on_the_batch_size():
  batch = _unmasked(_pairs(13))
  mask = tf.function(_dynamic())
  whole = mask(batch, tf.constant(100, tf.int64))
  for size in (1, 5):
    for first in range(0, 13 - size, 2):
      part = {
        name: value[first : first + size] for name, value in batch.items()
      }
      masked = mask(part, tf.constant(100 + first, tf.int64))
      for name, value in masked.items():
        np.testing.assert_array_equal(value, whole[name][first : first + size])


def test_other_masks_for_another_epoch_seed_or_purpose():
  batch = _unmasked(_pairs(200))

  def masked(first, **arguments):
    masked = _dynamic(**arguments)(batch, tf.constant(first, tf.int64))
    return masked["masked_lm_positions"].numpy()

  one = masked(0)
  np.testing.assert_array_equal(masked(0), one)
  for other in (
    masked(200),
    masked(0, seed=4),
    masked(0, purpose=dynamic_masking.EVALUATION),
  ):
    assert (other == one).all(1).mean() < 0.1


def _manifest(**changes):
  settings = {
    **dataclasses.asdict(_settings(masking="dynamic")),
    "mask_id": _MASK,
    "special_ids": list(_SPECIAL),
    "dupe_factor": 1,
    **changes,
  }
  return tfrecords.Manifest(
    task="pretraining",
    max_seq_length=37,
    max_predictions_per_seq=7,
    features=tfrecords.unmasked_schema(37),
    tokenizer=tfrecords.TokenizerInfo("ab" * 32, _V, True),
    settings={k: v for k, v in settings.items() if v is not None},
    random_seed=5,
    splits={},
  )


def test_masking_that_a_manifest_asks_for():
  batch = _unmasked(_pairs(50))
  purpose = dynamic_masking.TRAIN
  first = tf.constant(0, tf.int64)
  from_manifest = dynamic_masking.DynamicMasking.from_manifest
  ours = from_manifest(_manifest(ngram=2), 3, purpose)(batch, first)
  theirs = _dynamic(seed=3, ngram=2)(batch, first)
  for name, value in theirs.items():
    np.testing.assert_array_equal(ours[name], value)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"ngram": None, "mask_id": None}, "lacks mask_id, ngram, which dynamic"),
    ({"ngram": 0}, "ngram is 0, but must be at least 1"),
    ({"masked_lm_prob": 0.0}, "masked_lm_prob is 0, but must be above 0"),
  ],
)
def test_manifest_without_settings_of_masking_is_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    dynamic_masking.DynamicMasking.from_manifest(_manifest(**changes), 3, 1)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
