"""Pretrains an ALBERT on records of tools.create_pretraining_data.

    python -m tools.run_pretraining --input_dir=DATA --model_dir=RUN \\
        --preset=albert_base_v2 --train_batch_size=4096 \\
        --learning_rate=0.00176 --num_train_steps=125000 \\
        --num_warmup_steps=3125

Started again with the same flags, it goes on from its latest checkpoint and
computes what the uninterrupted run would have computed. Flags keep the names
and defaults of google-research/albert run_pretraining.py where they have one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os

from absl import flags

from official_albert import (
  cluster,
  distribution,
  multi_worker,
  optimization,
  run_record,
  silent_reporting,
  training,
)
from official_albert import config as config_lib
from official_albert import train_config as train_config_lib
from tasks.pretraining import task as task_lib
from tfrecords import schemas
from tools import command_line

_INPUT_DIR = flags.DEFINE_string(
  "input_dir", None, "Folder of tools.create_pretraining_data."
)
_MODEL_DIR = flags.DEFINE_string(
  "model_dir", None, "Folder for checkpoints and logs; made if missing."
)
_CONFIG_FILE = flags.DEFINE_string(
  "albert_config_file", None, "The model, as an albert_config.json."
)
_PRESET = flags.DEFINE_string(
  "preset",
  None,
  "The model, by name, such as albert_base_v2; takes the data's vocab_size.",
)
_INIT_CHECKPOINT = flags.DEFINE_string(
  "init_checkpoint", "", "Weights to start from (ours or TF1); optional."
)
_BATCH_SIZE = flags.DEFINE_integer(
  "train_batch_size", 4096, "Examples in one update."
)
_ACCUMULATION = flags.DEFINE_integer(
  "gradient_accumulation_steps", 1, "Micro-batches that make up one update."
)
_EVAL_BATCH_SIZE = flags.DEFINE_integer(
  "eval_batch_size", 64, "Held-out examples evaluated at once."
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "lamb", optimization.OPTIMIZERS, "How weights are updated."
)
_LEARNING_RATE = flags.DEFINE_float(
  "learning_rate", 0.00176, "Peak rate; the default is for a batch of 4096."
)
_DECAY = flags.DEFINE_enum(
  "learning_rate_decay",
  "original",
  optimization.DECAYS,
  "original drops a little when the warm-up ends, continuous does not.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 125000, "Updates in all."
)
_WARMUP_STEPS = flags.DEFINE_integer(
  "num_warmup_steps", 3125, "Updates over which the rate rises from 0."
)
_WEIGHT_DECAY = flags.DEFINE_float("weight_decay", 0.01, "Weight decay.")
_BETA_2 = flags.DEFINE_float("beta_2", 0.999, "Memory of squared gradients.")
_BIAS_CORRECTION = flags.DEFINE_bool(
  "bias_correction", False, "Correct the moments' start from zero."
)
_CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "Largest global norm of the gradient."
)
_STEPS_PER_LOOP = flags.DEFINE_integer(
  "steps_per_loop", 100, "Updates between two log lines."
)
_EVAL_STEPS = flags.DEFINE_integer(
  "eval_steps", 1000, "Updates between two evaluations; 0: only at the end."
)
_SAVE_STEPS = flags.DEFINE_integer(
  "save_checkpoints_steps", 1000, "Updates between two checkpoints."
)
_KEEP_MAX = flags.DEFINE_integer(
  "keep_checkpoint_max", 5, "How many of the newest checkpoints are kept."
)
_ON_DIVERGENCE = flags.DEFINE_enum(
  "on_divergence",
  "stop",
  train_config_lib.ON_DIVERGENCE,
  "When a loss or gradient is not finite: stop, or go back to the last "
  "checkpoint and leave out those batches, three times at most.",
)
_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "Seed of weights, data order and dropout."
)
_PRECISION = flags.DEFINE_enum(
  "precision", "float32", distribution.PRECISIONS, "Dtype of the products."
)
_DISTRIBUTION = flags.DEFINE_enum(
  "distribution",
  "one_device",
  distribution.STRATEGIES,
  "Devices to use. multi_worker is started once on each machine, with "
  "TF_CONFIG in the environment and one --model_dir that all share.",
)
_NUM_DEVICES = flags.DEFINE_integer(
  "num_devices",
  0,
  "Devices of --distribution=mirrored, or of each worker of multi_worker; 0: "
  "all GPUs, or one for each core.",
)
_TPU = flags.DEFINE_string(
  "tpu",
  "",
  "The TPU of --distribution=tpu: local, its name, or grpc://HOST:PORT.",
)


def model_config() -> config_lib.AlbertConfig:
  """The model that the flags ask for."""
  if bool(_CONFIG_FILE.value) == bool(_PRESET.value):
    raise ValueError(
      "give either --albert_config_file or --preset, and not both."
    )
  if _CONFIG_FILE.value:
    return config_lib.AlbertConfig.from_json_file(_CONFIG_FILE.value)
  manifest = schemas.read_manifest(_INPUT_DIR.value)
  return dataclasses.replace(
    config_lib.AlbertConfig.from_preset(_PRESET.value),
    vocab_size=manifest.tokenizer.vocab_size,
  )


def copy_tokenizer(manifest: schemas.Manifest) -> None:
  """Puts the data's tokenizer into the run, which is all an export needs."""
  source = os.path.join(_INPUT_DIR.value, manifest.tokenizer.file)
  with open(source, "rb") as file:
    model = file.read()
  if hashlib.sha256(model).hexdigest() != manifest.tokenizer.sha256:
    raise ValueError(
      f"{source} is not the tokenizer that the records were made with: make "
      "the folder again with tools.create_pretraining_data."
    )
  target = os.path.join(_MODEL_DIR.value, manifest.tokenizer.file)
  with open(f"{target}.tmp", "wb") as file:
    file.write(model)
  os.replace(f"{target}.tmp", target)


