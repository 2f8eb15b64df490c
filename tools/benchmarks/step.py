"""Speed, memory and efficiency of the training step.

`run` measures one step of pretraining. `run_scaling` measures how speed, memory
and tracing depend on batch, length and model. `run_memory` compares ways to
save memory. `run_finetuning` measures fine-tuning in examples/s. Batches are
random, without padding, and use all predictions. Each measurement but that of
fine-tuning has its own process, because a process never returns all of its
memory.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from typing import Callable, NamedTuple, Optional, Sequence

from official_albert import distribution, files, modeling, tokenization
from official_albert.tasks import common
from official_albert.tools import finetuning
from official_albert.tools.benchmarks import comparison
from official_albert.tools.benchmarks.peers import ours, protocol
from official_albert.tools.cli import printing

# The batches that the reader sorts together.
_UPDATES = 32
_BUCKETING = {"length buckets": True, "padded to S": False}


def run(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  optimizer: str,
  repeats: int,
  steps: int,
  output_dir: str,
) -> None:
  """Measures one step, prints a table, and saves it if there is a folder."""
  workload = dataclasses.replace(
    comparison.workload_of(
      preset, batch_size, max_seq_length, precision, ours_alone=True
    ),
    optimizer=optimizer,
  )
  result = comparison.measure(workload, repeats, steps)
  title = (
    f"{preset}, S {max_seq_length}, B {batch_size}, {precision}, {optimizer}"
  )
  machine = distribution.describe_machine()
  flops = comparison.flops_per_token(workload) * result.median
  build_seconds = result.build_seconds - result.trace_seconds
  share = flops / result.product_flops
  rows = (
    ("tokens/s, median", f"{result.median:,.0f}"),
    ("tokens/s, lowest to highest", result.range),
    ("seconds a step", f"{workload.tokens / result.median:.3f}"),
    ("seconds to import and build", f"{build_seconds:.1f}"),
    ("seconds to trace the step", f"{result.trace_seconds:.1f}"),
    ("seconds of the first step", f"{result.first_step_seconds:.1f}"),
    ("peak memory", result.peak),
    ("GFLOP/s of the step", f"{flops / 1e9:,.0f}"),
    ("GFLOP/s of matrix products", f"{result.product_flops / 1e9:,.0f}"),
    ("share of the matrix products' rate", f"{share:.0%}"),
  )
  table = printing.table(("figure", "value"), rows)
  text = f"{title}: {machine}\n\n{table}\n"
  print(text, flush=True)
  if output_dir:
    name = title.replace(", ", "-").replace(" ", "").lower()
    path = os.path.join(output_dir, name)
    numbers = {
      "machine": machine,
      "workload": dataclasses.asdict(workload),
      **dataclasses.asdict(result),
    }
    files.write_json(f"{path}.json", numbers, indent=2)
    files.write_text(f"{path}.md", text)


_TOKENS = 2048  # Per step, unless the batch size varies.
_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (64, 128, 256, 512)
_DEPTHS = (1, 3, 6, 12, 24)
_WIDTHS = ("base", "large", "xlarge", "xxlarge")
# At this depth a step of the widest model takes seconds.
_WIDTHS_DEPTH = 2
_SCALING_HEAD = (
  *("axis", "at", "tokens/s", "lowest to highest", "GFLOP/s", "peak memory"),
  "seconds to trace",
)


class Point(NamedTuple):
  """The result of one model and batch, at a value of what varies."""

  axis: str
  value: int
  result: comparison.Result

  def to_json(self) -> dict:
    """Returns the numbers as a JSON object."""
    result = dataclasses.asdict(self.result)
    return {"axis": self.axis, "value": self.value, **result}


def scaling_workloads(
  precision: str,
) -> list[tuple[str, int, protocol.Workload]]:
  """Returns axis, value and workload of each point."""

  def workload(batch_size, length, preset="albert_base_v2", **changes):
    base = comparison.workload_of(preset, batch_size, length, precision)
    return dataclasses.replace(base, **changes)

  points = [("batch size, S 128", b, workload(b, 128)) for b in _BATCH_SIZES]
  axis = f"length, {_TOKENS:,} tokens a step"
  points += [(axis, s, workload(_TOKENS // s, s)) for s in _LENGTHS]
  batch = _TOKENS // 128
  for depth in _DEPTHS:
    deep = workload(batch, 128, num_hidden_layers=depth)
    points.append(("layers", depth, deep))
  for name in _WIDTHS:
    preset = f"albert_{name}_v2"
    wide = workload(batch, 128, preset, num_hidden_layers=_WIDTHS_DEPTH)
    points.append((f"width, {_WIDTHS_DEPTH} layers", wide.hidden_size, wide))
  return points


def run_scaling(
  precision: str, repeats: int, steps: int, output_dir: str
) -> None:
  """Measures every point, prints the table, and saves table and plot."""
  workloads = scaling_workloads(precision)
  print(printing.table_head(_SCALING_HEAD), flush=True)
  points, rows = [], []
  for axis, value, workload in workloads:
    result = comparison.measure(workload, repeats, steps)
    flops = comparison.flops_per_token(workload) * result.median
    row = (
      *(axis, f"{value:,}", f"{result.median:,.0f}", result.range),
      *(f"{flops / 1e9:,.0f}", result.peak, f"{result.trace_seconds:.1f}"),
    )
    points.append(Point(axis, value, result))
    rows.append(row)
    print(printing.table_row(row), flush=True)
  if output_dir:
    title = f"albert_base, {precision}: {distribution.describe_machine()}"
    path = os.path.join(output_dir, "scaling")
    numbers = {"title": title, "points": [p.to_json() for p in points]}
    files.write_json(f"{path}.json", numbers, indent=2)
    text = f"{title}\n\n{printing.table(_SCALING_HEAD, rows)}\n"
    files.write_text(f"{path}.md", text)
    picture = os.path.join(output_dir, "benchmark_scaling.png")
    draw_scaling(points, title, picture)


def draw_scaling(
  points: Sequence[Point], title: str, output_file: str, trace: bool = True
) -> None:
  """Writes a PNG with panels of speed, memory and tracing for each axis."""
  pyplot = printing.load_pyplot()

  axes_names = list(dict.fromkeys(point.axis for point in points))
  labels = ["tokens/s", "peak memory, GiB"] + ["seconds to trace"] * trace
  size = len(labels), len(axes_names)
  figure, axes = pyplot.subplots(
    *size, figsize=(3.2 * size[1], 2.3 * size[0]), squeeze=False
  )
  for column, name in zip(axes.T, axes_names):
    shown = [point for point in points if point.axis == name]
    results = [point.result for point in shown]
    # At equal distances, so that numbers under the axis do not overlap.
    places = range(len(shown))
    series = (
      [result.median for result in results],
      [result.peak_bytes / 2**30 for result in results],
      [result.trace_seconds for result in results],
    )
    for axis, label, heights in zip(column, labels, series):
      axis.plot(places, heights, "o-", color="#1f77b4", markersize=4)
      axis.set_xticks(places, [f"{point.value:,}" for point in shown])
      axis.set_ylim(0, 1.15 * max(heights))
      axis.grid(alpha=0.25)
      axis.set_ylabel(label)
    for place, result in zip(places, results):
      rates = result.tokens_per_second
      column[0].vlines(place, min(rates), max(rates), color="#444444")
    column[-1].set_xlabel(name)
  figure.suptitle(title, x=0.01, ha="left", fontsize=11)
  figure.tight_layout()
  printing.save_figure(figure, output_file)


_MEMORY_VARIANTS = (
  {},
  {"recompute_activations": True},
  {"xla": True},
  {"xla": True, "recompute_activations": True},
)
_MEMORY_HEAD = (
  *("variant", "at the start", "peak", "seconds a step"),
  "CPU seconds a step",
)


def run_memory(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  repeats: int,
) -> None:
  """Measures the memory of several variants and prints a table."""
  workload = dataclasses.replace(
    comparison.workload_of(
      preset, batch_size, max_seq_length, precision, ours_alone=True
    ),
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    optimizer="lamb",
    warmup_steps=1,
  )
  title = f"{preset}, batch {batch_size}, {max_seq_length} tokens, {precision}"
  print(f"{title}\n\n{printing.table_head(_MEMORY_HEAD)}")
  for changes in _MEMORY_VARIANTS:
    changed = dataclasses.replace(workload, **changes)
    with comparison.start(comparison.System("ours"), changed) as process:
      timed = process.run(repeats)
    cells = (
      " + ".join(changes) or "plain",
      f"{process.ready.start_bytes / 2**30:.2f} GiB",
      f"{timed.peak_bytes / 2**30:.2f} GiB",
      f"{statistics.median(timed.seconds):.2f}",
      f"{statistics.median(timed.cpu_seconds):.2f}",
    )
    print(printing.table_row(cells), flush=True)


def run_finetuning(
  task: str,
  data_dir: str,
  spm_model_file: str,
  preset: str,
  max_seq_length: int,
  batch_size: int,
  precision: str,
  repeats: int,
  work_dir: Optional[str],
) -> None:
  """Measures with and without length buckets in turns, and prints a table.

  Trains repeatedly on the first batches that the reader sorts by length. The
  first pass, which traces the step for each length, is reported separately.
  """
  comparison.workload_of(
    preset, batch_size, max_seq_length, precision, ours_alone=True
  )
  distribution.start_compiler()
  distribution.set_precision(precision)
  tokenizer = tokenization.SentencePieceTokenizer(spm_model_file)
  config = dataclasses.replace(
    modeling.AlbertConfig.from_preset(preset), vocab_size=tokenizer.vocab_size
  )
  with tempfile.TemporaryDirectory(dir=work_dir) as cache_dir:
    passes = {}
    for name, bucketing in _BUCKETING.items():
      options = finetuning.jobs.Options(
        data_dir,
        os.path.join(cache_dir, "records"),
        tokenizer,
        max_seq_length=max_seq_length,
        length_bucketing=bucketing,
        note=lambda text: None,
      )
      job = finetuning.jobs.GlueJob(task, options)
      passes[name] = _make_pass(job, config, batch_size)
    first = {name: seconds() for name, seconds in passes.items()}
    later = {name: [] for name in passes}
    for _ in range(repeats):
      for name, seconds in passes.items():
        later[name].append(seconds())
  examples = _UPDATES * batch_size
  print(
    f"{task}, {preset}, S {max_seq_length}, batch {batch_size}, {precision}; "
    f"{examples} examples"
  )
  rows = []
  for name in passes:
    rate = examples / statistics.median(later[name])
    rows.append((name, f"{rate:,.0f}", f"{first[name]:.1f}"))
  print(printing.table(("batches", "examples/s", "first pass, s"), rows))
  ratios = [padded / buckets for buckets, padded in zip(*later.values())]
  print(
    f"Buckets: {statistics.median(ratios):.2f} times as fast, the median of "
    f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}."
  )


def _make_pass(
  job, albert_config: modeling.AlbertConfig, batch_size: int
) -> Callable[[], float]:
  """Returns a function that trains on the first batches and returns seconds."""
  import tensorflow as tf

  tf.keras.utils.set_random_seed(1)
  task = job.make_task(["train"], albert_config, common.ModelSettings(), seed=1)
  model = task.build_model()
  dataset = task.train_dataset(batch_size, 0)
  update = ours.make_update(
    task, model, batch_size, learning_rate=1e-5, optimizer="adamw"
  )
  step = tf.function(update, input_signature=[dataset.element_spec])

  def seconds() -> float:
    start = time.monotonic()
    for batch in dataset.take(_UPDATES):
      norm = step(batch)["gradient_norm"].total
    float(norm)  # Waits for the last update.
    return time.monotonic() - start

  return seconds
