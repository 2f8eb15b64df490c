"""Times a full-size conversion there and back, of random weights.

    python -m tools.benchmarks.conversion --preset=albert_xlarge_v2 \\
      --hf_python=VENV/bin/python

Makes a TF1 checkpoint of the preset, converts it to ours, to Hugging Face, to
ours and to TF1 again, each in a process of its own, and compares every value of
the last with the first. Needs room for five copies of the weights on disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from absl import flags

from official_albert import checkpoints, modeling
from tools import conversion
from tools.cli import command_line, path_flags

_PRESET = flags.DEFINE_string("preset", "albert_base_v2", "Which model.")
_HF_PYTHON = path_flags.define(
  "hf_python", "", "As of tools.convert_checkpoint."
)
_WAY = ("official_albert", "hf", "official_albert", "tf1")
# Prints the peak memory of itself and ends as the program does.
_CHILD = """
import resource, runpy, sys
sys.argv = ["convert_checkpoint", *sys.argv[1:]]
try:
  runpy.run_module("tools.convert_checkpoint", run_name="__main__")
finally:
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  print("peak", peak if sys.platform != "darwin" else peak // 1024)
"""


def main(argv) -> None:
  del argv
  config = modeling.AlbertConfig.from_preset(_PRESET.value)
  with tempfile.TemporaryDirectory() as folder:
    first = path = os.path.join(folder, "random")
    print(
      f"{_PRESET.value}: "
      f"{conversion.random_checkpoint.write(config, path):,} parameters"
    )
    for index, target in enumerate(_WAY):
      output = os.path.join(folder, f"{index}")
      began = time.monotonic()
      done = subprocess.run(
        [
          sys.executable,
          "-c",
          _CHILD,
          f"--to={target}",
          f"--input={path}",
          f"--output={output}",
          f"--hf_python={_HF_PYTHON.value}",
        ],
        capture_output=True,
        text=True,
      )
      if done.returncode:
        raise ValueError(f"the conversion to {target} failed: {done.stderr}")
      lines = done.stdout.splitlines()
      print(
        f"to {target}: {time.monotonic() - began:.1f} s, peak "
        f"{int(lines[-1].split()[1]) / 2**20:.2f} GiB",
        *(line for line in lines if line.startswith("proof")),
        sep="\n  ",
        flush=True,
      )
      path = output
    difference = conversion.proof.by_name(
      checkpoints.read_tf1_checkpoint(first),
      checkpoints.read_tf1_checkpoint(path),
    )
    print(f"there and back: largest difference {difference:g}")
    if difference:
      raise ValueError("the values came back differently.")


if __name__ == "__main__":
  command_line.run(main)
