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
import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Optional, Sequence

import numpy as np
from absl import flags

from official_albert import files, training
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
    return last_step(self.model_dir)

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
  path = newest_data_file(run.model_dir)
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
      if last_common_step(quiet.model_dir, harmed.model_dir):
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


# What the clock has a part in.
_NOT_COMPARED = (
  "unix_time_seconds",
  "sequences_per_second",
  "tokens_per_second",
  "model_flops_per_second",
  "data_wait_share",
)
_PANELS = (
  ("train", "masked_lm_loss", "masked LM loss, training (nats)"),
  ("eval", "masked_lm_loss", "masked LM loss, held-out (nats)"),
  ("eval", "sentence_order_accuracy", "sentence-order accuracy, held-out"),
)


def last_step(model_dir: str) -> int:
  """The last step that the run has logged; 0 before the first."""
  if not os.path.exists(os.path.join(model_dir, training.METRICS_FILE)):
    return 0
  records = training.read_metrics(model_dir, "train")
  return records[-1]["step"] if records else 0


def newest_data_file(model_dir: str) -> str:
  """The file with the newest checkpoint's values."""
  import tensorflow as tf  # Here and below, so that --help is quick.

  path = tf.train.latest_checkpoint(model_dir)
  return glob.glob(f"{path}.data-*")[0]


def last_common_step(quiet_dir: str, harmed_dir: str) -> int:
  """The newest step of which both have a checkpoint; 0 if there is none."""
  steps = [
    {training.step_of(path) for path in training.list_checkpoints(folder)}
    for folder in (quiet_dir, harmed_dir)
  ]
  return max(steps[0] & steps[1], default=0)


def compare(quiet_dir: str, harmed_dir: str) -> dict[str, Any]:
  """Number by number and weight by weight, to the last common checkpoint.

  A run that was stopped between two log lines has a record more, and the next
  one is a mean over fewer steps: that one is left out.

  Returns:
    `last_step` of the comparison; `train` and `eval`: how many records both
    runs have, and how many of them differ in a number; `variables` of the
    checkpoint, and how many of them differ in a bit; `is_the_same`, whether
    nothing differs and the harmed run lacks no record or variable.

  Raises:
    ValueError: there is no checkpoint that both have.
  """
  import tensorflow as tf

  last = last_common_step(quiet_dir, harmed_dir)
  if not last:
    raise ValueError(
      f"{quiet_dir} and {harmed_dir} have no checkpoint of the same step: keep "
      "more of them (--keep_checkpoint_max)."
    )
  result: dict[str, Any] = {"last_step": last}
  same = True
  for kind in ("train", "eval"):
    quiet, harmed = (
      {
        record["step"]: {
          name: x for name, x in record.items() if name not in _NOT_COMPARED
        }
        for record in training.read_metrics(folder, kind)
        if record["step"] <= last
      }
      for folder in (quiet_dir, harmed_dir)
    )
    both = set(quiet) & set(harmed)
    if kind == "train":
      both -= _cut_short(sorted(harmed), set(quiet))
    differ = [step for step in both if quiet[step] != harmed[step]]
    result[kind] = {"records": len(both), "differ": len(differ)}
    same = same and both and not differ and set(quiet) <= set(harmed)
  readers = [
    tf.train.load_checkpoint(os.path.join(folder, f"model.ckpt-{last}"))
    for folder in (quiet_dir, harmed_dir)
  ]
  names = [set(r.get_variable_to_shape_map()) for r in readers]
  # The save counter counts saves, of which the harmed run made more.
  shared = sorted(n for n in names[0] & names[1] if "save_counter" not in n)
  differ = [
    name
    for name in shared
    if not np.array_equal(*(reader.get_tensor(name) for reader in readers))
  ]
  result["variables"] = {"records": len(shared), "differ": len(differ)}
  result["is_the_same"] = bool(same and not differ and names[0] == names[1])
  return result


def _cut_short(steps: Sequence[int], usual: set[int]) -> set[int]:
  """Those of `steps` that come directly after one that is not usual."""
  return {b for a, b in zip(steps, steps[1:]) if a not in usual}


def sentence(result: dict[str, Any]) -> str:
  """The result of `compare` for people."""
  parts = [
    f"{result[name]['differ']:,} of {result[name]['records']:,} {what} differ"
    for name, what in (
      ("train", "training records"),
      ("eval", "held-out records"),
      ("variables", "variables of the checkpoint"),
    )
  ]
  return f"to step {result['last_step']:,}: " + ", ".join(parts)


def draw(
  quiet_dir: str,
  harmed_dir: str,
  accidents: Sequence[tuple[int, str]],
  output_file: str,
) -> None:
  """Both curves over each other, with the accidents as vertical lines.

  Args:
    quiet_dir: the undisturbed run.
    harmed_dir: the other one.
    accidents: (step, name) of each.
    output_file: the PNG.
  """
  from tools.cli import figures
  from tools.cli.figures import pyplot

  figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
  for axis, (kind, name, title) in zip(axes, _PANELS):
    for folder, label, style, width in (
      (quiet_dir, "undisturbed", "-", 4),
      (harmed_dir, "with accidents", "--", 1.2),
    ):
      records = [r for r in training.read_metrics(folder, kind) if name in r]
      axis.plot(
        [r["step"] for r in records],
        [r[name] for r in records],
        style,
        linewidth=width,
        alpha=0.4 if width > 2 else 1,
        color="tab:blue" if width > 2 else "black",
        label=label,
      )
    for step, accident in accidents:
      axis.axvline(step, color="tab:red", linewidth=0.7)
      if axis is axes[0]:
        axis.text(
          step, axis.get_ylim()[1], accident, rotation=90, va="top", fontsize=6
        )
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("step")
    axis.grid(alpha=0.3)
  axes[1].legend()
  figure.tight_layout()
  figures.save(figure, output_file)


def main(argv: Sequence[str]) -> None:
  arguments = list(argv[1:])
  folder = _OUTPUT_DIR.value
  paths = [os.path.join(folder, name) for name in ("quiet", "harmed")]
  for path in paths:
    files.check_new_folder(path)
    os.makedirs(path, exist_ok=True)
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
    **compare(*paths),
  }
  files.write_json(os.path.join(folder, "survival.json"), result)
  draw(
    *paths,
    [(a["step"], a["name"]) for a in happened],
    os.path.join(folder, "survival.png"),
  )
  print(sentence(result))
  if not result["is_the_same"]:
    raise ValueError("the two runs differ: see survival.json.")


if __name__ == "__main__":
  flags.mark_flags_as_required(["output_dir"])
  command_line.run(main, max_arguments=1000)
