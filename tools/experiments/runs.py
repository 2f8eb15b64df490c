"""Runs the commands of each row of a table, and reads their numbers.

A command is finished when OUTPUT/done/KEY.txt exists, which holds its line; one
that was killed resumes by its own means. The key also names its folder and its
log, so a model that several tables need is trained once.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import math
import os
import shlex
import subprocess
import threading
import time
from typing import IO, Any, Callable, Mapping, Optional, Sequence

from official_albert import files, machine, tfrecords
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import child_programs, printing
from official_albert.tools.experiments import report, tables

_SPEED_STEPS = 120
_SENTENCES = 200  # Layers are compared on these.


class Commands:
  """Runs commands that are not finished, from one or several threads.

  Attributes:
    output_dir: everything is written below it.
    mode: "run", "dry" (only prints the commands) or "report" (runs nothing).
    failed: the reasons, by key.
    missing: the keys of commands that are not finished.
  """

  def __init__(self, output_dir: str, mode: str, lock: Optional[IO[bytes]]):
    """The processes inherit `lock`, which their end releases."""
    self.output_dir, self.mode = output_dir, mode
    self.failed: dict[str, str] = {}
    self.missing: set[str] = set()
    self._lock, self._stopped = lock, False
    self._locks: dict[str, threading.Lock] = {}
    self._running: set[subprocess.Popen] = set()

  def path(self, *parts: str) -> str:
    """Returns the path of a file or folder below the output folder."""
    return os.path.join(self.output_dir, *parts)

  def is_finished(self, key: str) -> bool:
    """Returns whether a command has succeeded."""
    return files.exists(self.path("done", f"{key}.txt"))

  def write(self, name: str, text: Callable[[], str]) -> str:
    """Writes a file for a command, once; returns its path."""
    path = self.path(name)
    if self.mode == "run" and not files.exists(path):
      files.make_folder(os.path.dirname(path))
      files.write_text(path, text())
    return path

  def run(self, key: str, tool: str, flags: Mapping, result: str = "") -> bool:
    """Runs a command unless it is finished; returns whether it is now.

    `result` is a file that the command itself writes last, and only once.
    """
    with self._locks.setdefault(key, threading.Lock()):
      if self.is_finished(key) or (result and files.exists(self.path(result))):
        return True
      is_new = key not in self.missing
      self.missing.add(key)
      name, *parts = tool.split()
      parts += [f"--{flag}={value}" for flag, value in flags.items()]
      line = child_programs.command(f"official_albert.tools.{name}", *parts)
      if self.mode == "dry" and is_new:
        print(shlex.join(["python", *line[1:]]))
      if self.mode != "run" or self._stopped or not is_new:
        return self.mode == "dry"
      print(f"{key} ...", flush=True)
      start, code = time.monotonic(), self._run(key, line)
      took = printing.format_seconds(time.monotonic() - start)
      if self._stopped:
        return False
      if code:
        self.failed[key] = f"exit code {code}, see the log in logs/{key}.log"
      else:
        done = self.path("done", f"{key}.txt")
        files.make_folder(os.path.dirname(done))
        files.write_text(done, shlex.join(line) + "\n")
        self.missing.discard(key)
      print(f"{key}: {self.failed.get(key, 'done')} ({took})", flush=True)
      return not code

  def _run(self, key: str, line: Sequence[str]) -> int:
    log = self.path("logs", f"{key}.log")
    files.make_folder(os.path.dirname(log))
    files.make_folder(os.path.dirname(self.path(key)))
    is_remote = files.is_remote(log)  # Where processes cannot write.
    with files.open(os.devnull if is_remote else log, "a") as out:
      out.write(f"$ {shlex.join(line)}\n")
      out.flush()
      process = subprocess.Popen(
        line,
        stdout=None if is_remote else out,
        stderr=None if is_remote else out,
        env=machine.training_environment(),
        # After a SIGKILL of this program, the next start waits for its end.
        pass_fds=[self._lock.fileno()],
      )
    self._running.add(process)
    if self._stopped:
      process.terminate()
    code = process.wait()
    self._running.discard(process)
    return code

  def stop(self) -> None:
    """Ends the running commands, and starts no more."""
    self._stopped = True
    for process in [*self._running]:
      process.terminate()


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A table at a scale, with its texts and tasks.

  Attributes:
    input_files, additional_files: --input_files of the data tools; the latter
      is for table 7.
    task_dirs: --data_dir by task.
    tasks: those to fine-tune on.
  """

  table: tables.Table
  scale: tables.Scale
  commands: Commands
  input_files: str
  additional_files: str
  task_dirs: Mapping[str, str]
  tasks: Sequence[str]

  def run(
    self, seeds: Sequence[int], num_parallel: int
  ) -> dict[tuple[str, int], dict[str, Any]]:
    """Runs all rows; returns the numbers of each by its label and seed.

    What needs all cores comes first. Then rows run in parallel, on their share
    of the cores, all of one seed before the next.
    """
    cells = list(itertools.product(seeds, self.table.rows.values()))
    cores = sorted(os.sched_getaffinity(0))
    shares = [cores[i::num_parallel] for i in range(num_parallel)]
    pool = concurrent.futures.ThreadPoolExecutor(
      num_parallel,
      # Of the thread; its processes inherit it.
      initializer=lambda: os.sched_setaffinity(0, shares.pop()),
    )
    try:
      self._prepare()
      found = [pool.submit(self._cell, row, seed) for seed, row in cells]
      return {
        (row.label, seed): future.result()
        for (seed, row), future in zip(cells, found)
      }
    except BaseException:
      self.commands.stop()
      raise
    finally:
      pool.shutdown(cancel_futures=True)

  def _need(self, key: str, *command: Any) -> None:
    if not self.commands.run(key, *command) and self.commands.mode == "run":
      raise ValueError(f"{key}: {self.commands.failed.get(key, 'stopped')}.")

  def _prepare(self) -> None:
    """Makes the data, and measures speeds, one after the other."""
    columns, path = self.table.columns, self.commands.path
    records = [
      (pair.lower(), False)
      for pair in (tables.NSP, tables.SOP)
      if pair in columns
    ]
    for row in self.table.rows.values():
      pair = row.flags.get("sentence_pair", "sop")
      records += [(pair, False)] + [(pair, True)] * ("more_data" in row.flags)
    vocabulary = f"data/vocabulary/{tfrecords.TOKENIZER_FILE}"
    flags = {
      "input_files": self.input_files,
      "output_dir": path("data/vocabulary"),
      "vocab_size": self.scale.model["vocab_size"],
    }
    self._need("data/vocabulary", "train_vocabulary", flags, vocabulary)
    for pair, has_more in dict.fromkeys(records):
      key, text = _records(pair, has_more), self.input_files
      if has_more:  # Last, as it has no part in what is held out.
        text += f",{self.additional_files}"
      flags = {
        "input_files": text,
        "output_dir": path(key),
        "spm_model_file": path(vocabulary),
        "sentence_pair": pair,
        "num_workers": machine.cpu_count(),
        **self.scale.data,
      }
      manifest = os.path.join(key, tfrecords.MANIFEST_FILE)
      self._need(key, "create_pretraining_data", flags, manifest)
    if {tables.SPEED, tables.STEPS} & {*columns}:
      for row in self.table.rows.values():
        key = self._speed(row)
        # Nothing but steps and log lines, of which the first is discarded.
        flags = {
          **self._pretraining(row, key, _SPEED_STEPS),
          "steps_per_loop": _SPEED_STEPS // 6,
          "save_checkpoints_steps": _SPEED_STEPS,
          "eval_steps": 0,
        }
        self._need(key, "run_pretraining", flags)

  def _cell(self, row: tables.Row, seed: int) -> dict[str, Any]:
    """Runs a row with a seed; returns its numbers."""
    run, path = self.commands.run, self.commands.path
    columns = self.table.columns
    values: dict[str, Any] = {}

    def add(is_finished: bool, read: Callable[..., Any], *args: Any) -> None:
      if is_finished and self.commands.mode != "dry":
        values.update(read(*args))

    model = f"{self._name(row)}/seed_{seed}"
    if not self._pretrain(row, seed, model):
      return values
    add(
      True, report.read_pretraining, path(model), self.scale.config(row.flags)
    )
    if tables.SPEED in columns:
      speed = self._speed(row)  # Unfinished if the model is another table's.
      add(self.commands.is_finished(speed), report.read_speed, path(speed))
    for pair in columns:
      if pair in (tables.NSP, tables.SOP):
        heldout = path(_records(pair.lower()))
        key = f"{model}-{pair.lower()}"
        metrics_file = path(f"{key}.metrics.json")
        flags = {
          "mode": "evaluate",
          "input_dir": heldout,
          "model_dir": path(model),
          "metrics_file": metrics_file,
          "eval_batch_size": 64,
        }
        shared = {*flags, "precision", "distribution", "tpu"}
        flags |= {k: x for k, x in self.scale.training.items() if k in shared}
        is_done = run(key, "run_pretraining", flags)
        add(is_done, report.read_pair, metrics_file, heldout, pair)
    if tables.JUMP in columns:
      key = f"{model}-layers"
      flags = {
        "model": self._checkpoint(row, model),
        "input_files": self.commands.write(
          "data/sentences.txt", self._sentences
        ),
        "output_dir": path(key),
      }
      is_done = run(key, "inspect_model", flags)
      add(is_done, report.read_layers, path(key, "inspection.json"))
    for task in self.tasks:
      key = f"{model}-{tables.TASKS[task]}"
      flags = {
        "init_checkpoint": self._checkpoint(row, model),
        "output_dir": path(key),
        "random_seed": seed,
        "task": tables.TASKS[task],
        "data_dir": self.task_dirs[task],
        "cache_dir": path("data/task_records"),
        "do_predict": False,
        **self.scale.finetuning,
        **self.scale.task_flags.get(task, {}),
      }
      is_done = run(key, "run_finetuning", flags)
      add(is_done, report.read_finetuning, path(key), task)
    return values

  def _sentences(self) -> str:
    """Returns one sentence of each of the first documents."""
    documents = data.DocumentReader(data.find_files(self.input_files))
    first = itertools.islice(documents, _SENTENCES)
    return "".join(f"{lines[len(lines) // 2]}\n" for lines in first)

  def _name(self, row: tables.Row) -> str:
    """Returns the folder of a row's models, by all that determines them."""
    scale, flags, table = self.scale, row.flags, self.table
    c, pair = scale.config(flags), flags.get("sentence_pair", "sop")
    identity = [
      *(c.to_dict(), pair, "more_data" in flags),
      scale.steps_of(table),
      self._name(table.rows[row.before]) if "continued" in flags else "",
      self._name(table.first) if "equal_time" in flags else "",
      sorted(tables.lasting(scale.training).items()),
      sorted(scale.data.items()),
      [scale.warmup_share, scale.evaluations],
    ]
    text = json.dumps(identity, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    sizes = f"H{c.hidden_size}-L{c.num_hidden_layers}-E{c.embedding_size}"
    groups = c.num_hidden_groups
    sharing = f"{groups}groups" if groups > 1 else c.sharing
    return f"models/{sizes}-{sharing}-{pair}-{digest}"

  def _speed(self, row: tables.Row) -> str:
    """Returns the folder in which a row's speed is measured."""
    return self._name(row).replace("models/", "speed/")

  def _steps(self, row: tables.Row) -> int:
    steps, first = self.scale.steps_of(self.table), self.table.first
    if "equal_time" in row.flags and self.commands.mode == "run":
      ours, theirs = (
        report.read_speed(self.commands.path(self._speed(x)))[tables.TOKENS]
        for x in (row, first)
      )
      steps = math.ceil(steps * ours / theirs)
    return steps

  def _checkpoint(self, row: tables.Row, model: str) -> str:
    """Returns the weights that the held-out numbers of a model belong to."""
    return self.commands.path(model, f"model.ckpt-{self._steps(row)}")

  def _pretrain(self, row: tables.Row, seed: int, key: str) -> bool:
    flags = self._pretraining(row, key, self._steps(row), seed)
    if "continued" in row.flags:
      before = self.table.rows[row.before]
      start = f"{self._name(before)}/seed_{seed}"
      if not self._pretrain(before, seed, start):
        return False
      flags["init_checkpoint"] = self.commands.path(start)
      flags.pop("init_neighbor_attention", None)
    return self.commands.run(key, "run_pretraining", flags)

  def _pretraining(
    self, row: tables.Row, key: str, steps: int, seed: int = 12345
  ) -> dict[str, Any]:
    scale, path = self.scale, self.commands.path
    every = math.ceil(steps / scale.evaluations)
    config = json.dumps(scale.config(row.flags).to_dict(), indent=2)
    config_file = f"{key}.albert_config.json"
    records = path(_records(row.flags.get("sentence_pair", "sop")))
    flags = {
      "input_dir": records,
      "model_dir": path(key),
      "albert_config_file": self.commands.write(config_file, lambda: config),
      "num_train_steps": steps,
      "num_warmup_steps": int(steps * scale.warmup_share),
      "random_seed": seed,
      "eval_steps": every,
      "save_checkpoints_steps": every,
      "keep_checkpoint_max": 1,
      **scale.training,
    }
    if "more_data" in row.flags:
      # All models are compared on the same held-out text.
      flags |= {"input_dir": f"{records}-more", "eval_input_dir": records}
    return flags


def _records(pair: str, has_more: bool = False) -> str:
  """Returns the key of records, which may have the additional text."""
  return f"data/records-{pair}{'-more' * has_more}"
