"""Compares this project's training step with other implementations of ALBERT.

Every system is a process that keeps its model. Our system takes turns with each
of the others, so a busy minute of the machine affects both, and ratios are
computed within a round.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
import sys
from typing import Callable, Mapping, NamedTuple, Optional, Sequence

from official_albert import distribution, files, modeling
from official_albert.tools.benchmarks.peers import ours, protocol
from official_albert.tools.cli import child_programs, printing

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


class System(NamedTuple):
  """How to run a module of `tools.benchmarks.peers`; see `SYSTEMS`."""

  program: str
  variant: str = ""
  venv: Optional[str] = None
  environment: Mapping[str, str] = {}


_OWN_SYSTEM = System("ours")
SYSTEMS = {
  OURS: _OWN_SYSTEM,
  f"{OURS}_jit": System("ours", "xla"),
  # As users run it, then with more and more tuning.
  "hf_eager": System("huggingface", "eager", "huggingface"),
  "hf_sdpa": System("huggingface", "sdpa", "huggingface"),
  "hf_eager_malloc": System(
    "huggingface", "eager", "huggingface", MALLOC_TUNED
  ),
  "hf_tuned": System("huggingface", "tuned", "huggingface", MALLOC_TUNED),
  "hf_compiled": System("huggingface", "compiled", "huggingface", MALLOC_TUNED),
  **{
    f"{venv}{suffix}": System("keras_peers", f"{venv}{suffix}", venv)
    for venv in ("keras_hub", "model_garden")
    for suffix in ("", "_jit")
  },
}
# Without those that are slow on CPUs (XLA for the whole step takes 1.3 to 2
# times as long) or need a C++ compiler (torch.compile, which gains little).
DEFAULT_SYSTEMS = tuple(
  name for name in SYSTEMS if not name.endswith(("_jit", "_compiled"))
)


@dataclasses.dataclass
class Result:
  """The measurements of one system.

  `tokens_per_second` has an item per turn; `ratios`, our speed divided by its
  speed, one per round. `failure` says why there are no numbers. The other
  fields are those of `protocol.Ready` and `protocol.Timed`.
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
  trace_seconds: float = 0.0
  start_bytes: int = 0
  product_flops: float = 0.0

  @classmethod
  def of(cls, system: str, peer: protocol.Peer) -> Result:
    """Returns what is known after the warm-up."""
    warmup = peer.warmup
    return cls(
      system,
      losses=list(warmup.losses),
      first_step_seconds=warmup.seconds[0],
      **peer.ready._asdict(),
    )

  def measure(self, peer: protocol.Peer, tokens: int, steps: int) -> None:
    """Takes a turn: `steps` steps of `tokens` tokens."""
    timed = peer.run(steps)
    self.tokens_per_second.append(tokens * steps / sum(timed.seconds))
    self.losses += timed.losses
    self.peak_bytes = timed.peak_bytes
    self.product_flops = max(self.product_flops, timed.product_flops)

  @property
  def median(self) -> float:
    """The median tokens per second."""
    return statistics.median(self.tokens_per_second)

  @property
  def range(self) -> str:
    """The cell of a table with the lowest and highest tokens per second."""
    rates = self.tokens_per_second
    return f"{min(rates):,.0f} to {max(rates):,.0f}"

  @property
  def peak(self) -> str:
    """The cell of a table with the peak memory."""
    return f"{self.peak_bytes / 2**30:.2f} GiB"

  def ratio(self) -> str:
    """Returns the cell of a table with the ratios."""
    if self.system == OURS:
      return "1"
    low, high = min(self.ratios), max(self.ratios)
    return f"{statistics.median(self.ratios):.2f} ({low:.2f} to {high:.2f})"


def workload_of(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  ours_alone: bool = False,
) -> protocol.Workload:
  """Returns the workload of a preset on all cores.

  With `ours_alone`, it may be one that other systems do not support: any
  precision, dropout, and layers that do not share all weights.
  """
  config = modeling.AlbertConfig.from_preset(preset)
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"{preset} takes at most {config.max_position_embeddings} tokens, not "
      f"{max_seq_length}."
    )
  if config.sharing != "all" and not ours_alone:
    raise ValueError(f"{preset} does not share one block among its layers.")
  if not ours_alone and precision not in protocol.PRECISIONS:
    raise ValueError(
      f"other systems do not support the precision {precision!r}; choose one "
      f"of {', '.join(protocol.PRECISIONS)}."
    )
  sizes = {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(protocol.Workload)
    if hasattr(config, field.name)
  }
  if not ours_alone:
    sizes.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
  return protocol.Workload(
    batch_size=batch_size,
    max_seq_length=max_seq_length,
    precision=precision,
    threads=distribution.cpu_count(),
    **sizes,
  )


def flops_per_token(workload: protocol.Workload) -> float:
  """Returns the operations of forward and backward pass and the heads."""
  length, config = workload.max_seq_length, ours.config_of(workload)
  return config.pretraining_flops(length, workload.predictions) / length


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
    f"official_albert.tools.benchmarks.peers.{system.program}",
    dataclasses.replace(workload, variant=system.variant),
    system.environment,
  )


