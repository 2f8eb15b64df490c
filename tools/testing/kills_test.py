"""Kills every program that writes, at random moments; its results are the same.

Each program runs undisturbed once. Then it gets SIGKILL or SIGTERM at a random
moment, and the same command is repeated, with further kills, until it ends by
itself. After each kill, all its processes must have ended without a traceback,
only SIGKILL may leave temporary files, and what looks finished must equal that
of the undisturbed run (see `_content`). So must the final result.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
from typing import Mapping, NamedTuple

import pytest
import tensorflow as tf

from official_albert import files, modeling, run_logs
from official_albert.tools.testing import many_commands, toy_data


class _Program(NamedTuple):
  """A program and the file of its result that appears last.

  Its arguments have the folders {out} of the result, {in} of `_write_inputs`,
  and {ends} of the undisturbed results of the programs before it. A training
  has no last file: it has ended when its exit code is 0.
  """

  arguments: str
  result: str = ""


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
_PROGRAMS = {
  "vocabulary": _Program(
    "train_vocabulary --input_files={in}/corpus.txt --output_dir={out} "
    "--vocab_size=60",
    "tokenizer.model",
  ),
  "data": _Program(_DATA + " --num_workers=1", "dataset.json"),
  "data_workers": _Program(_DATA + " --num_workers=2", "dataset.json"),
  "pretraining": _Program(
    "run_pretraining --input_dir={ends}/data --model_dir={out} "
    "--albert_config_file={in}/albert_config.json" + _STEPS
  ),
  "finetuning": _Program(
    "run_finetuning --task=text_classification --train_file={in}/train.tsv "
    "--dev_file={in}/dev.tsv --test_file={in}/test.tsv --text_column=review "
    "--label_column=mood --max_seq_length=24 --output_dir={out} "
    "--init_checkpoint={ends}/pretraining" + _STEPS
  ),
  "predict": _Program(
    "predict --model_dir={ends}/finetuning --input_file={in}/rows.tsv "
    "--output_file={out}/rows.tsv",
    "rows.tsv",
  ),
  "export": _Program(
    "export_saved_model --model_dir={ends}/finetuning --export_dir={out}",
    "saved_model.pb",
  ),
  "convert": _Program(
    "convert_checkpoint --to=hf --input={ends}/pretraining --output={out}",
    "config.json",
  ),
  "publish": _Program(
    "publish_hub_module --input={ends}/pretraining --output_dir={out} "
    "--handle=team/albert --license=apache-2.0 --seq_length=24",
    "model-metadata.json",
  ),
}
_KILLS = 3  # Of each program.
_EARLY_SHARE = 0.2  # Of the kills, before a program has written anything.
_LIMIT_SECONDS = 120.0
_CODES = {signal.SIGKILL: (-9,), signal.SIGTERM: (143, -15)}
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
_SENTENCE = re.compile(r"\w+: error: .{1,300}$")
_TRACE = re.compile(r"Traceback|Fatal Python error|Exception ignored")


def _content(folder: str) -> dict[str, str]:
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
    if os.path.basename(name) == run_logs.METRICS_FILE:
      last = run_logs.read_metrics(os.path.dirname(path), "eval")[-1:]
      found[name] = str([{**x, "unix_time_seconds": 0} for x in last])
    elif _CHECKPOINT.search(name):
      found[name] = _variables(path.removesuffix(".index"))
    elif not _NOT_COMPARED.search(name):
      found[name] = files.sha256(path)
  return found


def _variables(prefix: str) -> str:
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


class _Trial:
  """Runs the programs in a folder; `kills` counts what came in time."""

  def __init__(self, folder: pathlib.Path, root: pathlib.Path):
    self._folder, self._root = folder, root
    self._random, self.kills = random.Random(0), 0
    for name in ("in", "ends", "chain", "tmp"):
      (folder / name).mkdir(parents=True)

  def run(self, programs: Mapping[str, _Program]) -> None:
    """Runs each program undisturbed, then with kills."""
    for name, program in programs.items():
      end, out = self._folder / "ends" / name, self._folder / "chain" / name
      first, seconds = self._attempt(program, end)
      for _ in range(_KILLS):
        number = self._random.choice(list(_CODES))
        moment = self._random.uniform(first, seconds)
        if self._random.random() < _EARLY_SHARE:
          moment = self._random.uniform(0, first)
        is_over = self._attempt(program, out, number, moment) is None
        self._compare(end, out, is_over)
        if is_over:
          break
      else:
        self._attempt(program, out)
      self._compare(end, out, True)

  def _attempt(self, program, out, number=0, moment=_LIMIT_SECONDS):
    """Runs a program, and kills it after `moment` seconds with a signal.

    Returns:
      When it made its folder and when it ended; None if it was to be killed
      and its result is complete.
    """
    before = self._leftovers()
    arguments = program.arguments.format(
      **{"in": self._folder / "in", "ends": self._folder / "ends", "out": out}
    ).split()
    with (self._folder / "log").open("wb") as log:
      process = subprocess.Popen(
        [sys.executable, "-m", f"tools.{arguments[0]}", *arguments[1:]],
        cwd=self._root,
        env={**os.environ, "TMPDIR": str(self._folder / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
      )
    begin, first = time.monotonic(), 0.0
    try:
      while process.poll() is None and time.monotonic() < begin + moment:
        if not first and out.exists():
          first = time.monotonic() - begin
        time.sleep(0.002)
      seconds, is_hit = time.monotonic() - begin, process.poll() is None
      if is_hit and number:
        os.killpg(process.pid, number)
        self.kills += 1
      code = process.wait(_LIMIT_SECONDS)
      end = time.monotonic() + _LIMIT_SECONDS / 4
      while _is_living(process.pid):
        assert time.monotonic() < end, "leaves processes"
        time.sleep(0.01)
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    text = (self._folder / "log").read_text("utf-8", "replace")
    assert not _TRACE.search(text), text
    last = text.rstrip().rpartition("\n")[2].replace(str(self._folder), "")
    is_refusal = number and code == 1 and _SENTENCE.match(last)
    codes = (0, *_CODES.get(number, ()))
    assert is_refusal or code in codes, f"ends with {code}: {text}"
    left = self._leftovers() - before
    assert number == signal.SIGKILL or not left, f"leaves {left}"
    is_over = not code
    if program.result:
      is_over = (out / program.result).exists()
    assert is_over or number, text
    return None if number and is_over else (first, seconds)

  def _leftovers(self) -> set[str]:
    """Returns the temporary files, except those of an unfinished build."""
    found = {*files.walk(str(self._folder / "chain"))}
    found = {x for x in found if _LEFTOVER.search(x)}
    found = {x for x in found if not _UNFINISHED.search(x)}
    return found | {*files.walk(str(self._folder / "tmp"))}

  def _compare(
    self, end: pathlib.Path, out: pathlib.Path, is_over: bool
  ) -> None:
    wanted, found = _content(str(end)), _content(str(out))
    for path in sorted({*wanted, *found}):
      value = found.get(path)
      is_right = value == wanted.get(path) or not is_over
      if _CHECKPOINT.search(path) and value:
        # TensorFlow marks a save that has not ended; SIGTERM makes more saves.
        is_right = value == wanted.get(path, value) and value != "damaged"
        marker = out / path.replace(".index", "_temp")
        is_right = is_right or (not is_over and marker.exists())
      assert is_right, f"has another {path} than the undisturbed end"


def _is_living(group: int) -> bool:
  """Returns whether a process of a group has not ended."""
  for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(OSError):
      state, _, its_group = path.read_text().rpartition(") ")[2].split()[:3]
      if int(its_group) == group and state not in "ZX":
        return True
  return False


_TOY = """
import os, signal, subprocess, sys, time
out, fault = sys.argv[1:]
is_again = os.path.exists(out)
os.makedirs(out, exist_ok=True)
temporary = out + "/result.0123456789abcdef.tmp"

