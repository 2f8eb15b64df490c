"""Measures speed and memory, and prints tables as in docs/results.

    python -m tools.benchmark data --input_files='corpus/*.jsonl.gz' \\
        --spm_model_file=30k-clean.model
    python -m tools.benchmark step --max_seq_length=128 --batch_size=16 \\
        --precision=mixed_bfloat16
    python -m tools.benchmark memory --preset=albert_base_v2 --batch_size=8 \\
        --precision=mixed_bfloat16
    python -m tools.benchmark peers --max_seq_length=128 --batch_size=16 \\
        --precision=mixed_bfloat16 --output_dir=docs
    python -m tools.benchmark serving --max_seq_length=128 --repeats=5 \\
        --precision=mixed_bfloat16 --spm_model_file=30k-clean.model

step measures one update of pretraining; memory, the same with ways to save
memory; peers, the same beside Hugging Face's model in PyTorch; serving,
requests to exports and to that model; data, making and reading records. Systems
are measured in turns, so that a busy minute of the machine affects all of them;
numbers are medians over --repeats.
"""

from __future__ import annotations

import inspect
from typing import Callable, Sequence

from absl import flags

from official_albert import files, machine, settings, train_config
from official_albert.tools.benchmarks import step
from official_albert.tools.cli import command_line, path_flags

_INPUT_FILES = path_flags.define(
  "input_files", None, "Text for records; see create_pretraining_data."
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", None, "SentencePiece model."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length", 512, "Tokens per sequence.", lower_bound=1
)
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size",
  32,
  "Sequences per batch of the reader or the step.",
  lower_bound=1,
)
_PRESET = flags.DEFINE_string("preset", "albert_base_v2", "Model to measure.")
_PRECISION = flags.DEFINE_enum(
  "precision", "float32", settings.PRECISIONS, "Precision of the step."
)
_REPEATS = flags.DEFINE_integer(
  "repeats", 3, "Runs of each variant.", lower_bound=1
)
_STEPS = flags.DEFINE_integer(
  "steps", 4, "Steps per run or turn.", lower_bound=1
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "lamb", train_config.OPTIMIZERS, "Optimizer of step and memory."
)
_SYSTEMS = flags.DEFINE_list(
  "systems",
  [],
  f"Systems of peers, of {', '.join(step.SYSTEMS)}; or of serving, of those "
  "that a wrong name shows; default: those that need no compiler.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "Folder for tables and raw numbers; default: print only."
)

MAX_ARGUMENTS = 1  # The name of the benchmark.

if __name__ == "__main__":
  # `--help` ends here, before TensorFlow is loaded.
  command_line.parse(max_arguments=MAX_ARGUMENTS)

from official_albert.tools.benchmarks import data, serving

# Each takes the flags that its parameters name.
BENCHMARKS: dict[str, Callable[..., None]] = {
  "data": data.run,
  "memory": step.run,
  "peers": step.run,
  "serving": serving.run,
  "step": step.run,
}


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2 or argv[1] not in BENCHMARKS:
    raise ValueError(f"name one benchmark of {', '.join(BENCHMARKS)}.")
  benchmark = argv[1]
  run = BENCHMARKS[benchmark]
  values = {
    name: benchmark if name == "benchmark" else flags.FLAGS[name].value
    for name in inspect.signature(run).parameters
  }
  for flag in (_INPUT_FILES, _SPM_MODEL_FILE):
    if flag.name in values and not flag.value:
      raise ValueError(f"the benchmark {benchmark} needs --{flag.name}.")
    if flag.value and not files.glob(flag.value):
      raise FileNotFoundError(f"--{flag.name} {flag.value} does not exist.")
  if _OUTPUT_DIR.value:
    files.make_folder(_OUTPUT_DIR.value)
  print(machine.describe_machine(), flush=True)
  run(**values)


if __name__ == "__main__":
  command_line.run(main, MAX_ARGUMENTS)
