"""Asks the TPU's compiler, without a TPU, whether a step fits.

    python -m tools.compile_for_tpu --preset=albert_base_v2 \\
        --max_seq_length=512 --batch_size=32 --topology=v3:2x2
    python -m tools.compile_for_tpu --preset=albert_xxlarge_v2 \\
        --task=squad --topology=v4:2x2x1 --find_batch --recompute
    python -m tools.compile_for_tpu --table --find_batch \\
        --output_file=tpu_rows.jsonl

TensorFlow traces the loop, the evaluation or the prediction as on a TPU and
lowers what one replica runs, with its sums over the topology's replicas. libtpu
compiles it in a separate virtual environment (created when it is first needed,
1.3 GB). A step fits if the compiler can lay out its memory. Nothing runs, and
what stays on the host is not compiled: reading batches and counting steps.

A row takes one to ten minutes or more on two cores. With --output_file, the
same command resumes after an interruption. Delete the file when the model's
code has changed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
import tempfile
from typing import Iterator, Sequence

from absl import flags

from official_albert import modeling, training
from official_albert.tools.cli import command_line, path_flags, printing
from official_albert.tools.tpu_compile import compiler, rows
from official_albert.tools.tpu_compile import step as step_lib

_PRESET = flags.DEFINE_string(
  "preset", None, "Name of the model, such as albert_base_v2."
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file", None, "The model, as an albert_config.json."
)
_STEP = path_flags.define_settings(step_lib.Step)
_TOPOLOGY = flags.DEFINE_multi_string(
  "topology",
  [kind.topology for kind in compiler.GENERATIONS.values()],
  "TPUs to compile for, such as v3:2x2; may be repeated.",
)
_RANDOM_DEPTHS = flags.DEFINE_string(
  "random_depths",
  "",
  "Numbers of layers, separated by commas, of which each update draws one.",
)
_PRECISION = path_flags.define_precision(
  "precision", "mixed_bfloat16", step_lib.PRECISIONS, "Precision of the step."
)
_DROPOUT = flags.DEFINE_float(
  "dropout",
  None,
  "Dropout of hidden states and attention; default: the model's.",
)
_FIND_BATCH = flags.DEFINE_bool(
  "find_batch", False, "Search for the largest batch that fits, in a few tries."
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute", False, "Repeat each row with recomputed activations."
)
_TABLE = flags.DEFINE_bool(
  "table", False, "All four sizes, 128 and 512 tokens, every topology."
)
_OUTPUT_FILE = path_flags.define(
  "output_file", "", "File of JSON lines that stores rows and is resumed from."
)
_VENV = path_flags.define(
  "venv",
  str(rows.VENV),
  "Folder of the compiler's virtual environment; created if missing.",
  local=True,
)

_TABLE_PRESETS = tuple(
  f"albert_{size}_v2" for size in ("base", "large", "xlarge", "xxlarge")
)
_TABLE_LENGTHS = (128, 512)


def steps() -> Iterator[tuple[str, step_lib.Step]]:
  """Yields names of models and their steps, in the order of the rows."""
  if _TABLE.value and (_PRESET.value or _CONFIG_FILE.value):
    raise ValueError(
      "--table has models of its own: remove --preset and --albert_config_file."
    )
  if not _TABLE.value and bool(_CONFIG_FILE.value) == bool(_PRESET.value):
    raise ValueError("set either --preset or --albert_config_file.")
  if _CONFIG_FILE.value:
    config = modeling.AlbertConfig.from_json_file(_CONFIG_FILE.value)
    models = {pathlib.PurePath(_CONFIG_FILE.value).stem: config}
  else:
    presets = _TABLE_PRESETS if _TABLE.value else [_PRESET.value]
    models = {name: modeling.AlbertConfig.from_preset(name) for name in presets}
  settings = {name: flag.value for name, flag in _STEP.items()}
  if _FIND_BATCH.value and settings["gradient_accumulation_steps"] > 1:
    raise ValueError(
      "--find_batch searches the largest batch in one part: remove "
      "--gradient_accumulation_steps; that batch fits as a micro-batch."
    )
  settings["precision"] = _PRECISION.value
  if _RANDOM_DEPTHS.value:
    settings["random_depths"] = training.parse_depths(_RANDOM_DEPTHS.value)
  lengths = _TABLE_LENGTHS if _TABLE.value else (settings["max_seq_length"],)
  for (name, config), length in itertools.product(models.items(), lengths):
    if _DROPOUT.value is not None:
      config = dataclasses.replace(
        config,
        hidden_dropout_prob=_DROPOUT.value,
        attention_probs_dropout_prob=_DROPOUT.value,
      )
    step = step_lib.Step(
      **{**settings, "config": config.to_dict(), "max_seq_length": length}
    )
    yield name, step
    if _RECOMPUTE.value:
      yield name, dataclasses.replace(step, recompute_activations=True)


def main(argv: Sequence[str]) -> None:
  del argv
  wanted = list(steps())
  topologies = list(dict.fromkeys(_TOPOLOGY.value))
  for topology in topologies:
    compiler.generation(topology)
  path = _OUTPUT_FILE.value
  known = rows.read(path) if path else {}
  if path:  # Fails now, not minutes later, if the file is not writable.
    rows.write(path, known.values())
  python = rows.make_environment(pathlib.Path(_VENV.value))
  print(printing.table_head(rows.HEAD), flush=True)
  shown: list[rows.Row] = []

  def show(name, step, topology, folder, batch) -> bool:
    """Shows the row of a batch size and returns whether the batch fits."""
    sized = dataclasses.replace(step, batch_size=batch)
    row = known.get((sized.to_json(), topology))
    if row is None:
      row = rows.compile_row(name, sized, topology, python, folder)
      known[row.key] = row
      if path:
        rows.write(path, known.values())
    shown.append(dataclasses.replace(row, name=name))
    print(printing.table_row(shown[-1].cells()), flush=True)
    return row.compiled.fits

  for name, step in wanted:
    with tempfile.TemporaryDirectory(prefix="compile_for_tpu") as folder:
      for topology in topologies:
        fits = functools.partial(show, name, step, topology, folder)
        if not _FIND_BATCH.value:
          fits(step.batch_size)
          continue
        batch = rows.largest_batch(fits, step.batch_size)
        device = compiler.generation(topology).device
        print(
          f"largest on {topology}: {batch} a {device}"
          if batch
          else f"on {topology} not even 1 fits",
          flush=True,
        )
  if len(shown) > 1:
    print(f"\n{rows.matrix(shown, topologies)}")


if __name__ == "__main__":
  command_line.run(main)
