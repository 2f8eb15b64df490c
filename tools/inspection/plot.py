"""Draws layer similarities, attention maps and training curves as PNG."""

from __future__ import annotations

import math
import warnings
from typing import Mapping, Sequence

import numpy as np

from official_albert import training
from official_albert.tools.cli import printing

pyplot = printing.load_pyplot()

# Inches: of a cell with a label, around the maps, and of the largest figure.
_CELL, _MARGIN, _MOST_INCHES = 0.095, 2.0, 100.0
_LABEL_POINTS = 6


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


def attention_figure(
  maps: Sequence[np.ndarray], pieces: Sequence[str], title: str
):
  """Draws a row of attention maps <float32>[N, S, S] per layer.

  In a map, rows attend to columns; darker is more. `pieces` are the S labels.
  """
  layers, heads, length = len(maps), len(maps[0]), len(pieces)
  pitch = length + 1
  cell = min(_CELL, _MOST_INCHES / max(layers, heads) / pitch)
  size = [count * pitch * cell + _MARGIN for count in (heads, layers)]
  # One image with a line of NaN after each map, because a thousand axes would
  # take minutes.
  figure, axis = pyplot.subplots(figsize=size)
  most = float(np.max(maps))
  bordered = np.pad(
    np.stack(maps), [(0, 0)] * 2 + [(0, 1)] * 2, constant_values=np.nan
  )  # [L, N, S + 1, S + 1]
  image = bordered.swapaxes(1, 2).reshape(layers * pitch, heads * pitch)
  axis.imshow(
    image[:-1, :-1], cmap="Blues", vmin=0, vmax=most, interpolation="nearest"
  )
  # Skips labels evenly if there is no room.
  shown = range(0, length, max(1, math.ceil(_CELL / cell - 1e-6)))
  for set_ticks, count in ((axis.set_xticks, heads), (axis.set_yticks, layers)):
    places = [n * pitch + place for n in range(count) for place in shown]
    set_ticks(places, [pieces[place] for place in shown] * count)
  axis.tick_params(length=0, pad=2, labelsize=_LABEL_POINTS)
  axis.tick_params(axis="x", rotation=90)
  for text in (*axis.get_xticklabels(), *axis.get_yticklabels()):
    text.set_parse_math(False)  # A piece may be a dollar sign.
  middle = (length - 1) / 2
  for head in range(heads):
    _name(axis, f"head {head + 1}", head * pitch + middle, -1.5)
  for layer in range(layers):
    _name(
      axis,
      f"layer {layer + 1}",
      heads * pitch + 0.5,
      layer * pitch + middle,
      rotation=90,
    )
  axis.spines[:].set_visible(False)
  title = f"{title}: attention, from 0 (white) to {most:.2f} (darkest)"
  axis.set_title(title, fontsize=10, pad=20, parse_math=False)
  return figure


def _name(axis, text: str, x: float, y: float, **options) -> None:
  axis.text(x, y, text, fontsize=7, ha="center", va="center", **options)


def plot_attention(
  maps: Sequence[np.ndarray], pieces: Sequence[str], title: str, file: str
) -> None:
  """Writes a PNG of `attention_figure`."""
  with warnings.catch_warnings():
    # Matplotlib's own font has no Chinese characters and draws boxes.
    warnings.filterwarnings("ignore", message="Glyph .* missing")
    figure = attention_figure(maps, pieces, title)
    printing.save_figure(figure, file, bbox_inches="tight")


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
  train = training.read_metrics(model_dir, "train")
  held_out = training.read_metrics(model_dir, "eval")
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
