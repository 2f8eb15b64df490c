"""Other names of flags: google-research/albert's, and of other programs here.

A flag has one name, which `--help` and run.json show. Its other names are
accepted too. A flag of google-research/albert that has no counterpart here is
refused with the advice of `ADVICE`. docs/migration.md lists the names of that
project.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Sequence

from absl import flags

# In every program with the flag, unless the other name is a flag of its own.
_EVERYWHERE = {
  "cache_dir": "cached_dir",
  "classifier_dropout": "dropout_prob",
  "dev_file": "predict_file",
  "eval_batch_size": "predict_batch_size",
  "init_checkpoint": "albert_hub_module_handle",
  "input_file": "input_files input",
  "input_files": "input_file input",
  "keep_checkpoint_max": "num_keep_checkpoint",
  "num_train_steps": "train_step",
  "num_warmup_steps": "warmup_step",
  "seq_length": "max_seq_length sequence_length",
  "sequence_length": "max_seq_length",
  "steps_per_loop": "iterations_per_loop",
  "task": "task_name",
  "tpu": "tpu_name",
}
# Names that mean something else in other programs.
_IN_PROGRAMS = {
  "convert_checkpoint": {
    "input": "input_dir model_dir albert_directory",
    "output": "output_dir export_path",
  },
  "export_saved_model": {"model_dir": "input", "export_dir": "output_dir"},
  "inspect_model": {"model": "model_dir"},
  "publish_hub_module": {
    "input": "model_dir albert_directory",
    "output_dir": "export_dir export_path",
  },
  "run_finetuning": {"output_dir": "model_dir"},
  "run_pretraining": {"model_dir": "output_dir"},
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
    "init_from_group0": "tools.convert_checkpoint --num_hidden_groups copies a "
    "group",
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
  """Makes the other names of a program's flags names of the same flags."""
  names = {**_EVERYWHERE, **_IN_PROGRAMS.get(program, {})}
  for name in filter(flags.FLAGS.__contains__, names):
    for other in names[name].split():
      if other not in flags.FLAGS:
        flags.FLAGS[other] = flags.FLAGS[name]


def check_other_names(argv: Sequence[str]) -> None:
  """Raises flags.Error if several names of a flag have different values.

  The flags of the command line `argv` have been parsed.
  """
  words = iter(flags.FLAGS.read_flags_from_files(argv[1:], force_gnu=False))
  given: dict[flags.Flag, dict[str, Any]] = {}
  for word in words:
    if word == "--":
      break
    name, equals, value = word.lstrip("-").partition("=")
    if word.startswith("-") and name in flags.FLAGS:
      flag = flags.FLAGS[name]
      if not equals:
        value = "true" if flag.boolean else next(words, "")
      if not isinstance(flag, flags.MultiFlag):
        given.setdefault(flag, {})[name] = flag.parser.parse(value)
  for values in given.values():
    first, *others = values.values()
    if any(other != first for other in others):
      listed = " and ".join(f"--{x}={values[x]}" for x in values)
      raise flags.Error(f"{listed} are one flag: give it once")


def explain_unknown(program: str, argv: Sequence[str], unknown: str) -> str:
  """Returns what is wrong with all unknown flags of a command line.

  `unknown` is one of them, which may be from a --flagfile.
  """
  words = [re.match(r"--?([a-z]\w*)(?:=|$)", word) for word in argv[1:]]
  names = [word[1] for word in words if word]
  known = [*flags.FLAGS]
  known += [f"no{name}" for name in known if flags.FLAGS[name].boolean]
  found = [name for name in names if name not in known] or [unknown]
  sentences = []
  for name in dict.fromkeys(found):
    advice = ADVICE.get(program, {}).get(name.removeprefix("no"))
    near = did_you_mean(f"--{name}", [f"--{x}" for x in known])
    ending = f": {advice}" if advice else near
    sentences.append(f"there is no --{name}{ending}")
  return "; ".join(sentences)


def did_you_mean(word: str, choices: Sequence[str]) -> str:
  """Returns the choice that is most similar to a word, in brackets, or ""."""
  near = difflib.get_close_matches(word.lower(), choices, n=1)
  return f" (did you mean {near[0]}?)" if near else ""
