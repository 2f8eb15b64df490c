"""Times the conversion of a full-size model to all formats and back.

    python -m tools.benchmarks.conversion --preset=albert_xlarge_v2 \\
      --hf_python=VENV/bin/python

Writes a random TF1 checkpoint of the preset, converts it to our format, to
Hugging Face, to ours and to TF1, each in a separate process, and compares the
values of the first and last checkpoint. Needs disk space for five copies.
"""

from __future__ import annotations

import os
import tempfile

from absl import flags

from official_albert import checkpoints, modeling
from official_albert.tools import conversion
from official_albert.tools.benchmarks import data
from official_albert.tools.cli import command_line, path_flags

_PRESET = flags.DEFINE_string("preset", "albert_base_v2", "Name of the model.")
_HF_PYTHON = path_flags.define(
  "hf_python", "", "As in tools.convert_checkpoint.", local=True
)
_FORMATS = ("official_albert", "hf", "official_albert", "tf1")


def main(argv) -> None:
  del argv
  config = modeling.AlbertConfig.from_preset(_PRESET.value)
  with tempfile.TemporaryDirectory() as folder:
    first = path = os.path.join(folder, "random")
    parameters = conversion.write_random(config, path)
    print(f"{_PRESET.value}: {parameters:,} parameters")
    for i, target in enumerate(_FORMATS):
      output = os.path.join(folder, str(i))
      done = data.run_program(
        "convert_checkpoint",
        *(f"--to={target}", f"--input={path}", f"--output={output}"),
        f"--hf_python={_HF_PYTHON.value}",
      )
      peak = f"{done.peak_bytes / 2**30:.2f} GiB"
      print(f"to {target}: {done.seconds:.1f} s, peak {peak}")
      for line in done.output.splitlines():
        if line.startswith("proof"):
          print(f"  {line}", flush=True)
      path = output
    difference = conversion.largest_difference(
      checkpoints.read_checkpoint(first), checkpoints.read_checkpoint(path)
    )
    print(f"there and back: largest difference {difference:g}")
    if difference:
      raise ValueError("the values have changed.")


if __name__ == "__main__":
  command_line.run(main)
