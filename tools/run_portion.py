"""Pretrains in portions, on a machine that is lent for minutes at a time.

    python -m tools.run_portion --recipe=h100_10min --output_dir=OUT \\
        --input_files='text/*.jsonl.gz' --spm_model_file=30k-clean.model \\
        --training_minutes=10 --portion_minutes=20

A portion makes the records of the recipe, trains, evaluates with the layers of
its phase, appends a line to --log_file and packs the run into OUT/carry, in
files of --part_megabytes. Carry these to the next machine and give the same
command there: where OUT has no run, it continues from OUT/carry. The weights at
the end are those of a run in one portion, to the bit, on machines of one kind.
The records need not be carried, as the same text gives the same ones.

A hash divides the documents: those of OUT/text/report.txt are only for the log.
The settings are chosen by the held-out documents of the other ones, which are
evaluated during the training.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import hashlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from typing import Any

from absl import flags

from official_albert import archives, files, machine, run_logs, runs, tfrecords
from official_albert.tasks.pretraining import data as data_lib
from official_albert.tasks.pretraining import recipes
from official_albert.tools.cli import command_line, path_flags
from official_albert.train_config import whole_numbers

_RECIPE = flags.DEFINE_enum(
  "recipe", "h100_10min", list(recipes.RECIPES), "Settings of the run."
)
_INPUT_FILES = path_flags.define(
  "input_files", None, "Text, as of tools.create_pretraining_data."
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", None, "SentencePiece model of the vocabulary."
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Local folder for everything that is written."
)
_LOG_FILE = path_flags.define(
  "log_file", "", "JSON lines, one a portion; default: OUTPUT_DIR/log.jsonl."
)
_TRAINING_MINUTES = flags.DEFINE_float(
  "training_minutes",
  0.0,
  "Minutes of all updates, for which the recipe's steps are scaled by their "
  "speed before the first portion; 0: as many steps as the recipe has.",
  lower_bound=0.0,
)
_PORTION_MINUTES = flags.DEFINE_float(
  "portion_minutes",
  0.0,
  "Minutes after which the training saves and stops, with its start; 0: never.",
  lower_bound=0.0,
)
_PART_MEGABYTES = flags.DEFINE_integer(
  "part_megabytes", 50, "Size of a file in OUTPUT_DIR/carry.", lower_bound=1
)
_PRETRAINING_FLAGS = flags.DEFINE_string(
  "pretraining_flags", "", "More flags of tools.run_pretraining."
)
_DOWNSTREAM_FLAGS = flags.DEFINE_multi_string(
  "downstream_flags",
  [],
  "Flags of tools.run_finetuning, for which the finished run is fine-tuned: "
  "'--task=sst2 --data_dir=glue --seeds=3'; may be repeated.",
)
_REPORT_SHARE = 0.01  # Of the documents.
_MEASURED_STEPS = 60  # Of each phase, in loops of ten.


def parse(name: str, text: str) -> dict[str, Any]:
  """Returns the values of the flags in --NAME, by name; None has no "="."""
  try:
    words = [x.lstrip("-").partition("=") for x in shlex.split(text)]
  except ValueError as error:
    raise ValueError(f"--{name}: {error}.") from error
  return {key: value if equals else None for key, equals, value in words}


def write_texts(folder: str) -> None:
  """Writes the documents to train on, and those of the report.

  Raises:
    ValueError: the folder is that of other texts, vocabulary or recipe.
  """
  found = data_lib.find_files(_INPUT_FILES.value)
  # By names, sizes and weights, as folders differ between machines.
  paths = [*found, _SPM_MODEL_FILE.value]
  inputs = {
    "files": [
      [os.path.basename(x), files.stat(x)[0], found.get(x)] for x in paths
    ],
    "recipe": _RECIPE.value,
  }
  recorded = os.path.join(folder, "inputs.json")
  if files.exists(folder):
    if files.read_json(recorded, dict[str, Any], "remove it") != inputs:
      raise ValueError(
        f"{folder} was made from other --input_files, --spm_model_file or "
        "--recipe: give these, or another --output_dir."
      )
    return
  reader = data_lib.DocumentReader(found, data_lib.ReaderSettings())
  with contextlib.ExitStack() as stack:
    new = stack.enter_context(files.new_folder(folder))
    content = json.dumps(inputs).encode()
    files.write_bytes(os.path.join(new, "inputs.json"), content)
    train, report = (
      stack.enter_context(open(f"{new}/{name}.txt", "w", encoding="utf-8"))
      for name in ("train", "report")
    )
    for document in reader:
      text = "\n".join(document)
      share = int(hashlib.sha256(text.encode()).hexdigest(), 16) / 2**256
      (report if share < _REPORT_SHARE else train).write(f"{text}\n\n")


class Run:
  """The run of the flags: its folders, its phases, its further flags."""

  def __init__(self):
    self.recipe = recipe = recipes.get_recipe(_RECIPE.value)
    self.given = parse("pretraining_flags", _PRETRAINING_FLAGS.value)
    texts = _DOWNSTREAM_FLAGS.value
    self.downstream = [parse("downstream_flags", text) for text in texts]
    tasks = [more.get("task") for more in self.downstream]
    if not all(tasks) or len({*tasks}) < len(tasks):
      raise ValueError(
        "each --downstream_flags needs a --task=NAME of its own."
      )
    self.folder = files.absolute(_OUTPUT_DIR.value)
    self.text, self.run, self.carry, self.measurement = (
      os.path.join(self.folder, name)
      for name in ("text", "run", "carry", "measurement")
    )
    self.lengths = recipe.lengths or (recipe.data["max_seq_length"],)
    values = {**recipe.settings, **self.given}
    steps = str(values.get("phase_steps", values["num_train_steps"]))
    self.steps = [*whole_numbers("phase_steps", steps)]
    whole = sum(self.steps)
    if "num_warmup_steps" not in self.given:  # The share of the recipe.
      whole = int(recipe.settings["num_train_steps"])
    self.warmup_share = int(values["num_warmup_steps"]) / whole
    batches = str(values["train_batch_size"])
    self.batches = whole_numbers("train_batch_size", batches) * len(self.steps)
    if len(self.steps) != len(self.lengths):
      raise ValueError(
        f"the recipe {recipe.name} has {len(self.lengths)} phases, but "
        f"--phase_steps of --pretraining_flags has {len(self.steps)}: give as "
        "many."
      )

  def records(self, name: Any) -> str:
    """Returns the folder of the records of a length, or of the report."""
    return os.path.join(self.folder, "records", str(name))

  def make_records(self) -> None:
    """Makes those of all lengths, and those of the report."""
    write_texts(self.text)
    once = {"heldout_share": 0, "dupe_factor": 1, "num_shards": 1}
    for name, text, length, more in (
      *((x, "train", x, {}) for x in self.lengths),
      ("report", "report", self.lengths[-1], once),
    ):
      given = {
        **self.recipe.data,
        "max_seq_length": length,
        **more,
        "input_files": os.path.join(glob.escape(self.text), f"{text}.txt"),
        "spm_model_file": _SPM_MODEL_FILE.value,
        "output_dir": self.records(name),
      }
      manifest = os.path.join(self.records(name), tfrecords.MANIFEST_FILE)
      command_line.run_step("create_pretraining_data", given, manifest)

  def train(
    self, folder: str, steps: list[int], minutes: float = 0, **more: Any
  ) -> None:
    """Trains in a folder."""
    given = {
      "recipe": self.recipe.name,
      "input_dir": ",".join(map(self.records, self.lengths)),
      "eval_input_dir": self.records(self.lengths[-1]),
      **self.given,
      "model_dir": folder,
      "phase_steps": ",".join(map(str, steps)),
      "num_train_steps": sum(steps),
      "num_warmup_steps": round(self.warmup_share * sum(steps)),
      **more,
    }
    command_line.run_step("run_pretraining", given, minutes=minutes)

  def set_steps(self) -> None:
    """Sets the steps: those of earlier portions, or those of the minutes."""
    if runs.list_checkpoints(self.run):
      phases = runs.read_run(self.run)["settings"]["phases"]
      self.steps = [phase["steps"] for phase in phases]
    elif _TRAINING_MINUTES.value:
      scale = _TRAINING_MINUTES.value / self.measure()
      self.steps = [max(1, round(scale * x)) for x in self.steps]

  def measure(self) -> float:
    """Returns the minutes of the recipe's steps, from a run of few steps."""
    files.remove_tree(self.measurement)
    given = {"steps_per_loop": 10, "eval_steps": 0}
    few = [_MEASURED_STEPS] * len(self.steps)
    self.train(self.measurement, few, **given)
    speeds = run_logs.speeds_of_phases(
      self.measurement, _MEASURED_STEPS, len(self.steps)
    )
    updates = zip(self.steps, self.batches, speeds)
    return sum(x * batch / speed for x, batch, speed in updates) / 60

  def unpack(self) -> None:
    """Unpacks the parts that were carried here, if there is no run."""
    parts = sorted(files.glob(os.path.join(glob.escape(self.carry), "*.of-*")))
    found = runs.list_checkpoints(self.run)
    if not parts:
      return
    name, _, count = os.path.basename(parts[0]).rpartition("-")
    if found:
      step, carried = runs.step_of(found[-1]), int(name.split(".")[0])
      if carried > step:
        raise ValueError(
          f"{self.carry} has step {carried:,}, but {self.run} only {step:,}: "
          "remove the latter to continue from the former."
        )
      return
    if len(parts) != int(count):
      raise ValueError(
        f"{self.carry} has {len(parts)} of {int(count)} parts: carry all."
      )
    with tempfile.TemporaryDirectory(dir=self.folder) as folder:
      packed = os.path.join(folder, "run.tar.gz")
      with open(packed, "wb") as file:
        file.writelines(map(files.read_bytes, parts))
      with archives.unpacked(packed) as packed_run:
        files.remove_tree(self.run)  # It has no checkpoint.
        with files.new_folder(self.run) as new:
          shutil.copytree(packed_run, new, dirs_exist_ok=True)

  def pack(self, prefix: str) -> None:
    """Packs the run with one checkpoint, whose prefix is given."""
    latest = f"{os.path.basename(prefix)}."
    with tempfile.TemporaryDirectory(dir=self.folder) as folder:
      packed = os.path.join(folder, "run.tar.gz")
      with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        for name in sorted(files.list_dir(self.run)):
          if name.startswith(latest) or runs.CHECKPOINT_NAME not in name:
            tar.add(os.path.join(self.run, name), f"run/{name}")
      size = _PART_MEGABYTES.value << 20
      count = -(-os.path.getsize(packed) // size)
      files.remove_tree(self.carry)
      with files.new_folder(self.carry) as new, open(packed, "rb") as file:
        for i in range(1, count + 1):
          name = f"{runs.step_of(prefix):09d}.tar.gz.{i:03d}.of-{count:03d}"
          path = os.path.join(new, name)
          files.write_bytes(path, file.read(size))

  def phase(self, step: int) -> int:
    """Returns the phase of the update that made `step`."""
    ends = itertools.accumulate(self.steps)
    return next(i for i, end in enumerate(ends) if step <= end)

  def cost(self) -> tuple[int, float]:
    """Returns the tokens and the minutes of the updates in the run's log."""
    tokens, minutes, last = 0, 0.0, 0
    for entry in run_logs.read_metrics(self.run, "train"):
      step = int(entry["step"])
      phase = self.phase(step)
      sequences, last = (step - last) * self.batches[phase], step
      tokens += sequences * self.lengths[phase]
      minutes += sequences / entry["sequences_per_second"] / 60
    return tokens, minutes

  def report(self, prefix: str) -> dict[str, Any]:
    """Returns the line of the log."""
    results = os.path.join(self.folder, "report.json")
    shape = {"preset", "albert_config_file", "precision", "eval_batch_size"}
    # After a phase of fewer layers, it is the model of these that was trained.
    step = runs.step_of(prefix)
    settings = runs.read_run(self.run)["settings"]
    depth = runs.trained_layers(settings, step)
    given = {
      "mode": "evaluate",
      "recipe": self.recipe.name,
      "input_dir": self.records(self.lengths[-1]),
      "eval_input_dir": self.records("report"),
      "model_dir": self.run,
      "metrics_file": results,
      "num_hidden_layers": depth,
      **{k: x for k, x in self.given.items() if k in shape},
    }
    command_line.run_step("run_pretraining", given)
    done, downstream = step == sum(self.steps), {}
    for more in self.downstream if done else ():
      folder = os.path.join(self.folder, "downstream", more["task"])
      own = {"init_checkpoint": self.run, "output_dir": folder}
      command_line.run_step("run_finetuning", {**more, **own})
      path = os.path.join(folder, runs.SUMMARY_FILE)
      advice = "remove its folder"
      summary = files.read_json(path, dict[str, Any], advice)
      downstream[more["task"]] = summary["splits"]
    tokens, minutes = self.cost()
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
      "date": now.isoformat(timespec="seconds"),
      "commit": _answer("git", "rev-parse", "HEAD"),
      "command": f"{command_line.PREFIX}run_portion {shlex.join(sys.argv[1:])}",
      "machine": machine.describe_machine(),
      "gpus": _answer(
        "nvidia-smi", "--query-gpu=name", "--format=csv,noheader"
      ),
      "recipe": self.recipe.name,
      "phase_steps": self.steps,
      "step": step,
      "layers": depth,
      "tokens": tokens,
      "minutes": round(minutes, 3),
      "tuning": run_logs.read_metrics(self.run, "eval")[-1],
      "report": files.read_json(results, dict[str, Any], "remove it"),
      "downstream": downstream,
    }


