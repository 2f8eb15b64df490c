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
import tempfile
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from official_albert import files, machine
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks.peers.protocol import Workload
from official_albert.tools.cli import child_programs, printing

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
PEERS_DIR = pathlib.Path("~/.cache/official_albert/peers").expanduser()
_REQUIREMENTS = pathlib.Path(__file__).parent / "peers/requirements"
# Where the top-level package is, also in a clone, where tools is a link.
_ROOT = pathlib.Path(__file__).absolute().parents[3]
# Untimed steps. The first includes compilation.
_WARMUP_STEPS = 3


class System(NamedTuple):
  """How to run a module of `tools.benchmarks.peers`.

  Attributes:
    program: "ours", "exports", or "huggingface" with its virtual environment.
    variant, settings: see `protocol.Workload`.
    environment: more variables of the environment.
  """

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
  """The measurements of one system.

  Attributes:
    system: its name.
    tokens_per_second: one for each turn.
    ratios: our speed divided by its speed, one for each round.
    start_seconds: from the start of its process to the end of its first step.
    results, about, trace_seconds, peak_bytes, product_flops: of
      `protocol.Program`; all results, and the last of the others.
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

  def ratio(self) -> str:
    """Returns the cell of a table with the ratios."""
    if not self.ratios:
      return ""
    low, high = min(self.ratios), max(self.ratios)
    return f"{statistics.median(self.ratios):.2f} ({low:.2f} to {high:.2f})"


class Peer:
  """A system that has warmed up and takes turns; `result` grows with them."""

  def __init__(self, name: str, system: System, workload: Workload):
    """Starts it; a ValueError has the reason of a failure, also in `turn`."""
    self.result, self._tokens = Result(name), workload.tokens
    workload = dataclasses.replace(
      workload,
      variant=system.variant,
      settings={**workload.settings, **system.settings},
    )
    module = f"official_albert.tools.benchmarks.peers.{system.program}"
    environment = {
      **os.environ,
      "OMP_NUM_THREADS": str(workload.threads),
      # Two programs share a GPU, which TensorFlow would fill.
      "TF_FORCE_GPU_ALLOW_GROWTH": "true",
      **system.environment,
    }
    # Each environment has its own tf.keras.
    environment.pop("TF_USE_LEGACY_KERAS", None)
    self._stderr = tempfile.TemporaryFile()
    start = time.monotonic()
    self._process = subprocess.Popen(
      [system.python(), "-m", module, json.dumps(dataclasses.asdict(workload))],
      cwd=_ROOT,
      env=environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._stderr,
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
      self._stderr.seek(0)
      lines = self._stderr.read().decode(errors="replace").strip().splitlines()
      reason = lines[-1] if lines else "no output"
      if code == -9:
        reason = "killed, perhaps because memory ran out"
      name = self.result.system
      raise ValueError(f"{name} ended with exit code {code}: {reason}")
    answer = json.loads(line)
    seconds = answer.pop("seconds")
    self.result.results += answer.pop("results")
    for name, value in answer.items():
      setattr(self.result, name, value)
    return seconds

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *unused) -> None:
    """Ends the program, which has nothing left to do."""
    self._process.kill()
    self._process.communicate()
    self._stderr.close()


def workload_of(
  preset: str, batch_size: int, max_seq_length: int, precision: str
) -> Workload:
  """Returns the workload of a preset on all cores.

  Raises:
    ValueError: the preset is unknown, or takes fewer tokens.
  """
  config = AlbertConfig.from_preset(preset)
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"{preset} takes at most {config.max_position_embeddings} tokens, not "
      f"{max_seq_length}."
    )
  return Workload(
    *(config.to_dict(), batch_size, max_seq_length, precision),
    machine.cpu_count(),
  )


def choose(
  names: Sequence[str],
  known: Mapping[str, System],
  default: Sequence[str],
  workload: Workload,
) -> list[str]:
  """Returns the first of the default systems, then the chosen ones.

  Raises:
    ValueError: one is unknown or not installed, or cannot do the work.
  """
  if unknown := set(names) - set(known):
    raise ValueError(
      f"unknown systems {', '.join(sorted(unknown))}; choose some of "
      f"{', '.join(known)}."
    )
  if workload.config.get("sharing", "all") != "all":
    raise ValueError("other systems share one block among all layers.")
  if workload.precision not in PRECISIONS:
    raise ValueError(
      f"other systems do not support the precision {workload.precision!r}; "
      f"choose one of {', '.join(PRECISIONS)}."
    )
  chosen = list(dict.fromkeys([default[0], *(names or default)]))
  for name in chosen:
    known[name].python()
  return chosen


def take_turns(
  names: Sequence[str], start: Callable[[str], Peer], rounds: int, steps: int
) -> list[Result]:
  """Measures the first system, which is ours, in turns with each of the others.

  One ends before the next one starts, so at most two models are in memory. A
  system that fails has a `failure`.

  Args:
    names: the systems.
    start: starts a system by its name.
    rounds: the turns of each system.
    steps: the steps of a turn.

  Returns:
    The results in the order of the names.
  """
  first, *others = names
  with start(first) as own:
    results = [own.result]
    for name in others:
      try:
        with start(name) as peer:
          for i in range(rounds):
            pair = [own, peer]
            rates = {x: x.turn(steps) for x in (pair[::-1] if i % 2 else pair)}
            peer.result.ratios.append(rates[own] / rates[peer])
          results.append(peer.result)
      except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        results.append(Result(name, failure=str(error)))
    while len(own.result.tokens_per_second) < rounds:  # No other took turns.
      own.turn(steps)
  return results


def report(
  output_dir: str,
  name: str,
  title: str,
  head: Sequence[str],
  cells: Callable[[Result], Sequence[str]],
  workload: Workload,
  results: Sequence[Result],
) -> None:
  """Prints a title and a row for each system.

  If there is a folder, it gets NAME.md, and NAME.json with the raw numbers.
  """
  rows = [
    (x.system, f"failed: {x.failure}")
    if x.failure
    else (x.system, *cells(x), x.about)
    for x in results
  ]
  table = printing.table(("system", *head, "set up as"), rows)
  text = f"{title}\n\n{table}\n"
  print(text, flush=True)
  if output_dir:
    path = os.path.join(output_dir, name)
    numbers = {
      "machine": machine.describe_machine(),
      "workload": dataclasses.asdict(workload),
      "results": [dataclasses.asdict(result) for result in results],
    }
    files.write_json(f"{path}.json", numbers, indent=2)
    files.write_text(f"{path}.md", text)
