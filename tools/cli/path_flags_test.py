"""Tests of the path flags of all programs, and of gs:// addresses in them."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags

from tools.cli import command_line, path_flags

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_VALUES = "gs://bucket/x", "a.txt,gs://bucket/x/*.txt", "a.txt,s3://bucket/x"
# Flags of paths that have to be local, and why.
_LOCAL = {
  "benchmark --peers_dir": "virtual environments",
  "benchmark --work_dir": "temporary files",
  "benchmarks.c_api_loader --op_libraries": "loaded by the system",
  "benchmarks.conversion --hf_python": "an interpreter",
  "benchmarks.survival_trial --output_dir": "a disk that is filled",
  "benchmarks.tflite_measure --keep_dir": "mapped into memory",
  "compile_for_tpu --venv": "a virtual environment",
  "convert_checkpoint --hf_python": "an interpreter",
}
# All other flags with text or lists as values, by what they hold.
_NO_PATHS = {
  "names": (
    "best_metric columns finetuning_tpu handle id_column label_column language "
    "model_name precision preset quantizations recipe runner "
    "sentence_language signature systems table tasks text_b_column "
    "text_column topology tpu"
  ),
  "numbers": (
    "depth_schedule depths gradient_accumulation_steps phase_steps "
    "profile_steps random_depths threads train_batch_size warmup_batch_sizes "
    "warmup_seq_lengths"
  ),
  "text": (
    "beam_options context description inputs options passage question text "
    "text_a text_b"
  ),
}


def _programs() -> list[str]:
  """Returns the modules that users start."""
  return [
    ".".join(path.relative_to(_ROOT).with_suffix("").parts)
    for path in sorted((_ROOT / "tools").rglob("*.py"))
    if not path.name.endswith("_test.py")
    and "\n  command_line.run(main" in path.read_text(encoding="utf-8")
  ]


def _run(program: str, argument: str) -> tuple[int, str, bool]:
  """Returns exit code and stderr of a command line, and whether main ran."""
  ran, error = [], io.StringIO()
  sys.argv = [program, argument]
  with contextlib.redirect_stderr(error), pytest.raises(SystemExit) as ended:
    command_line.run(ran.append, max_arguments=9)
  return ended.value.code or 0, error.getvalue(), bool(ran)


def _flags_of(program: str) -> dict[str, dict]:
  """Returns the flags with text as values, and results for remote paths."""
  importlib.import_module(program)
  found = {}
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    for flag in defined if module.startswith("tools") else ():
      kinds = (path_flags.PathParser, path_flags.PathListParser)
      is_path = isinstance(flag.parser, kinds)
      is_list = isinstance(flag.parser, flags.ListParser)
      if is_path:
        found[flag.name] = {
          "results": [
            _run(program, f"--{flag.name}={value}") for value in _VALUES
          ],
        }
      elif is_list or type(flag.parser) is flags.ArgumentParser:
        found[flag.name] = {}
  return found


def walk() -> None:
  """Prints the flags of all programs as JSON, by program.

  Each program is imported by a process of its own, as several define the same
  flags; TensorFlow is loaded once.
  """
  import tensorflow as tf

  del tf
  found = {}
  for program in _programs():
    reader, writer = os.pipe()
    if not os.fork():
      with open(writer, "w") as file:
        json.dump(_flags_of(program), file)
      os._exit(0)
    os.close(writer)
    with open(reader) as file:
      found[program] = json.load(file)
    os.wait()
  print(json.dumps(found))


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
  folder = tmp_path_factory.mktemp("walk")
  done = subprocess.run(
    [
      sys.executable,
      "-c",
      "from tools.cli import path_flags_test as t; t.walk()",
    ],
    cwd=folder,
    env={**os.environ, "PYTHONPATH": str(_ROOT), "CUDA_VISIBLE_DEVICES": ""},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout.splitlines()[-1]), folder


def test_every_flag_that_names_a_path_is_defined_as_one(walked):
  found, _ = walked
  others = set(" ".join(_NO_PATHS.values()).split())
  undeclared = {
    f"{program} --{name}"
    for program, defined in found.items()
    for name, flag in defined.items()
    if not flag and name not in others
  }
  assert not undeclared, (
    "define these with tools/cli/path_flags.py, or list them"
  )
  assert others <= {name for defined in found.values() for name in defined}


def test_addresses_are_accepted_or_refused_before_any_work(walked):
  found, folder = walked
  refused, results = set(), 0
  for program, defined in found.items():
    for name, flag in defined.items():
      if not flag:
        continue
      *in_buckets, (code, error, ran) = flag["results"]
      assert (code, ran) == (2, False) and "copy the files" in error, error
      for value, (code, error, ran) in zip(_VALUES, in_buckets):
        results += 1
        if ran:
          assert (code, error) == (0, "")
          continue
        refused.add(f"{program.removeprefix('tools.')} --{name}")
        assert code == 2 and error.count("\n") == 1, error
        assert f"flag --{name}={value}: " in error
        assert "gs:// addresses are not supported here: copy" in error
  assert refused == {*_LOCAL}
  assert len(found) >= 23 and results >= 180
  assert not os.listdir(folder)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