def _answer(*command: str) -> str:
  """Returns what a command prints; "" if it is missing or fails."""
  folder = os.path.dirname(os.path.realpath(__file__))
  with contextlib.suppress(OSError, subprocess.CalledProcessError):
    found = subprocess.check_output(
      command, cwd=folder, stderr=subprocess.DEVNULL, text=True
    )
    return found.strip()
  return ""


def main(_) -> None:
  if files.is_remote(_OUTPUT_DIR.value):
    raise ValueError("--output_dir is in a bucket: give a local folder.")
  if _LOG_FILE.value:
    files.check_file(_LOG_FILE.value)
  this = Run()
  data_lib.find_files(_INPUT_FILES.value)
  files.stat(_SPM_MODEL_FILE.value)
  files.check_folder(this.folder)
  files.make_folder(this.folder)
  this.unpack()
  this.make_records()
  this.set_steps()
  this.train(this.run, this.steps, _PORTION_MINUTES.value)
  found = runs.list_checkpoints(this.run)
  if not found:
    raise ValueError(
      f"--portion_minutes={_PORTION_MINUTES.value:g} ended before the first "
      "update: give more."
    )
  this.pack(found[-1])
  line = json.dumps(this.report(found[-1]))
  log_file = _LOG_FILE.value or os.path.join(this.folder, "log.jsonl")
  with files.open(log_file, "a") as file:
    file.write(f"{line}\n")
  is_done = runs.step_of(found[-1]) == sum(this.steps)
  rest = "the run is finished" if is_done else "the same command continues"
  print(f"{line}\n{rest}; to be carried: {this.carry}", flush=True)


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_files", "spm_model_file", "output_dir"])
  command_line.run(main)
