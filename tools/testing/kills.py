"""Kills programs at random moments and checks that nothing is lost.

    python -m tools.testing.kills --kills=1000 --random_seed=0

Each program runs undisturbed once. Then it is disturbed at a random moment, and
the same command is repeated, with further disturbances, until it ends by
itself. A disturbance is a signal to all processes of the program, SIGKILL to
one of them, a full disk, or a second start in the same folder. After each one,
the program must end in time, print at most one sentence and leave no processes,
and files that look finished must equal those of the undisturbed run (see
`content`). So must the final result. The exit code is 1 if anything was wrong.
docs/results/survival.md has the results.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple, Sequence

from absl import flags

from official_albert import files, modeling, training
from official_albert.tools.cli import command_line, path_flags, printing
from official_albert.tools.testing import toy_data

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


class Program(NamedTuple):
  """A program and its trial.

  Attributes:
    arguments: the module and flags, with the folders {out} of the result, {in}
      of `_write_inputs`, and {ends} of the undisturbed ends by name.
    result: the file that appears last; "" for training, which has none.
    share: the number of kills in relation to other programs.
    processes: "children", or "workers" for a job of two.
  """

  arguments: str
  result: str = ""
  share: int = 1
  processes: str = ""


_DATA = (
  "create_pretraining_data --input_files={in}/corpus.txt --output_dir={out} "
  "--spm_model_file={ends}/vocabulary/tokenizer.model --max_seq_length=24 "
  "--max_predictions_per_seq=4 --dupe_factor=3 --heldout_share=0.2"
)
_STEPS = (
  " --num_train_steps=24 --num_warmup_steps=4 --train_batch_size=4 "
  "--steps_per_loop=2 --save_checkpoints_steps=4 --eval_steps=12 "
  "--keep_checkpoint_max=99"
)
_PRETRAINING = (
  "run_pretraining --input_dir={ends}/data --model_dir={out} "
  "--albert_config_file={in}/albert_config.json" + _STEPS
)
PROGRAMS = {
  "vocabulary": Program(
    "train_vocabulary --input_files={in}/corpus.txt --output_dir={out} "
    "--vocab_size=60",
    "tokenizer.model",
    4,
  ),
  "data": Program(_DATA + " --num_workers=1", "dataset.json", 8),
  "data_workers": Program(
    _DATA + " --num_workers=2", "dataset.json", 8, "children"
  ),
  "data_beam": Program(_DATA + " --engine=beam", "dataset.json"),
  "pretraining": Program(_PRETRAINING),
  "pretraining_workers": Program(
    _PRETRAINING + " --distribution=multi_worker --num_devices=1",
    processes="workers",
  ),
  "finetuning": Program(
    "run_finetuning --task=text_classification --train_file={in}/train.tsv "
    "--dev_file={in}/dev.tsv --test_file={in}/test.tsv --text_column=review "
    "--label_column=mood --max_seq_length=24 --output_dir={out} "
    "--init_checkpoint={ends}/pretraining" + _STEPS
  ),
  "predict": Program(
    "predict --model_dir={ends}/finetuning --input_file={in}/rows.tsv "
    "--output_file={out}/rows.tsv",
    "rows.tsv",
  ),
  "export": Program(
    "export_saved_model --model_dir={ends}/finetuning --export_dir={out}",
    "saved_model.pb",
  ),
  "convert": Program(
    "convert_checkpoint --to=hf --input={ends}/pretraining --output={out}",
    "config.json",
  ),
  "publish": Program(
    "publish_hub_module --input={ends}/pretraining --output_dir={out} "
    "--handle=team/albert --license=apache-2.0 --seq_length=24",
    "model-metadata.json",
  ),
}
_NAMES = ", ".join(PROGRAMS)
_KILLS = flags.DEFINE_integer("kills", 60, "Number of disturbances.")
_RANDOM_SEED = flags.DEFINE_integer("random_seed", 0, "Seed of the moments.")
_PROGRAMS = flags.DEFINE_list("programs", list(PROGRAMS), f"Some of {_NAMES}.")
_OUTPUT_DIR = path_flags.define(
  "output_dir",
  "",
  "New folder to keep; by default a temporary one.",
  local=True,
)

_ONE, _FULL, _SECOND = "one process", "full disk", "second run"
# The exit codes after a disturbance, besides 0, and 1 with a sentence.
_CODES = {
  "SIGKILL": (-9,),
  "SIGTERM": (143, -15),
  "SIGINT": (130, -2),
  _ONE: (-9,),
}
_MOST_KILLS = 6  # In a chain.
_EARLY_SHARE = 0.2  # Of the kills, before a program has written anything.
# The time limit is five times the undisturbed time plus this; see `_slowdown`.
_LIMIT_SECONDS = 60.0
# Children have the undisturbed time plus this to notice that their parent was
# killed: on a busy machine, a starting child takes as long as the program.
_LINGER_SECONDS = 2.0
# Cuts a small corpus into many pieces, like a large one.
_SMALL_PIECES = """
import sys; sys.argv[0] = "-m"
import runpy
from official_albert.tasks.pretraining.data import dataset_builder, documents
from official_albert.tasks.pretraining.data import external_sort
dataset_builder._BLOCKS_PER_CHUNK, documents._BLOCK_BYTES = 2, 1500
external_sort._MIN_BUCKET_BYTES = external_sort._MAX_BUCKET_BYTES = 20_000
program = "official_albert.tools.create_pretraining_data"
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""
_CHECKPOINT = re.compile(r"(^|/)model\.ckpt[^/]*\.index$")
# Logs, pictures, and files with times, folders or random numbers. Values of
# checkpoints are compared as variables.
_NOT_COMPARED = re.compile(
  r"(^|/)(run|report|conversion)\.json$|(^|/)(curves\.png|checkpoint|"
  r"fingerprint\.pb|events\.out\..*|model\.ckpt[^/]*\.data-[^/]*)$"
)
# Files that SIGKILL may leave; see docs/results/survival.md.
_LEFTOVER = re.compile(r"(^|/)(\.new-\w{8}/.*|[^/]+\.[0-9a-f]{16}\.tmp)$")
_UNFINISHED = re.compile(r"(^|/)\.(unfinished(-finished)?/.*|lock)$")
_TRACE = re.compile(r"Traceback|Fatal Python error|Exception ignored")
_SENTENCE = re.compile(r"\w+: error: .{1,300}$")


