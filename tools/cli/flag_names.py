"""The flags of google-research/albert that have another name here, or none.

A flag has one name, which `--help` and run.json show. That project's name is
accepted too. A flag of google-research/albert that has no counterpart here is
refused with the advice of `ADVICE`. docs/migration.md lists the names of that
project.
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

_TPU_ADVICE = {
  "gcp_project": "--tpu=grpc://HOST:PORT needs no project",
  "master": "use --tpu=grpc://HOST:PORT",
  "num_tpu_cores": "all cores of --tpu are used",
  "tpu_zone": "--tpu=grpc://HOST:PORT needs no zone",
  "use_tpu": "use --distribution=tpu",
}
_RECORDS_ADVICE = "the records have it, see tools.create_pretraining_data"
_CACHE_ADVICE = "records are kept in --cache_dir"
_EXPORT_ADVICE = "export the run with tools.export_saved_model"
_EINSUM_ADVICE = "for TFLite, use tools.export_saved_model with --format=tflite"
_CHECKPOINT_ADVICE = "use --input=FOLDER/NAME"
_CLUSTER_ADVICE = "it was for the authors' own cluster"
# What to do instead, by program.
ADVICE = {
  "convert_checkpoint": {"checkpoint_name": _CHECKPOINT_ADVICE},
  "create_pretraining_data": {
    "do_permutation": "no reader could use the additional predictions",
    "input_file_mode": _CLUSTER_ADVICE,
    "meta_data_file_path": "dataset.json has the numbers",
    "num_outputs": _CLUSTER_ADVICE,
    "output_file": "use --output_dir, a folder for all shards",
    "random_next_sentence": "use --sentence_pair=nsp",
  },
  "publish_hub_module": {
    "checkpoint_name": _CHECKPOINT_ADVICE,
    "use_einsum": _EINSUM_ADVICE,
  },
  "run_finetuning": {
    **_TPU_ADVICE,
    "eval_file": _CACHE_ADVICE,
    "export_dir": _EXPORT_ADVICE,
    "high_only": "both levels are evaluated, and reported one by one",
    "middle_only": "both levels are evaluated, and reported one by one",
    "predict_feature_file": _CACHE_ADVICE,
    "predict_feature_left_file": _CACHE_ADVICE,
    "threshold_to_export": _EXPORT_ADVICE,
    "train_feature_file": _CACHE_ADVICE,
    "use_einsum": _EINSUM_ADVICE,
    "warmup_proportion": "use --num_warmup_steps",
  },
  "run_pretraining": {
    **_TPU_ADVICE,
    "do_eval": "--mode=train evaluates too; --mode=evaluate does only that",
    "do_train": "use --mode=train, which is the default",
    "init_from_group0": "each group of a new model starts at random",
    "input_file": "use --input_dir, the folder of the records; for those of "
    "google-research/albert, see tools.adopt_tfrecords",
    "masked_lm_budget": "--masking=dynamic of tools.create_pretraining_data "
    "masks while training",
    "max_eval_steps": "all held-out examples are evaluated",
    "max_predictions_per_seq": _RECORDS_ADVICE,
    "max_seq_length": _RECORDS_ADVICE,
    "poly_power": "the learning rate decays linearly",
    "start_warmup_step": "the warm-up starts at step 0",
  },
}


def add_other_names(program: str) -> None:
  """Makes google-research/albert's names those of a program's same flags."""
  for other, name in _NAMES.get(program, {}).items():
    flags.FLAGS[other] = flags.FLAGS[name]


def explain(program: str, error: Exception) -> str:
  """Returns what is wrong with a command line."""
  if isinstance(error, flags.UnrecognizedFlagError):
    name = error.flagname.removeprefix("no")
    if advice := ADVICE.get(program, {}).get(name):
      return f"there is no --{error.flagname}: {advice}"
  return str(error)
