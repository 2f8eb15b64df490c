"""Compares this project's training step with those of other ALBERTs.

Every system is a process that keeps its model. The systems take turns, so that
a busy minute of the machine affects all of them, and ratios are taken within a
round.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import sys
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

from official_albert import distribution, files, modeling
from tasks import pretraining
from tools.benchmarks.peers import ours, protocol
from tools.cli import markdown, virtual_environment

OURS = "official_albert"
_GIB = 2**30
_PEERS = "tools.benchmarks.peers"
REQUIREMENTS_DIR = pathlib.Path(__file__).parent / "peers" / "requirements"
# The only Python for which all of the requirements have packages.
_PYTHON = (3, 11)
# glibc keeps memory instead of returning it to the system. Otherwise PyTorch
# spends a quarter of a step on getting large tensors page by page. TensorFlow
# does not become faster.
MALLOC_TUNED = {
  "MALLOC_MMAP_THRESHOLD_": str(4 * _GIB),
  "MALLOC_TRIM_THRESHOLD_": str(16 * _GIB),
  "MALLOC_TOP_PAD_": str(_GIB // 4),
}
# Memory that the next process may need, relative to the largest so far.
_MEMORY_MARGIN = 1.5
# Matrix products per round and process, of which the fastest counts.
_PRODUCTS = 20


class System(NamedTuple):
  """How to run a system.

  Attributes:
    program: a module of `tools.benchmarks.peers`.
    variant: of the program.
    venv: name of its requirements; None runs in this environment.
    environment: additional variables.
  """

  program: str
  variant: str = ""
  venv: Optional[str] = None
  environment: Mapping[str, str] = {}


SYSTEMS = {
  OURS: System("ours"),
  # As users run it, then with more and more tuning.
  "hf_eager": System("huggingface", "eager", "huggingface"),
  "hf_sdpa": System("huggingface", "sdpa", "huggingface"),
  "hf_eager_malloc": System(
    "huggingface", "eager", "huggingface", MALLOC_TUNED
  ),
  "hf_tuned": System("huggingface", "tuned", "huggingface", MALLOC_TUNED),
  "hf_compiled": System("huggingface", "compiled", "huggingface", MALLOC_TUNED),
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
# Starts the system of a name.
Start = Callable[[str], protocol.Peer]


@dataclasses.dataclass
class Result:
  """One system's numbers.

  Attributes:
    system: its name.
    tokens_per_second: of each round.
    ratios: our speed divided by its speed, of each round.
    peak_bytes: the largest memory of the process.
    losses: of every step in order, in nats.
    build_seconds, first_step_seconds, about, versions: see `protocol.Ready`.
    failure: why there are no numbers; "" if there are.
  """

  system: str
  tokens_per_second: list[float] = dataclasses.field(default_factory=list)
  ratios: list[float] = dataclasses.field(default_factory=list)
  peak_bytes: int = 0
  losses: list[float] = dataclasses.field(default_factory=list)
  build_seconds: float = 0.0
  first_step_seconds: float = 0.0
  about: str = ""
  versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
  """All systems at one workload.

  Attributes:
    machine: one line about it.
    preset: the model.
    workload: what each system computed, except for its `variant`.
    flops_per_token: necessary operations of a step.
    product_flops: FLOP/s of the fastest matrix product of any system.
    results: ours first.
  """

  machine: str
  preset: str
  workload: protocol.Workload
  flops_per_token: float
  product_flops: float
  results: list[Result]

  @property
  def title(self) -> str:
    """The model and the workload."""
    w = self.workload
    return (
      f"{self.preset}, S {w.max_seq_length}, B {w.batch_size}, {w.precision}"
    )

  @property
  def file_name(self) -> str:
    """The name of its JSON file."""
    w = self.workload
    return (
      f"peers-{self.preset}-s{w.max_seq_length}-b{w.batch_size}-"
      f"{w.precision}.json"
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

  Args:
    preset: a name of `AlbertConfig.from_preset`.
    batch_size: sequences per step.
    max_seq_length: tokens per sequence.
    precision: of `protocol.PRECISIONS`.
    dropout: whether to use the preset's dropout.
    ours_alone: allow models whose layers share less, which peers lack.

  Raises:
    ValueError: unknown preset or precision, or a size out of range.
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
  """Checks the sizes of a step of ours, which may have any precision.

  Raises:
    ValueError: unknown preset or precision, or a size out of range.
  """
  distribution.check_precision(precision)
  workload_of(preset, batch_size, max_seq_length, "float32", ours_alone=True)


def flops_per_token(workload: protocol.Workload) -> float:
  """Returns a step's operations: forward, backward, heads where they count."""
  flops = pretraining.training_flops(
    modeling.AlbertConfig(**ours.config_sizes(workload)),
    workload.max_seq_length,
    workload.predictions,
  )
  return flops / workload.max_seq_length


def make_environment(name: str, peers_dir: str) -> str:
  """Creates a peer's environment if needed; returns its interpreter.

  Raises:
    ValueError: there is no Python 3.11, or pip failed.
  """
  folder = pathlib.Path(peers_dir).expanduser().absolute()
  return virtual_environment.make(
    folder / f"official_albert_{name}",
    REQUIREMENTS_DIR / f"{name}.txt",
    _PYTHON,
    _PYTHON,
  )


def start(
  system: System, workload: protocol.Workload, python: str = sys.executable
) -> protocol.Peer:
  """Starts a system.

  Raises:
    ValueError: it failed.
  """
  return protocol.Peer(
    python,
    f"{_PEERS}.{system.program}",
    dataclasses.replace(workload, variant=system.variant),
    system.environment,
  )