def content(folder: str) -> dict[str, str]:
  """Returns the parts of a result that are compared, by path.

  These are the SHA-256 of each file, that of the variables of each checkpoint
  without the number of saves, and the last evaluation of metrics.jsonl without
  its time. `_NOT_COMPARED` is left out.
  """
  found = {}
  for name in files.walk(folder):
    path = os.path.join(folder, name)
    if _UNFINISHED.search(name) or _LEFTOVER.search(name):
      continue
    if os.path.basename(name) == training.METRICS_FILE:
      last = training.read_metrics(os.path.dirname(path), "eval")[-1:]
      found[name] = str([{**x, "unix_time_seconds": 0} for x in last])
    elif _CHECKPOINT.search(name):
      found[name] = _variables(path.removesuffix(".index"))
    elif not _NOT_COMPARED.search(name):
      found[name] = files.sha256(path)
  return found


def _variables(prefix: str) -> str:
  import tensorflow as tf  # Here, because most programs need none.

  digest = hashlib.sha256()
  try:
    reader = tf.train.load_checkpoint(prefix)
    for name in sorted(reader.get_variable_to_shape_map()):
      if "save_counter" not in name and "OBJECT_GRAPH" not in name:
        value = reader.get_tensor(name)
        digest.update(f"{name} {value.dtype} {value.shape}".encode())
        digest.update(value.tobytes())
  except (tf.errors.OpError, IndexError, ValueError):
    return "damaged"
  return digest.hexdigest()


def _slowdown() -> float:
  """Returns the factor by which the machine's load lengthens a run."""
  # With 7 runnable processes per core, a run gets a seventh of a core.
  return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _living(group: int) -> list[int]:
  """Returns the processes of a group that have not ended."""
  found = []
  for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(OSError):
      state, _, its_group = path.read_text().rpartition(") ")[2].split()[:3]
      if int(its_group) == group and state not in "ZX":
        found.append(int(path.parent.name))
  return sorted(found)


