"""Flags with which a model's step fits a device whose memory the scale knows.

Micro-batches first, which leave the results alone; then the activations are
computed twice, which takes a third more time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from official_albert import modeling
from tools import inspection
from tools.experiments import scales

# What the estimate leaves out; docs/inspect_model.md has it beside peaks.
_MARGIN = 0.9


class Fit(NamedTuple):
  """How a step is cut.

  Attributes:
    flags: of tools.run_pretraining.
    bytes: of one device, estimated; 0 where the scale knows no device.
    fits: whether the device has them.
  """

  flags: dict[str, Any]
  bytes: int
  fits: bool

  def describe(self) -> str:
    """In words; "" where nothing is known."""
    if not self.bytes:
      return ""
    told = f"about {self.bytes / 2**30:.1f} GiB a device"
    if not self.fits:
      return f"{told}, however it is cut: does not fit"
    cuts = [f"{name}={value}" for name, value in self.flags.items()]
    return ", ".join([told, *cuts])


def fit(scale: scales.Scale, config: modeling.AlbertConfig) -> Fit:
  """The fewest micro-batches with which a row fits, or the last attempt."""
  if not scale.device_bytes:
    return Fit({}, 0, True)
  batch = -(-int(scale.training["train_batch_size"]) // scale.num_devices)
  room = _MARGIN * scale.device_bytes
  precision = scale.training["precision"]
  if precision not in inspection.model_memory.PRECISIONS:
    precision = "float32"  # The larger of those that it may turn out to be.
  flags: dict[str, Any] = {}
  needed = 0
  for recompute in (False, True):
    micro_batches = 1
    while micro_batches <= batch:
      setting = inspection.model_memory.Setting(
        batch_size=batch // micro_batches,
        max_seq_length=scale.max_seq_length,
        predictions=int(scale.data["max_predictions_per_seq"]),
        precision=precision,
        recompute_activations=recompute,
      )
      needed = inspection.model_memory.training_bytes(config, setting)["total"]
      flags = {}
      if micro_batches > 1:
        flags["gradient_accumulation_steps"] = micro_batches
      if recompute:
        flags["recompute_activations"] = True
      if needed <= room:
        return Fit(flags, needed, True)
      micro_batches *= 2
  return Fit(flags, needed, False)
