"""Tests of the layout, the masks and the statistics of examples."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import pathlib

import numpy as np
import pytest

from official_albert import tokenization
from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining.data import (
  data_statistics,
  examples,
  sentence_pairs,
)

_SHARED = pathlib.Path(__file__).resolve().parents[4] / "shared"
_GOLDEN = _SHARED / "golden" / "original_data_statistics.json"


def _document(segments):
  lengths = [len(segment) for segment in segments if len(segment)]
  ids = np.concatenate(segments).astype(np.int32)
  return sentence_pairs.Document(ids, np.cumsum([0, *lengths]))


@pytest.fixture(scope="module")
def documents():
  rng = np.random.default_rng(0)
  return [
    _document([rng.integers(5, 97, size=rng.integers(1, 15)) for _ in range(n)])
    for n in (1, 30, 7, 60, 2)
  ]


def _settings(**changes):
  defaults = {"max_seq_length": 37, "max_predictions_per_seq": 7}
  return data.ExampleSettings(**{**defaults, **changes})


def _instances(documents, tokenizer, settings, *seeds, indices=range(5)):
  made = []
  for index in indices:
    rng = np.random.default_rng([index, *seeds])
    made += [
      examples.create_instance(pair, tokenizer, settings, rng)
      for pair in sentence_pairs.create_pairs(
        documents, index, tokenizer.word_start_table, settings, rng
      )
    ]
  return made


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"sentence_pair": "nsp"},
    {"sentence_pair": "none", "favor_shorter_ngram": False},
    {"do_whole_word_mask": False, "short_seq_prob": 1.0},
    {"masked_lm_prob": 0.9, "max_predictions_per_seq": 37, "ngram": 5},
    {"max_seq_length": 5, "max_predictions_per_seq": 1},
    {"masking": "compat"},
  ],
)
def test_every_example_is_valid(
  documents, toy_tokenizer, split_examples, changes, seed
):
  settings = _settings(**changes)
  instances = _instances(documents, toy_tokenizer, settings, seed)
  features = examples.pad_instances(instances, settings)
  texts = [" ".join(map(str, [0, *d.ids.tolist(), 0])) for d in documents]
  found = split_examples(features, settings)
  for (a, b, positions), instance in zip(found, instances, strict=True):
    assert len(a) + 1 == instance.first_separator
    assert positions == instance.positions.tolist()
    for part in (a, b):
      assert any(f" {' '.join(map(str, part))} " in text for text in texts)
  labels = features["next_sentence_labels"][:, 0].tolist()
  assert labels == [instance.label for instance in instances]
  assert (1 in labels) == (settings.sentence_pair != "none")


def test_settings_out_of_range():
  with pytest.raises(ValueError, match="max_seq_length is 4, but must be from"):
    data.ExampleSettings(max_seq_length=4)
  with pytest.raises(ValueError, match="compat has only"):
    data.ExampleSettings(masking="compat", sentence_pair="none")


def test_defaults_are_those_of_the_original():
  count = data.num_to_predict
  assert (count(10, 0.25), count(14, 0.25)) == (2, 4)  # 2.5 and 3.5, to even.
  assert (count(5, 0.01), count(512)) == (1, 77)
  limited = data.ExampleSettings(max_predictions_per_seq=76)
  assert [limited.num_to_predict(x) for x in (100, 512)] == [15, 76]
  found = dataclasses.astuple(data.ExampleSettings())
  # But for the number of predictions, which is 20 there.
  assert found == (512, 77, 0.15, 3, True, True, 0.1, "static", "sop")


def _assert_frequencies(counts, probabilities):
  """Each count within 4 standard errors: a chance of 6e-5 to fail."""
  total = sum(counts)
  for count, probability in zip(counts, probabilities, strict=True):
    error = np.sqrt(probability * (1 - probability) / total)
    assert abs(count / total - probability) <= 4 * error


@pytest.mark.parametrize("masking", ["static", "compat"])
def test_80_10_10(toy_tokenizer, masking):
  """Only compat also replaces by special pieces."""
  pair = sentence_pairs.Pair(np.full(30000, 7), np.full(30001, 7), 1)
  settings = data.ExampleSettings(masking=masking, max_seq_length=1 << 16)
  made = examples.create_instance(
    pair, toy_tokenizer, settings, np.random.default_rng(0)
  )
  (untouched,) = {*np.delete(made.shown, made.positions).tolist()} - {2, 3}
  at = made.shown[made.positions]
  special = {0, 1, 2, 3} if masking == "compat" else set()
  # 9,000 tokens, of which 1 in 920 to 970 becomes any one piece.
  assert {*at.tolist()} == {4, *special, *range(5, 97)} and untouched == 7
  masked, kept = at == 4, at == 7
  counts = [masked.sum(), kept.sum(), (~masked & ~kept).sum()]
  _assert_frequencies(counts, [0.8, 0.1, 0.1])
  # The draws are independent: both neighbors are masked with 0.8^2.
  both = (masked[:-1:2] & masked[1::2]).sum()
  _assert_frequencies([both, len(at) // 2 - both], [0.64, 0.36])


def test_dynamic_masking_leaves_masks_and_swaps_to_the_training(
  documents, toy_tokenizer
):
  for kind, labels in (("sop", {0}), ("nsp", {0, 1})):
    settings = _settings(masking="dynamic", sentence_pair=kind)
    made = _instances(documents, toy_tokenizer, settings)
    assert {x.label for x in made} == labels
    assert not any(x.positions.size or (x.shown == 4).any() for x in made)


def _measure(documents, tokenizer, settings, dupe_factor, seed):
  """Returns the statistics of one run, by the names of the golden ones."""
  instances, indices = [], range(len(documents))
  for duplicate in range(dupe_factor):
    seeds = seed, duplicate
    instances += _instances(
      documents, tokenizer, settings, *seeds, indices=indices
    )
  features = examples.pad_instances(instances, settings)
  statistics = data_statistics.summarize_examples(
    data_statistics.count_examples(features, tokenizer.mask_id)
  )
  chosen = np.zeros((len(instances), settings.max_seq_length + 2), np.int8)
  row, column = np.nonzero(features["masked_lm_weights"])
  chosen[row, 1 + features["masked_lm_positions"][row, column]] = 1
  change = np.diff(chosen)
  row, first = np.nonzero(change > 0)
  _, end = np.nonzero(change < 0)
  before = np.pad(features["token_boundary"], ((0, 0), (1, 0))).cumsum(1)
  for name, sizes in (
    ("masked_run_length_share", end - first),
    ("words_per_masked_run_share", before[row, end] - before[row, first]),
  ):
    shares = np.bincount(sizes, minlength=40) / len(sizes)
    statistics |= {f"{name} {size}": x for size, x in enumerate(shares)}
  return statistics


@pytest.mark.golden
@pytest.mark.skipif(not _GOLDEN.exists(), reason="no golden statistics here")
@pytest.mark.parametrize(
  ("length", "predictions", "dupe_factor", "seeds"),
  [(512, 76, 1, 12), pytest.param(128, 20, 2, 12, marks=pytest.mark.heavy)],
)
def test_statistics_equal_those_of_the_original(
  length, predictions, dupe_factor, seeds
):
  """Within 3 standard errors of the difference of one run and a mean.

  The golden numbers are one run's, so they err by a run's whole deviation s
  (taken from our own runs), the mean of n runs by s / sqrt(n). Shares were
  rounded to four digits.
  """
  golden = json.loads(_GOLDEN.read_text())[
    f"max_seq_length {length}, max_predictions_per_seq {predictions}, "
    f"dupe_factor {dupe_factor}"
  ]
  # Steps that jump from 512 to 421; the mean is enough.
  del golden["length_quantiles"]
  for name in ("masked_run_length_share", "words_per_masked_run_share"):
    for size, share in golden.pop(name).items():
      golden[f"{name} {size}"] = share
  settings = _settings(
    masking="compat", max_seq_length=length, max_predictions_per_seq=predictions
  )
  data = _SHARED / "data"
  tokenizer = tokenization.SentencePieceTokenizer(
    str(data / "tokenizer" / "30k-clean.model")
  )
  text = data / "corpus" / "wikipedia_sentences_4mb.txt.gz"
  content = gzip.decompress(text.read_bytes()).decode()
  documents = [
    _document(tokenizer.encode_batch(document.split("\n")))
    for document in content.strip().split("\n\n")
  ]
  runs = [
    _measure(documents, tokenizer, settings, dupe_factor, seed)
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


def test_statistics_of_examples_counted_by_hand():
  # Two examples, S = 7, P = 3; [MASK] 4.
  features = {
    "input_ids": np.array([[2, 4, 3, 9, 4, 3, 0], [2, 8, 3, 4, 3, 0, 0]]),
    "input_mask": np.array([[1] * 6 + [0], [1] * 5 + [0] * 2]),
    "segment_ids": np.array(
      [[0] * 3 + [1] * 3 + [0], [0] * 3 + [1] * 2 + [0] * 2]
    ),
    "masked_lm_positions": np.array([[1, 3, 4], [1, 3, 0]]),
    # Row 0: masked, random, masked. Row 1: kept, masked.
    "masked_lm_ids": np.array([[7, 8, 9], [8, 5, 0]]),
    "masked_lm_weights": np.float32([[1, 1, 1], [1, 1, 0]]),
    "next_sentence_labels": np.array([[1], [0]]),
  }
  counts = data_statistics.count_examples(features, 4)
  assert data_statistics.summarize_examples(counts) == {
    "instances": 2,
    "tokens": 11,
    "mean_length": 5.5,
    "padding_share": 3 / 14,
    "segment_a_share": 6 / 11,
    "label_1_share": 0.5,
    # Row 0, the only one whose A and B differ: A is shorter, but swapped.
    "length_only_accuracy": 0.0,
    "predictions": 5,
    "mean_predictions": 2.5,
    "masked_share_of_tokens": 5 / 11,
    "mask_token_share": 3 / 5,
    "kept_share": 1 / 5,
    "random_share": 1 / 5,
  }
  # The text: 9 tokens, used twice, of which 5 are in the examples.
  counts |= {"documents": 2, "segments": 5, "used_tokens": 18}
  counts["duplicate_documents"] = 1
  pieces = np.array([0, 1, 0, 0, 0, 4, 2, 2, 0])
  assert data_statistics.summarize_text(counts, pieces, range(5), 1) == {
    "documents": 2,
    "segments": 5,
    "text_tokens": 9,
    "unknown_share": 1 / 9,
    # Of 8 pieces: 1/2, 1/4, 1/4.
    "unigram_entropy_nats": pytest.approx(1.5 * np.log(2), rel=1e-12),
    "duplicate_documents": 1,
    "truncated_share": 13 / 18,
  }


def _starts(*segments):
  """[CLS], segments given as the sizes of their units, [SEP] after each."""
  starts = [True]
  for sizes in segments:
    for size in sizes:
      starts += [True] + [False] * (size - 1)
    starts.append(True)
  return np.array(starts), 1 + sum(segments[0])


@pytest.mark.parametrize(
  ("favor_shorter", "expected"), [(True, [6, 3, 2]), (False, [2, 3, 6])]
)
def test_ngram_lengths_have_their_probabilities(
  favor_shorter, expected, monkeypatch
):
  thresholds = _settings(favor_shorter_ngram=favor_shorter).ngram_thresholds
  shares = np.diff(thresholds, prepend=0, append=1)
  np.testing.assert_allclose(shares, np.array(expected) / 11)
  # The lengths as they are drawn; two units of A are too near to its end.
  monkeypatch.setattr(
    examples, "_take_ngrams", lambda edges, units, ends, budget: ends - units
  )
  starts, separator = _starts([1] * 9000, [1])
  rng = np.random.default_rng(1)
  lengths = examples.choose_ngrams(starts, separator, 3, thresholds, rng)
  _assert_frequencies(np.bincount(lengths)[1:], shares)


@pytest.mark.parametrize(
  ("segments", "budget", "num_tokens"),
  [
    # One word in A and one in B: the n-gram stops at [SEP].
    (([2], [3]), 99, 5),
    # Two words of two fit into 5; the odd one is never spent on half a word.
    (([2, 2, 2], [2, 2, 2]), 5, 4),
    (([4], [2, 4]), 3, 2),  # Too long words are skipped.
  ],
)
def test_long_ngrams_are_shortened(segments, budget, num_tokens):
  starts, separator = _starts(*segments)
  always_3, rng = np.array([0.0, 0.0]), np.random.default_rng(1)
  for _ in range(9):
    positions = examples.choose_ngrams(starts, separator, budget, always_3, rng)
    assert len(positions) == num_tokens
    assert not {0, separator, len(starts) - 1} & {*positions.tolist()}


# [CLS] 0, A 1 2, [SEP] 3, B 4 5, [SEP] 6.
@pytest.mark.parametrize(
  ("continues", "ngram", "choices"),
  [
    # Words 1 | 2 | 4 | 5, two in a row: also 2 with 4.
    ((), 2, {(1, 2), (2, 4), (4, 5), (1, 4), (1, 5), (2, 5)}),
    # B begins within a word, which is joined to A's last word.
    ((4,), 1, {(2, 4), (1, 5)}),
    # A begins within a word: a unit of its own, as there is none before it.
    ((1,), 1, set(itertools.combinations((1, 2, 4, 5), 2))),
  ],
)
def test_words_and_ngrams_of_compat_span_the_separator(
  continues, ngram, choices
):
  starts = np.ones(7, bool)
  starts[list(continues)] = False
  seen, rng = set(), np.random.default_rng(0)
  thresholds = _settings(ngram=ngram).ngram_thresholds
  for _ in range(200):
    positions = examples.choose_ngrams(starts, 3, 2, thresholds, rng, True)
    seen.add(tuple(positions.tolist()))
  assert seen == choices