def _write_inputs(folder: str) -> None:
  toy_data.write_corpus(f"{folder}/corpus.txt", 200)
  for name, rows in (("train", 40), ("dev", 20), ("test", 20), ("rows", 2000)):
    label = "mood" if name in ("train", "dev") else ""
    toy_data.write_table(f"{folder}/{name}.tsv", rows, label)
  modeling.AlbertConfig(
    vocab_size=60,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=40,
  ).to_json_file(f"{folder}/albert_config.json")


class Trial:
  """The undisturbed ends, and the counts of chains."""

  def __init__(self, folder: str, seed: int):
    """Creates the folders and the inputs."""
    self._folder, self._random = folder, random.Random(seed)
    self._chain_folder = os.path.join(folder, "disk", "chain")
    self._counts: collections.Counter = collections.Counter()
    self._ends: dict[str, dict[str, str]] = {}
    # When a program makes its folder and when it ends, in seconds.
    self._moments: dict[str, tuple[float, float]] = {}
    # How long a whole run takes now in relation to that.
    self._paces: dict[str, float] = {}
    self._processes: list[subprocess.Popen] = []
    self._logs: list[str] = []
    self._starts = 0
    for name in ("in", "ends", "disk", "logs", "tmp"):
      files.make_folder(os.path.join(folder, name))
    _write_inputs(os.path.join(folder, "in"))

  def _start(self, name: str, out: str) -> None:
    """Starts a program; each worker of a job has a process group of its own."""
    folders = {x: os.path.join(self._folder, x) for x in ("in", "ends")}
    arguments = PROGRAMS[name].arguments.format(out=out, **folders).split()
    command = [sys.executable, "-m", f"tools.{arguments[0]}", *arguments[1:]]
    if name in ("data", "data_workers"):
      command[1:3] = ["-c", _SMALL_PIECES]
    environments = [{**os.environ}]
    if PROGRAMS[name].processes == "workers":
      from official_albert.testing import toy_job  # Loads TensorFlow.

      addresses = toy_job.free_addresses(2)
      environments = [toy_job.environment(addresses, i) for i in range(2)]
    for environment in environments:
      self._starts += 1
      self._logs.append(f"{self._folder}/logs/{self._starts:05d}-{name}")
      with open(self._logs[-1], "wb") as log:
        self._processes.append(
          subprocess.Popen(
            command,
            cwd=_ROOT,
            env={**environment, "TMPDIR": f"{self._folder}/tmp"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
          )
        )

  def _is_running(self) -> bool:
    return any(process.poll() is None for process in self._processes)

  def kill(self, number: int = signal.SIGKILL) -> None:
    """Sends a signal to all processes."""
    for process in self._processes:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)

  def make_end(self, name: str) -> None:
    """Runs a program, and before it those whose ends it reads, undisturbed."""
    if name in self._ends:
      return
    for other in re.findall(r"\{ends\}/(\w+)", PROGRAMS[name].arguments):
      self.make_end(other)
    out, begin, first = f"{self._folder}/ends/{name}", time.monotonic(), 0.0
    self._processes, self._logs = [], []
    self._start(name, out)
    while self._is_running():
      if not first and files.exists(out):
        first = time.monotonic() - begin
      time.sleep(0.005)
    seconds = time.monotonic() - begin
    if any(process.returncode for process in self._processes):
      raise ValueError(f"{name} fails, see {self._logs[0]}.")
    self._ends[name], self._moments[name] = content(out), (first, seconds)
    print(f"{name}: writes from {first:.1f} s to {seconds:.1f} s", flush=True)

  def chain(self, name: str, kinds: Sequence[str]) -> int:
    """Disturbs and repeats a program.

    Returns:
      The number of disturbances. It is 0 if the program was quicker, and at
      least 1 if something was wrong.
    """
    kills: list[str] = []
    is_over, problem = False, ""
    while not (is_over or problem):
      kind = self._random.choice(kinds) if len(kills) < _MOST_KILLS else ""
      is_hit, is_over, problem = self._attempt(name, kind)
      kills += [kind] * is_hit
    for number, kind in enumerate(kills):
      self._counts[name, kind, "kills"] += 1
      # The result may have been complete after the last one.
      self._counts[name, kind, "resumed"] += number + is_hit < len(kills)
      self._counts[name, kind, "equal"] += not problem
    if problem:
      self._counts[name, kills[-1] if kills else "none", "failures"] += 1
      print(f"FAILURE: {name} {problem}, {kills}, {self._logs}", flush=True)
    shutil.rmtree(self._chain_folder, ignore_errors=True)
    return len(kills) or int(bool(problem))

  def _attempt(self, name: str, kind: str) -> tuple[bool, bool, str]:
    """Starts a program and disturbs it, unless `kind` is "".

    Returns:
      Whether the disturbance came in time, whether the result is complete, and
      what is wrong, or "".
    """
    first, seconds = self._moments[name]
    moment = self._random.uniform(first, seconds)
    if kind != _ONE and self._random.random() < _EARLY_SHARE:
      moment = self._random.uniform(0, first)
    moment *= self._paces.get(name, 1.0)
    out = os.path.join(self._chain_folder, name)
    is_whole = not files.exists(out)
    before, begin = self._leftovers(), time.monotonic()
    self._processes, self._logs = [], []
    self._start(name, out)
    while self._is_running() and (
      not kind or time.monotonic() < begin + moment
    ):
      time.sleep(0.002)
    is_hit = self._is_running() and self._disturb(name, out, kind)
    hit, limit = time.monotonic(), 5 * seconds + _LIMIT_SECONDS
    while self._is_running() and (time.monotonic() < hit + limit * _slowdown()):
      time.sleep(0.01)
    if is_whole and not is_hit:
      # The undisturbed run may have been on a busier machine.
      self._paces[name] = min(1.0, (time.monotonic() - begin) / seconds)
    problem = self._find_problem(kind if is_hit else "", seconds)
    codes = [process.wait() for process in self._processes]
    files.remove_tree(os.path.join(self._folder, "disk", "filler"))
    new = self._leftovers() - before
    if new and kind not in ("SIGKILL", _ONE):
      problem = problem or f"leaves {len(new)} files such as {min(new)}"
    is_over = not any(codes) or (kind == _SECOND and 0 in codes)
    if PROGRAMS[name].result:
      is_over = files.exists(os.path.join(out, PROGRAMS[name].result))
    return is_hit, is_over, problem or self._compare(name, out, is_over)

  def _disturb(self, name: str, out: str, kind: str) -> bool:
    """Disturbs a program; returns whether there was something to disturb."""
    if kind == _SECOND:
      self._start(name, out)
    elif kind == _FULL:
      files.make_folder(os.path.join(self._folder, "disk", "filler"))
      filler = pathlib.Path(self._folder, "disk", "filler", "zeros")
      with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
          file.write(bytes(1 << 16))
    elif kind != _ONE:
      self.kill(getattr(signal, kind))
    elif PROGRAMS[name].processes == "workers":
      # Before they have met, the others wait for ten minutes.
      has_met = "building" in pathlib.Path(self._logs[0]).read_text("utf-8")
      if has_met:
        self._random.choice(self._processes).kill()
      return has_met
    else:
      children = _living(self._processes[0].pid)[1:]
      if children:
        os.kill(self._random.choice(children), signal.SIGKILL)
      return bool(children)
    return True

  def _find_problem(self, kind: str, seconds: float) -> str:
    """Returns what is wrong with how the processes have ended, or ""."""
    if self._is_running():
      self.kill()
      return "does not end"
    end = time.monotonic() + _LINGER_SECONDS + seconds
    while any(_living(process.pid) for process in self._processes):
      if time.monotonic() > end:
        self.kill()
        return "leaves processes"
      time.sleep(0.01)
    for process, log in zip(self._processes, self._logs):
      text = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
      if _TRACE.search(text):
        if kind == "SIGINT" and _ROOT not in text:
          continue  # Python itself was starting.
        return "shows a traceback"
      last, code = text.rstrip().rpartition("\n")[2], process.returncode
      # The folder's own name is no longer than a user's.
      is_sentence = _SENTENCE.match(last.replace(self._folder, ""))
      is_refusal = is_sentence and kind and code == 1
      if code and not is_refusal and code not in _CODES.get(kind, ()):
        return f"ends with {code}, {last!r}"
    return ""

  def _leftovers(self) -> set[str]:
    """Returns the temporary files, except those of an unfinished build."""
    found = {x for x in files.walk(self._chain_folder) if _LEFTOVER.search(x)}
    found = {x for x in found if not _UNFINISHED.search(x)}
    return found | {*files.walk(os.path.join(self._folder, "tmp"))}

  def _compare(self, name: str, out: str, is_over: bool) -> str:
    """Returns how a result differs from the undisturbed end, or ""."""
    wanted, found = self._ends[name], content(out)
    for path in sorted({*wanted, *found}):
      value = found.get(path)
      if _CHECKPOINT.search(path) and value:
        # TensorFlow marks a save that has not ended; SIGTERM makes more saves.
        marker = os.path.join(out, path.replace(".index", "_temp"))
        is_right = value == wanted.get(path, value) and value != "damaged"
        is_right = is_right or (not is_over and files.exists(marker))
      else:
        is_right = value == wanted.get(path) or not is_over
      if not is_right:
        return f"has another {path} than the undisturbed end"
    return ""

  def table(self) -> str:
    """Returns the counts by program and disturbance."""
    columns = ("kills", "resumed", "equal", "failures")
    total: collections.Counter = collections.Counter()
    rows = []
    for name, kind in sorted({key[:2] for key in self._counts}):
      counts = [self._counts[name, kind, column] for column in columns]
      rows.append([name, kind, *counts])
      total.update(dict(zip(columns, counts)))
    rows.append(["all", "", *(total[column] for column in columns)])
    return printing.table(["program", "disturbance", *columns], rows)

  def has_failed(self) -> bool:
    """Returns whether anything was wrong."""
    return any(column == "failures" for *_, column in self._counts)


