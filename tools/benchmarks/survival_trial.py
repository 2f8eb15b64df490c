"""One training run with accidents beside a twin without: the same curve?

    mount -t tmpfs -o size=256m tmpfs DIR/harmed       # a disk to fill up
    python -m tools.benchmarks.survival_trial --output_dir=DIR \\
        --minutes=120 -- \\
        --input_dir=DATA --preset=albert_tiny --num_train_steps=20000 ...

What follows `--` are flags of tools.run_pretraining, which runs twice at the
same time, each with half of the cores: in DIR/quiet undisturbed, in DIR/harmed
with one accident after the other, and started again after each. When the time
is over, the two runs are compared up to the last checkpoint that both have,
number by number and weight by weight, and drawn into DIR/survival.png;
DIR/survival.json says what happened when.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Callable, Optional, Sequence

from absl import flags

from official_albert import files
from tools.benchmarks import survival_report
from tools.cli import command_line, path_flags

_OUTPUT_DIR = path_flags.define("output_dir", None, "Folder of both runs.")
_MINUTES = flags.DEFINE_float(
  "minutes", 120, "Time in which the accidents happen, evenly spread."
)

_PREEMPTED = 128 + signal.SIGTERM
# A larger disk would take long to fill, and be somebody's.
_LARGEST_DISK_BYTES = 1 << 30
_WAIT_SECONDS = 0.5


class Run:
  """One folder, trained by one process at a time."""

  def __init__(self, model_dir: str, arguments: Sequence[str], cores: set[int]):
    self.model_dir = model_dir
    self._command = [sys.executable, "-m", "tools.run_pretraining"]
    self._command += [f"--model_dir={model_dir}", *arguments]
    self._cores = cores
    self.log = f"{model_dir}.log"
    self.process: Optional[subprocess.Popen] = None

  def start(self) -> None:
    """Starts the same command, as a user would."""
    with open(self.log, "a", encoding="utf-8") as log:
      self.process = subprocess.Popen(
        self._command,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: os.sched_setaffinity(0, self._cores),
      )

  def step(self) -> int:
    """The last step that is logged."""
    return survival_report.last_step(self.model_dir)

  def kill(self, number: int = signal.SIGKILL) -> int:
    """Sends a signal and waits; the exit code, negative for a signal's."""
    self.process.send_signal(number)
    return self.process.wait()


@dataclasses.dataclass(frozen=True)
class Accident:
  """Something that ends a run; `happen` returns what was seen of it."""

  name: str
  happen: Callable[[Run], str]


def kill_in_a_step(run: Run) -> str:
  """SIGKILL at any moment between two log lines."""
  step = run.step()
  while run.step() == step and run.process.poll() is None:
    time.sleep(0.01)
  time.sleep(0.7)
  return f"exit code {run.kill()}"


def kill_in_a_save(run: Run) -> str:
  """SIGKILL as soon as a half-written checkpoint is seen."""
  while run.process.poll() is None:
    half = [name for name in os.listdir(run.model_dir) if "_temp" in name]
    if half:
      return f"exit code {run.kill()}, {half[0]} was being written"
  return f"the run had ended with {run.process.returncode}"


def terminate(run: Run) -> str:
  """SIGTERM, as a scheduler sends it before it takes the machine."""
  code = run.kill(signal.SIGTERM)
  if code != _PREEMPTED:
    raise ValueError(f"SIGTERM ended the run with {code}, not {_PREEMPTED}.")
  return f"exit code {code}"