def stop(*unused):
  if fault == "trace":
    raise RuntimeError
  if fault == "process":
    subprocess.Popen(["sleep", "60"])
  if fault not in ("file", "early"):
    os.remove(temporary)
  os._exit(3 if fault == "code" else 143)

signal.signal(signal.SIGTERM, stop)
path = out + "/result" if fault == "early" else temporary
with open(path, "w") as file:
  file.write("same" if fault != "again" or not is_again else "other")
  file.flush()
  time.sleep(0.7)
  file.write(" result")
os.replace(path, out + "/result")
"""


@pytest.mark.parametrize(
  ("fault", "message"),
  [
    ("none", ""),
    ("trace", "RuntimeError"),
    ("process", "leaves processes"),
    ("file", "leaves .*toy/result.0123456789abcdef.tmp"),
    ("code", "ends with 3"),
    ("early", "another result than the undisturbed end"),
    ("again", "another result than the undisturbed end"),
  ],
)
def test_faults_are_reported(tmp_path, monkeypatch, fault, message):
  (tmp_path / "tools").mkdir()
  (tmp_path / "tools" / "__init__.py").touch()
  (tmp_path / "tools" / "toy.py").write_text(_TOY)
  module = sys.modules[__name__]
  monkeypatch.setattr(module, "_LIMIT_SECONDS", 8)
  monkeypatch.setattr(module, "_EARLY_SHARE", 0)
  monkeypatch.setattr(module, "_CODES", {signal.SIGTERM: (143, -15)})
  trial = _Trial(tmp_path / "trial", tmp_path)
  toy = {"toy": _Program(f"toy {{out}} {fault}", "result")}
  if fault == "none":
    trial.run(toy)
    assert trial.kills
    return
  with pytest.raises(AssertionError, match=message):
    trial.run(toy)


@pytest.mark.heavy
def test_killed_programs_end_as_undisturbed_ones(tmp_path):
  trial = _Trial(tmp_path / "trial", many_commands.ROOT)
  _write_inputs(str(tmp_path / "trial" / "in"))
  trial.run(_PROGRAMS)
  assert trial.kills > len(_PROGRAMS)
