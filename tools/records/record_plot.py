"""Draws the counts of a survey of records as a PNG with four panels."""

from __future__ import annotations

from typing import Mapping

import numpy as np

from tools.cli import figures
from tools.cli.figures import pyplot
from tools.records import record_survey

_BARS = 64  # Largest number of bins of lengths and positions.
_MOST_WORDS = 10


def plot(
  surveys: Mapping[str, record_survey.Survey],
  output_file: str,
  ngram_shares: Mapping[str, Mapping[str, float]],
) -> None:
  """Writes the PNG.

  Args:
    surveys: by the name of the split.
    output_file: the PNG.
    ngram_shares: by split, the share of n-grams of each length in words, if the
      manifest has it. Records show only runs, where adjacent n-grams are
      joined.
  """
  figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.2))
  lengths, positions, words, labels = axes.ravel()
  width = 0.8 / len(surveys)
  for index, (name, survey) in enumerate(surveys.items()):
    color = f"C{index}"
    shift = (index - (len(surveys) - 1) / 2) * width
    for axis, counts in (
      (lengths, survey.lengths),
      (positions, survey.positions),
    ):
      bin_width = -(-len(counts) // _BARS)
      padded = np.pad(counts, (0, -len(counts) % bin_width))
      shares = _shares(padded.reshape(-1, bin_width).sum(axis=1))
      edges = np.arange(len(shares) + 1) * bin_width
      axis.stairs(shares, edges, fill=True, alpha=0.5, color=color, label=name)
    mean = _shares(survey.lengths) @ np.arange(len(survey.lengths))
    lengths.axvline(mean, color=color, linestyle="--", linewidth=1)
    runs = _shares(survey.run_words)[1 : _MOST_WORDS + 1]
    places = np.arange(1, len(runs) + 1) + shift
    words.bar(places, runs, width, color=color, label=f"{name}: runs")
    shares = ngram_shares.get(name)
    if shares:
      words.plot(
        [int(n) for n in shares],
        list(shares.values()),
        "o--",
        color="gray" if index else "black",
        markersize=4,
        linewidth=1,
        label=f"{name}: n-grams drawn",
      )
    swapped = survey.counts.label_1
    counts = np.array([survey.counts.instances - swapped, swapped])
    bars = labels.bar(np.arange(2) + shift, _shares(counts), width, color=color)
    labels.bar_label(bars, [f"{count:,}" for count in counts], fontsize=8)
  for axis, title, label in (
    (lengths, "sequence length (dashed: mean)", "tokens"),
    (positions, "masked positions", "position"),
    (words, "masked n-grams", "words"),
    (labels, "order label", ""),
  ):
    axis.set_title(title)
    axis.set_xlabel(label)
    axis.set_ylabel("share")
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
  words.set_xticks(range(1, _MOST_WORDS + 1))
  labels.set_xticks([0, 1], ["0: in order", "1: swapped or random"])
  labels.axhline(0.5, color="gray", linestyle="--", linewidth=1)
  labels.set_ylim(0, 1)
  if not any(survey.positions.any() for survey in surveys.values()):
    for axis in (positions, words):
      axis.text(0.5, 0.5, "not masked", transform=axis.transAxes, ha="center")
  lengths.legend()
  words.legend()
  figure.tight_layout()
  figures.save(figure, output_file)


def _shares(counts: np.ndarray) -> np.ndarray:
  return counts / max(1, counts.sum())
