"""Speed, memory and efficiency of the training step.

`run` measures one step of pretraining. `run_scaling` measures how speed, memory
and tracing depend on batch, length and model. `run_memory` compares ways to
save memory. `run_finetuning` measures fine-tuning in examples/s. Batches are
random, without padding, and use all predictions. Each measurement runs in a
separate process, because a process never returns all of its memory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable, NamedTuple, Optional, Sequence

from official_albert import (
  distribution,
  files,
  modeling,
  tokenization,
  training,
)
from tasks import common, pretraining
from tools import finetuning
from tools.benchmarks import comparison
from tools.benchmarks.peers import ours, protocol
from tools.cli import printing

# Variants of the program by optimizer.
OPTIMIZERS = {
  optimizer: variant for variant, optimizer in ours.VARIANTS.items()
}
_ROOT = pathlib.Path(__file__).resolve().parents[2]
# The batches that the reader sorts together.
_UPDATES = 32
_BUCKETING = {"length buckets": True, "padded to S": False}


@dataclasses.dataclass(frozen=True)
class Measured:
  """The measurements of one process."""

  workload: protocol.Workload
  ready: protocol.Ready
  # Of each run of steps.
  tokens_per_second: list[float]
  peak_bytes: int
  # Necessary operations of a step, at the median speed.
  flops_per_second: float
  # Per second, of the fastest matrix product between the runs.
  product_flops: float


def run(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  optimizer: str,
  repeats: int,
  steps: int,
  output_dir: str,
) -> Measured:
  """Measures one step, prints a table, and saves it if there is a folder."""
  workload = comparison.workload_of(
    *(preset, batch_size, max_seq_length, precision),
    dropout=True,
    ours_alone=True,
  )
  measured = measure(
    dataclasses.replace(workload, variant=OPTIMIZERS[optimizer]), repeats, steps
  )
  title = (
    f"{preset}, S {max_seq_length}, B {batch_size}, {precision}, {optimizer}"
  )
  machine = distribution.describe_machine()
  text = f"{title}: {machine}\n\n{table(measured)}"
  print(text, flush=True)
  if output_dir:
    name = title.replace(", ", "-").replace(" ", "").lower()
    path = os.path.join(output_dir, name)
    numbers = {"machine": machine, **dataclasses.asdict(measured)}
    numbers["ready"] = measured.ready._asdict()
    files.write_json(f"{path}.json", numbers, indent=2)
    files.write_text(f"{path}.md", text)
  return measured


def measure(workload: protocol.Workload, repeats: int, steps: int) -> Measured:
  """Takes `repeats` runs of `steps` steps in a separate process.

  Matrix products are timed between the runs, so a busy machine slows both.
  """
  rates, products = [], []
  system = comparison.System("ours", workload.variant)
  with comparison.start(system, workload) as process:
    for _ in range(repeats):
      timed = process.run(steps)
      rates.append(workload.tokens * steps / sum(timed.seconds))
      products.append(process.product_flops(comparison.PRODUCTS))
  return Measured(
    workload,
    process.ready,
    rates,
    timed.peak_bytes,
    comparison.flops_per_token(workload) * statistics.median(rates),
    max(products),
  )


def table(measured: Measured) -> str:
  """Returns a table with a row per number."""
  rates, ready = measured.tokens_per_second, measured.ready
  median = statistics.median(rates)
  share = measured.flops_per_second / measured.product_flops
  build_seconds = ready.build_seconds - ready.trace_seconds
  rows = (
    ("tokens/s, median", f"{median:,.0f}"),
    ("tokens/s, lowest to highest", f"{min(rates):,.0f} to {max(rates):,.0f}"),
    ("seconds a step", f"{measured.workload.tokens / median:.3f}"),
    ("seconds to import and build", f"{build_seconds:.1f}"),
    ("seconds to trace the step", f"{ready.trace_seconds:.1f}"),
    ("seconds of the first step", f"{ready.first_step_seconds:.1f}"),
    ("peak memory", f"{measured.peak_bytes / 2**30:.2f} GiB"),
    ("GFLOP/s of the step", f"{measured.flops_per_second / 1e9:,.0f}"),
    ("GFLOP/s of matrix products", f"{measured.product_flops / 1e9:,.0f}"),
    ("share of the matrix products' rate", f"{share:.0%}"),
  )
  return printing.table(("figure", "value"), rows) + "\n"


_TOKENS = 2048  # Per step, unless the batch size varies.
_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (64, 128, 256, 512)
_DEPTHS = (1, 3, 6, 12, 24)
_WIDTHS = ("base", "large", "xlarge", "xxlarge")
# At this depth a step of the widest model takes seconds.
_WIDTHS_DEPTH = 2


class Point(NamedTuple):
  """The numbers of one model and batch, at a value of what varies."""

  axis: str
  value: int
  tokens_per_second: list[float]
  peak_bytes: int
  trace_seconds: float = 0.0
  flops_per_second: float = 0.0

  @property
  def median(self) -> float:
    """The median tokens per second."""
    return statistics.median(self.tokens_per_second)


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


_SCALING_HEAD = (
  *("axis", "at", "tokens/s", "lowest to highest", "GFLOP/s", "peak memory"),
  "seconds to trace",
)


def run_scaling(
  precision: str, repeats: int, steps: int, output_dir: str
) -> list[Point]:
  """Measures every point, prints the table, and saves table and plot."""
  workloads = scaling_workloads(precision)
  print(printing.table_head(_SCALING_HEAD), flush=True)
  points, rows = [], []
  for axis, value, workload in workloads:
    measured = measure(workload, repeats, steps)
    rates = measured.tokens_per_second
    point = Point(
      *(axis, value, rates, measured.peak_bytes),
      measured.ready.trace_seconds,
      measured.flops_per_second,
    )
    row = (
      axis,
      f"{value:,}",
      f"{point.median:,.0f}",
      f"{min(rates):,.0f} to {max(rates):,.0f}",
      f"{point.flops_per_second / 1e9:,.0f}",
      f"{point.peak_bytes / 2**30:.2f} GiB",
      f"{point.trace_seconds:.1f}",
    )
    points.append(point)
    rows.append(row)
    print(printing.table_row(row), flush=True)
  if output_dir:
    title = f"albert_base, {precision}: {distribution.describe_machine()}"
    path = os.path.join(output_dir, "scaling")
    numbers = {"title": title, "points": [p._asdict() for p in points]}
    files.write_json(f"{path}.json", numbers, indent=2)
    text = f"{title}\n\n{printing.table(_SCALING_HEAD, rows)}\n"
    files.write_text(f"{path}.md", text)
    draw_scaling(points, os.path.join(output_dir, "benchmark_scaling.png"))
  return points


def draw_scaling(
  points: Sequence[Point], output_file: str, trace: bool = True
) -> None:
  """Writes a PNG with panels of speed, memory and tracing for each axis."""
  from tools.cli import figures  # Matplotlib takes a second to load.
  from tools.cli.figures import pyplot

  margin = 1.08
  names = list(dict.fromkeys(point.axis for point in points))
  labels = ["tokens/s", "peak memory, GiB"] + ["seconds to trace"] * trace
  rows = len(labels)
  figure, axes = pyplot.subplots(
    rows, len(names), figsize=(3.2 * len(names), 2.3 * rows), squeeze=False
  )
  for column, name in zip(axes.T, names):
    shown = [point for point in points if point.axis == name]
    values = [point.value for point in shown]
    lowest = [min(point.tokens_per_second) for point in shown]
    highest = [max(point.tokens_per_second) for point in shown]
    series = (
      [point.median for point in shown],
      [point.peak_bytes / 2**30 for point in shown],
      [point.trace_seconds for point in shown],
    )
    for axis, label, heights in zip(column, labels, series):
      axis.plot(values, heights, "o-", color="#1f77b4", markersize=4)
      axis.set_xscale("log", base=2)
      axis.set_xticks(values, [f"{value:,}" for value in values])
      axis.minorticks_off()
      axis.set_xlim(values[0] / margin**3, values[-1] * margin**3)
      axis.set_ylim(0, margin * (max(heights) or 1))
      axis.grid(alpha=0.25)
      axis.spines[["top", "right"]].set_visible(False)
      if name == names[0]:
        axis.set_ylabel(label)
    column[0].vlines(values, lowest, highest, color="#444444", linewidth=1)
    column[0].set_ylim(0, margin * max(highest))
    column[-1].set_xlabel(name)
  figure.tight_layout()
  figures.save(figure, output_file)


class Memory(NamedTuple):
  """Bytes before the first step and at most, and the median time of a step."""

  start_bytes: int
  peak_bytes: int
  step_seconds: float
  step_cpu_seconds: float


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
_MEMORY_PROGRAM = """
import json, sys
from tools.benchmarks import step
print(json.dumps(step.measure_memory_here(**json.loads(sys.argv[1]))))
"""


def run_memory(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  repeats: int,
) -> None:
  """Measures the memory of several variants and prints a table."""
  comparison.check_own(preset, batch_size, max_seq_length, precision)
  title = f"{preset}, batch {batch_size}, {max_seq_length} tokens, {precision}"
  print(f"{title}\n\n{printing.table_head(_MEMORY_HEAD)}")
  for changes in _MEMORY_VARIANTS:
    memory = measure_memory(
      preset=preset,
      batch_size=batch_size,
      max_seq_length=max_seq_length,
      precision=precision,
      steps=repeats,
      **changes,
    )
    cells = (
      " + ".join(changes) or "plain",
      f"{memory.start_bytes / 2**30:.2f} GiB",
      f"{memory.peak_bytes / 2**30:.2f} GiB",
      f"{memory.step_seconds:.2f}",
      f"{memory.step_cpu_seconds:.2f}",
    )
    print(printing.table_row(cells), flush=True)


def measure_memory(**settings) -> Memory:
  """Runs `measure_memory_here` in a separate process."""
  done = subprocess.run(
    [sys.executable, "-c", _MEMORY_PROGRAM, json.dumps(settings)],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    stdout=subprocess.PIPE,
    text=True,
  )
  if done.returncode:
    raise ValueError(
      f"the step failed with exit code {done.returncode}; see its output above."
    )
  return Memory(*json.loads(done.stdout.splitlines()[-1]))


def measure_memory_here(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  steps: int,
  xla: bool = False,
  recompute_activations: bool = False,
) -> Memory:
  """Takes a few steps of a model with dropout in this process."""
  import tensorflow as tf

  seed = 1
  distribution.start_compiler()
  distribution.set_precision(precision)
  tf.keras.utils.set_random_seed(seed)
  albert_config = dataclasses.replace(
    modeling.AlbertConfig.from_preset(preset),
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
  )
  model = pretraining.AlbertForPretraining(albert_config, recompute_activations)
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=1000,
    num_warmup_steps=0,
    learning_rate=0.001,
    train_batch_size=batch_size,
    xla=xla,
  )
  step = ours.make_step(model, config)
  predictions = int(0.15 * max_seq_length)
  batch = ours.random_batch(
    batch_size, max_seq_length, predictions, albert_config.vocab_size, seed
  )
  start_bytes = protocol.peak_bytes()
  wall, cpu = [], []
  for _ in range(1 + steps):
    before = time.monotonic(), time.process_time()
    float(step(batch)["gradient_norm"].total)  # Waits for the step.
    wall.append(time.monotonic() - before[0])
    cpu.append(time.process_time() - before[1])
  # The first step includes compilation.
  return Memory(
    start_bytes,
    protocol.peak_bytes(),
    statistics.median(wall[1:]),
    statistics.median(cpu[1:]),
  )


def run_finetuning(
  task: str,
  data_dir: str,
  spm_model_file: str,
  preset: str,
  max_seq_length: int,
  batch_size: int,
  precision: str,
  repeats: int,
  work_dir: Optional[str] = None,
) -> None:
  """Measures with and without length buckets in turns, and prints a table.

  Trains repeatedly on the first window of the reader, whose batches have all
  lengths. The first pass, which traces the step for each length, is reported
  separately.
  """
  comparison.check_own(preset, batch_size, max_seq_length, precision)
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
  """Returns a function that trains on the first window, and its seconds."""
  import tensorflow as tf

  tf.keras.utils.set_random_seed(1)
  task = job.make_task(["train"], albert_config, common.ModelSettings(), seed=1)
  model = task.build_model()
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    learning_rate=1e-5,
    train_batch_size=batch_size,
    optimizer="adamw",
  )
  optimizer = config.make_optimizer()
  optimizer._create_all_weights(model.trainable_variables)
  dataset = task.train_dataset(batch_size, 0)
  step = tf.function(
    training.make_train_step(task, model, optimizer, config),
    input_signature=[dataset.element_spec],
  )

  def seconds() -> float:
    start = time.monotonic()
    for batch in dataset.take(_UPDATES):
      norm = step(batch)["gradient_norm"].total
    float(norm)  # Waits for the last update.
    return time.monotonic() - start

  return seconds
