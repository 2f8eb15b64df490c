"""Measures speed and memory, and prints tables as the README shows them.

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

Variants are run in alternation, so that a busy minute of the machine touches
all of them; figures are medians over --repeats.
"""

from __future__ import annotations

import glob
from typing import Sequence

from absl import flags

from official_albert import distribution, files
from tasks.classification import glue
from tools.benchmarks import data as benchmark_data
from tools.benchmarks import finetuning as benchmark_finetuning
from tools.benchmarks import memory as benchmark_memory
from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks import scaling as benchmark_scaling
from tools.benchmarks import serving as benchmark_serving
from tools.benchmarks import squad as benchmark_squad
from tools.benchmarks import step as benchmark_step
from tools.cli import command_line, path_flags

_INPUT_FILES = path_flags.define(
  "input_files", None, "Text to make records of; see create_pretraining_data."
)
_SQUAD_FILE = path_flags.define(
  "squad_file", None, "Questions to make windows of: JSON, may be .gz."
)
_TASK = flags.DEFINE_enum(
  "task",
  "mrpc",
  list(glue.GLUE_TASKS),
  "Task of GLUE to fine-tune on.",
)
_DATA_DIR = path_flags.define("data_dir", None, "Folder of GLUE.")
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", None, "SentencePiece model."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "S.")
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size", 32, "Of the reader, or of the step that is measured."
)
_PRESET = flags.DEFINE_string(
  "preset", "albert_base_v2", "Model whose memory or speed is measured."
)
_PRECISION = flags.DEFINE_string(
  "precision", "float32", "Of the step that is measured."
)
_REPEATS = flags.DEFINE_integer("repeats", 3, "Runs of each variant.")
_WORK_DIR = path_flags.define(
  "work_dir", None, "For temporary files; the system's own by default."
)
_STEPS = flags.DEFINE_integer(
  "steps", 4, "Steps that a system takes in a run, where systems take turns."
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer",
  "lamb",
  sorted(benchmark_step.OPTIMIZERS),
  "Of the step that the benchmark step measures.",
)
_SYSTEMS = flags.DEFINE_list(
  "systems",
  list(benchmark_peers.DEFAULT_SYSTEMS),
  f"Which peers, of {', '.join(benchmark_peers.SYSTEMS)}.",
)
_PEERS_DIR = path_flags.define(
  "peers_dir",
  "~/.cache/official_albert/peers",
  "Where the peers' virtual environments are, or are made.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "Folder for table, figures and plot; none: prints only."
)


def _data() -> None:
  benchmark_data.run(
    benchmark_data.Settings(
      _INPUT_FILES.value,
      _SPM_MODEL_FILE.value,
      _MAX_SEQ_LENGTH.value,
      _BATCH_SIZE.value,
      _REPEATS.value,
      _WORK_DIR.value,
    )
  )


def _finetuning() -> None:
  benchmark_finetuning.run(
    benchmark_finetuning.Settings(
      _TASK.value,
      _DATA_DIR.value,
      _SPM_MODEL_FILE.value,
      _PRESET.value,
      _MAX_SEQ_LENGTH.value,
      _BATCH_SIZE.value,
      _PRECISION.value,
      _REPEATS.value,
      _WORK_DIR.value,
    )
  )


def _memory() -> None:
  benchmark_memory.run(
    benchmark_memory.Settings(
      _PRESET.value,
      _BATCH_SIZE.value,
      _MAX_SEQ_LENGTH.value,
      _PRECISION.value,
      _REPEATS.value,
    )
  )


def _peers() -> None:
  benchmark_peers.run(
    benchmark_peers.Settings(
      _PRESET.value,
      _BATCH_SIZE.value,
      _MAX_SEQ_LENGTH.value,
      _PRECISION.value,
      _REPEATS.value,
      _STEPS.value,
      _SYSTEMS.value,
      _PEERS_DIR.value,
      _OUTPUT_DIR.value,
      distribution.describe_machine(),
    )
  )


def _scaling() -> None:
  benchmark_scaling.run(
    benchmark_scaling.Settings(
      _PRECISION.value,
      _REPEATS.value,
      _STEPS.value,
      _OUTPUT_DIR.value,
      distribution.describe_machine(),
    )
  )


def _serving() -> None:
  benchmark_serving.run(
    benchmark_serving.Settings(
      _PRESET.value,
      _MAX_SEQ_LENGTH.value,
      _PRECISION.value,
      _REPEATS.value,
      _STEPS.value,
      _SPM_MODEL_FILE.value,
      _PEERS_DIR.value,
      _OUTPUT_DIR.value,
      distribution.describe_machine(),
    )
  )


def _step() -> None:
  benchmark_step.run(
    benchmark_step.Settings(
      _PRESET.value,
      _BATCH_SIZE.value,
      _MAX_SEQ_LENGTH.value,
      _PRECISION.value,
      _REPEATS.value,
      _STEPS.value,
      _OPTIMIZER.value,
      _OUTPUT_DIR.value,
      distribution.describe_machine(),
    )
  )


def _squad() -> None:
  benchmark_squad.run(
    benchmark_squad.Settings(
      _SQUAD_FILE.value,
      _SPM_MODEL_FILE.value,
      _MAX_SEQ_LENGTH.value,
      _REPEATS.value,
    )
  )


MAX_ARGUMENTS = 1  # The benchmark's name.
# Each with the flags that it cannot do without.
BENCHMARKS = {
  "data": (_data, ("input_files", "spm_model_file")),
  "finetuning": (_finetuning, ("data_dir", "spm_model_file")),
  "memory": (_memory, ()),
  "peers": (_peers, ()),
  "scaling": (_scaling, ()),
  "serving": (_serving, ("spm_model_file",)),
  "step": (_step, ()),
  "squad": (_squad, ("squad_file", "spm_model_file")),
}


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2 or argv[1] not in BENCHMARKS:
    raise ValueError(f"name one benchmark of {', '.join(BENCHMARKS)}.")
  run, needed = BENCHMARKS[argv[1]]
  for name in needed:
    if not flags.FLAGS[name].value:
      raise ValueError(f"the benchmark {argv[1]} needs --{name}.")
  # Before minutes are spent: on environments, or on figures without a place.
  for flag in (_REPEATS, _STEPS):
    if flag.value < 1:
      raise ValueError(f"--{flag.name} must be at least 1, got {flag.value}.")
  for flag in (_INPUT_FILES, _SQUAD_FILE, _SPM_MODEL_FILE):
    if flag.value and not glob.glob(flag.value):
      raise FileNotFoundError(f"--{flag.name} {flag.value} does not exist.")
  if _OUTPUT_DIR.value:
    files.make_folder(_OUTPUT_DIR.value)
  print(distribution.describe_machine(), flush=True)
  run()


if __name__ == "__main__":
  command_line.run(main, MAX_ARGUMENTS)
