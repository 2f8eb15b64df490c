"""Runs a Hugging Face model or tokenizer on a batch, in its own process.

    python tools/conversion/hf_outputs.py FOLDER BATCH.npz OUTPUTS.npz

The interpreter needs NumPy, torch and transformers, but not the packages of
this project.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys

import numpy as np


def main(folder: str, batch_file: str, outputs_file: str) -> None:
  """Writes the outputs under the names of this package's models.

  Args:
    folder: of the model.
    batch_file: `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], or
      [B, O, S] with O options; `masked_lm_positions` <int32>[B, P]. Or only
      `texts` <str>[N], to tokenize.
    outputs_file: is written. For texts, `ids` <int32>[K] of all texts, and
      `lengths` <int32>[N], the number of ids of each.
  """
  # Imported by name, as this project does not require them.
  transformers = importlib.import_module("transformers")
  transformers.logging.set_verbosity_error()
  with np.load(batch_file) as file:
    arrays = dict(file)
  if "texts" in arrays:
    tokenizer = transformers.AutoTokenizer.from_pretrained(
      folder, local_files_only=True
    )
    rows = tokenizer(arrays["texts"].tolist(), add_special_tokens=False)
    rows = rows["input_ids"]
    np.savez(
      outputs_file,
      ids=np.array([i for row in rows for i in row], np.int32),
      lengths=np.array([len(row) for row in rows], np.int32),
    )
    return
  torch = importlib.import_module("torch")
  with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
    (name,) = json.load(file)["architectures"]
  model, info = getattr(transformers, name).from_pretrained(
    folder, output_loading_info=True, local_files_only=True
  )
  for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
    if info[kind]:
      raise SystemExit(f"{name} reports {kind}: {sorted(info[kind])[:3]}")
  batch = {key: torch.tensor(value) for key, value in arrays.items()}
  positions = batch.pop("masked_lm_positions").long()
  with torch.no_grad():
    outputs = model.eval()(
      input_ids=batch["input_ids"].long(),
      attention_mask=batch["input_mask"].long(),
      token_type_ids=batch["segment_ids"].long(),
      output_hidden_states=True,
    )
  found = {"sequence_output": outputs.hidden_states[-1]}
  if name == "AlbertModel":
    found["pooled_output"] = outputs.pooler_output
  elif name in ("AlbertForPreTraining", "AlbertForMaskedLM"):
    alone = name == "AlbertForMaskedLM"
    scores = outputs.logits if alone else outputs.prediction_logits
    rows = torch.arange(len(scores))[:, None]
    found["masked_lm_logits"] = scores[rows, positions]
    if not alone:
      found["sentence_order_logits"] = outputs.sop_logits
  elif name == "AlbertForQuestionAnswering":
    found["start_logits"] = outputs.start_logits
    found["end_logits"] = outputs.end_logits
  else:
    found["logits"] = outputs.logits
  np.savez(outputs_file, **{key: value.numpy() for key, value in found.items()})


if __name__ == "__main__":
  # A script's search path has its own folder instead of the root.
  sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
  from tools.cli import child_programs

  main(*child_programs.arguments("tools.convert_checkpoint", str, str, str))
