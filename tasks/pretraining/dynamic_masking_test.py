"""Tests that masks drawn in training follow the rules of static masks."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tfrecords
from official_albert.tasks.pretraining import data, dynamic_masking

_V = 97
_MASK = 4


def _settings(**changes):
  defaults = {"max_seq_length": 37, "max_predictions_per_seq": 7}
  return data.ExampleSettings(**{**defaults, **changes})


def _dynamic(seed=3, purpose=dynamic_masking.TRAIN, **changes):
  """Returns the masking of a dataset with these settings in its manifest."""
  settings = {
    **dataclasses.asdict(_settings(masking="dynamic")),
    "mask_id": _MASK,
    "special_ids": [0, 1, 2, 3, 4],
    **changes,
  }
  manifest: Any = types.SimpleNamespace(
    settings={k: v for k, v in settings.items() if v is not None},
    tokenizer=types.SimpleNamespace(vocab_size=_V),
  )
  return dynamic_masking.DynamicMasking(manifest, seed, purpose)


def _pairs(count, max_tokens=34):
  """Returns random pairs in order; a third of them are short."""
  rng = np.random.default_rng(8)
  pairs = []
  for _ in range(count):
    short = rng.random() < 0.3
    tokens = rng.integers(2, max_tokens + 1) if short else max_tokens
    ids = rng.integers(5, _V, tokens)
    middle = rng.integers(1, tokens)
    pairs.append(data.Pair(ids[:middle], ids[middle:], 0))
  return pairs


def _static(tokenizer, pairs, rng, **changes):
  """Returns the features of records of `--masking=static`."""
  settings = _settings(**changes)
  if settings.sentence_pair == "sop":
    pairs = [
      data.Pair(pair.b, pair.a, 1) if rng.random() < 0.5 else pair
      for pair in pairs
    ]
  instances = [data.create_instance(p, tokenizer, settings, rng) for p in pairs]
  return data.pad_instances(instances, settings)


def _unmasked(tokenizer, pairs):
  rng, changes = np.random.default_rng(0), {"masking": "dynamic"}
  features = _static(tokenizer, pairs, rng, sentence_pair="none", **changes)
  return {name: tf.constant(value) for name, value in features.items()}


def _observe(parts):
  """Returns what is compared in the mean, for each example <float>[N, ...]."""
  parts = [{k: np.asarray(v) for k, v in part.items()} for part in parts]
  features = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
  used = features["masked_lm_weights"] > 0
  positions, labels = features["masked_lm_positions"], features["masked_lm_ids"]
  rows = np.arange(len(used))[:, None]
  shown = features["input_ids"][rows, positions]
  chosen = np.zeros(features["input_ids"].shape)
  chosen[np.nonzero(used)[0], positions[used]] = 1
  mask, kept = used & (shown == _MASK), used & (shown == labels)
  random = used & ~mask & ~kept
  segment_b = features["segment_ids"]
  return {
    "predictions": used.sum(1),
    "masked": mask.sum(1),
    "masked twice": (mask[:, 1:] & mask[:, :-1]).sum(1),
    "kept": kept.sum(1),
    "random": random.sum(1),
    "random pieces": [np.bincount(x, minlength=_V) for x in shown * random],
    "position": chosen,
    "neighbors": (chosen[:, 1:] * chosen[:, :-1]).sum(1),
    "in segment B": (chosen * segment_b).sum(1),
    "word starts": (chosen * features["token_boundary"]).sum(1),
    "swapped": features["next_sentence_labels"][:, 0],
    "length of A": (1 - segment_b).sum(1),
  }


@pytest.mark.parametrize(
  ("max_tokens", "changes"),
  [
    (34, {}),
    (34, {"do_whole_word_mask": False, "favor_shorter_ngram": False}),
    (34, {"max_predictions_per_seq": 1, "sentence_pair": "none"}),
    # The budget is spent to the last word.
    (34, {"masked_lm_prob": 0.8, "max_predictions_per_seq": 37}),
    (5, {"masked_lm_prob": 0.5, "ngram": 5}),
  ],
)
def test_distribution_is_that_of_static_masks(
  toy_tokenizer, max_tokens, changes
):
  pairs = _pairs(500, max_tokens)
  rng = np.random.default_rng(5)
  static = _observe(
    [_static(toy_tokenizer, pairs, rng, **changes) for _ in range(6)]
  )
  mask, batch = _dynamic(**changes), _unmasked(toy_tokenizer, pairs)
  places = [tf.constant(500 * epoch, tf.int64) for epoch in range(6)]
  dynamic = _observe([mask(batch, place) for place in places])
  for name in dynamic:
    # 4.5 standard errors: among 200 numbers, one fails with 1e-3.
    a, b = (np.asarray(x[name], float) for x in (dynamic, static))
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    worst = np.abs(a.mean(0) - b.mean(0)) - 4.5 * error
    assert (worst <= 1e-12).all(), (name, a.mean(0), b.mean(0), error)
  total = dynamic["predictions"].sum()
  for name, share in (("masked", 0.8), ("kept", 0.1), ("random", 0.1)):
    # 1 of 92 random pieces is the token that was there.
    expected = share + {"masked": 0, "kept": 1, "random": -1}[name] * 0.1 / 92
    error = np.sqrt(expected * (1 - expected) / total)
    assert abs(dynamic[name].sum() / total - expected) < 4 * error
  swapped = 0 if changes.get("sentence_pair") == "none" else 0.5
  assert abs(dynamic["swapped"].mean() - swapped) <= 4 * swapped / np.sqrt(3000)


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"do_whole_word_mask": False, "ngram": 5, "masked_lm_prob": 1.0},
    {"sentence_pair": "none"},
  ],
)
def test_every_example_follows_the_rules(
  toy_tokenizer, split_examples, changes
):
  pairs = _pairs(300)
  masked = _dynamic(**changes)(
    _unmasked(toy_tokenizer, pairs), tf.constant(7, tf.int64)
  )
  settings = _settings(**changes)
  schema = tfrecords.pretraining_schema(37, settings.max_predictions_per_seq)
  assert masked.keys() == {feature.name for feature in schema}
  for feature in schema:
    value = masked[feature.name]
    dtype = {"int64": tf.int32, "float32": tf.float32}[feature.dtype]
    assert (value.shape, value.dtype) == ((300, *feature.shape), dtype)
  filled = 0
  labels = masked["next_sentence_labels"].numpy()[:, 0]
  found = split_examples(masked, settings)
  for (a, b, positions), pair, label in zip(found, pairs, labels, strict=True):
    # In order or swapped.
    expected = (pair.b, pair.a) if label else pair[:2]
    assert (a, b) == tuple(x.tolist() for x in expected)
    length = len(a) + len(b) + 3
    filled += len(positions) == settings.num_to_predict(length)
  assert filled > 250


def test_draws_belong_to_the_example():
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
  found = " ".join(f"{word:08x}" for word in words)
  assert found == "6627e8d5 e169c58d bc57ac4c 9b00dbd8"


def test_manifest_without_settings_of_masking_is_refused():
  with pytest.raises(ValueError, match="lacks mask_id, ngram, which dynamic"):
    _dynamic(ngram=None, mask_id=None)
