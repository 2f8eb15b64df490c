"""Tests of each quirk, and of the whole against the original's statistics."""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib

import numpy as np
import pytest

from official_albert import tokenization
from tasks.pretraining.data import (
  compat,
  example_settings,
  examples,
  sentence_pairs,
)

_SHARED = pathlib.Path(__file__).resolve().parents[4] / "shared"
_GOLDEN = "golden/original_data_statistics.json"
_TEXT = "data/corpus/wikipedia_sentences_4mb.txt.gz"
_TOKENIZER = "data/tokenizer/30k-clean.model"

_VOCAB_SIZE = 97
# Of the ids from 5 on, every third one continues a word.
_WORD_STARTS = np.arange(_VOCAB_SIZE) % 3 != 0


def _document(*segments):
  return sentence_pairs.Document.from_segments(segments)


def _random_document(rng, segments, longest):
  lengths = rng.integers(1, longest + 1, size=segments)
  return _document(*[rng.integers(5, _VOCAB_SIZE, size=n) for n in lengths])


def _pairs(documents, index, seed, kind="sop", max_tokens=8, short=0.0):
  pairs = compat.create_pairs(
    documents,
    index,
    np.random.default_rng(seed),
    max_tokens=max_tokens,
    short_seq_prob=short,
    kind=kind,
    word_start_table=_WORD_STARTS,
  )
  return [(p.a.tolist(), p.b.tolist(), p.label) for p in pairs]


@pytest.mark.parametrize("kind", example_settings.COMPAT_PAIR_KINDS)
def test_single_segment_gets_a_random_one_and_label_1(kind):
  documents = [_document([5, 6]), _document([7], [8, 10, 11])]
  expected = {(5, 6, -1, 7, -1), (5, 6, -1, 8, 10, 11, -1)}
  expected.add((5, 6, -1, 7, 8, 10, 11, -1))
  seen = set()
  for seed in range(50):
    ((a, b, label),) = _pairs(documents, 0, seed, kind)
    assert label == 1
    seen.add((*a, -1, *b, -1))
  # Segments are added up to the target; [7] alone is too short for it.
  assert seen == expected - {(5, 6, -1, 7, -1)}


def test_document_alone_is_paired_with_itself():
  pairs = [_pairs([_document([5, 6])], 0, seed) for seed in range(5)]
  assert pairs == [[([5, 6], [5, 6], 1)]] * 5


def test_own_document_is_the_last_resort():
  """Of two documents each draw is a coin, so 1 in 1024 comes to its own."""
  rng = np.random.default_rng(1)
  own = sum(compat._another(2, 1, rng) == 1 for _ in range(20000))
  # 19.5 expected, standard error 4.4.
  assert 3 <= own <= 37


def test_in_order_or_swapped_with_even_chances():
  document = _document([5, 6], [7, 8])
  seen = [tuple(map(str, _pairs([document], 0, s)[0])) for s in range(400)]
  counts = {key: seen.count(key) for key in set(seen)}
  assert counts.keys() == {
    ("[5, 6]", "[7, 8]", "0"),
    ("[7, 8]", "[5, 6]", "1"),
  }
  assert min(counts.values()) > 150  # 200 expected, standard error 10.


def test_nsp_gives_unused_segments_to_the_next_chunk():
  documents = [_document([5, 6], [7, 8], [10, 11]), _document([13] * 9)]
  for seed in range(30):
    pairs = _pairs(documents, 0, seed, "nsp")
    for a, b, label in pairs:
      assert label == int(13 in b)
      assert 13 not in a
    text = [i for a, b, label in pairs for i in (a if label else a + b)]
    assert text == [5, 6, 7, 8, 10, 11]  # Nothing lost, nothing twice.


def test_pairs_fit_and_short_targets_are_drawn():
  rng = np.random.default_rng(2)
  documents = [_random_document(rng, n, 8) for n in (1, 40, 3)]
  lengths = []
  for seed, index in itertools.product(range(20), range(3)):
    for a, b, _ in _pairs(documents, index, seed, max_tokens=11, short=0.5):
      assert len(a) >= 1 and len(b) >= 1
      lengths.append(len(a) + len(b))
  assert max(lengths) == 11
  assert min(lengths) < 8  # Some targets were short.


