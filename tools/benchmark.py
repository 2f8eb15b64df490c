"""Measures speed and memory, and prints tables as in docs/results.

    python -m tools.benchmark peers --max_seq_length=128 --batch_size=16 \\
        --precision=mixed_bfloat16 --output_dir=docs

memory measures one update of pretraining, and the same with ways to save
memory; peers, the update beside Hugging Face's model in PyTorch; serving,
requests to an export and to that model; embeddings, vectors of the lines of a
file, beside sentence-transformers; finetuning, scores and speed of both in the
same fine-tuning; pretraining, Hugging Face's model after the minutes of a run:

    python -m tools.benchmark finetuning \\
        --finetuning_flags='--task=cola --data_dir=glue --init_checkpoint=RUN'
    python -m tools.benchmark pretraining --portion_dir=OUT --minutes=10 \\
        --systems=hf_pretrained_compiled --peer_flags='learning_rate=0.001'

The others measure in turns, so that a busy minute of the machine affects all
systems; their numbers are medians over --repeats.
"""

from __future__ import annotations

from typing import Callable, Sequence

from absl import flags

from official_albert import files, machine
from official_albert.tools.benchmarks import turns
from official_albert.tools.cli import command_line, path_flags

_OPTIONS = path_flags.define_settings(turns.Options)
_SYSTEMS = flags.DEFINE_list(
  "systems",
  [],
  "Systems of the benchmark, of "
  f"{', '.join(turns.SYSTEMS)}; default: those that need no compiler.",
)
flags.register_validator(
  "systems",
  lambda names: {*names} <= {*turns.SYSTEMS},
  f"choose of {', '.join(turns.SYSTEMS)}",
)

MAX_ARGUMENTS = 1  # The name of the benchmark.

if __name__ == "__main__":
  # `--help` ends here, before TensorFlow is loaded.
  command_line.parse()

from official_albert.tools.benchmarks import (
  embeddings,
  finetuning,
  pretraining,
  serving,
)

_UPDATES = ("ours", "huggingface")
# What runs it, the programs of its systems, and the files that it needs.
BENCHMARKS: dict[str, tuple[Callable, Sequence[str], Sequence[str]]] = {
  "embeddings": (
    *(embeddings.run, ["embeddings"]),
    ["input_files", "spm_model_file"],
  ),
  "finetuning": (finetuning.run, ["finetuning"], []),
  "memory": (turns.run, _UPDATES, []),
  "peers": (turns.run, _UPDATES, []),
  "pretraining": (pretraining.run, ["pretraining"], ["portion_dir"]),
  "serving": (
    *(serving.run, ["exports", "c_api", "runtimes", "huggingface"]),
    ["spm_model_file"],
  ),
}


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2 or argv[1] not in BENCHMARKS:
    raise ValueError(f"name one benchmark of {', '.join(BENCHMARKS)}.")
  run, programs, needed = BENCHMARKS[argv[1]]
  for system in _SYSTEMS.value:
    if turns.SYSTEMS[system].program not in programs:
      raise ValueError(
        f"{system} is not for {argv[1]}: choose other --systems."
      )
  values = {name: flag.value for name, flag in _OPTIONS.items()}
  for name in needed:
    if not files.glob(values[name]):
      raise ValueError(
        f"{argv[1]} needs --{name}: {values[name]!r} does not exist."
      )
  if values["output_dir"]:
    files.make_folder(values["output_dir"])
  print(machine.describe_machine(), flush=True)
  options = turns.Options(systems=_SYSTEMS.value, **values)
  run(argv[1], options)


if __name__ == "__main__":
  command_line.run(main)
