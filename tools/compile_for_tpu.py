"""Does a training step fit a TPU? Asks the TPU's compiler, without a TPU.

    python -m tools.compile_for_tpu --preset=albert_base_v2 \\
        --max_seq_length=512 --batch_size=32 --topology=v3:2x2
    python -m tools.compile_for_tpu --preset=albert_xxlarge_v2 \\
        --task=squad --topology=v4:2x2x1 --find_batch --recompute
    python -m tools.compile_for_tpu --table --find_batch \\
        --output_file=tpu_rows.jsonl

The step of one replica, with its sums over the topology's replicas, is lowered
from TensorFlow and compiled ahead of time by libtpu, which a virtual
environment of its own holds (made when it is first needed, 1.3 GB). That a step
fits means that the TPU's compiler made a program of it whose memory it laid
out; nothing ran, and what is around the step on a TPU (the host's loop, the
batches on their way) is not part of it.

A row takes one to three minutes on two cores. With --output_file rows are kept,
and the same command goes on where it was interrupted: delete the file when the
model's code has changed.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Iterator, NamedTuple, Sequence

from absl import flags

from official_albert import modeling
from tools.cli import command_line, markdown, path_flags
from tools.tpu_compile import batch_search as tpu_batch_search
from tools.tpu_compile import compiler as tpu_compiler
from tools.tpu_compile import environment as tpu_venv
from tools.tpu_compile import rows as tpu_rows
from tools.tpu_compile import step as tpu_step
from tools.tpu_compile import witness as tpu_witness

_PRESET = flags.DEFINE_string(
  "preset", None, "The model, by name, such as albert_base_v2."
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file", None, "The model, as an albert_config.json."
)
_TASK = flags.DEFINE_string(
  "task", "pretraining", f"What is trained: {', '.join(tpu_step.TASKS)}."
)
_TOPOLOGY = flags.DEFINE_multi_string(
  "topology",
  [kind.topology for kind in tpu_compiler.GENERATIONS.values()],
  "TPUs to compile for, such as v3:2x2; may be given several times.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "S.")
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size", 32, "Examples of a core (v2, v3) or chip; a search starts here."
)
_MAX_PREDICTIONS = flags.DEFINE_integer(
  "max_predictions_per_seq", 0, "Masked tokens; 0: 15% of the tokens."
)
_OPTIMIZER = flags.DEFINE_string("optimizer", "lamb", "lamb or adamw.")
_PRECISION = flags.DEFINE_string("precision", "mixed_bfloat16", "Or float32.")
_DROPOUT = flags.DEFINE_float(
  "dropout", None, "Of hidden states and attention; the model's own by default."
)
_FIND_BATCH = flags.DEFINE_bool(
  "find_batch", False, "Search the largest batch that fits; takes a few tries."
)
_RECOMPUTE = flags.DEFINE_bool(
  "recompute", False, "Show each row again with recomputed activations."
)
_TABLE = flags.DEFINE_bool(
  "table", False, "All four sizes, 128 and 512 tokens, every topology."
)
_OUTPUT_FILE = path_flags.define(
  "output_file", "", "Keeps rows, as JSON lines, and takes up those it has."
)
_VENV = path_flags.define(
  "venv",
  str(tpu_venv.FOLDER),
  "Folder of the compiler's virtual environment; made if missing.",
)

_TABLE_PRESETS = tuple(
  f"albert_{size}_v2" for size in ("base", "large", "xlarge", "xxlarge")
)
_TABLE_LENGTHS = (128, 512)


class _Model(NamedTuple):
  name: str
  config: modeling.AlbertConfig


def models() -> list[_Model]:
  """What the flags name.

  Raises:
    ValueError: none, or two things at once.
  """
  if _TABLE.value:
    if _PRESET.value or _CONFIG_FILE.value:
      raise ValueError(
        "--table has models of its own: leave --preset and "
        "--albert_config_file out."
      )
    found = [(p, modeling.AlbertConfig.from_preset) for p in _TABLE_PRESETS]
  elif bool(_CONFIG_FILE.value) == bool(_PRESET.value):
    raise ValueError(
      "give either --preset or --albert_config_file, and not both."
    )
  elif _PRESET.value:
    found = [(_PRESET.value, modeling.AlbertConfig.from_preset)]
  else:
    found = [(_CONFIG_FILE.value, modeling.AlbertConfig.from_json_file)]
  return [
    _Model(pathlib.PurePath(name).stem, _with_dropout(make(name)))
    for name, make in found
  ]


def _with_dropout(config: modeling.AlbertConfig) -> modeling.AlbertConfig:
  if _DROPOUT.value is None:
    return config
  return dataclasses.replace(
    config,
    hidden_dropout_prob=_DROPOUT.value,
    attention_probs_dropout_prob=_DROPOUT.value,
  )


def steps() -> Iterator[tuple[str, tpu_step.Step]]:
  """Models' names and their steps, in the order of the rows.

  Raises:
    ValueError: a flag is out of range.
  """
  lengths = _TABLE_LENGTHS if _TABLE.value else (_MAX_SEQ_LENGTH.value,)
  for model in models():
    for length in lengths:
      step = tpu_step.Step(
        config=model.config.to_dict(),
        task=_TASK.value,
        batch_size=_BATCH_SIZE.value,
        max_seq_length=length,
        max_predictions_per_seq=_MAX_PREDICTIONS.value,
        optimizer=_OPTIMIZER.value,
        precision=_PRECISION.value,
      )
      yield model.name, step
      if _RECOMPUTE.value:
        yield model.name, dataclasses.replace(step, recompute_activations=True)


def main(argv: Sequence[str]) -> None:
  del argv
  wanted = list(steps())
  topologies = list(dict.fromkeys(_TOPOLOGY.value))
  for topology in topologies:
    tpu_compiler.generation(topology)
  store = tpu_rows.Store(_OUTPUT_FILE.value)
  python = tpu_venv.make(pathlib.Path(_VENV.value))
  print(markdown.head(tpu_rows.HEAD), flush=True)
  rows = []
  with tpu_witness.Witness(python, store) as witness:
    for name, step in wanted:
      for topology in topologies:

        def attempt(batch, name=name, step=step, topology=topology):
          sized = dataclasses.replace(step, batch_size=batch)
          row = witness.ask(name, sized, topology)
          rows.append(row)
          print(markdown.row(tpu_rows.cells(row)), flush=True)
          answer = row.compiled
          fixed = answer.arguments
          return tpu_batch_search.Try(
            batch, answer.fits, answer.used, answer.available, fixed
          )

        if not _FIND_BATCH.value:
          attempt(step.batch_size)
          continue
        best = tpu_batch_search.best(
          tpu_batch_search.largest(attempt, step.batch_size)
        )
        device = tpu_compiler.generation(topology).device
        print(
          f"largest on {topology}: {best.batch} a {device}"
          if best
          else f"on {topology} not even 1 fits",
          flush=True,
        )
  if len(rows) > 1:
    print(f"\n{tpu_rows.matrix(rows, topologies, _FIND_BATCH.value)}")


if __name__ == "__main__":
  command_line.run(main)