# [CLS] 0, A 1 2, [SEP] 3, B 4 5, [SEP] 6.
@pytest.mark.parametrize(
  ("continues", "ngram", "choices"),
  [
    # Words 1 | 2 | 4 | 5, two in a row: also 2 with 4.
    ((), 2, {(1, 2), (2, 4), (4, 5), (1, 4), (1, 5), (2, 5)}),
    # B begins within a word, which is glued to A's last; one word at a time.
    ((4,), 1, {(2, 4), (1, 5)}),
    # A begins within a word: a unit of its own, as there is none before it.
    ((1,), 1, set(itertools.combinations((1, 2, 4, 5), 2))),
  ],
)
def test_words_and_ngrams_reach_across_the_separator(continues, ngram, choices):
  starts = np.ones(7, bool)
  starts[list(continues)] = False
  seen = set()
  for seed in range(200):
    positions, lengths = compat.choose_ngrams(
      starts,
      3,
      2,
      example_settings.ngram_thresholds(ngram, True),
      np.random.default_rng(seed),
    )
    assert sum(lengths) == len(positions) or continues
    seen.add(tuple(positions.tolist()))
  assert seen == choices


def test_every_piece_may_be_a_replacement():
  vocabulary = examples.Vocabulary(_WORD_STARTS, frozenset(range(5)))
  settings = example_settings.ExampleSettings(
    masking="compat", max_seq_length=64, max_predictions_per_seq=61
  )
  pair = sentence_pairs.Pair(np.full(30, 7), np.full(31, 8), 1)
  shown = set()
  for seed in range(600):
    instance = examples.create_instance(
      pair, vocabulary, settings, np.random.default_rng(seed)
    )
    shown |= set(instance.masked.tokens[instance.masked.positions].tolist())
  # 5,800 tokens, of which 1 in 970 becomes any one piece: 6 of each.
  assert set(range(5)) <= shown
  assert len(shown) > 90


def test_records_are_whole_and_differ_from_static_ones():
  rng = np.random.default_rng(3)
  documents = [
    _document(
      *[rng.integers(5, 97, size=rng.integers(1, 15)) for _ in range(n)]
    )
    for n in (1, 30, 7)
  ]
  vocabulary = examples.Vocabulary(_WORD_STARTS, frozenset(range(5)))
  made = {}
  for name in ("static", "compat"):
    settings = example_settings.ExampleSettings(
      masking=name, max_seq_length=37, max_predictions_per_seq=5
    )
    instances = []
    for index in range(3):
      instances += examples.create_instances(
        documents, index, vocabulary, settings, examples.generator(1, index, 0)
      )
    assert None not in instances
    # pad_instances checks that the labels put back give the text.
    made[name] = examples.pad_instances(instances, settings)
  # The document of one segment: cut in two, or with a random one.
  assert made["static"]["input_mask"][0].sum() < (
    made["compat"]["input_mask"][0].sum()
  )


def test_none_is_refused():
  with pytest.raises(
    ValueError, match="compat has only the kinds .*: sop, nsp"
  ):
    example_settings.ExampleSettings(masking="compat", sentence_pair="none")


def original_statistics():
  """What the original wrote: settings -> statistic -> number."""
  golden = json.loads((_SHARED / _GOLDEN).read_text())
  return {settings: flatten(value) for settings, value in golden.items()}


def flatten(statistics):
  """Shares by length become numbers of their own."""
  flat = {}
  for name, value in statistics.items():
    if name == "length_quantiles":
      continue  # Steps that jump from 512 to 421; the mean says enough.
    if isinstance(value, dict):
      flat.update({f"{name} {key}": share for key, share in value.items()})
    else:
      flat[name] = value
  return flat


