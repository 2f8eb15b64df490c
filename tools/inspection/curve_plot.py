"""Draws a run's curves, training and held-out, as a PNG.

Three panels: masked LM loss, masked LM accuracy, sentence-order accuracy.
"""

from __future__ import annotations

from official_albert import training
from tools.cli import figures
from tools.cli.figures import pyplot

_PANELS = (
  ("masked_lm_loss", "masked LM loss (nats)"),
  ("masked_lm_accuracy", "masked LM accuracy"),
  ("sentence_order_accuracy", "sentence-order accuracy"),
)


def plot(model_dir: str, output_file: str, unigram_entropy: float = 0) -> None:
  """Writes the PNG.

  Args:
    model_dir: the run's folder.
    output_file: the PNG, which appears complete or not at all.
    unigram_entropy: nats; 0 draws no line.

  Raises:
    ValueError: the run has not logged anything yet.
  """
  train = training.read_metrics(model_dir, "train")
  held_out = training.read_metrics(model_dir, "eval")
  if not train or not held_out:
    raise ValueError(
      f"{model_dir} has no training and held-out numbers to draw yet."
    )
  figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.8))
  for axis, (name, title) in zip(axes, _PANELS):
    for records, label, style in (
      (train, "training", "-"),
      (held_out, "held-out", "o-"),
    ):
      there = [r for r in records if name in r]
      axis.plot(
        [r["step"] for r in there],
        [r[name] for r in there],
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
  figures.save(figure, output_file)
