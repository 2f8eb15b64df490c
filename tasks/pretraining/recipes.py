"""Recipes for pretraining, with hardware, time, seed and expected result.

    python -m tools.run_pretraining --recipe=base_gpu --input_dir=DATA ...

The paper (arXiv 1909.11942, section 4.1) uses batches of 4,096 sequences of 512
tokens, 10% of them shorter, LAMB with learning rate 0.00176 and 125,000 steps,
on 64 to 512 TPUs. As in google-research/albert, the warm-up is 1/40 of the
steps; in small_budget, which the quickstart uses, it is 1/10. Only that recipe
sets a learning rate. The others apply `train_config.scaled_learning_rate` to
the batch size, which the user may change.

A micro-batch is what a device computes at a time. On TPUs its memory is known
from their compiler: tools/tpu_compile/recipes_test.py compares every recipe
with docs/tpu_rows.jsonl. On GPUs it is an estimate: a sequence of 512 tokens
adds 252 MiB (base) and 552 MiB (large) to the peak memory of a step in bfloat16
without dropout, measured on a CPU between batches of 1 and 3. The 32 sequences
of base took 7.3 GiB on an H100 (docs/gpu.md); the others have not run.
Weights, gradients, m, v and the sum over micro-batches need 20 bytes per
parameter.

The _v2 presets have no dropout. The paper's v1 models of base, large and xlarge
were trained with 0.1, as in --preset=albert_base_v1.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from official_albert import train_config
from official_albert.config import AlbertConfig
from official_albert.tasks.pretraining import data as data_lib

NOT_RUN = "not yet run"


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The settings to pretrain a model on a kind of hardware."""

  name: str
  # Name of the model's preset.
  preset: str
  # Flags of tools.run_pretraining, without preset and seed.
  settings: Mapping[str, Any]
  # Flags of tools.create_pretraining_data for the data.
  data: Mapping[str, Any]
  hardware: str
  # Time of the training alone, and its source.
  expected_time: str
  seed: int = 12345
  # Result on the held-out examples at the end; "" if unknown.
  expected: str = ""
  # The command that was run, or `NOT_RUN`.
  run: str = NOT_RUN
  # The type of the TPU, such as v3-8 (cores) or v5e-8 (chips); "" for others.
  tpu: str = ""

  @property
  def flags(self) -> dict[str, Any]:
    """All flags of tools.run_pretraining that the recipe sets."""
    return {"preset": self.preset, "random_seed": self.seed, **self.settings}

  @property
  def batch(self) -> int:
    """The number of examples in an update."""
    return self.settings["train_batch_size"]

  @property
  def learning_rate(self) -> float:
    """The peak learning rate."""
    if "learning_rate" in self.settings:
      return self.settings["learning_rate"]
    return train_config.scaled_learning_rate(self.batch)

  @property
  def operations(self) -> int:
    """The floating-point operations of the whole training."""
    examples = self.settings["num_train_steps"] * self.batch
    config = AlbertConfig.from_preset(self.preset)
    length = self.data["max_seq_length"]
    share = self.settings.get("masked_lm_prob", data_lib.MASKED_LM_PROB)
    predictions = data_lib.num_to_predict(length, share)
    return examples * config.pretraining_flops(length, predictions)

  def describe(self, changed: Sequence[str], length: int) -> Iterator[str]:
    """Yields lines about the recipe for the log of a run.

    `changed` are the flags that were given, `length` is that of the data.
    """
    values = " ".join(f"--{name}={x}" for name, x in self.flags.items())
    yield f"recipe {self.name} ({self.run}): {values}"
    expected = f"; expected {self.expected}" if self.expected else ""
    yield f"  for {self.hardware}: {self.expected_time}{expected}"
    if changed:
      yield f"  changed by hand: {', '.join(f'--{x}' for x in changed)}"
    if length != self.data["max_seq_length"]:
      yield (
        f"note: recipe {self.name} is for sequences of "
        f"{self.data['max_seq_length']} tokens, the data has {length}."
      )


