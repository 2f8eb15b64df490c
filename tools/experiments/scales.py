"""Scales: the sizes that stand for the paper's, the data and the settings.

tiny    two cores, about seven hours in all, estimated
small   one GPU, about a day per table; not yet run
base    the paper's setting, a TPU pod slice; not yet run
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Optional

from official_albert import modeling
from official_albert.tasks import pretraining
from official_albert.tasks.pretraining import data as data_lib
from official_albert.tools import inspection

# Of a device's memory; docs/inspect_model.md compares the estimate with peaks.
_USABLE_MEMORY = 0.9


@dataclasses.dataclass(frozen=True)
class Scale:
  """Sizes, data and settings of all models of an experiment."""

  name: str
  fields: Mapping[str, Any]  # Other fields of `AlbertConfig`.
  # From the paper's sizes to this scale's.
  embedding_sizes: Mapping[int, int]
  hidden_sizes: Mapping[int, int]
  depths: Mapping[int, int]
  head_size: int
  vocab_size: int
  # Flags of the programs that create records, pretrain and fine-tune, and
  # additional flags of fine-tuning by task.
  data: Mapping[str, Any]
  training: Mapping[str, Any]
  finetuning: Mapping[str, Any]
  task_flags: Mapping[str, Mapping[str, Any]]
  steps: int
  seeds: int
  tasks: tuple[str, ...]  # The default of --tasks.
  hardware: str
  # Operations per second of all the hardware, as counted in `Job.cost`; for the
  # estimate of --dry_run.
  speed: float
  speed_source: str
  warmup_share: float = 0.1  # Fraction of the steps with a rising rate.
  evaluations: int = 12
  # Of the steps, by table, for tables with large models.
  shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
  # --tpu of pretraining and fine-tuning; None: on CPU or GPU.
  tpu: Optional[str] = None
  finetuning_tpu: Optional[str] = None
  # The memory that a step has to fit into; 0 bytes: unknown, not checked.
  num_devices: int = 1
  device_bytes: int = 0

  def config(self, model: Mapping[str, Any]) -> modeling.AlbertConfig:
    """Returns the configuration of a row from `Row.model`.

    The scale translates the paper's `embedding_size` ("H": equal to the hidden
    size), `hidden_size` and `depth`; other fields of `AlbertConfig` are used as
    they are.
    """
    model = {"embedding_size": 128, "hidden_size": 768, "depth": 12, **model}
    hidden = self.hidden_sizes[model.pop("hidden_size")]
    size = model.pop("embedding_size")
    values = dict(
      embedding_size=hidden if size == "H" else self.embedding_sizes[size],
      hidden_size=hidden,
      num_hidden_layers=self.depths[model.pop("depth")],
      num_attention_heads=hidden // self.head_size,
      intermediate_size=4 * hidden,
      vocab_size=self.vocab_size,
    )
    return modeling.AlbertConfig(**{**values, **self.fields, **model})

  def steps_of(self, table: str, share: float = 1.0) -> int:
    """Returns the updates of a model, given the row's `share`."""
    return math.ceil(self.steps * self.shares.get(table, 1.0) * share)

  @property
  def max_seq_length(self) -> int:
    """The sequence length of pretraining."""
    return self.data["max_seq_length"]

  @property
  def batch_size(self) -> int:
    """The sequences per step of pretraining."""
    return self.training["train_batch_size"]

  def fit(
    self, config: modeling.AlbertConfig
  ) -> tuple[Optional[dict[str, Any]], str]:
    """Splits a training step until it fits into a device's memory.

    Returns flags of tools.run_pretraining, None if no step is small enough, and
    a remark about the estimated memory, "" if the device's is unknown.
    """
    if not self.device_bytes:
      return {}, ""
    batch = -(-self.batch_size // self.num_devices)
    for recompute in (False, True):
      for micro_batches in (2**i for i in range(batch.bit_length())):
        setting = inspection.model_size.Setting(
          batch_size=batch // micro_batches,
          max_seq_length=self.max_seq_length,
          predictions=data_lib.num_to_predict(self.max_seq_length),
          precision=self.training["precision"],
          recompute_activations=recompute,
        )
        total = inspection.model_size.training_bytes(config, setting)["total"]
        size = f"about {total / 2**30:.1f} GiB per device"
        flags: dict[str, Any] = {}
        if micro_batches > 1:
          flags["gradient_accumulation_steps"] = micro_batches
        if recompute:
          flags["recompute_activations"] = True
        if total <= _USABLE_MEMORY * self.device_bytes:
          return flags, ", ".join(
            [size, *(f"{k}={v}" for k, v in flags.items())]
          )
    return None, f"{size} even with the smallest steps: does not fit"


def placement(tpu: Optional[str]) -> dict[str, str]:
  """Returns the flags that say where a model trains, from a scale's field."""
  return {} if tpu is None else {"distribution": "tpu", "tpu": tpu}


_RECIPE = pretraining.get_recipe("small_budget")


def _of_recipe(*names: str) -> dict[str, Any]:
  return {name: _RECIPE.settings[name] for name in names}


_TINY = Scale(
  name="tiny",
  fields={"initializer_range": 0.05, "max_position_embeddings": 128},
  embedding_sizes={64: 32, 128: 64, 256: 96, 768: 128, 1024: 128},
  hidden_sizes={768: 128, 1024: 128, 2048: 192, 4096: 256, 6144: 384},
  depths={12: 4, 24: 8},
  head_size=16,
  vocab_size=2000,
  data={**_RECIPE.data, "dupe_factor": 1, "heldout_share": 0.01},
  steps=1600,
  training=_of_recipe(
    *("optimizer", "bias_correction", "beta_2", "weight_decay"),
    *("learning_rate", "learning_rate_decay", "masked_lm_prob"),
    *("init_neighbor_attention", "precision"),
    *("train_batch_size", "eval_batch_size"),
  ),
  finetuning={
    # With AdamW, some runs of an epoch stay at chance.
    **_of_recipe(
      *("optimizer", "bias_correction", "beta_2", "learning_rate_decay"),
      *("precision", "train_batch_size"),
    ),
    "max_seq_length": 64,
    "learning_rate": 1e-3,
    "num_train_epochs": 1,
    "max_train_examples": 10000,
    "max_eval_examples": 2000,
    # Measures the last weights; a search for the best would double the time.
    "eval_steps": 0,
  },
  task_flags={
    "SQuAD1.1": {"max_seq_length": 128, "doc_stride": 64},
    "SQuAD2.0": {"max_seq_length": 128, "doc_stride": 64},
    "RACE": {"max_seq_length": 128, "max_qa_length": 48},
  },
  # After an epoch of its 9,888 rows here, a third of the models is within three
  # points of MNLI's most frequent class; three epochs would cost as much time
  # as all else.
  tasks=("SST-2",),
  seeds=3,
  hardware="two CPU cores",
  speed=0.15e12,
  speed_source="measured in bfloat16, two jobs at once",
  evaluations=8,
  shares={
    "11": 0.25,
    **dict.fromkeys("2 6 8 12 13 v1_1 figure_1 figure_2".split(), 0.5),
    **dict.fromkeys(("depth_schedule", "depth_inference"), 0.5),
  },
)

_SMALL = Scale(
  name="small",
  fields={"max_position_embeddings": 512},
  embedding_sizes={64: 32, 128: 64, 256: 128, 768: 384, 1024: 512},
  hidden_sizes={768: 384, 1024: 512, 2048: 768, 4096: 1024, 6144: 1536},
  depths={12: 6, 24: 12},
  head_size=64,
  vocab_size=30000,
  data={
    "max_seq_length": 128,
    "masking": "dynamic",
    "heldout_share": 0.01,
    "num_shards": 16,
  },
  steps=50_000,
  training={
    "train_batch_size": 256,
    "learning_rate": 0.00044,
    "precision": "mixed_bfloat16",
  },
  finetuning={
    "max_seq_length": 128,
    "train_batch_size": 32,
    "learning_rate": 1e-4,
    "num_train_epochs": 3,
    "precision": "mixed_bfloat16",
  },
  task_flags={
    name: {"max_seq_length": 384} for name in ("SQuAD1.1", "SQuAD2.0", "RACE")
  },
  tasks=("SQuAD1.1", "SQuAD2.0", "MNLI", "SST-2", "RACE"),
  seeds=3,
  device_bytes=24 * 10**9,
  hardware="one GPU of 24 GB with bfloat16",
  speed=40e12,
  speed_source="assumed",
  warmup_share=0.025,
)

_XXLARGE_FLOPS = 3.0 * (
  125_000
  * 4096
  * modeling.AlbertConfig.from_preset("albert_xxlarge_v1").forward_flops(512)
)
_BASE = Scale(
  name="base",
  fields={
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
  },
  embedding_sizes={size: size for size in (64, 128, 256, 768, 1024)},
  hidden_sizes={size: size for size in (768, 1024, 2048, 4096, 6144)},
  depths={12: 12, 24: 24},
  head_size=64,
  vocab_size=30000,
  data={
    "max_seq_length": 512,
    "short_seq_prob": 0.1,
    "masking": "dynamic",
    "heldout_share": 0.001,
    "num_shards": 256,
  },
  steps=125_000,
  training={
    "train_batch_size": 4096,
    "learning_rate": 0.00176,
    "eval_batch_size": 4096,
    "precision": "mixed_bfloat16",
  },
  # tools.run_finetuning defaults to the paper's table 14. Its batches are large
  # enough for 8 or 16 cores, not for a pod.
  finetuning={"precision": "mixed_bfloat16"},
  tpu="local",
  finetuning_tpu="local",
  num_devices=512,
  device_bytes=int(15.48 * 2**30),
  task_flags={},
  tasks=("SQuAD1.1", "SQuAD2.0", "MNLI", "SST-2", "RACE"),
  seeds=1,
  hardware="a slice of a TPU v3 pod",
  speed=_XXLARGE_FLOPS / (32 * 3600),
  speed_source="the paper's 32 hours for 125,000 steps of xxlarge",
  warmup_share=0.025,
)

SCALES = {scale.name: scale for scale in (_TINY, _SMALL, _BASE)}
