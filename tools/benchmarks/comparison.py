"""Compares this project's training step with other implementations of ALBERT.

Every system is a process that keeps its model. The systems take turns, so a
busy minute of the machine affects all of them, and ratios are computed within a
round.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import statistics
import sys
from typing import Callable, Mapping, NamedTuple, Optional, Sequence

from official_albert import distribution, files, modeling
from tasks import pretraining
from tools.benchmarks.peers import ours, protocol
from tools.cli import child_programs, printing

OURS = "official_albert"
REQUIREMENTS_DIR = pathlib.Path(__file__).parent / "peers" / "requirements"
# The only Python for which all of the requirements have packages.
_PYTHON = (3, 11)
# glibc keeps memory instead of returning it to the system. Otherwise PyTorch
# spends a quarter of a step on getting large tensors page by page. TensorFlow
# does not become faster.
MALLOC_TUNED = {
  "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
  "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
  "MALLOC_TOP_PAD_": str(1 << 28),
}
# The memory that the next process may need, relative to the largest so far.
_MEMORY_MARGIN = 1.5
# Matrix products per round and process, of which the fastest counts.
PRODUCTS = 20


class System(NamedTuple):
  """How to run a module of `tools.benchmarks.peers`."""

  program: str
  variant: str = ""
  # Name of its requirements; None runs in this environment.
  venv: Optional[str] = None
  # Additional variables.
  environment: Mapping[str, str] = {}


def _huggingface(variant: str, environment: Mapping[str, str] = {}) -> System:
  return System("huggingface", variant, "huggingface", environment)


SYSTEMS = {
  OURS: System("ours"),
  # As users run it, then with more and more tuning.
  "hf_eager": _huggingface("eager"),
  "hf_sdpa": _huggingface("sdpa"),
  "hf_eager_malloc": _huggingface("eager", MALLOC_TUNED),
  "hf_tuned": _huggingface("tuned", MALLOC_TUNED),
  "hf_compiled": _huggingface("compiled", MALLOC_TUNED),
  "keras_hub": System("keras_hub", "", "keras_hub"),
  "keras_hub_jit": System("keras_hub", "jit", "keras_hub"),
  "model_garden": System("model_garden", "", "model_garden"),
  "model_garden_jit": System("model_garden", "jit", "model_garden"),
}
# Without those that are slow on CPUs (XLA for the whole step takes twice as
# long) or need a C++ compiler (torch.compile, which gains little).
DEFAULT_SYSTEMS = tuple(
  name for name in SYSTEMS if not name.endswith(("_jit", "_compiled"))
)


@dataclasses.dataclass
class Result:
  """The measurements of one system."""

  system: str
  tokens_per_second: list[float] = dataclasses.field(default_factory=list)
  # Our speed divided by its speed.
  ratios: list[float] = dataclasses.field(default_factory=list)
  peak_bytes: int = 0
  losses: list[float] = dataclasses.field(default_factory=list)
  build_seconds: float = 0.0
  first_step_seconds: float = 0.0
  about: str = ""
  versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
  # Why there are no numbers; "" if there are.
  failure: str = ""

  @property
  def median(self) -> float:
    """The median tokens per second."""
    return statistics.median(self.tokens_per_second)

  def ratio(self) -> str:
    """Returns the cell of a table with the ratios."""
    if self.system == OURS:
      return "1"
    low, high = min(self.ratios), max(self.ratios)
    return f"{statistics.median(self.ratios):.2f} ({low:.2f} to {high:.2f})"


@dataclasses.dataclass(frozen=True)
class Comparison:
  """The results of all systems for one workload; ours is the first."""

  machine: str
  preset: str
  workload: protocol.Workload
  # Necessary operations of a step.
  flops_per_token: float
  # Per second, of the fastest matrix product of any system.
  product_flops: float
  results: list[Result]

  @property
  def title(self) -> str:
    """The model and the workload."""
    w = self.workload
    return (
      f"{self.preset}, S {w.max_seq_length}, B {w.batch_size}, {w.precision}"
    )


def workload_of(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  dropout: bool = False,
  ours_alone: bool = False,
) -> protocol.Workload:
  """Returns the workload of a preset on all cores.

  With `ours_alone`, layers need not share all weights, unlike with peers.
  """
  config = modeling.AlbertConfig.from_preset(preset)
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"{preset} takes at most {config.max_position_embeddings} tokens, not "
      f"{max_seq_length}."
    )
  one_block = config.num_hidden_groups == config.inner_group_num == 1
  if not one_block or (config.sharing != "all" and not ours_alone):
    raise ValueError(f"{preset} does not share one block among its layers.")
  sizes = {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(protocol.Workload)
    if hasattr(config, field.name)
  }
  if not dropout:
    sizes.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
  return protocol.Workload(
    batch_size=batch_size,
    max_seq_length=max_seq_length,
    precision=precision,
    threads=distribution.cpu_count(),
    **sizes,
  )


def check_own(
  preset: str, batch_size: int, max_seq_length: int, precision: str
) -> None:
  """Checks the sizes of a step of our system, which supports any precision."""
  distribution.check_precision(precision)
  workload_of(preset, batch_size, max_seq_length, "float32", ours_alone=True)


def flops_per_token(workload: protocol.Workload) -> float:
  """Returns a step's operations: forward, backward, heads where they count."""
  length, config = workload.max_seq_length, ours.config_of(workload)
  return (
    pretraining.training_flops(config, length, workload.predictions) / length
  )