def get_recipe(name: str) -> Recipe:
  """Returns a recipe by its name in `RECIPES`.

  Raises:
    ValueError: the name is unknown. The message suggests similar names.
  """
  if name not in RECIPES:
    near = difflib.get_close_matches(name, RECIPES, n=3)
    advice = f"did you mean {' or '.join(near)}? " if near else ""
    raise ValueError(
      f"unknown recipe {name!r:.40}; {advice}There are {', '.join(RECIPES)}."
    )
  return RECIPES[name]


class _Size(NamedTuple):
  """What fits a size of the model, for sequences of 512 tokens.

  Attributes:
    micro_batch: sequences at once on a device of 16 to 24 GB.
    paper_cores: TPU v3 cores with one micro-batch each of the paper's 4,096.
    gpu_batch: sequences in an update on one GPU.
    steps: updates on GPUs and on a TPU of one machine.
    cpu_steps: updates on a CPU.
    cpu_micro_batches: the parts of a CPU's batch of 32.
  """

  micro_batch: int
  paper_cores: int
  gpu_batch: int
  steps: int
  cpu_steps: int
  cpu_micro_batches: int


_SIZES = {
  "base": _Size(32, 128, 512, 125_000, 10_000, 1),
  "large": _Size(16, 256, 256, 125_000, 3_000, 2),
  "xlarge": _Size(8, 512, 256, 62_500, 800, 4),
  "xxlarge": _Size(4, 1024, 256, 31_250, 400, 8),
}
# The paper's 512 million sequences are many epochs, so masks are dynamic, and
# each document is cut in ten ways (docs/data.md has the disk space).
_LONG = {
  "max_seq_length": 512,
  "short_seq_prob": 0.1,
  "masking": "dynamic",
  "dupe_factor": 10,
}
_SHORT = {**_LONG, "max_seq_length": 128}
# Assumed operations per second: a guess for GPUs of 24 GB (an H100 reached 3
# times as many, docs/gpu.md), and those of the quickstart on two cores.
_GPU_SPEED, _CPU_SPEED = 40e12, 0.2e12
# Peak operations per second in bfloat16, of a v3's core and a v5e's chip:
# https://cloud.google.com/tpu/docs/v3 (123e12 a chip) and .../v5e.
_TPU_PEAK = {"v3": 61.5e12, "v5e": 197e12}
# The share of the peak that the expected times assume. The paper's 32 hours for
# xxlarge on 512 chips are 0.5 of it.
_TPU_SHARE = 0.3


