"""Systems that a benchmark measures in turns, and the tables of their numbers.

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
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from official_albert import files, machine
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.cli import child_programs, printing

OURS = "official_albert"
# What all systems support.
PRECISIONS = ("float32", "mixed_bfloat16")
# glibc keeps memory instead of returning it to the system. Otherwise PyTorch
# spends a quarter of a step on getting large tensors page by page. TensorFlow
# does not become faster.
MALLOC_TUNED = {
  "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
  "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
  "MALLOC_TOP_PAD_": str(1 << 28),
}
_REQUIREMENTS_DIR = pathlib.Path(__file__).parent / "peers" / "requirements"
# The only Python for which all of the requirements have packages.
_PYTHON = "3.11"


class System(NamedTuple):
  """How to run a module of `tools.benchmarks.peers`.

  Attributes:
    program: "ours", "exports", or "huggingface" with its virtual environment.
    variant: see `protocol.Workload`.
    environment: more variables of the environment.
    settings: see `protocol.Workload`.
  """

  program: str
  variant: str = ""
  environment: Mapping[str, str] = {}
  settings: Mapping[str, Any] = {}


# The systems of the benchmark serving.
SERVED = {
  "saved_model": System("exports", "saved_model"),
  "c_api": System("exports", "c_api"),
  "tflite": System("exports", "tflite"),
  "tflite_int8": System("exports", "tflite"),
  "hf_eager": System("huggingface", "eager"),
  "hf_sdpa": System("huggingface", "sdpa"),
  "hf_sdpa_malloc": System("huggingface", "sdpa", MALLOC_TUNED),
}


@dataclasses.dataclass
class Result:
  """The measurements of one system.

  Attributes:
    system: its name.
    tokens_per_second: one for each turn.
    ratios: our speed divided by its speed, one for each round.
    results: those of `protocol.Timed`, of all steps.
    start_seconds: from the start of its process to the end of its first step.
    about, trace_seconds, peak_bytes, product_flops: of `protocol.Timed`.
    failure: why there are no numbers.
  """

  system: str
  tokens_per_second: list[float] = dataclasses.field(default_factory=list)
  ratios: list[float] = dataclasses.field(default_factory=list)
  results: list[float] = dataclasses.field(default_factory=list)
  start_seconds: float = 0.0
  about: str = ""
  trace_seconds: float = 0.0
  peak_bytes: int = 0
  product_flops: float = 0.0
  failure: str = ""

  @classmethod
  def of(cls, system: str, peer: protocol.Peer) -> Result:
    """Returns what is known after the warm-up."""
    return cls(
      system,
      results=list(peer.warmup.results),
      start_seconds=peer.start_seconds,
      about=peer.warmup.about,
      trace_seconds=peer.warmup.trace_seconds,
    )

  def measure(self, peer: protocol.Peer, tokens: int, steps: int) -> None:
    """Takes a turn: `steps` steps of `tokens` tokens."""
    timed = peer.run(steps)
    self.tokens_per_second.append(tokens * steps / sum(timed.seconds))
    self.results += timed.results
    self.peak_bytes = timed.peak_bytes
    self.product_flops = max(self.product_flops, timed.product_flops)

  def ratio(self) -> str:
    """Returns the cell of a table with the ratios."""
    if not self.ratios:
      return ""
    low, high = min(self.ratios), max(self.ratios)
    return f"{statistics.median(self.ratios):.2f} ({low:.2f} to {high:.2f})"


def workload_of(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  **changes: Any,
) -> protocol.Workload:
  """Returns the workload of a preset on all cores, with changes of its model.

  Raises:
    ValueError: the preset is unknown, or takes fewer tokens.
  """
  config = AlbertConfig.from_preset(preset)
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"{preset} takes at most {config.max_position_embeddings} tokens, not "
      f"{max_seq_length}."
    )
  return protocol.Workload(
    {**config.to_dict(), **changes},
    batch_size,
    max_seq_length,
    precision,
    machine.cpu_count(),
  )


def check_comparable(preset: str, precision: str) -> None:
  """Raises ValueError if other systems cannot do the work."""
  if AlbertConfig.from_preset(preset).sharing != "all":
    raise ValueError(f"{preset} does not share one block among its layers.")
  if precision not in PRECISIONS:
    raise ValueError(
      f"other systems do not support the precision {precision!r}; choose one "
      f"of {', '.join(PRECISIONS)}."
    )


def choose(
  names: Sequence[str], known: Mapping[str, System], default: Sequence[str]
) -> list[str]:
  """Returns the first of the default systems, then the chosen ones."""
  if unknown := set(names) - set(known):
    raise ValueError(
      f"unknown systems {', '.join(sorted(unknown))}; choose some of "
      f"{', '.join(known)}."
    )
  return list(dict.fromkeys([default[0], *(names or default)]))


def find_environment(systems: Iterable[System], peers_dir: str) -> str:
  """Finds Hugging Face's environment if a system needs it.

  Returns:
    Its interpreter; "" if no system needs it.
  """
  if all(system.program != "huggingface" for system in systems):
    return ""
  folder = pathlib.Path(peers_dir).expanduser().absolute()
  return child_programs.find_environment(
    folder / "official_albert_huggingface",
    _REQUIREMENTS_DIR / "huggingface.txt",
    _PYTHON,
  )


def start(
  system: System, workload: protocol.Workload, hf_python: str
) -> protocol.Peer:
  """Starts a system; `hf_python` is the result of `find_environment`."""
  return protocol.Peer(
    hf_python if system.program == "huggingface" else sys.executable,
    f"official_albert.tools.benchmarks.peers.{system.program}",
    dataclasses.replace(
      workload,
      variant=system.variant,
      settings={**workload.settings, **system.settings},
    ),
    system.environment,
  )


def take_turns(
  names: Sequence[str],
  start: Callable[[str], protocol.Peer],
  tokens: int,
  rounds: int,
  steps: int,
) -> list[Result]:
  """Measures the first system, which is ours, in turns with each of the others.

  One ends before the next one starts, so at most two models are in memory. A
  system that fails has a `failure`.

  Args:
    names: the systems.
    start: starts a system by its name.
    tokens: those of a step.
    rounds: the turns of each system.
    steps: the steps of a turn.

  Returns:
    The results in the order of the names.
  """
  first, *others = names
  with start(first) as own_peer:
    own = Result.of(first, own_peer)
    results = [own]
    for name in others:
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
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        result = Result(name, failure=str(error))
      results.append(result)
    while len(own.tokens_per_second) < rounds:  # No other one took turns.
      own.measure(own_peer, tokens, steps)
  return results


def table(
  head: Sequence[str],
  results: Sequence[Result],
  cells: Callable[[Result], Sequence[str]],
) -> str:
  """Returns a row for each system: its name, its cells, how it is set up."""
  rows = [
    (result.system, f"failed: {result.failure}")
    if result.failure
    else (result.system, *cells(result), result.about)
    for result in results
  ]
  return printing.table(("system", *head, "set up as"), rows)


def save(
  output_dir: str,
  name: str,
  text: str,
  workload: protocol.Workload,
  results: Sequence[Result],
) -> None:
  """Prints a report; writes NAME.md, and NAME.json with the raw numbers."""
  print(text, flush=True)
  if output_dir:
    path = os.path.join(output_dir, name)
    numbers = {
      "machine": machine.describe_machine(),
      "workload": dataclasses.asdict(workload),
      "results": [dataclasses.asdict(result) for result in results],
    }
    files.write_json(f"{path}.json", numbers, indent=2)
    files.write_text(f"{path}.md", f"{text}\n")