def main(argv) -> None:
  del argv
  train_config = training.TrainConfig(
    model_dir=_MODEL_DIR.value,
    num_train_steps=_TRAIN_STEPS.value,
    num_warmup_steps=_WARMUP_STEPS.value,
    learning_rate=_LEARNING_RATE.value,
    train_batch_size=_BATCH_SIZE.value,
    gradient_accumulation_steps=_ACCUMULATION.value,
    eval_batch_size=_EVAL_BATCH_SIZE.value,
    optimizer=_OPTIMIZER.value,
    weight_decay=_WEIGHT_DECAY.value,
    beta_2=_BETA_2.value,
    bias_correction=_BIAS_CORRECTION.value,
    learning_rate_decay=_DECAY.value,
    clip_norm=_CLIP_NORM.value,
    steps_per_loop=_STEPS_PER_LOOP.value,
    eval_steps=_EVAL_STEPS.value,
    save_checkpoints_steps=_SAVE_STEPS.value,
    keep_checkpoint_max=_KEEP_MAX.value,
    on_divergence=_ON_DIVERGENCE.value,
    init_checkpoint=_INIT_CHECKPOINT.value,
    seed=_SEED.value,
  )
  albert_config = model_config()
  task = task_lib.PretrainingTask(albert_config, _INPUT_DIR.value, _SEED.value)
  if _DISTRIBUTION.value == "multi_worker":
    job = cluster.read()
    if job.index == 0:
      print(f"waiting for {len(job.addresses) - 1} more workers", flush=True)
  strategy = distribution.make_strategy(
    _DISTRIBUTION.value, _NUM_DEVICES.value, _TPU.value
  )
  distribution.start_compiler()
  distribution.make_deterministic()
  precision = distribution.set_precision(_PRECISION.value)
  training.check_batch_sizes(train_config, strategy.num_replicas_in_sync)
  settings = {
    **dataclasses.asdict(train_config),
    "num_replicas": strategy.num_replicas_in_sync,
    "precision": precision,
    "distribution": _DISTRIBUTION.value,
  }
  changes = []
  if multi_worker.is_chief(strategy):
    changes = run_record.write(
      _MODEL_DIR.value, albert_config, settings, task.describe()
    )
    copy_tokenizer(task.manifest)
  with silent_reporting.make_reporter(strategy, _MODEL_DIR.value) as report:
    report.note(f"precision {precision}, logs in {_MODEL_DIR.value}")
    for change in changes:
      report.note(f"warning: {change}; the resumed run is not the same run.")
    with multi_worker.naming_lost_workers(strategy):
      training.train(task, train_config, strategy, report)


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_dir", "model_dir"])
  command_line.run(main)
