"""Systems that a benchmark measures in turns, and the tables of their numbers.

Every system is a process that keeps its model. Our system takes turns with each
of the others, so a busy minute of the machine affects both, and ratios are
computed within a round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Mapping, NamedTuple, Sequence

from official_albert import files, machine
from official_albert.config import AlbertConfig
from official_albert.settings import setting
from official_albert.tools.benchmarks.peers.protocol import Workload
from official_albert.tools.cli import child_programs, printing

# glibc keeps memory instead of returning it to the system. Otherwise PyTorch
# spends a quarter of a step on getting large tensors page by page. TensorFlow
# does not become faster.
MALLOC_TUNED = {
  "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
  "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
  "MALLOC_TOP_PAD_": str(1 << 28),
}
PEERS_DIR = pathlib.Path("~/.cache/official_albert/peers").expanduser()
_REQUIREMENTS = pathlib.Path(__file__).parent / "peers/requirements"
# Where the top-level package is, also in a clone, where tools is a link.
_ROOT = pathlib.Path(__file__).absolute().parents[3]
# Untimed steps. The first includes compilation.
_WARMUP_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Options:
  """What the program is asked for: its flags."""

  preset: str = setting("albert_base_v2", "Model to measure.")
  batch_size: int = setting(
    32, "Sequences per batch of the reader or the step.", least=1
  )
  max_seq_length: int = setting(512, "Tokens per sequence.", least=1)
  precision: str = setting(
    "float32",
    "Precision of the step.",
    ("float32", "mixed_bfloat16"),  # What all systems support.
  )
  repeats: int = setting(3, "Turns of each variant.", least=1)
  steps: int = setting(4, "Steps per turn.", least=1)
  systems: Sequence[str] = ()
  input_files: str = ""
  spm_model_file: str = ""
  output_dir: str = ""

  def workload(self) -> Workload:
    """Returns the workload of the model on all cores."""
    config = AlbertConfig.from_preset(self.preset)
    if self.max_seq_length > config.max_position_embeddings:
      raise ValueError(
        f"{self.preset} takes at most {config.max_position_embeddings} tokens, "
        f"not {self.max_seq_length}."
      )
    return Workload(
      *(config.to_dict(), self.batch_size, self.max_seq_length),
      *(self.precision, machine.cpu_count()),
    )


class System(NamedTuple):
  """How to run a program of `tools.benchmarks.peers`; see `Workload`."""

  program: str
  variant: str = ""
  environment: Mapping[str, str] = {}
  settings: Mapping[str, Any] = {}

  def python(self) -> str:
    """Returns its interpreter, or raises ValueError with how to install it."""
    if self.program != "huggingface":
      return sys.executable
    # The only Python for which all of the requirements have packages.
    return child_programs.find_environment(
      PEERS_DIR / "official_albert_huggingface",
      *(_REQUIREMENTS / "huggingface.txt", "3.11"),
    )


@dataclasses.dataclass
class Result:
  """The measurements of one system."""

  system: str
  tokens_per_second: list[float] = dataclasses.field(default_factory=list)
  # Our speed divided by its speed, in each round.
  ratios: list[float] = dataclasses.field(default_factory=list)
  # Of all steps.
  results: list[float] = dataclasses.field(default_factory=list)
  start_seconds: float = 0.0  # To the end of its first step.
  # The last ones of its program; see `protocol.Facts`.
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)
  failure: str = ""  # Why there are no numbers.

  def cells(self, **columns: str) -> dict[str, str]:
    """Returns a row of a table: `columns` beside those of every system."""
    if self.failure:
      return {"system": self.system, "speed": f"failed: {self.failure}"}
    ratios = ""
    if self.ratios:
      ratios = f"{statistics.median(self.ratios):.2f} "
      ratios += f"({min(self.ratios):.2f} to {max(self.ratios):.2f})"
    return {
      "system": self.system,
      **columns,
      "ours, times as fast": ratios,
      "peak memory": f"{self.facts['peak_bytes'] / 2**30:.2f} GiB",
      "s to the first result": f"{self.start_seconds:.1f}",
      "set up as": self.facts["about"],
    }


class Peer:
  """A system that has warmed up and takes turns; `result` grows with them."""

  def __init__(self, name: str, system: System, workload: Workload):
    """Starts it; a ValueError says that it has ended, also in `turn`."""
    self.result, self._tokens = Result(name), workload.tokens
    settings = {**workload.settings, **system.settings}
    workload = dataclasses.replace(
      workload, variant=system.variant, settings=settings
    )
    environment = {
      **os.environ,
      "OMP_NUM_THREADS": str(workload.threads),
      # Two programs share a GPU, which TensorFlow would fill.
      "TF_FORCE_GPU_ALLOW_GROWTH": "true",
      **system.environment,
    }
    module = f"official_albert.tools.benchmarks.peers.{system.program}"
    start = time.monotonic()
    self._process = subprocess.Popen(
      [system.python(), "-m", module, json.dumps(dataclasses.asdict(workload))],
      cwd=_ROOT,
      env=environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    try:
      self._take(1)
      self.result.start_seconds = time.monotonic() - start
      self._take(_WARMUP_STEPS - 1)
    except BaseException:
      self.__exit__()
      raise

  def turn(self, steps: int) -> float:
    """Takes steps; returns the tokens per second."""
    rate = self._tokens * steps / self._take(steps)
    self.result.tokens_per_second.append(rate)
    return rate

  def _take(self, steps: int) -> float:
    """Takes steps; returns their seconds."""
    with contextlib.suppress(BrokenPipeError):  # It has ended: see below.
      print(steps, file=self._process.stdin, flush=True)
    line = self._process.stdout.readline()
    if not line:
      code = self._process.wait()
      reason = "killed: perhaps memory ran out" if code == -9 else "see above"
      raise ValueError(
        f"{self.result.system} ended with exit code {code} ({reason})."
      )
    self.result.facts = json.loads(line)
    self.result.results += self.result.facts.pop("results")
    return self.result.facts.pop("seconds")

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *unused) -> None:
    """Ends the program, which has nothing left to do."""
    self._process.kill()
    self._process.communicate()


def choose(
  names: Sequence[str], known: Mapping[str, System], default: Sequence[str]
) -> list[str]:
  """Returns the first of the default systems, then the chosen ones."""
  if unknown := set(names) - set(known):
    raise ValueError(
      f"--systems has no choice {', '.join(sorted(unknown))}: choose some of "
      f"{', '.join(known)}."
    )
  chosen = list(dict.fromkeys([default[0], *(names or default)]))
  for name in chosen:
    known[name].python()
  return chosen


def take_turns(
  names: Sequence[str],
  systems: Mapping[str, System],
  workload: Workload,
  options: Options,
) -> list[Result]:
  """Measures the first system, which is ours, in turns with each of the others.

  One ends before the next one starts, so at most two models are in memory. A
  system that fails has a `failure`.
  """
  rounds, steps = options.repeats, options.steps
  first, *others = names
  with Peer(first, systems[first], workload) as own:
    results = [own.result]
    for name in others:
      try:
        with Peer(name, systems[name], workload) as peer:
          for i in range(rounds):
            pair = [own, peer]
            rates = {x: x.turn(steps) for x in (pair[::-1] if i % 2 else pair)}
            peer.result.ratios.append(rates[own] / rates[peer])
          results.append(peer.result)
      except ValueError as error:
        print(error, file=sys.stderr, flush=True)
        results.append(Result(name, failure=str(error)))
    while len(own.result.tokens_per_second) < rounds:  # No other took turns.
      own.turn(steps)
  return results


def report(
  options: Options,
  benchmark: str,
  note: str,
  rows: Sequence[Mapping[str, str]],
  workload: Workload,
  results: Any,
) -> None:
  """Prints a table of rows with the same columns.

  If there is a folder, it gets the table, and the raw results as JSON.
  """
  size = f"s{workload.max_seq_length}-b{workload.batch_size}"
  name = f"{benchmark}-{options.preset}-{size}-{workload.precision}"
  title = f"{name}, {note}: {machine.describe_machine()}"
  table = printing.table(list(rows[0]), [list(x.values()) for x in rows])
  text = f"{title}\n\n{table}\n"
  print(f"\n{text}", flush=True)
  if options.output_dir:
    path = os.path.join(options.output_dir, name)
    numbers = {"title": title, "workload": workload, "results": results}
    files.write_json(f"{path}.json", numbers, default=dataclasses.asdict)
    files.write_text(f"{path}.md", text)
