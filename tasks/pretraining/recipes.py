"""Recipes for pretraining, with hardware, time, seed and expected result.

    python -m tools.run_pretraining --recipe=base_gpu --input_dir=DATA ...

The paper (arXiv 1909.11942, section 4.1) uses batches of 4,096 sequences of 512
tokens, 10% of them shorter, LAMB with learning rate 0.00176 and 125,000 steps,
on 64 to 512 TPUs. As in google-research/albert, the warm-up is 1/40 of the
steps; in small_budget, quickstart and h100_10min it is 1/10. Only these set a
learning rate. That of the others follows from the batch size, which the user
may change (`TrainConfig.learning_rate`).

A micro-batch is what a device computes at a time. On TPUs its memory is known
from their compiler: tools/tpu_compile/recipes_test.py compares every recipe
with docs/tpu_rows.jsonl. On GPUs it is an estimate: a sequence of 512 tokens
adds 252 MiB (base) and 552 MiB (large) to the peak memory of a step in bfloat16
without dropout, measured on a CPU between batches of 1 and 3. The 32 sequences
of base took 7.9 GiB on an H200 (docs/gpu.md); the others have not run.
Weights, gradients, m, v and the sum over micro-batches need 20 bytes per
parameter.

The times, but for those of small_budget and quickstart, follow from the
operations (a test computes them) and an assumed speed: 40 TFLOP/s for a GPU of
24 GB (an H200 had 352,000 tokens/s of base, docs/gpu.md), small_budget's 0.2
for two CPU cores, and 30% of a TPU's peak, where the paper's 32 hours for
xxlarge on 512 chips are 50%.

The _v2 presets have no dropout. The paper's v1 models of base, large and xlarge
were trained with 0.1, as in --preset=albert_base_v1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Mapping, Sequence

from official_albert.settings import check_choice


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
  # The command that was run, if any.
  run: str = "not yet run"
  # The type of the TPU, such as v3-8 (cores) or v5e-8 (chips); "" for others.
  tpu: str = ""
  # The tokens of a sequence in each phase, if not those of `data`.
  lengths: tuple[int, ...] = ()

  @property
  def flags(self) -> dict[str, Any]:
    """All flags of tools.run_pretraining that the recipe sets."""
    return {"preset": self.preset, "random_seed": self.seed, **self.settings}

  @property
  def batch(self) -> int:
    """The number of examples in an update, of the first phase."""
    return int(str(self.settings["train_batch_size"]).partition(",")[0])

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
  """Returns a recipe by its name, one of `RECIPES`."""
  check_choice("recipe", name, tuple(RECIPES))
  return RECIPES[name]


# The paper's 512 million sequences are many epochs, so masks are dynamic, and
# each document is cut in ten ways.
_DATA = {
  "max_seq_length": 512,
  "short_seq_prob": 0.1,
  "masking": "dynamic",
  "dupe_factor": 10,
}
# Name, sequences in an update, micro-batches, updates, devices, time. On TPUs,
# the first four are the paper's settings.
_ACCELERATORS = (
  ("base_tpu", 4096, 1, 125_000, "v3-128", "17 hours"),
  ("large_tpu", 4096, 1, 125_000, "v3-256", "29 hours"),
  ("xlarge_tpu", 4096, 1, 125_000, "v3-512", "57 hours"),
  ("xxlarge_tpu", 4096, 1, 125_000, "v3-1024", "54 hours"),
  ("base_v5e_8", 4096, 16, 125_000, "v5e-8", "83 hours"),
  ("large_v5e_8", 2048, 16, 125_000, "v5e-8", "147 hours"),
  ("xlarge_v5e_8", 2048, 32, 62_500, "v5e-8", "282 hours"),
  ("xxlarge_v5e_8", 2048, 64, 31_250, "v5e-8", "268 hours"),
  ("base_v3_8", 1024, 4, 125_000, "v3-8", "66 hours"),
  ("large_v3_8", 512, 4, 125_000, "v3-8", "118 hours"),
  ("xlarge_v3_8", 512, 8, 62_500, "v3-8", "226 hours"),
  ("xxlarge_v3_8", 512, 16, 31_250, "v3-8", "215 hours"),
  ("base_gpu", 512, 16, 125_000, "1 GPU", "5 days"),
  ("large_gpu", 256, 16, 125_000, "1 GPU", "9 days"),
  ("xlarge_gpu", 256, 32, 62_500, "1 GPU", "17 days"),
  ("xxlarge_gpu", 256, 64, 31_250, "1 GPU", "17 days"),
  ("base_gpu_8", 4096, 16, 125_000, "8 GPUs", "5 days"),
  ("large_gpu_8", 2048, 16, 125_000, "8 GPUs", "9 days"),
  ("xlarge_gpu_8", 2048, 32, 62_500, "8 GPUs", "17 days"),
  ("xxlarge_gpu_8", 2048, 64, 31_250, "8 GPUs", "17 days"),
)


def _accelerated(
  name: str, batch: int, parts: int, steps: int, devices: str, time: str
) -> Recipe:
  """Returns the recipe of a row of `_ACCELERATORS`."""
  settings = {
    "num_train_steps": steps,
    "num_warmup_steps": steps // 40,
    "train_batch_size": batch,
    "gradient_accumulation_steps": parts,
    "precision": "mixed_bfloat16",
  }
  tpu = "" if "GPU" in devices else devices
  hardware, speed = f"TPU {tpu}", "30% of the peak"
  if tpu:
    settings |= {"eval_batch_size": batch // parts, "distribution": "tpu"}
    if not name.endswith("_tpu"):  # A TPU of one machine, which has no name.
      settings["tpu"] = "local"
  else:
    hardware, speed = f"{devices} of 24 GB", "40 TFLOP/s a GPU"
    if devices == "8 GPUs":
      settings |= {"distribution": "mirrored", "num_devices": 8}
  preset = f"albert_{name.split('_')[0]}_v2"
  time = f"{time} at {speed} (assumed)"
  return Recipe(name, preset, settings, _DATA, hardware, time, tpu=tpu)


_BASE_CPU = Recipe(
  name="base_cpu",
  preset="albert_base_v2",
  settings={
    "num_train_steps": 10_000,
    "num_warmup_steps": 250,
    "train_batch_size": 32,
    "steps_per_loop": 10,
    "eval_steps": 1000,
    "save_checkpoints_steps": 500,
    "precision": "auto",
  },
  data={**_DATA, "max_seq_length": 128},
  hardware="two CPU cores with bfloat16",
  expected_time="28 hours at 0.2 TFLOP/s (assumed)",
)
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
  run="python -m tools.quickstart",
)
# For the lowest loss after ten minutes of one card: the settings of
# small_budget, with short sequences, few layers and many masks first. The steps
# are a guess, from 0.35 million tokens/s with twelve layers (docs/gpu.md);
# tools.run_portion measures the card and scales them. Nothing was tuned at this
# size; the rate is below the 0.003 of hidden_size 128, for wider kernels.
_H100_10MIN = dataclasses.replace(
  _SMALL_BUDGET,
  name="h100_10min",
  preset="albert_base_v2",
  settings={
    **_SMALL_BUDGET.settings,
    "num_train_steps": 11_200,
    "phase_steps": "4800,2800,3600",
    "phase_layers": "3,6,12",
    "masked_lm_prob": "0.3,0.2,0.15",
    "shift_positions": True,
    "train_batch_size": "512,512,256",
    "num_warmup_steps": 1120,
    "learning_rate": 0.002,
    "eval_batch_size": 256,
    "steps_per_loop": 50,
    "precision": "mixed_bfloat16",
  },
  data={**_DATA, "max_seq_length": 128, "heldout_share": 0.01},
  lengths=(64, 64, 128),
  hardware="one H100 or H200",
  expected_time="10 minutes (assumed)",
  expected="",
  run="not yet run",
)

RECIPES: Mapping[str, Recipe] = {
  recipe.name: recipe
  for recipe in (
    *(_accelerated(*row) for row in _ACCELERATORS),
    _BASE_CPU,
    _SMALL_BUDGET,
    _H100_10MIN,
    # That of tools.quickstart, which sets the steps that fit its minutes. Its
    # documents are docstrings, most of them short enough. Two layers learn as
    # well at first, in less time. Longer segments tell more of their order.
    dataclasses.replace(
      _SMALL_BUDGET,
      name="quickstart",
      settings={
        **_SMALL_BUDGET.settings,
        "num_train_steps": 5500,
        "phase_steps": "2750,2200,550",
        "phase_layers": "2,4,4",
        "shift_positions": True,
        "train_batch_size": "64,64,42",
        "num_warmup_steps": 550,
        "learning_rate": 0.004,
      },
      data={**_SMALL_BUDGET.data, "max_seq_length": 96, "short_seq_prob": 0.0},
      lengths=(64, 64, 96),
      expected_time="7.2 minutes, from the speeds of the phases",
      expected="masked LM loss 3.395 nats, sentence order 0.786",
    ),
  )
}
