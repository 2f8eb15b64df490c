"""Measures speed and memory, and prints tables as in docs/results.

    python -m tools.benchmark data --input_files='corpus/*.jsonl.gz' \\
        --spm_model_file=30k-clean.model
    python -m tools.benchmark squad --squad_file=dev-v1.1.json \\
        --spm_model_file=30k-clean.model --max_seq_length=384
    python -m tools.benchmark memory --preset=albert_base_v2 --batch_size=8 \\
        --precision=mixed_bfloat16
    python -m tools.benchmark finetuning --task=mrpc --data_dir=glue \\
        --spm_model_file=30k-clean.model --preset=albert_base_v2
    python -m tools.benchmark step --max_seq_length=128 --batch_size=16 \\
        --precision=mixed_bfloat16
    python -m tools.benchmark scaling --precision=mixed_bfloat16
    python -m tools.benchmark peers --max_seq_length=128 --batch_size=16 \\
        --precision=mixed_bfloat16 --output_dir=docs
    python -m tools.benchmark serving --max_seq_length=128 --repeats=5 \\
        --precision=mixed_bfloat16 --spm_model_file=30k-clean.model
    python -m tools.benchmark first_answer --spm_model_file=30k-clean.model
    python -m tools.benchmark quality --input_files=corpus.txt \\
        --spm_model_file=tokenizer.model --minutes=9 --output_dir=quality

Variants are measured in turns, so that a busy minute of the machine affects all
of them; numbers are medians over --repeats.
"""

from __future__ import annotations

import inspect
from typing import Sequence

from absl import flags

from official_albert import distribution, files, training
from official_albert.tasks.classification import glue
from official_albert.tools.benchmarks import (
  comparison,
  data,
  first_answer,
  quality,
  serving,
  step,
)
from official_albert.tools.cli import command_line, path_flags

_INPUT_FILES = path_flags.define(
  "input_files", None, "Text for records; see create_pretraining_data."
)
_SQUAD_FILE = path_flags.define(
  "squad_file", None, "SQuAD questions: JSON, may be .gz."
)
_TASK = flags.DEFINE_enum(
  "task", "mrpc", list(glue.GLUE_TASKS), "GLUE task to fine-tune on."
)
_DATA_DIR = path_flags.define("data_dir", None, "Folder of GLUE.")
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
_PRECISION = path_flags.define_precision(
  "precision", "float32", distribution.PRECISIONS, "Precision of the step."
)
_REPEATS = flags.DEFINE_integer(
  "repeats", 3, "Runs of each variant.", lower_bound=1
)
_WORK_DIR = path_flags.define(
  "work_dir",
  None,
  "Folder for temporary files; default: the system's.",
  local=True,
)
_STEPS = flags.DEFINE_integer(
  "steps", 4, "Steps per run or turn.", lower_bound=1
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "lamb", training.OPTIMIZERS, "Optimizer of the benchmark step."
)
_SYSTEMS = flags.DEFINE_list(
  "systems",
  list(comparison.DEFAULT_SYSTEMS),
  f"Systems to compare with, of {', '.join(comparison.SYSTEMS)}.",
)
_PEERS_DIR = path_flags.define(
  "peers_dir",
  "~/.cache/official_albert/peers",
  "Folder of the peers' virtual environments, created if needed.",
  local=True,
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "Folder for table, numbers and plot; default: print only."
)

_RECIPES = flags.DEFINE_list(
  "recipes",
  ["quickstart"],
  "Recipes of tools.run_pretraining to compare, for one preset and batch.",
)
_LEARNING_RATES = flags.DEFINE_list(
  "learning_rates",
  ["5e-4", "1e-3", "2e-3", "4e-3"],
  "Learning rates of Hugging Face to choose from; none: without it.",
)
_MINUTES = flags.DEFINE_float(
  "minutes",
  9.0,
  "Minutes of training of each model.",
  lower_bound=0.0,
  upper_bound=1e6,
)

MAX_ARGUMENTS = 1  # The name of the benchmark.
# Each takes the flags that its parameters name.
BENCHMARKS = {
  "data": data.run,
  "finetuning": step.run_finetuning,
  "first_answer": first_answer.run,
  "memory": step.run_memory,
  "peers": comparison.run,
  "quality": quality.run,
  "scaling": step.run_scaling,
  "serving": serving.run,
  "step": step.run,
  "squad": data.run_squad,
}


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2 or argv[1] not in BENCHMARKS:
    raise ValueError(f"name one benchmark of {', '.join(BENCHMARKS)}.")
  run = BENCHMARKS[argv[1]]
  values = {
    name: flags.FLAGS[name].value for name in inspect.signature(run).parameters
  }
  for flag in (_INPUT_FILES, _SQUAD_FILE, _DATA_DIR, _SPM_MODEL_FILE):
    if flag.name in values and not flag.value:
      raise ValueError(f"the benchmark {argv[1]} needs --{flag.name}.")
  for flag in (_INPUT_FILES, _SQUAD_FILE, _SPM_MODEL_FILE):
    if flag.value and not files.glob(flag.value):
      raise FileNotFoundError(f"--{flag.name} {flag.value} does not exist.")
  if _OUTPUT_DIR.value:
    files.make_folder(_OUTPUT_DIR.value)
  print(distribution.describe_machine(), flush=True)
  run(**values)


if __name__ == "__main__":
  command_line.run(main, MAX_ARGUMENTS)