def _recipe(size: str, place: str, steps: int, data, hardware, **settings):
  """Returns a recipe without an expected time."""
  schedule = {"num_train_steps": steps, "num_warmup_steps": steps // 40}
  return Recipe(
    name=f"{size}_{place}",
    preset=f"albert_{size}_v2",
    settings={**schedule, **settings},
    data=data,
    hardware=hardware,
    expected_time="",
  )


def _tpu_recipe(size: str, place: str, tpu: str, batch: int, steps: int):
  generation, count = tpu.split("-")
  micro_batch = _SIZES[size].micro_batch
  at_once = micro_batch * int(count)
  device = "core" if generation == "v3" else "chip"
  recipe = _recipe(
    size,
    place,
    steps,
    _LONG,
    f"TPU {tpu}, {micro_batch} a {device}",
    train_batch_size=batch,
    gradient_accumulation_steps=batch // at_once,
    eval_batch_size=at_once,
    precision="mixed_bfloat16",
    distribution="tpu",
  )
  speed = int(count) * _TPU_PEAK[generation] * _TPU_SHARE
  hours = recipe.operations / speed / 3600
  time = f"{hours:.0f} hours at {_TPU_SHARE:.0%} of the peak (assumed)"
  return dataclasses.replace(recipe, expected_time=time, tpu=tpu)


def _tpu_recipes() -> Iterator[Recipe]:
  """Yields the paper's settings, then smaller ones for a TPU of one machine."""
  for name, size in _SIZES.items():
    yield _tpu_recipe(name, "tpu", f"v3-{size.paper_cores}", 4096, 125_000)
  for tpu, gpus in (("v5e-8", 8), ("v3-8", 2)):
    for name, size in _SIZES.items():
      place, batch = tpu.replace("-", "_"), gpus * size.gpu_batch
      recipe = _tpu_recipe(name, place, tpu, batch, size.steps)
      settings = {**recipe.settings, "tpu": "local"}
      yield dataclasses.replace(recipe, settings=settings)


def _gpu_recipes(gpus: int) -> Iterator[Recipe]:
  several = {"distribution": "mirrored", "num_devices": gpus}
  for name, size in _SIZES.items():
    recipe = _recipe(
      name,
      "gpu" if gpus == 1 else f"gpu_{gpus}",
      size.steps,
      _LONG,
      f"{'one GPU' if gpus == 1 else f'{gpus} GPUs'} of 24 GB with bfloat16",
      train_batch_size=gpus * size.gpu_batch,
      gradient_accumulation_steps=size.gpu_batch // size.micro_batch,
      precision="mixed_bfloat16",
      **(several if gpus > 1 else {}),
    )
    days = recipe.operations / gpus / _GPU_SPEED / 3600 / 24
    time = f"{days:.0f} days at 40 TFLOP/s a GPU (assumed)"
    yield dataclasses.replace(recipe, expected_time=time)


def _cpu_recipes() -> Iterator[Recipe]:
  for name, size in _SIZES.items():
    recipe = _recipe(
      name,
      "cpu",
      size.cpu_steps,
      _SHORT,
      "two CPU cores with bfloat16",
      train_batch_size=32,
      gradient_accumulation_steps=size.cpu_micro_batches,
      steps_per_loop=10,
      eval_steps=size.cpu_steps // 10,
      save_checkpoints_steps=size.cpu_steps // 20,
      precision="auto",
    )
    hours = recipe.operations / _CPU_SPEED / 3600
    time = f"{hours:.0f} hours at 0.2 TFLOP/s (assumed)"
    yield dataclasses.replace(recipe, expected_time=time)


# What differs from the paper: docs/training.md, "A small budget"; what it
# gives: docs/results/quality.md.
_SMALL_BUDGET = Recipe(
  name="small_budget",
  preset="albert_tiny",
  settings={
    "num_train_steps": 6000,
    "num_warmup_steps": 600,
    "optimizer": "muon",
    "bias_correction": True,
    "beta_2": 0.98,
    "weight_decay": 0.1,
    "learning_rate": 0.003,
    "masked_lm_prob": 0.3,
    "init_neighbor_attention": True,
    "init_word_vectors": True,
    "learning_rate_decay": "continuous",
    "train_batch_size": 32,
    "eval_batch_size": 64,
    "eval_steps": 500,
    "save_checkpoints_steps": 500,
    "keep_checkpoint_max": 2,
    "precision": "auto",
  },
  data={
    "max_seq_length": 64,
    "masking": "dynamic",
    "dupe_factor": 8,
    "heldout_share": 0.08,
    "num_shards": 4,
  },
  hardware="two CPU cores with bfloat16",
  expected_time="8.9 minutes, measured",
  expected="masked LM loss 3.722 nats, sentence order 0.556",
  run="python -m tools.quickstart",
)

# The training of tools.quickstart, which sets the steps that fit its minutes.
_QUICKSTART = dataclasses.replace(_SMALL_BUDGET, name="quickstart")

RECIPES: Mapping[str, Recipe] = {
  recipe.name: recipe
  for recipe in (
    *_tpu_recipes(),
    *_gpu_recipes(1),
    *_gpu_recipes(8),
    *_cpu_recipes(),
    _SMALL_BUDGET,
    _QUICKSTART,
  )
}
