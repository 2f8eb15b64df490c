"""Flags of a training run, whatever the task: how long, how, on what.

A program that trains imports this module; `train_config` and `start_devices`
are what it needs of the flags.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from official_albert import distribution, training
from tools.cli import path_flags, phase_flags

if TYPE_CHECKING:
  import tensorflow as tf

INIT_CHECKPOINT = path_flags.define(
  "init_checkpoint",
  "",
  "Weights to start from: a run, or whatever AlbertModel.from_checkpoint "
  "reads; optional.",
)
_PHASE_STEPS = flags.DEFINE_string(
  "phase_steps",
  "",
  "Updates of each phase, such as 112500,12500; the schedule spans them all.",
)
_BATCH_SIZE = flags.DEFINE_string(
  "train_batch_size", "4096", "Examples in one update, or those of each phase."
)
_ACCUMULATION = flags.DEFINE_string(
  "gradient_accumulation_steps",
  "1",
  "Micro-batches that make up one update, or those of each phase.",
)
EVAL_BATCH_SIZE = flags.DEFINE_integer(
  "eval_batch_size", 64, "Held-out examples evaluated at once."
)
_OPTIMIZER = flags.DEFINE_enum(
  "optimizer", "lamb", training.OPTIMIZERS, "How weights are updated."
)
_LEARNING_RATE = flags.DEFINE_float(
  "learning_rate",
  None,
  "Peak rate; by default 0.00176 * sqrt(train_batch_size / 4096), for LAMB. "
  "run_finetuning has defaults of its own.",
)
_DECAY = flags.DEFINE_enum(
  "learning_rate_decay",
  "original",
  training.DECAYS,
  "original drops a little when the warm-up ends, continuous does not.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 125000, "Updates in all; --phase_steps say it too."
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
  "eval_steps",
  1000,
  "Updates between two evaluations; 0: only at the end, and the best "
  "checkpoint is left to --mode=evaluate_continuously.",
)
_BEST_METRIC = flags.DEFINE_string(
  "best_metric",
  "loss",
  "The held-out number that the best checkpoint is chosen by; loss is the sum "
  "of all objectives.",
)
_BEST_IS = flags.DEFINE_enum(
  "best_is",
  "lowest",
  training.DIRECTIONS,
  "Which value of --best_metric is the best: lowest for losses, highest for "
  "accuracies.",
)
_EARLY_STOPPING = flags.DEFINE_integer(
  "early_stopping_evaluations",
  0,
  "Evaluations in a row, --eval_steps apart, without a better --best_metric "
  "that end the run; 0: it goes on to its last step.",
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
  training.ON_DIVERGENCE,
  "When a loss or gradient is not finite: stop, or go back to the last "
  "checkpoint and leave out those batches, three times at most.",
)
_PROFILE_STEPS = flags.DEFINE_string(
  "profile_steps",
  "",
  "FROM,TO: profile the updates after step FROM up to TO, for TensorBoard.",
)
ALLOW_CHANGED_SETTINGS = flags.DEFINE_bool(
  "allow_changed_settings",
  False,
  "Resume a run whose checkpoints were made with other settings, such as "
  "another learning rate or more steps. By default that is refused.",
)
RANDOM_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "Seed of weights, data order and dropout."
)
PRECISION = flags.DEFINE_enum(
  "precision", "float32", distribution.PRECISIONS, "Dtype of the products."
)
_XLA = flags.DEFINE_bool(
  "xla",
  False,
  "Compile forward and backward pass as a whole; slower on CPUs. Dropout draws "
  "other masks than without.",
)
DISTRIBUTION = flags.DEFINE_enum(
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


def train_config(
  model_dir: str,
) -> tuple[training.TrainConfig, list[str]]:
  """The flags as checked settings, and what is to be said of them.

  Raises:
    ValueError: a flag is out of range, or two contradict each other.
  """
  if (DISTRIBUTION.value, PRECISION.value) == ("tpu", "mixed_float16"):
    raise ValueError(
      "TPUs multiply in bfloat16, not in float16: use --precision=auto or "
      "mixed_bfloat16."
    )
  batch_sizes = phase_flags.numbers("train_batch_size", _BATCH_SIZE.value)
  accumulation = phase_flags.numbers(
    "gradient_accumulation_steps", _ACCUMULATION.value
  )
  phases = phase_flags.make_phases(
    _PHASE_STEPS.value, _BATCH_SIZE.value, _ACCUMULATION.value
  )
  rate, about_rate = training.choose_learning_rate(
    _LEARNING_RATE.value, batch_sizes[0], _OPTIMIZER.value
  )
  config = training.TrainConfig(
    model_dir=model_dir,
    num_train_steps=phase_flags.total_steps(
      phases, _TRAIN_STEPS.value, flags.FLAGS["num_train_steps"].present
    ),
    phases=phases,
    num_warmup_steps=_WARMUP_STEPS.value,
    learning_rate=rate,
    train_batch_size=batch_sizes[0],
    gradient_accumulation_steps=accumulation[0],
    xla=_XLA.value,
    eval_batch_size=EVAL_BATCH_SIZE.value,
    optimizer=_OPTIMIZER.value,
    weight_decay=_WEIGHT_DECAY.value,
    beta_2=_BETA_2.value,
    bias_correction=_BIAS_CORRECTION.value,
    learning_rate_decay=_DECAY.value,
    clip_norm=_CLIP_NORM.value,
    steps_per_loop=_STEPS_PER_LOOP.value,
    eval_steps=_EVAL_STEPS.value,
    best_metric=_BEST_METRIC.value,
    best_is=_BEST_IS.value,
    early_stopping_evaluations=_EARLY_STOPPING.value,
    save_checkpoints_steps=_SAVE_STEPS.value,
    keep_checkpoint_max=_KEEP_MAX.value,
    on_divergence=_ON_DIVERGENCE.value,
    init_checkpoint=INIT_CHECKPOINT.value,
    profile_steps=_PROFILE_STEPS.value,
    seed=RANDOM_SEED.value,
  )
  return config, list(about_rate)


def start_devices() -> tuple[tf.distribute.Strategy, str]:
  """Makes the strategy and sets the precision; returns both.

  Must come before TensorFlow's first operation.

  Raises:
    ValueError: the flags ask for devices that are not there.
    OSError: a device, or another worker, does not answer.
  """
  if DISTRIBUTION.value == "multi_worker":
    job = distribution.read_cluster()
    if job.index == 0:
      print(f"waiting for {len(job.addresses) - 1} more workers", flush=True)
  strategy = distribution.make_strategy(
    DISTRIBUTION.value, _NUM_DEVICES.value, _TPU.value
  )
  distribution.start_compiler()
  distribution.make_deterministic()
  return strategy, distribution.set_precision(PRECISION.value)


def on_tpu() -> bool:
  """Whether a TPU is asked for."""
  return DISTRIBUTION.value == "tpu"


def settings(
  config: training.TrainConfig,
  strategy: tf.distribute.Strategy,
  precision: str,
) -> dict[str, Any]:
  """For run.json."""
  return {
    **dataclasses.asdict(config),
    # As the user named it; the copy of another format's is gone tomorrow.
    "init_checkpoint": INIT_CHECKPOINT.value,
    "num_replicas": strategy.num_replicas_in_sync,
    "precision": precision,
    "distribution": DISTRIBUTION.value,
  }
