"""Trains twice, once with accidents, and checks that both runs are equal.

    mount -t tmpfs -o size=256m tmpfs DIR/harmed       # a disk to fill up
    python -m tools.benchmarks.survival_trial --output_dir=DIR \\
        --minutes=120 -- \\
        --input_dir=DATA --preset=albert_tiny --num_train_steps=20000 ...

The flags after `--` are those of tools.run_pretraining. It runs twice at the
same time, each run on half of the cores: in DIR/quiet without interruption, and
in DIR/harmed with one accident after the other, restarted after each. Then the
metrics and the weights of both runs are compared up to the last checkpoint that
both have. DIR/survival.json has the result and the accidents, DIR/survival.png
the curves of the harmed run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from absl import flags

from official_albert import files, training
from tools import inspection
from tools.cli import child_programs, command_line, path_flags

_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Folder of both runs.", local=True
)
_MINUTES = flags.DEFINE_float(
  "minutes", 120, "Time in which the accidents happen, evenly spread."
)

_PREEMPTED = 128 + signal.SIGTERM
# Larger disks take long to fill, and other programs may need them.
_LARGEST_DISK_BYTES = 1 << 30
_WAIT_SECONDS = 0.5
# Metrics that depend on the clock.
_NOT_COMPARED = {
  *("unix_time_seconds", "sequences_per_second", "tokens_per_second"),
  *("model_flops_per_second", "data_wait_share"),
}


class Run:
  """A folder in which one process at a time trains."""

  def __init__(self, model_dir: str, arguments: Sequence[str], cores: set[int]):
    self.model_dir = model_dir
    self.log = f"{model_dir}.log"
    self.process: Any = None
    self._command = child_programs.command(
      "tools.run_pretraining", f"--model_dir={model_dir}", *arguments
    )
    self._cores = cores

  def start(self) -> None:
    """Starts or resumes training, always by the same command."""
    with open(self.log, "a", encoding="utf-8") as log:
      self.process = subprocess.Popen(
        self._command,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: os.sched_setaffinity(0, self._cores),
      )

  def step(self) -> int:
    """Returns the last logged step, or 0."""
    if not files.exists(os.path.join(self.model_dir, training.METRICS_FILE)):
      return 0
    records = training.read_metrics(self.model_dir, "train")
    return records[-1]["step"] if records else 0

  def is_running(self) -> bool:
    """Returns whether the process has been started and has not ended."""
    return self.process is not None and self.process.poll() is None

  def is_complete(self) -> bool:
    """Returns whether training has finished."""
    code = self.process.poll()
    if code not in (None, 0, _PREEMPTED):
      raise ValueError(
        f"{self.model_dir} failed with exit code {code}: see {self.log}."
      )
    return code == 0

  def kill(self, number: int = signal.SIGKILL) -> int:
    """Sends a signal and waits; returns the exit code."""
    self.process.send_signal(number)
    return self.process.wait()


def kill_in_a_step(run: Run) -> str:
  """Sends SIGKILL between two log lines."""
  step = run.step()
  while run.step() == step and run.is_running():
    time.sleep(0.01)
  time.sleep(0.7)
  return f"exit code {run.kill()}"


def kill_in_a_save(run: Run) -> str:
  """Sends SIGKILL as soon as a partial checkpoint exists."""
  while run.is_running():
    for name in files.list_dir(run.model_dir):
      if "_temp" in name:
        return f"exit code {run.kill()}, while {name} was written"
  return f"the run had ended with {run.process.returncode}"


def terminate(run: Run) -> str:
  """Sends SIGTERM, like a scheduler that reclaims the machine."""
  code = run.kill(signal.SIGTERM)
  if code != _PREEMPTED:
    raise ValueError(f"SIGTERM ended the run with {code}, not {_PREEMPTED}.")
  return f"exit code {code}"


def corrupt_newest_checkpoint(run: Run) -> str:
  """Sends SIGKILL and truncates the data of the newest checkpoint."""
  import tensorflow as tf  # Here and below, so that --help is quick.

  run.kill()
  prefix = tf.train.latest_checkpoint(run.model_dir)
  path = files.glob(f"{prefix}.data-*")[0]
  size = os.path.getsize(path)
  os.truncate(path, size // 2)
  return f"{os.path.basename(path)} cut from {size:,} to {size // 2:,} bytes"


def fill_the_disk(run: Run) -> str:
  """Fills the disk until the run has ended."""
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
    last = [line.strip() for line in file if line.strip()][-1]
  return f"{size:,} bytes of filler, exit code {code}: {last}"


# Each ends the run and describes what it did.
ACCIDENTS: Mapping[str, Callable[[Run], str]] = {
  "SIGKILL in a step": kill_in_a_step,
  "SIGKILL in a save": kill_in_a_save,
  "SIGTERM": terminate,
  "corrupt newest checkpoint": corrupt_newest_checkpoint,
  "full disk": fill_the_disk,
  "SIGKILL in a save, again": kill_in_a_save,
}


def trial(quiet: Run, harmed: Run, minutes: float) -> list[dict[str, Any]]:
  """Waits for two started runs and causes `ACCIDENTS` in one of them.

  After `minutes` the quiet run is stopped. The harmed run, which has lost time,
  continues until both have a checkpoint of the same step.

  Returns:
    For each accident its `name`, the last `step` before it, the `minutes`
    since the start, and what was `seen`.
  """
  start = time.monotonic()
  happened: list[dict[str, Any]] = []
  pending = list(ACCIDENTS.items())
  while not (quiet.is_complete() and harmed.is_complete()):
    passed = (time.monotonic() - start) / 60
    due = minutes * (len(happened) + 1) / (len(ACCIDENTS) + 1)
    if passed >= minutes:
      if quiet.is_running():
        terminate(quiet)
      if last_common_step(quiet.model_dir, harmed.model_dir):
        if harmed.is_running():
          terminate(harmed)
        break
    elif pending and passed >= due:
      name, cause = pending.pop(0)
      seen, step = cause(harmed), harmed.step()
      happened.append(
        dict(name=name, step=step, minutes=round(passed, 1), seen=seen)
      )
      print(f"step {step:,}  {name}: {seen}", flush=True)
      harmed.start()
    time.sleep(_WAIT_SECONDS)
  return happened


def last_common_step(*folders: str) -> int:
  """Returns the newest step with a checkpoint in all folders, or 0."""
  steps = [
    {training.step_of(path) for path in training.list_checkpoints(folder)}
    for folder in folders
  ]
  return max(set.intersection(*steps), default=0)


def compare(quiet_dir: str, harmed_dir: str) -> dict[str, Any]:
  """Compares logs and weights up to the last common checkpoint.

  A run that stops between two log lines writes an additional record, and its
  next record is a mean over fewer steps, which is not compared.

  Returns:
    `last_step` of the comparison; for `train`, `eval` and `variables` the
    number of common `records` and how many `differ`; `is_the_same` if nothing
    differs and the harmed run lacks nothing.
  """
  import tensorflow as tf

  folders = (quiet_dir, harmed_dir)
  last = last_common_step(*folders)
  if not last:
    raise ValueError(
      f"{quiet_dir} and {harmed_dir} have no checkpoint of the same step: keep "
      "more of them (--keep_checkpoint_max)."
    )

  def records(folder: str, kind: str) -> dict[int, Any]:
    return {
      record["step"]: {k: record[k] for k in record.keys() - _NOT_COMPARED}
      for record in training.read_metrics(folder, kind)
      if record["step"] <= last
    }

  def variables(folder: str) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(
      os.path.join(folder, f"model.ckpt-{last}")
    )
    names = reader.get_variable_to_shape_map()
    # The harmed run saves more often.
    return {n: reader.get_tensor(n) for n in names if "save_counter" not in n}

  values = {k: [records(f, k) for f in folders] for k in ("train", "eval")}
  values["variables"] = [variables(folder) for folder in folders]
  result: dict[str, Any] = {"last_step": last}
  same = values["variables"][1].keys() <= values["variables"][0].keys()
  for kind, (quiet, harmed) in values.items():
    common = quiet.keys() & harmed.keys()
    if kind == "train":
      steps = sorted(harmed)
      common -= {b for a, b in zip(steps, steps[1:]) if a not in quiet}
    # NumPy compares the dicts of the records too.
    differ = [k for k in common if not np.array_equal(quiet[k], harmed[k])]
    result[kind] = {"records": len(common), "differ": len(differ)}
    same = same and common and not differ and quiet.keys() <= harmed.keys()
  result["is_the_same"] = bool(same)
  return result


def main(argv: Sequence[str]) -> None:
  folder = _OUTPUT_DIR.value
  paths = [os.path.join(folder, name) for name in ("quiet", "harmed")]
  for path in paths:
    files.check_new_folder(path)
    files.make_folder(path)
  free = shutil.disk_usage(paths[1]).free
  if free > _LARGEST_DISK_BYTES:
    raise ValueError(
      f"{paths[1]} is on a disk with {free / 2**30:.0f} GiB free, too much to "
      "fill: mount a small file system there first (mount -t tmpfs -o "
      "size=256m tmpfs FOLDER)."
    )
  cores = sorted(os.sched_getaffinity(0))
  if len(cores) < 2:
    raise ValueError("each run needs a core, but there is only one.")
  half = len(cores) // 2
  quiet = Run(paths[0], argv[1:], set(cores[:half]))
  harmed = Run(paths[1], argv[1:], set(cores[half : 2 * half]))
  start = time.monotonic()
  try:
    quiet.start()
    harmed.start()
    happened = trial(quiet, harmed, _MINUTES.value)
  finally:
    for run in (quiet, harmed):
      if run.is_running():
        run.kill()
  hours = round((time.monotonic() - start) / 3600, 2)
  result = {"accidents": happened, "hours": hours, **compare(*paths)}
  files.write_json(os.path.join(folder, "survival.json"), result)
  inspection.plot.plot_curves(paths[1], os.path.join(folder, "survival.png"))
  for kind in ("train", "eval", "variables"):
    counts = result[kind]
    print(f"{kind}: {counts['differ']:,} of {counts['records']:,} differ")
  if not result["is_the_same"]:
    raise ValueError("the two runs differ: see survival.json.")


if __name__ == "__main__":
  flags.mark_flags_as_required(["output_dir"])
  command_line.run(main, max_arguments=1000)
