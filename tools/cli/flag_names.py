"""The flags of google-research/albert that have another name here.

A flag has one name, which `--help` and run.json show. That project's name is
accepted too. docs/migration.md lists all names of that project, and what to use
for those without a counterpart.
"""

from __future__ import annotations

from absl import flags

# By program, then by google-research/albert's name.
_NAMES = {
  "convert_checkpoint": {"albert_directory": "input", "export_path": "output"},
  "create_pretraining_data": {"input_file": "input_files"},
  "publish_hub_module": {
    "albert_directory": "input",
    "export_path": "output_dir",
  },
  "run_finetuning": {
    "albert_hub_module_handle": "init_checkpoint",
    "cached_dir": "cache_dir",
    "dropout_prob": "classifier_dropout",
    "iterations_per_loop": "steps_per_loop",
    "num_keep_checkpoint": "keep_checkpoint_max",
    "predict_batch_size": "eval_batch_size",
    "predict_file": "dev_file",
    "task_name": "task",
    "tpu_name": "tpu",
    "train_step": "num_train_steps",
    "warmup_step": "num_warmup_steps",
  },
  "run_pretraining": {
    "iterations_per_loop": "steps_per_loop",
    "output_dir": "model_dir",
    "tpu_name": "tpu",
  },
}


def add_other_names(program: str) -> None:
  """Makes google-research/albert's names those of a program's same flags."""
  for other, name in _NAMES.get(program, {}).items():
    flags.FLAGS[other] = flags.FLAGS[name]


def explain(program: str, error: Exception) -> str:
  """Returns what is wrong with a command line."""
  text = str(error).rstrip(". ")
  if program in _NAMES and isinstance(error, flags.UnrecognizedFlagError):
    text += "; docs/migration.md lists the flags of google-research/albert"
  return text
