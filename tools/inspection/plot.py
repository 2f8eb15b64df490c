"""Draws layer similarities and training curves as PNG."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from official_albert import run_logs
from official_albert.tools.cli import printing

pyplot = printing.load_pyplot()

# The layers of one run: `layer`, `l2_distance` and `degrees` of each.
Layers = Sequence[Mapping[str, float]]


def similarity_figure(series: Mapping[str, Sequence[Layers]]):
  """Draws L2 distance and angle of each layer for runs by their name."""
  figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.8))
  panels = (("l2_distance", "L2 distance"), ("degrees", "angle (degrees)"))
  for axis, (field, title) in zip(axes, panels):
    for i, (name, runs) in enumerate(series.items()):
      for number, run in enumerate(runs):
        [line] = axis.plot(
          [layer["layer"] for layer in run],
          [layer[field] for layer in run],
          "o-",
          markersize=3,
          linewidth=1.2,
          color=f"C{i}",
        )
        if number == 0:  # One entry per name.
          # Matplotlib hides labels that start with an underscore.
          line.set_label(f"\u200b{name}" if name[0] == "_" else name)
    axis.set_title(f"{title} of a layer's input and output", fontsize=11)
    axis.set_xlabel("layer")
    axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
    for text in axis.legend(fontsize=9).get_texts():
      text.set_parse_math(False)
  return figure


def plot_similarity(series: Mapping[str, Layers], output_file: str) -> None:
  """Writes a PNG of `similarity_figure` with one run per model."""
  figure = similarity_figure({name: [run] for name, run in series.items()})
  figure.tight_layout()
  printing.save_figure(figure, output_file)


_CURVES = (
  ("masked_lm_loss", "masked LM loss (nats)"),
  ("masked_lm_accuracy", "masked LM accuracy"),
  ("sentence_order_accuracy", "sentence-order accuracy"),
)


def plot_curves(
  model_dir: str, output_file: str, unigram_entropy: float = 0
) -> None:
  """Draws training and held-out losses and accuracies of a run.

  0 for `unigram_entropy`, in nats, draws no line.
  """
  train = run_logs.read_metrics(model_dir, "train")
  held_out = run_logs.read_metrics(model_dir, "eval")
  if not train or not held_out:
    raise ValueError(
      f"{model_dir} has no training and held-out numbers to draw yet."
    )
  figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.8))
  for axis, (name, title) in zip(axes, _CURVES):
    for records, label, style in (
      (train, "training", "-"),
      (held_out, "held-out", "o-"),
    ):
      points = [(r["step"], r[name]) for r in records if name in r]
      axis.plot(
        *np.reshape(points, [-1, 2]).T,
        style,
        markersize=3,
        linewidth=1,
        label=label,
      )
    axis.set_title(title)
    axis.set_xlabel("step")
    axis.grid(alpha=0.3)
  if unigram_entropy:
    axes[0].axhline(
      unigram_entropy, color="gray", linestyle="--", label="unigram entropy"
    )
  axes[2].axhline(0.5, color="gray", linestyle="--", label="chance")
  for axis in axes:
    axis.legend()
  figure.tight_layout()
  printing.save_figure(figure, output_file)