def make_environment(name: str, peers_dir: str) -> str:
  """Creates a peer's environment if needed; returns its interpreter."""
  folder = pathlib.Path(peers_dir).expanduser().absolute()
  return child_programs.make_environment(
    folder / f"official_albert_{name}",
    REQUIREMENTS_DIR / f"{name}.txt",
    *(_PYTHON, _PYTHON),
  )


def start(
  system: System, workload: protocol.Workload, python: str = sys.executable
) -> protocol.Peer:
  """Starts a system."""
  return protocol.Peer(
    python,
    f"tools.benchmarks.peers.{system.program}",
    dataclasses.replace(workload, variant=system.variant),
    system.environment,
  )


def run(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  systems: Sequence[str],
  repeats: int,
  steps: int,
  peers_dir: str,
  output_dir: str,
) -> Comparison:
  """Compares, prints the table, and saves table, numbers and plot.

  The arguments are the program's flags. Our own system is always measured.
  """
  workload = workload_of(preset, batch_size, max_seq_length, precision)
  unknown = set(systems) - set(SYSTEMS)
  if unknown:
    raise ValueError(
      f"unknown systems {', '.join(sorted(unknown))}; choose some of "
      f"{', '.join(SYSTEMS)}."
    )
  peers = [name for name in systems if name != OURS]
  pythons = {None: sys.executable}
  for venv in dict.fromkeys(SYSTEMS[name].venv for name in peers):
    pythons[venv] = make_environment(venv, peers_dir)
  results, product_flops = take_turns(
    lambda name: start(SYSTEMS[name], workload, pythons[SYSTEMS[name].venv]),
    *(peers, workload.tokens, repeats, steps),
  )
  comparison = Comparison(
    distribution.describe_machine(),
    *(preset, workload, flops_per_token(workload), product_flops, results),
  )
  print(table(comparison), flush=True)
  if output_dir:
    save(comparison, output_dir)
  return comparison


def take_turns(
  start: Callable[[str], protocol.Peer],
  peers: Sequence[str],
  tokens: int,
  rounds: int,
  steps: int,
) -> tuple[list[Result], float]:
  """Measures our system and its peers in turns.

  If memory is short, peers are measured in groups, and our system with each
  group. `tokens` is the number of tokens per step, `steps` that of steps per
  turn.

  Returns:
    Our result, then the peers' in their order, and the FLOP/s of the fastest
    matrix product; 0 if no program measures them.
  """
  results: dict[str, Result] = {}
  products = [0.0]

  def begin(name: str) -> protocol.Peer:
    peer = start(name)
    fields = peer.ready._asdict()
    del fields["trace_seconds"]
    fields["losses"] = list(fields["losses"])
    results[name] = Result(name, **fields)
    return peer

  def take(name: str, peer: protocol.Peer) -> None:
    timed, result = peer.run(steps), results[name]
    products.append(peer.product_flops(PRODUCTS) or 0.0)
    result.tokens_per_second.append(tokens * steps / sum(timed.seconds))
    result.losses += timed.losses
    result.peak_bytes = timed.peak_bytes

  pending = list(peers)
  with begin(OURS) as own_peer:
    own = results[OURS]
    while True:
      group: dict[str, protocol.Peer] = {}
      while pending:
        largest = max(result.peak_bytes for result in results.values())
        if group and available_bytes() < _MEMORY_MARGIN * largest:
          break
        name = pending.pop(0)
        try:
          group[name] = begin(name)
          print(f"{name} is ready.", file=sys.stderr, flush=True)
        except ValueError as error:
          results[name] = Result(name, failure=str(error))
          print(f"{name}: {error}", file=sys.stderr, flush=True)
      try:
        for i in range(rounds):
          turns = [(OURS, own_peer), *group.items()]
          for name, peer in turns[:: -1 if i % 2 else 1]:
            if results[name].failure:
              continue
            try:
              take(name, peer)
            except ValueError as error:
              if name == OURS:
                raise
              results[name] = Result(name, failure=str(error))
          for result in (results[name] for name in group):
            if not result.failure:
              ratio = own.tokens_per_second[-1] / result.tokens_per_second[-1]
              result.ratios.append(ratio)
      finally:
        for peer in group.values():
          peer.stop()
      if not pending:
        return [results[name] for name in (OURS, *peers)], max(products)


