"""Asks the TPU's compiler, without a TPU, whether a step fits.

    python -m tools.compile_for_tpu --preset=albert_base_v2 \\
        --max_seq_length=512 --batch_size=32 --topology=v3:2x2
    python -m tools.compile_for_tpu --preset=albert_xxlarge_v2 --task=squad \\
        --topology=v4:2x2x1 --recompute_activations --output_file=rows.jsonl

TensorFlow traces the training loop as on a TPU and lowers what one replica
runs, with its sums over the topology's replicas. libtpu compiles it in a
separate virtual environment, see docs/tpu.md. A step fits if the
compiler can lay out its memory. Nothing runs. A row takes one to ten minutes or
more on two cores.
"""

from __future__ import annotations

import json
import os
import pathlib
import tempfile

from absl import flags

from official_albert import files
from official_albert.config import AlbertConfig
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.tpu_compile import compiler, rows

_PRESET = flags.DEFINE_string(
  "preset", None, "Name of the model, such as albert_base_v2."
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file", None, "The model, as an albert_config.json."
)
_STEP = path_flags.define_settings(rows.Step)
_TOPOLOGY = flags.DEFINE_multi_string(
  "topology",
  [kind.topology for kind in compiler.GENERATIONS.values()],
  "TPUs to compile for, such as v3:2x2.",
)
_OUTPUT_FILE = path_flags.define(
  "output_file", "", "File of JSON lines to which the rows are added."
)

if __name__ == "__main__":
  # `--help` ends here, before TensorFlow is loaded.
  command_line.parse()

from official_albert.tools.tpu_compile import trace


def main(_) -> None:
  if bool(_CONFIG_FILE.value) == bool(_PRESET.value):
    raise ValueError("set either --preset or --albert_config_file.")
  if _PRESET.value:
    name, config = _PRESET.value, AlbertConfig.from_preset(_PRESET.value)
  else:
    name = pathlib.PurePath(_CONFIG_FILE.value).stem
    config = AlbertConfig.from_json_file(_CONFIG_FILE.value)
  settings = {name: flag.value for name, flag in _STEP.items()}
  step = rows.Step(config.to_dict(), **settings)
  topologies = list(dict.fromkeys(_TOPOLOGY.value))
  for topology in topologies:
    compiler.generation(topology)
  path = _OUTPUT_FILE.value
  if path:  # Fails now, not minutes later, if the file is not writable.
    files.check_file(path)
  python = rows.find_environment()
  with tempfile.TemporaryDirectory(prefix="compile_for_tpu") as folder:
    lowered = os.path.join(folder, "step.hlo")
    files.write_bytes(lowered, trace.trace_step(step).lower())
    for topology in topologies:
      row = rows.compile_row(name, step, lowered, topology, python)
      cells = rows.cells(row)
      if topology == topologies[0]:
        print(f"| {' | '.join(cells)} |\n{'|---' * len(cells)}|")
      print(f"| {' | '.join(cells.values())} |", flush=True)
      if path:
        before = files.read_bytes(path).decode() if files.exists(path) else ""
        line = json.dumps(row, sort_keys=True)
        files.write_text(path, f"{before}{line}\n")


if __name__ == "__main__":
  command_line.run(main)