def main(argv: Sequence[str]) -> None:
  del argv
  for name in _PROGRAMS.value:
    if name not in PROGRAMS:
      raise ValueError(f"--programs: {name!r} is none of {_NAMES}.")
  # The programs of a background process would ignore Ctrl-C.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  with contextlib.ExitStack() as stack:
    folder = _OUTPUT_DIR.value or stack.enter_context(
      tempfile.TemporaryDirectory(prefix="kills-")
    )
    files.check_new_folder(folder, "--output_dir")
    trial = Trial(files.absolute(folder), _RANDOM_SEED.value)
    kinds, disk = ["SIGKILL", "SIGTERM", "SIGINT"], f"{folder}/disk"
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", disk]
    if subprocess.run(mount, check=False).returncode:
      print("no disk is filled, because only root may mount a small one")
    else:
      kinds.append(_FULL)
      stack.callback(subprocess.run, ["umount", "--lazy", disk], check=True)
    stack.callback(lambda: print(trial.table(), flush=True))
    stack.callback(trial.kill)
    names = [*_PROGRAMS.value]
    if "data_beam" in names and not importlib.util.find_spec("apache_beam"):
      print("data_beam is left out, because Apache Beam is not installed")
      names.remove("data_beam")
    for name in names:
      trial.make_end(name)
    shares = sum(PROGRAMS[name].share for name in names)
    wanted = {n: -(-_KILLS.value * PROGRAMS[n].share // shares) for n in names}
    done = dict.fromkeys(names, 0)
    # A second job would need ports of its own.
    others = {"": [_SECOND], "children": [_SECOND, _ONE], "workers": [_ONE]}
    while any(done[name] < wanted[name] for name in names):
      # In proportion, as the trial may be stopped.
      name = min(names, key=lambda name: done[name] / wanted[name])
      kinds_of_it = [*kinds, *others[PROGRAMS[name].processes]]
      done[name] += trial.chain(name, kinds_of_it)
  if trial.has_failed():
    raise ValueError("some ends were wrong, see above.")


if __name__ == "__main__":
  command_line.run(main)