def run(
  preset: str,
  workload: protocol.Workload,
  systems: Sequence[str],
  rounds: int,
  steps: int,
  peers_dir: str,
  output_dir: str,
) -> Comparison:
  """Compares, prints the table, and saves table, numbers and plot.

  Args:
    preset: the model's name.
    workload: what is computed, see `workload_of`.
    systems: names of `SYSTEMS`; ours is always there.
    rounds: turns of each system.
    steps: steps per turn.
    peers_dir: folder of the environments.
    output_dir: "" prints only.

  Raises:
    ValueError: unknown systems, an environment that cannot be created, or our
      own step failed.
  """
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
    peers,
    workload.tokens,
    rounds,
    steps,
  )
  comparison = Comparison(
    distribution.describe_machine(),
    preset,
    workload,
    flops_per_token(workload),
    product_flops,
    results,
  )
  print(table(comparison), flush=True)
  if output_dir:
    save(comparison, output_dir)
  return comparison


def take_turns(
  start: Start, peers: Sequence[str], tokens: int, rounds: int, steps: int
) -> tuple[list[Result], float]:
  """Measures our system and its peers in turns.

  If memory is short, peers are measured in groups, ours with each of them.

  Args:
    start: starts a system.
    peers: names of the others.
    tokens: per step.
    rounds: turns of each system.
    steps: steps per turn.

  Returns:
    Our result, then the peers' in their order, and the FLOP/s of the fastest
    matrix product; 0 if no program measures them.

  Raises:
    ValueError: our own system failed.
  """
  pending = list(peers)
  results: dict[str, Result] = {}
  products = [0.0]

  def begin(name: str, peer: protocol.Peer) -> Result:
    ready = peer.ready
    results[name] = Result(
      name,
      peak_bytes=ready.peak_bytes,
      losses=list(ready.losses),
      build_seconds=ready.build_seconds,
      first_step_seconds=ready.first_step_seconds,
      about=ready.about,
      versions=ready.versions,
    )
    return results[name]

  def take(result: Result, peer: protocol.Peer) -> None:
    timed = peer.run(steps)
    products.append(peer.product_flops(_PRODUCTS) or 0.0)
    result.tokens_per_second.append(tokens * steps / sum(timed.seconds))
    result.losses += timed.losses
    result.peak_bytes = timed.peak_bytes

  with start(OURS) as own_peer:
    own = begin(OURS, own_peer)
    while True:
      group: list[tuple[Result, protocol.Peer]] = []
      while pending:
        largest = max(result.peak_bytes for result in results.values())
        if group and available_bytes() < _MEMORY_MARGIN * largest:
          break
        name = pending.pop(0)
        try:
          peer = start(name)
          group.append((begin(name, peer), peer))
          print(f"{name} is ready.", file=sys.stderr, flush=True)
        except ValueError as error:
          results[name] = Result(name, failure=str(error))
          print(f"{name}: {error}", file=sys.stderr, flush=True)
      try:
        for i in range(rounds):
          turns = [(own, own_peer), *group]
          for result, peer in turns[:: -1 if i % 2 else 1]:
            if result.failure:
              continue
            try:
              take(result, peer)
            except ValueError as error:
              if result is own:
                raise
              result.failure = str(error)
          for result, _ in group:
            if not result.failure:
              ratio = own.tokens_per_second[-1] / result.tokens_per_second[-1]
              result.ratios.append(ratio)
      finally:
        for _, peer in group:
          peer.stop()
      if not pending:
        break
  for name, result in results.items():
    if result.failure:
      results[name] = Result(name, failure=result.failure)
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
  rows = [row(comparison, result) for result in comparison.results]
  return f"{title}\n\n{markdown.table(_HEAD, rows)}\n"


def row(comparison: Comparison, result: Result) -> tuple[str, ...]:
  """Returns the cells of a row."""
  if result.failure:
    return result.system, f"failed: {result.failure}"
  rates = result.tokens_per_second
  flops = result.median * comparison.flops_per_token
  versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
  return (
    result.system,
    f"{result.median:,.0f}",
    f"{min(rates):,.0f} to {max(rates):,.0f}",
    result.ratio(),
    f"{result.peak_bytes / _GIB:.2f} GiB",
    f"{flops / comparison.product_flops:.0%}",
    f"{result.losses[0]:.2f} to {result.losses[-1]:.2f}",
    f"{versions}: {result.about}",
  )


def save(comparison: Comparison, folder: str) -> None:
  """Saves the numbers, and table and plot of all comparisons in the folder."""
  from tools.benchmarks import plots  # Matplotlib takes a second to load.

  os.makedirs(folder, exist_ok=True)
  numbers = dataclasses.asdict(comparison)
  path = os.path.join(folder, comparison.file_name)
  files.write_json(path, numbers, indent=2)
  comparisons = load_all(folder)
  text = "\n".join(table(each) for each in comparisons)
  files.write_text(os.path.join(folder, "peers.md"), text)
  plots.draw_peers(comparisons, os.path.join(folder, "benchmark_peers.png"))


def load_all(folder: str) -> list[Comparison]:
  """Reads the saved comparisons of a folder, in the order of their names.

  Raises:
    ValueError: a file is not a comparison.
  """
  return [_load(p) for p in sorted(pathlib.Path(folder).glob("peers-*.json"))]


def _load(path: pathlib.Path) -> Comparison:
  try:
    fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    fields["workload"] = protocol.Workload(**fields["workload"])
    fields["results"] = [Result(**result) for result in fields["results"]]
    return Comparison(**fields)
  except (TypeError, KeyError, ValueError) as error:
    raise ValueError(
      f"{path} was not written by this benchmark ({error}): remove it."
    ) from error
