"""Tests of chunks, order labels and truncation."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining.data import sentence_pairs

# The ids of document n start at 1000 n, so that the source of a token is known.
# In the toy vocabulary, even ids start a word.
_WORD_STARTS = np.arange(100000) % 2 == 0
_settings = functools.cache(data.ExampleSettings)


def _document(number, lengths):
  ends = np.cumsum([0, *lengths])
  ids = 1000 * number + np.arange(ends[-1])
  return sentence_pairs.Document(ids.astype(np.int32), ends)


def _pairs(documents, index=0, seed=0, max_tokens=29, **changes):
  settings = _settings(
    max_seq_length=max_tokens + 3, **{"short_seq_prob": 0.0, **changes}
  )
  rng = np.random.default_rng(seed)
  return list(
    sentence_pairs.create_pairs(documents, index, _WORD_STARTS, settings, rng)
  )


def _in_order(pair):
  return (pair.b, pair.a) if pair.label else (pair.a, pair.b)


@pytest.mark.parametrize(
  "kind, masking", [("sop", "static"), ("none", "static"), ("sop", "dynamic")]
)
@pytest.mark.parametrize("seed", range(3))
def test_unswapped_pairs_joined_give_the_document(
  kind, masking, seed, monkeypatch
):
  monkeypatch.setattr(
    sentence_pairs, "truncate_pair", lambda a, b, *unused: (a, b)
  )
  lengths = np.random.default_rng(seed).integers(1, 9, size=40)
  document = _document(3, lengths)
  pairs = _pairs([document], seed=seed, sentence_pair=kind, masking=masking)
  # With dynamic masks, the swap is drawn in training.
  swaps = (kind, masking) == ("sop", "static")
  assert {pair.label for pair in pairs} == ({0, 1} if swaps else {0})
  parts = [np.concatenate(_in_order(pair)).tolist() for pair in pairs]
  # With "sop", some documents are cut from their end.
  text = [token for part in sorted(parts) for token in part]
  # The rest may be a single word, which is dropped.
  missing = {*document.ids.tolist()} - {*text}
  assert len(missing) <= 1 and len(text) == len({*text})
  assert text == sorted(text)


@pytest.mark.parametrize("limit", [29, 30])
def test_a_chunk_reaches_the_target_with_the_fewest_segments(limit):
  document = _document(1, [10, 10, 10, 3, 3, 30, 1])
  pairs = _pairs([document], sentence_pair="none", max_tokens=limit)
  # Chunks of 30 and 36 tokens. The rest, a single word, is dropped.
  assert [len(p.a) + len(p.b) for p in pairs] == [limit, limit]
  starts = [min(*p.a, *p.b) - 1000 for p in pairs]
  assert 0 <= starts[0] <= 30 - limit and 30 <= starts[1] <= 66 - limit


def test_cut_is_uniform_and_half_of_the_sop_pairs_are_swapped():
  document = _document(1, [5, 5, 5, 5])
  cuts, labels = [], []
  for seed in range(3000):
    (pair,) = _pairs([document], seed=seed)
    first, second = _in_order(pair)
    assert [*first, *second] == document.ids.tolist()
    cuts.append(len(first))
    labels.append(pair.label)
  counts = np.bincount(cuts, minlength=16)[[5, 10, 15]]
  assert counts.sum() == 3000
  # 4 standard errors of a share of 1/3, and of 1/2.
  error = 4 * np.sqrt(2 / 9 / 3000)
  np.testing.assert_allclose(counts / 3000, 1 / 3, atol=error)
  assert abs(np.mean(labels) - 0.5) <= 4 * 0.5 / np.sqrt(3000)


@pytest.mark.parametrize("length", [64, 512])
@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_lengths_do_not_tell_the_order(length, masking):
  rng = np.random.default_rng(length)
  told = []
  for number in range(40 * max(length, 80)):
    # Sentences of 26 tokens in the mean, as in Wikipedia.
    lengths = rng.lognormal(3.1, 0.55, size=30).astype(int) + 1
    pairs = _pairs(
      [_document(0, lengths)],
      seed=number,
      max_tokens=length - 3,
      short_seq_prob=0.1,
      masking=masking,
    )
    for pair in pairs:
      a, b = len(pair.a), len(pair.b)
      if a != b:
        told.append((a > b) == pair.label)
  # The standard error is below 0.35%; cut from the start, it is 54% to 60%.
  assert len(told) > 30_000 and abs(np.mean(told) - 0.5) < 0.01


@pytest.mark.parametrize(
  "masking, share", [("static", 1 / 2), ("compat", 2 / 3)]
)
def test_a_is_as_often_longer_as_shorter(masking, share):
  document = _document(1, [2, 4, 1, 3])  # Two of three cuts make A longer.
  pairs = [_pairs([document], seed=x, masking=masking)[0] for x in range(4000)]
  longer = np.mean([len(_in_order(pair)[0]) > 5 for pair in pairs])
  assert abs(longer - share) < 4 * np.sqrt(share * (1 - share) / len(pairs))


@pytest.mark.parametrize("ids", [[2, 1, 3, 4, 5], [2], [2, 1, 3], [1]])
def test_single_segment_is_split_near_its_middle_and_a_word_dropped(ids):
  document = sentence_pairs.Document(np.array(ids), np.array([0, len(ids)]))
  pairs = [x for seed in range(20) for x in _pairs([document], seed=seed)]
  assert {pair.label for pair in pairs} == ({0, 1} if len(ids) == 5 else set())
  for pair in pairs:
    assert [x.tolist() for x in _in_order(pair)] == [[2, 1, 3], [4, 5]]


@pytest.mark.parametrize("kind", ["sop", "nsp"])
def test_compat_pairs_a_single_segment_with_a_random_one(kind):
  documents = [_document(1, [2]), _document(2, [1, 3])]
  seen = set()
  for seed in range(50):
    (pair,) = _pairs(
      documents, 0, seed, sentence_pair=kind, max_tokens=8, masking="compat"
    )
    assert (pair.a.tolist(), pair.label) == ([1000, 1001], 1)
    seen.add(tuple(pair.b.tolist()))
  # Segments are added up to the target.
  assert seen == {(2001, 2002, 2003), (2000, 2001, 2002, 2003)}


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_nsp_takes_its_random_segments_from_another_document(masking):
  documents = [_document(n, [3, 4, 5, 6] * 4) for n in (1, 2, 3)]
  labels, others = [], set()
  for seed in range(300):
    own = []
    for pair in _pairs(
      documents, 1, seed, sentence_pair="nsp", masking=masking
    ):
      labels.append(pair.label)
      own += pair.a.tolist()
      if pair.label:
        others |= {*(pair.b // 1000).tolist()}
        assert (np.diff(pair.b) == 1).all()
        # Just enough segments, so no more than the last one too many.
        assert len(pair.b) < 29 - len(pair.a) + 6
      else:
        own += pair.b.tolist()
        assert pair.b[0] == pair.a[-1] + 1 or len(pair.a) + len(pair.b) == 29
    # Segments that a random B replaced are used again: each token that was not
    # truncated is in one pair, and the order is kept.
    assert (np.diff(own) > 0).all() and {x // 1000 for x in own} == {2}
  assert others == {1, 3}
  # Single-segment chunks are always random, the others half of the time.
  assert 0.5 < np.mean(labels) < 0.7


def test_short_sequences_are_drawn_once_for_a_document():
  document, targets = _document(1, [1] * 400), set()
  for seed in range(300):
    pairs = _pairs([document], seed=seed, short_seq_prob=1.0, max_tokens=9)
    lengths = {len(p.a) + len(p.b) for p in pairs[:-1]}
    assert len(lengths) == 1  # Only the rest may differ.
    targets |= lengths
  assert targets == set(range(2, 10))


def test_truncation_equals_removing_one_token_at_a_time():
  rng = np.random.default_rng(0)
  for a, b, limit in itertools.product(range(1, 9), range(1, 9), range(2, 18)):
    first, second = sentence_pairs.truncate_pair(
      np.arange(a), np.arange(b), limit, rng
    )
    while a + b > limit:
      a, b = (a - 1, b) if a > b else (a, b - 1)
    assert (len(first), len(second)) == (a, b)
    assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()
  # From both ends with equal probability: Binomial(10, 1/2).
  starts = [
    sentence_pairs.truncate_pair(np.arange(30), np.arange(2), 22, rng)[0][0]
    for _ in range(2000)
  ]
  assert abs(np.mean(starts) - 5) <= 4 * np.sqrt(10 / 4 / 2000)
  assert abs(np.var(starts) - 2.5) <= 0.4
