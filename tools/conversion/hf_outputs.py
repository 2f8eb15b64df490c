"""Runs a Hugging Face model on a batch, in its own process.

    python tools/conversion/hf_outputs.py FOLDER CLASS BATCH.npz OUTPUTS.npz

The interpreter needs NumPy, torch and transformers, but not the packages of
this project.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Mapping

import numpy as np

# The outputs of transformers' models that have another name in this package.
NAMES = {
  "prediction_logits": "masked_lm_logits",
  "sop_logits": "sentence_order_logits",
}


def main(folder: str, name: str, batch_file: str, outputs_file: str) -> None:
  """Writes the outputs under the names of this package's models.

  An output is <float64>[2, ...]: computed in float64, and in float32, which
  shows the noise of rounding.

  `name` is the class of transformers, which the folder must not choose: some
  of them unpickle files. `pooled_before_tanh` is written instead of
  `pooled_output`, whose tanh hides differences of large values.

  The batch has `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], or
  [B, O, S] with O options.
  """
  # Imported by name, as this project does not require them.
  transformers = importlib.import_module("transformers")
  transformers.logging.set_verbosity_error()
  torch = importlib.import_module("torch")
  model, info = getattr(transformers, name).from_pretrained(
    folder,
    output_loading_info=True,
    local_files_only=True,
    use_safetensors=True,
    dtype="float32",
  )
  # Unexpected keys are weights that this class does not have. An encoder may
  # have no pooler; transformers makes a random one then.
  keys = {*info["missing_keys"], *info["mismatched_keys"]}
  if keys := {key for key in keys if "pooler." not in key}:
    raise SystemExit(f"{name} lacks weights: {sorted(keys)[:3]}")
  with np.load(batch_file, allow_pickle=False) as file:
    batch = {key: torch.tensor(value).long() for key, value in file.items()}
  model.eval()
  with torch.no_grad():  # The last is in the precision of the file.
    runs = [
      _outputs(convert(), batch) for convert in (model.double, model.float)
    ]
  joined: dict[str, Any] = {
    key: np.stack([run[key] for run in runs]) for key in runs[0]
  }
  np.savez(outputs_file, **joined)


def _outputs(model: Any, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Returns the outputs of a model that are compared."""
  outputs = model(
    input_ids=batch["input_ids"],
    attention_mask=batch["input_mask"],
    token_type_ids=batch["segment_ids"],
    output_hidden_states=True,
  )
  found = {
    NAMES.get(x, x): y for x, y in outputs.items() if x.endswith("logits")
  }
  found["sequence_output"] = outputs["hidden_states"][-1]
  pooler = getattr(getattr(model, "albert", model), "pooler", None)
  if pooler is not None:
    found["pooled_before_tanh"] = pooler(found["sequence_output"][:, 0])
  if type(model).__name__ == "AlbertForMaskedLM":
    found["masked_lm_logits"] = found.pop("logits")
  return {key: value.double().numpy() for key, value in found.items()}


if __name__ == "__main__":
  main(*sys.argv[1:])