def measure(workload: protocol.Workload, repeats: int, steps: int) -> Result:
  """Measures our system alone in `repeats` turns of `steps` steps."""
  with start(_OWN_SYSTEM, workload) as peer:
    result = Result.of(OURS, peer)
    for _ in range(repeats):
      result.measure(peer, workload.tokens, steps)
  return result


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
) -> None:
  """Compares, prints the table, and saves table, numbers and plot."""
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
    if venv:
      pythons[venv] = make_environment(venv, peers_dir)
  results = take_turns(
    lambda name: start(SYSTEMS[name], workload, pythons[SYSTEMS[name].venv]),
    *(peers, workload.tokens, repeats, steps),
  )
  title = f"{preset}, S {max_seq_length}, B {batch_size}, {precision}"
  machine = f"{distribution.describe_machine()}, {workload.threads} threads"
  flops = flops_per_token(workload)
  text = table(f"{title}: {machine}", flops, results)
  print(text, flush=True)
  if output_dir:
    path = os.path.join(
      output_dir, f"peers-{preset}-s{max_seq_length}-b{batch_size}-{precision}"
    )
    numbers = {
      "machine": machine,
      "workload": dataclasses.asdict(workload),
      "flops_per_token": flops,
      "results": [dataclasses.asdict(result) for result in results],
    }
    files.write_json(f"{path}.json", numbers, indent=2)
    files.write_text(f"{path}.md", text)
    draw(title, results, f"{path}.png")


def take_turns(
  start: Callable[[str], protocol.Peer],
  peers: Sequence[str],
  tokens: int,
  rounds: int,
  steps: int,
) -> list[Result]:
  """Measures our system in turns with each of its peers.

  A peer ends before the next one starts, so at most two models are in memory.
  Returns our result, then the peers' in their order. `start` starts a system by
  its name.
  """
  with start(OURS) as own_peer:
    own = Result.of(OURS, own_peer)
    results = [own]
    for name in peers:
      try:
        with start(name) as peer:
          result = Result.of(name, peer)
          for i in range(rounds):
            turns = [(own, own_peer), (result, peer)]
            for each, process in reversed(turns) if i % 2 else turns:
              each.measure(process, tokens, steps)
            ratio = own.tokens_per_second[-1] / result.tokens_per_second[-1]
            result.ratios.append(ratio)
      except ValueError as error:
        if own_peer.has_failed:
          raise
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        result = Result(name, failure=str(error))
      results.append(result)
    while len(own.tokens_per_second) < rounds:  # There is no other system.
      own.measure(own_peer, tokens, steps)
  return results


_HEAD = (
  *("system", "tokens/s", "lowest to highest", "ours, times as fast"),
  *("peak memory", "of the products' rate", "loss, first to last", "set up as"),
)


def table(title: str, flops_per_token: float, results: Sequence[Result]) -> str:
  """Returns Markdown: a paragraph, and a row per system.

  Our system takes turns with every peer, so it takes more steps than they do.
  The last loss is the one after as many steps as every system has taken.
  """
  product_flops = max(result.product_flops for result in results)
  steps = min(len(result.losses) for result in results if not result.failure)
  rows = []
  for result in results:
    if result.failure:
      rows.append((result.system, f"failed: {result.failure}"))
      continue
    versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    rows.append(
      (
        *(result.system, f"{result.median:,.0f}", result.range),
        *(result.ratio(), result.peak),
        f"{result.median * flops_per_token / product_flops:.0%}",
        f"{result.losses[0]:.2f} to {result.losses[steps - 1]:.2f}",
        f"{versions}: {result.about}",
      )
    )
  return (
    f"{title}; matrix products reach {product_flops / 1e9:,.0f} GFLOP/s.\n\n"
    f"{printing.table(_HEAD, rows)}\n"
  )


def draw(title: str, results: Sequence[Result], output_file: str) -> None:
  """Writes a PNG with a bar per system."""
  pyplot = printing.load_pyplot()

  measured = [result for result in results if not result.failure]
  measured.sort(key=lambda result: result.median)  # The fastest is on top.
  figure, axis = pyplot.subplots(figsize=(6.2, 3.0))
  for y, result in enumerate(measured):
    is_own, rates = result.system == OURS, result.tokens_per_second
    axis.barh(y, result.median, color="#1f77b4" if is_own else "#b8bec6")
    axis.hlines(y, min(rates), max(rates), color="#444444", linewidth=1)
    weight = "bold" if is_own else "normal"
    text = f" {result.median:,.0f}"
    axis.text(max(rates), y, text, va="center", fontweight=weight)
  axis.set_yticks(range(len(measured)), [result.system for result in measured])
  axis.margins(x=0.18)
  figure.suptitle(title, x=0.01, ha="left", fontsize=9)
  axis.set_xlabel("tokens/s: median and range of the rounds")
  axis.spines[["top", "right", "left"]].set_visible(False)
  axis.grid(axis="x", alpha=0.25)
  axis.set_axisbelow(True)
  figure.tight_layout()
  printing.save_figure(figure, output_file, dpi=120)