def read_corpus():
  """The documents and the vocabulary of the golden statistics."""
  tokenizer = tokenization.SentencePieceTokenizer(str(_SHARED / _TOKENIZER))
  with gzip.open(_SHARED / _TEXT, "rt", encoding="utf-8") as file:
    texts = file.read().strip().split("\n\n")
  documents = [
    sentence_pairs.Document.from_segments(
      tokenizer.encode_batch([line for line in text.split("\n") if line])
    )
    for text in texts
  ]
  vocabulary = examples.Vocabulary(
    tokenizer.word_start_table, tokenizer.special_ids
  )
  return documents, vocabulary


def measure(documents, vocabulary, settings, dupe_factor, seed):
  """The statistics of one run, by the names of the golden ones."""
  instances = []
  for duplicate, index in itertools.product(
    range(dupe_factor), range(len(documents))
  ):
    rng = examples.generator(seed, index, duplicate)
    made = examples.create_instances(
      documents, index, vocabulary, settings, rng
    )
    instances += [instance for instance in made if instance]
  length = np.array([len(i.original) for i in instances])
  predictions = np.array([len(i.masked.positions) for i in instances])
  original = np.concatenate([i.masked.labels for i in instances])
  shown = np.concatenate(
    [i.masked.tokens[i.masked.positions] for i in instances]
  )
  runs, words = np.zeros((2, 40), np.int64)
  for instance in instances:
    chosen = np.zeros(len(instance.original) + 1, np.int8)
    chosen[instance.masked.positions] = 1
    change = np.diff(chosen)
    first, end = 1 + np.flatnonzero(change > 0), 1 + np.flatnonzero(change < 0)
    before = np.concatenate([[0], np.cumsum(instance.boundary)])
    runs += np.bincount(end - first, minlength=40)
    words += np.bincount(before[end] - before[first], minlength=40)
  statistics = {
    "instances": len(instances),
    "label_1_share": np.mean([i.label for i in instances]),
    "mean_length": length.mean(),
    "padding_share": 1 - length.mean() / settings.max_seq_length,
    "masked_share_of_tokens": predictions.sum() / length.sum(),
    "mean_predictions": predictions.mean(),
    "mask_token_share": np.mean(shown == vocabulary.mask_id),
    "kept_share": np.mean(shown == original),
    "segment_a_share": (
      sum(i.first_separator + 1 for i in instances) / length.sum()
    ),
  }
  for name, counts in (
    ("masked_run_length_share", runs),
    ("words_per_masked_run_share", words),
  ):
    for size, count in enumerate(counts.tolist()):
      statistics[f"{name} {size}"] = count / counts.sum()
  return statistics


@pytest.mark.skipif(
  not (_SHARED / _GOLDEN).exists(), reason="no golden statistics here"
)
@pytest.mark.parametrize(
  ("length", "predictions", "dupe_factor", "seeds"),
  [
    (512, 76, 1, 12),
    pytest.param(128, 20, 2, 12, marks=pytest.mark.heavy),
  ],
)
def test_statistics_are_the_originals(length, predictions, dupe_factor, seeds):
  """Within 3 standard errors of the difference of one run and a mean.

  The golden numbers are one run's, so they err by a run's whole deviation s
  (taken from our own runs), the mean of n runs by s / sqrt(n). Shares were
  rounded to four digits.
  """
  golden = original_statistics()[
    f"max_seq_length {length}, max_predictions_per_seq {predictions}, "
    f"dupe_factor {dupe_factor}"
  ]
  settings = example_settings.ExampleSettings(
    masking="compat",
    max_seq_length=length,
    max_predictions_per_seq=predictions,
  )
  documents, vocabulary = read_corpus()
  runs = [
    measure(documents, vocabulary, settings, dupe_factor, seed)
    for seed in range(seeds)
  ]
  far = {}
  for name, expected in golden.items():
    values = np.array([run[name] for run in runs])
    error = values.std(ddof=1) * np.sqrt(1 + 1 / seeds)
    if " " in name:
      error = np.hypot(error, 1e-4 / np.sqrt(12))
    distance = (values.mean() - expected) / error
    if abs(distance) > 3:
      far[name] = (expected, values.mean(), distance)
  assert not far


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
