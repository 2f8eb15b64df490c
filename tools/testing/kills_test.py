"""Kills every program that writes, at random moments; its results are the same.

Each program runs undisturbed once. Then it gets SIGKILL at random moments, and
the same command is repeated until it ends by itself. After each kill, what
looks finished must equal that of the undisturbed run (see `_content`). So must
the final result.
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

import pytest
import tensorflow as tf

from official_albert import files, modeling, run_logs
from official_albert.tools.testing import many_commands, toy_data

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
# The file that appears last, and the command, with the folders {out} of the
# result, {in} of `_write_inputs`, and {ends} of the undisturbed results of the
# programs before it. A training has no last file: its exit code is then 0.
_PROGRAMS = {
  "vocabulary": (
    "tokenizer.model",
    "train_vocabulary --input_files={in}/corpus.txt --output_dir={out} "
    "--vocab_size=60",
  ),
  "data": ("dataset.json", _DATA + " --num_workers=1"),
  "data_workers": ("dataset.json", _DATA + " --num_workers=2"),
  "pretraining": (
    "",
    "run_pretraining --input_dir={ends}/data --model_dir={out} "
    "--albert_config_file={in}/albert_config.json" + _STEPS,
  ),
  "finetuning": (
    "",
    "run_finetuning --task=text_classification --train_file={in}/train.tsv "
    "--dev_file={in}/dev.tsv --test_file={in}/test.tsv --text_column=review "
    "--label_column=mood --max_seq_length=24 --output_dir={out} "
    "--init_checkpoint={ends}/pretraining" + _STEPS,
  ),
  "predict": (
    "rows.tsv",
    "predict --model_dir={ends}/finetuning --input_file={in}/rows.tsv "
    "--output_file={out}/rows.tsv",
  ),
  "export": (
    "saved_model.pb",
    "export_saved_model --model_dir={ends}/finetuning --export_dir={out}",
  ),
  "convert": (
    "config.json",
    "convert_checkpoint --to=hf --input={ends}/pretraining --output={out}",
  ),
  "publish": (
    "model-metadata.json",
    "publish_hub_module --input={ends}/pretraining --output_dir={out} "
    "--handle=team/albert --license=apache-2.0 --seq_length=24",
  ),
}
_KILLS = 3  # Of each program.
_EARLY_SHARE = 0.2  # Of the kills, before a program has written anything.
_LIMIT_SECONDS = 120.0
_CHECKPOINT = re.compile(r"(^|/)model\.ckpt[^/]*\.index$")
# Logs, pictures, and files with times, folders or random numbers. Values of
# checkpoints are compared as variables.
_NOT_COMPARED = re.compile(
  r"(^|/)(run|report|conversion)\.json$|(^|/)(curves\.png|checkpoint|"
  r"fingerprint\.pb|events\.out\..*|model\.ckpt[^/]*\.data-[^/]*)$"
)
# Files that SIGKILL may leave; see docs/results/survival.md.
_LEFTOVER = re.compile(
  r"(^|/)(\.new-\w{8}/.*|[^/]+\.[0-9a-f]{16}\.tmp|"
  r"\.unfinished(-finished)?/.*|\.lock)$"
)


def _content(folder: str) -> dict[str, str]:
  """Returns the parts of a result that are compared, by path.

  These are the SHA-256 of each file, that of the variables of each checkpoint
  without the number of saves, and the last evaluation of metrics.jsonl without
  its time. `_NOT_COMPARED` is left out.
  """
  found = {}
  for name in files.walk(folder):
    path = os.path.join(folder, name)
    if _LEFTOVER.search(name):
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
  """Runs commands in a folder; `kills` counts those that came in time."""

  def __init__(self, folder: pathlib.Path):
    self._folder, self._random, self.kills = folder, random.Random(0), 0
    for name in ("in", "ends", "chain"):
      (folder / name).mkdir(parents=True)
    _write_inputs(str(folder / "in"))

  def run(self, name: str, result: str, command: str) -> None:
    """Runs a command undisturbed, then with kills."""
    end, out = self._folder / "ends" / name, self._folder / "chain" / name
    assert self._attempt(command, end) == 0
    began, seconds = self._first, self._seconds
    for _ in range(_KILLS):
      moment = self._random.uniform(began, seconds)
      if self._random.random() < _EARLY_SHARE:
        moment = self._random.uniform(0, began)
      code = self._attempt(command, out, moment)
      assert code in (0, -signal.SIGKILL)
      is_over = not code or bool(result and (out / result).exists())
      self._compare(end, out, is_over)
      if is_over:
        return
    assert self._attempt(command, out) == 0
    self._compare(end, out, True)

  def _attempt(
    self, command: str, out: pathlib.Path, moment: float = _LIMIT_SECONDS
  ) -> int:
    """Runs a command, which is killed after `moment` seconds.

    Returns:
      Its exit code. `_first` and `_seconds` are when it made its folder and
      when it ended.
    """
    if command.startswith("predict"):  # It makes no folder.
      out.mkdir(exist_ok=True)
    folders = {"in": self._folder / "in", "ends": self._folder / "ends"}
    program, *arguments = command.format(**folders, out=out).split()
    with (self._folder / "log").open("wb") as log:
      process = subprocess.Popen(
        [sys.executable, "-m", f"tools.{program}", *arguments],
        cwd=many_commands.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
      )
    begin, self._first = time.monotonic(), 0.0
    while process.poll() is None and time.monotonic() < begin + moment:
      if not self._first and out.exists():
        self._first = time.monotonic() - begin
      time.sleep(0.002)
    self._seconds = time.monotonic() - begin
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
      self.kills += process.poll() is None
    code = process.wait()
    text = (self._folder / "log").read_text("utf-8", "replace")
    assert "Traceback" not in text, text
    return code

  def _compare(
    self, end: pathlib.Path, out: pathlib.Path, is_over: bool
  ) -> None:
    wanted, found = _content(str(end)), _content(str(out))
    for path in sorted({*wanted, *found} if is_over else found):
      is_right = found.get(path) == wanted.get(path)
      if not is_over:
        # TensorFlow marks a save that has not ended.
        marker = out / path.replace(".index", "_temp")
        is_right |= not _CHECKPOINT.search(path) or marker.exists()
      assert is_right, f"has another {path} than the undisturbed end"


@pytest.mark.heavy
def test_killed_programs_end_as_undisturbed_ones(tmp_path):
  trial = _Trial(tmp_path / "trial")
  for name, (result, command) in _PROGRAMS.items():
    trial.run(name, result, command)
  assert trial.kills > len(_PROGRAMS)