def corrupt_the_newest(run: Run) -> str:
  """SIGKILL, and the newest checkpoint's data loses its second half."""
  run.kill()
  path = survival_report.newest_data_file(run.model_dir)
  size = os.path.getsize(path)
  os.truncate(path, size // 2)
  return f"{os.path.basename(path)} cut from {size:,} to {size // 2:,} bytes"


def fill_the_disk(run: Run) -> str:
  """No room from now on; when the run has ended, there is room again."""
  filler = os.path.join(run.model_dir, "filler")
  with open(filler, "wb", buffering=0) as file:
    try:
      while True:
        file.write(b"x" * (1 << 16))
    except OSError:
      pass
  code = run.process.wait()
  size = os.path.getsize(filler)
  os.remove(filler)
  if code <= 0:
    raise ValueError(f"a full disk ended the run with {code}, not an error.")
  with open(run.log, encoding="utf-8", errors="replace") as file:
    said = [line.strip() for line in file if line.strip()][-1]
  return f"{size:,} bytes of filler, exit code {code}: {said}"


ACCIDENTS = (
  Accident("SIGKILL in a step", kill_in_a_step),
  Accident("SIGKILL in a save", kill_in_a_save),
  Accident("SIGTERM", terminate),
  Accident("corrupt newest checkpoint", corrupt_the_newest),
  Accident("full disk", fill_the_disk),
  Accident("SIGKILL in a save, again", kill_in_a_save),
)


def check_disk(model_dir: str) -> None:
  """Refuses to fill up a disk that others need.

  Raises:
    ValueError: the folder is on a large disk.
  """
  free = shutil.disk_usage(model_dir).free
  if free > _LARGEST_DISK_BYTES:
    raise ValueError(
      f"{model_dir} is on a disk with {free / 2**30:.0f} GiB free, too much "
      "to fill up for a trial: mount a small file system there first "
      "(mount -t tmpfs -o size=256m tmpfs FOLDER)."
    )


def trial(
  quiet: Run,
  harmed: Run,
  minutes: float,
  accidents: Sequence[Accident] = ACCIDENTS,
) -> list[dict]:
  """Trains both, with accidents, until the time is over or both are done.

  Both have started. At the end they are stopped; the harmed run, which has
  lost time, first catches up with a checkpoint that the quiet one has.

  Returns:
    For each accident its `name`, the `step` logged last before it, the
    `minutes` since the start, and what was `seen`.

  Raises:
    ValueError: a run ended with an error that no accident explains.
  """
  begun = time.monotonic()
  happened = []

  def minutes_passed() -> float:
    return (time.monotonic() - begun) / 60

  while not (_is_done(quiet) and _is_done(harmed)):
    due = minutes * (len(happened) + 1) / (len(accidents) + 1)
    if minutes_passed() >= minutes:
      if quiet.process.poll() is None:
        terminate(quiet)
      if survival_report.last_common_step(quiet.model_dir, harmed.model_dir):
        if harmed.process.poll() is None:
          terminate(harmed)
        break
    elif len(happened) < len(accidents) and minutes_passed() >= due:
      accident = accidents[len(happened)]
      begun_at = round(minutes_passed(), 1)
      seen = accident.happen(harmed)
      happened.append(
        {
          "name": accident.name,
          "step": harmed.step(),
          "minutes": begun_at,
          "seen": seen,
        }
      )
      print(f"step {harmed.step():,}  {accident.name}: {seen}", flush=True)
      harmed.start()
    time.sleep(_WAIT_SECONDS)
  return happened


def _is_done(run: Run) -> bool:
  """Whether it came to its end; an end by itself before that is an error."""
  code = run.process.poll()
  if code not in (None, 0, _PREEMPTED):
    raise ValueError(
      f"{run.model_dir} ended by itself with exit code {code}: see {run.log}."
    )
  return code == 0


def main(argv: Sequence[str]) -> None:
  arguments = list(argv[1:])
  folder = _OUTPUT_DIR.value
  paths = [os.path.join(folder, name) for name in ("quiet", "harmed")]
  for path in paths:
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
      raise ValueError(
        f"{path} is not empty: a trial begins with two new runs."
      )
  check_disk(paths[1])
  cores = sorted(os.sched_getaffinity(0))
  if len(cores) < 2:
    raise ValueError("the two runs need a core each, but there is only one.")
  half = len(cores) // 2
  quiet = Run(paths[0], arguments, set(cores[:half]))
  harmed = Run(paths[1], arguments, set(cores[half : 2 * half]))
  begun = time.monotonic()
  try:
    quiet.start()
    harmed.start()
    happened = trial(quiet, harmed, _MINUTES.value)
  finally:
    for run in (quiet, harmed):
      if run.process and run.process.poll() is None:
        run.kill()
  result = {
    "accidents": happened,
    "hours": round((time.monotonic() - begun) / 3600, 2),
    **survival_report.compare(*paths),
  }
  files.write_json(os.path.join(folder, "survival.json"), result)
  survival_report.draw(
    *paths,
    [(a["step"], a["name"]) for a in happened],
    os.path.join(folder, "survival.png"),
  )
  print(survival_report.sentence(result))
  if not result["is_the_same"]:
    raise ValueError("the two runs differ: see survival.json.")


if __name__ == "__main__":
  flags.mark_flags_as_required(["output_dir"])
  command_line.run(main, max_arguments=1000)
