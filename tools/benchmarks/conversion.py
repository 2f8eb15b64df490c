"""Times the conversion of a full-size model to all formats and back.

    python -m tools.benchmarks.conversion --preset=albert_xlarge_v2 \\
      --hf_python=VENV/bin/python

Writes a random TF1 checkpoint of the preset, converts it to ours, to Hugging
Face, to ours and to TF1, each in a process of its own, and compares the values
of the first and last checkpoint. Needs disk space for five copies.
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

_PRESET = flags.DEFINE_string("preset", "albert_base_v2", "Name of the model.")
_HF_PYTHON = path_flags.define(
  "hf_python", "", "As in tools.convert_checkpoint."
)
_FORMATS = ("official_albert", "hf", "official_albert", "tf1")
# Runs the program and prints the peak memory of its process in KiB.
_CHILD = """
import resource, runpy, sys
sys.argv = ["convert_checkpoint", *sys.argv[1:]]
try:
  runpy.run_module("tools.convert_checkpoint", run_name="__main__")
finally:
  print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def main(argv) -> None:
  del argv
  config = modeling.AlbertConfig.from_preset(_PRESET.value)
  with tempfile.TemporaryDirectory() as folder:
    first = path = os.path.join(folder, "random")
    parameters = conversion.write_random(config, path)
    print(f"{_PRESET.value}: {parameters:,} parameters")
    for i, target in enumerate(_FORMATS):
      output = os.path.join(folder, str(i))
      start = time.monotonic()
      done = subprocess.run(
        [
          *(sys.executable, "-c", _CHILD, f"--to={target}", f"--input={path}"),
          *(f"--output={output}", f"--hf_python={_HF_PYTHON.value}"),
        ],
        capture_output=True,
        text=True,
      )
      if done.returncode:
        raise ValueError(f"the conversion to {target} failed: {done.stderr}")
      seconds = time.monotonic() - start
      *lines, last = done.stdout.splitlines()
      peak = int(last.split()[1]) / 2**20
      print(f"to {target}: {seconds:.1f} s, peak {peak:.2f} GiB")
      for line in lines:
        if line.startswith("proof"):
          print(f"  {line}", flush=True)
      path = output
    difference = conversion.largest_difference(
      checkpoints.read_tensorflow(first),
      checkpoints.read_tensorflow(path),
    )
    print(f"there and back: largest difference {difference:g}")
    if difference:
      raise ValueError("the values have changed.")


if __name__ == "__main__":
  command_line.run(main)
