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

from official_albert import files, run_logs
from official_albert.testing import toy_models
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
_LIMIT_SECONDS = 120.0
_CHECKPOINT = re.compile(r"(^|/)model\.ckpt[^/]*\.index$")
# Logs, pictures, and files with times, folders or random numbers; and files
# that SIGKILL may leave, see docs/guarantees.md. Values of checkpoints
# are compared as variables.
_NOT_COMPARED = re.compile(
  r"(^|/)(run|report|conversion)\.json$|(^|/)(curves\.png|checkpoint|"
  r"fingerprint\.pb|events\.out\..*|model\.ckpt[^/]*\.data-[^/]*)$|"
  r"(^|/)(\.new-\w{8}/.*|[^/]+\.[0-9a-f]{16}\.tmp|"
  r"\.unfinished(-finished)?/.*|\.lock)$"
)


def _content(folder: pathlib.Path) -> dict[str, str]:
  """Returns the parts of a result that are compared, by path.

  These are the SHA-256 of each file, the variables of each checkpoint without
  the number of saves, and the last evaluation of metrics.jsonl without its
  time.
  """
  found = {}
  for name in files.walk(str(folder)):
    path = str(folder / name)
    if os.path.basename(name) == run_logs.METRICS_FILE:
      last = run_logs.read_metrics(os.path.dirname(path), "eval")[-1:]
      found[name] = str([{**x, "unix_time_seconds": 0} for x in last])
    elif not _NOT_COMPARED.search(name):
      is_checkpoint = _CHECKPOINT.search(name)
      found[name] = _variables(path) if is_checkpoint else files.sha256(path)
  return found


def _variables(path: str) -> str:
  try:
    reader = tf.train.load_checkpoint(path.removesuffix(".index"))
    return str(
      [
        (name, hashlib.sha256(reader.get_tensor(name).tobytes()).hexdigest())
        for name in sorted(reader.get_variable_to_shape_map())
        if "save_counter" not in name and "OBJECT_GRAPH" not in name
      ]
    )
  except (tf.errors.OpError, IndexError, ValueError):
    return "damaged"


def _write_inputs(folder: pathlib.Path) -> None:
  toy_data.write_corpus(f"{folder}/corpus.txt", 200)
  for name, rows in (("train", 40), ("dev", 20), ("test", 20), ("rows", 2000)):
    label = "mood" if name in ("train", "dev") else ""
    toy_data.write_table(f"{folder}/{name}.tsv", rows, label)
  config = toy_models.config(60, 40)
  config.to_json_file(f"{folder}/albert_config.json")


def _attempt(
  command: str, root: pathlib.Path, out: pathlib.Path, moment: float
) -> int:
  """Runs a command, killed after `moment` seconds; returns its exit code."""
  folders = {"in": root / "in", "ends": root / "ends", "out": out}
  program, *arguments = command.format(**folders).split()
  if program == "predict":  # It makes no folder.
    out.mkdir(exist_ok=True)
  with (root / "log").open("wb") as log:
    process = subprocess.Popen(
      [sys.executable, "-m", f"tools.{program}", *arguments],
      cwd=many_commands.ROOT,
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
    )
  with contextlib.suppress(subprocess.TimeoutExpired):
    process.wait(moment)
  with contextlib.suppress(ProcessLookupError):
    os.killpg(process.pid, signal.SIGKILL)
  text = (root / "log").read_text("utf-8", "replace")
  assert "Traceback" not in text, text
  return process.wait()


def _compare(end: pathlib.Path, out: pathlib.Path, is_over: bool) -> None:
  wanted, found = _content(end), _content(out)
  for path in sorted({*wanted, *found} if is_over else found):
    is_right = found.get(path) == wanted.get(path)
    if not is_over:
      # TensorFlow marks a save that has not ended.
      marker = out / path.replace(".index", "_temp")
      is_right |= not _CHECKPOINT.search(path) or marker.exists()
    assert is_right, f"has another {path} than the undisturbed end"


@pytest.mark.heavy
def test_killed_programs_end_as_undisturbed_ones(tmp_path):
  rng, kills = random.Random(0), 0
  for name in ("in", "ends", "chain"):
    (tmp_path / name).mkdir()
  _write_inputs(tmp_path / "in")
  for name, (result, command) in _PROGRAMS.items():
    end, out = tmp_path / "ends" / name, tmp_path / "chain" / name
    begin = time.monotonic()
    assert _attempt(command, tmp_path, end, _LIMIT_SECONDS) == 0
    seconds = time.monotonic() - begin
    # The last attempt is not killed.
    for moment in [rng.uniform(0, seconds) for _ in range(_KILLS)] + [999.0]:
      code = _attempt(command, tmp_path, out, moment)
      kills += code == -signal.SIGKILL
      assert code in (0, -signal.SIGKILL)
      is_over = not code or bool(result and (out / result).exists())
      if out.exists():
        _compare(end, out, is_over)
      if is_over:
        break
    assert is_over
  assert kills > len(_PROGRAMS)