def available_bytes() -> int:
  """Returns the memory that is not in use (Linux only)."""
  with open("/proc/meminfo", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("MemAvailable:"))
  return int(line.split()[1]) * 1024


_HEAD = (
  *("system", "tokens/s", "lowest to highest", "ours is faster by"),
  *("peak memory", "of the products' rate", "loss, first to last", "set up as"),
)


def table(comparison: Comparison) -> str:
  """Returns Markdown: a paragraph, and a row per system."""
  title = (
    f"{comparison.title}: {comparison.machine}, "
    f"{comparison.workload.threads} threads; matrix products reach "
    f"{comparison.product_flops / 1e9:,.0f} GFLOP/s."
  )
  rows = []
  for result in comparison.results:
    if result.failure:
      rows.append((result.system, f"failed: {result.failure}"))
      continue
    rates = result.tokens_per_second
    flops = result.median * comparison.flops_per_token
    versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    rows.append(
      (
        result.system,
        f"{result.median:,.0f}",
        f"{min(rates):,.0f} to {max(rates):,.0f}",
        result.ratio(),
        f"{result.peak_bytes / 2**30:.2f} GiB",
        f"{flops / comparison.product_flops:.0%}",
        f"{result.losses[0]:.2f} to {result.losses[-1]:.2f}",
        f"{versions}: {result.about}",
      )
    )
  return f"{title}\n\n{printing.table(_HEAD, rows)}\n"


def save(comparison: Comparison, folder: str) -> None:
  """Saves the numbers, and table and plot of all comparisons in the folder."""
  os.makedirs(folder, exist_ok=True)
  w = comparison.workload
  name = f"s{w.max_seq_length}-b{w.batch_size}-{w.precision}"
  path = os.path.join(folder, f"peers-{comparison.preset}-{name}.json")
  files.write_json(path, dataclasses.asdict(comparison), indent=2)
  comparisons = load_all(folder)
  text = "\n".join(table(each) for each in comparisons)
  files.write_text(os.path.join(folder, "peers.md"), text)
  draw(comparisons, os.path.join(folder, "benchmark_peers.png"))


def load_all(folder: str) -> list[Comparison]:
  """Reads the saved comparisons of a folder, in the order of their names."""
  comparisons = []
  for path in sorted(pathlib.Path(folder).glob("peers-*.json")):
    try:
      fields = json.loads(path.read_text(encoding="utf-8"))
      fields["workload"] = protocol.Workload(**fields["workload"])
      fields["results"] = [Result(**result) for result in fields["results"]]
      comparisons.append(Comparison(**fields))
    except (TypeError, KeyError, ValueError) as error:
      raise ValueError(
        f"{path} was not written by this benchmark ({error}): remove it."
      ) from error
  return comparisons


def draw(comparisons: Sequence[Comparison], output_file: str) -> None:
  """Writes a PNG with a panel for each of at least one comparison."""
  pyplot = printing.load_pyplot()

  columns = min(2, len(comparisons))
  rows = math.ceil(len(comparisons) / columns)
  figure, axes = pyplot.subplots(
    rows, columns, figsize=(6.2 * columns, 3.0 * rows), squeeze=False
  )
  for axis in axes.flat[len(comparisons) :]:
    axis.set_axis_off()
  for axis, each in zip(axes.flat, comparisons):
    measured = [result for result in each.results if not result.failure]
    # The fastest is on top.
    measured.sort(key=lambda result: result.median)
    medians = [result.median for result in measured]
    lowest = [min(result.tokens_per_second) for result in measured]
    highest = [max(result.tokens_per_second) for result in measured]
    own = [result.system == OURS for result in measured]
    axis.barh(
      [result.system for result in measured],
      medians,
      xerr=[
        [median - low for median, low in zip(medians, lowest)],
        [high - median for median, high in zip(medians, highest)],
      ],
      color=["#1f77b4" if is_own else "#b8bec6" for is_own in own],
      error_kw=dict(ecolor="#444444", elinewidth=1, capsize=2),
      height=0.65,
    )
    width = max(highest)
    for i, median in enumerate(medians):
      weight = "bold" if own[i] else "normal"
      x = highest[i] + 0.02 * width
      axis.text(x, i, f"{median:,.0f}", va="center", fontweight=weight)
    axis.set_xlim(0, 1.18 * width)
    axis.set_title(each.title, loc="left", fontsize=11)
    axis.set_xlabel("tokens/s: median and range of the rounds")
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.grid(axis="x", alpha=0.25)
    axis.set_axisbelow(True)
  figure.tight_layout(h_pad=2.0, w_pad=3.0)
  printing.save_figure(figure, output_file, dpi=120)
