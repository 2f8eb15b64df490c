"""What tools.benchmarks.survival_trial finds out when it compares two runs."""

from __future__ import annotations

import glob
import os
from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from official_albert import training
from tools.cli import figures
from tools.cli.figures import pyplot

# What the clock has a part in.
_NOT_COMPARED = (
  "unix_time_seconds",
  "sequences_per_second",
  "tokens_per_second",
  "model_flops_per_second",
  "data_wait_share",
)
_PANELS = (
  ("train", "masked_lm_loss", "masked LM loss, training (nats)"),
  ("eval", "masked_lm_loss", "masked LM loss, held-out (nats)"),
  ("eval", "sentence_order_accuracy", "sentence-order accuracy, held-out"),
)


def last_step(model_dir: str) -> int:
  """The last step that the run has logged; 0 before the first."""
  if not os.path.exists(os.path.join(model_dir, training.METRICS_FILE)):
    return 0
  records = training.read_metrics(model_dir, "train")
  return records[-1]["step"] if records else 0


def newest_data_file(model_dir: str) -> str:
  """The file with the newest checkpoint's values."""
  path = tf.train.latest_checkpoint(model_dir)
  return glob.glob(f"{path}.data-*")[0]


def last_common_step(quiet_dir: str, harmed_dir: str) -> int:
  """The newest step of which both have a checkpoint; 0 if there is none."""
  steps = [
    {training.step_of(path) for path in training.list_checkpoints(folder)}
    for folder in (quiet_dir, harmed_dir)
  ]
  return max(steps[0] & steps[1], default=0)


def compare(quiet_dir: str, harmed_dir: str) -> dict[str, Any]:
  """Number by number and weight by weight, to the last common checkpoint.

  A run that was stopped between two log lines has a record more, and the next
  one is a mean over fewer steps: that one is left out.

  Returns:
    `last_step` of the comparison; `train` and `eval`: how many records both
    runs have, and how many of them differ in a number; `variables` of the
    checkpoint, and how many of them differ in a bit; `is_the_same`, whether
    nothing differs and the harmed run lacks no record or variable.

  Raises:
    ValueError: there is no checkpoint that both have.
  """
  last = last_common_step(quiet_dir, harmed_dir)
  if not last:
    raise ValueError(
      f"{quiet_dir} and {harmed_dir} have no checkpoint of the same step: keep "
      "more of them (--keep_checkpoint_max)."
    )
  result: dict[str, Any] = {"last_step": last}
  same = True
  for kind in ("train", "eval"):
    quiet, harmed = (
      {
        record["step"]: {
          name: x for name, x in record.items() if name not in _NOT_COMPARED
        }
        for record in training.read_metrics(folder, kind)
        if record["step"] <= last
      }
      for folder in (quiet_dir, harmed_dir)
    )
    both = set(quiet) & set(harmed)
    if kind == "train":
      both -= _cut_short(sorted(harmed), set(quiet))
    differ = [step for step in both if quiet[step] != harmed[step]]
    result[kind] = {"records": len(both), "differ": len(differ)}
    same = same and both and not differ and set(quiet) <= set(harmed)
  readers = [
    tf.train.load_checkpoint(os.path.join(folder, f"model.ckpt-{last}"))
    for folder in (quiet_dir, harmed_dir)
  ]
  names = [set(r.get_variable_to_shape_map()) for r in readers]
  # The save counter counts saves, of which the harmed run made more.
  shared = sorted(n for n in names[0] & names[1] if "save_counter" not in n)
  differ = [
    name
    for name in shared
    if not np.array_equal(*(reader.get_tensor(name) for reader in readers))
  ]
  result["variables"] = {"records": len(shared), "differ": len(differ)}
  result["is_the_same"] = bool(same and not differ and names[0] == names[1])
  return result


def _cut_short(steps: Sequence[int], usual: set[int]) -> set[int]:
  """Those of `steps` that come directly after one that is not usual."""
  return {b for a, b in zip(steps, steps[1:]) if a not in usual}


def sentence(result: dict[str, Any]) -> str:
  """The result of `compare` for people."""
  parts = [
    f"{result[name]['differ']:,} of {result[name]['records']:,} {what} differ"
    for name, what in (
      ("train", "training records"),
      ("eval", "held-out records"),
      ("variables", "variables of the checkpoint"),
    )
  ]
  return f"to step {result['last_step']:,}: " + ", ".join(parts)


def draw(
  quiet_dir: str,
  harmed_dir: str,
  accidents: Sequence[tuple[int, str]],
  output_file: str,
) -> None:
  """Both curves over each other, with the accidents as vertical lines.

  Args:
    quiet_dir: the undisturbed run.
    harmed_dir: the other one.
    accidents: (step, name) of each.
    output_file: the PNG.
  """
  figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
  for axis, (kind, name, title) in zip(axes, _PANELS):
    for folder, label, style, width in (
      (quiet_dir, "undisturbed", "-", 4),
      (harmed_dir, "with accidents", "--", 1.2),
    ):
      records = [r for r in training.read_metrics(folder, kind) if name in r]
      axis.plot(
        [r["step"] for r in records],
        [r[name] for r in records],
        style,
        linewidth=width,
        alpha=0.4 if width > 2 else 1,
        color="tab:blue" if width > 2 else "black",
        label=label,
      )
    for step, accident in accidents:
      axis.axvline(step, color="tab:red", linewidth=0.7)
      if axis is axes[0]:
        axis.text(
          step, axis.get_ylim()[1], accident, rotation=90, va="top", fontsize=6
        )
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("step")
    axis.grid(alpha=0.3)
  axes[1].legend()
  figure.tight_layout()
  figures.save(figure, output_file)
