"""Draws layer similarities and training curves as PNG."""

from __future__ import annotations

from typing import Mapping

import numpy as np

from official_albert import run_logs
from official_albert.tools.cli import printing

_CURVES = (
  ("masked_lm_loss", "masked LM loss (nats)"),
  ("masked_lm_accuracy", "masked LM accuracy"),
  ("sentence_order_accuracy", "sentence-order accuracy"),
)


def plot_similarity(series: Mapping[str, np.ndarray], output_file: str) -> None:
  """Draws the L2 distance and the angle of each layer for models by name."""
  with printing.figure(output_file, 10, 3.8) as figure:
    axes = figure.subplots(1, 2)
    for column, title in enumerate(("L2 distance", "angle (degrees)")):
      axis = axes[column]
      for name, layers in series.items():
        numbers = range(1, len(layers) + 1)
        axis.plot(numbers, layers[:, column], "o-", label=name)
      axis.set_title(f"{title} of a layer's input and output", fontsize=11)
      axis.set_xlabel("layer")
      axis.set_ylim(bottom=0)
      axis.xaxis.get_major_locator().set_params(integer=True)
      for text in axis.legend(fontsize=9).get_texts():
        text.set_parse_math(False)


def plot_curves(
  model_dir: str, output_file: str, unigram_entropy: float = 0
) -> None:
  """Draws training and held-out losses and accuracies of a run.

  0 for `unigram_entropy`, in nats, draws no line.
  """
  logs = {
    "training": (run_logs.read_metrics(model_dir, "train"), "-"),
    "held-out": (run_logs.read_metrics(model_dir, "eval"), "o-"),
  }
  with printing.figure(output_file, 13, 3.8) as figure:
    axes = figure.subplots(1, 3)
    if unigram_entropy:
      axes[0].axhline(unigram_entropy, color="gray", label="unigram entropy")
    axes[2].axhline(0.5, color="gray", label="chance")
    for axis, (name, title) in zip(axes, _CURVES):
      for label, (records, style) in logs.items():
        points = [(r["step"], r[name]) for r in records if name in r]
        x, y = np.reshape(points, [-1, 2]).T
        axis.plot(x, y, style, markersize=3, linewidth=1, label=label)
      axis.set_title(title)
      axis.set_xlabel("step")
      axis.legend()
