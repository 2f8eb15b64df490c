"""Hugging Face's ALBERT in PyTorch, as a program that a benchmark measures.

Trains or serves. Runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, Mapping

import torch
import transformers

from official_albert.tools.benchmarks.peers import protocol

# The variants "eager" and "sdpa" name the attention of the unchanged public
# model, which computes logits for all positions. "tuned" has eager attention,
# logits of masked positions only, and a fused GELU. "compiled" is the same with
# torch.compile; on GPUs with SDPA, as eager attention is faster on CPUs only.


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def build(workload: protocol.Workload) -> tuple[Any, protocol.Facts]:
  """Builds the program that trains, or serves the model of a folder."""
  torch.set_num_threads(workload.threads)
  torch.manual_seed(1)
  device = "cuda" if torch.cuda.is_available() else "cpu"
  about = (
    f"{workload.variant}; torch {torch.__version__}, "
    f"transformers {transformers.__version__}"
  )

  def facts():
    peak = {}
    if device == "cuda":
      peak["peak_bytes"] = torch.cuda.max_memory_allocated()
    return {"about": about, **peak}

  make = _served if workload.models_dir else _training_step
  return make(workload, device), facts


def autocast(precision: str, device: str) -> torch.autocast:
  """Returns the context of a step with this precision."""
  is_low = precision == "mixed_bfloat16"
  return torch.autocast(device, torch.bfloat16, enabled=is_low)


def tensors(arrays, device: str):
  """Returns arrays as tensors of int64; inputs have the library's names."""
  return {
    name: torch.from_numpy(value).to(device)
    for name, value in protocol.as_huggingface(arrays).items()
  }


def make_model(
  config: Mapping[str, Any], variant: str, device: str
) -> transformers.AlbertForPreTraining:
  """Returns a model to train, with random weights."""
  tuned = variant in ("tuned", "compiled")
  sdpa = {"sdpa": True, "compiled": device == "cuda"}
  made = transformers.AlbertConfig(
    **{
      **config,
      # The same function, but the library needs eight operations for gelu_new.
      "hidden_act": "gelu_pytorch_tanh" if tuned else "gelu_new",
    },
    classifier_dropout_prob=0.0,
    attn_implementation="sdpa" if sdpa.get(variant) else "eager",
  )
  return transformers.AlbertForPreTraining(made).to(device).train()


def pretraining_logits(
  model: transformers.AlbertForPreTraining, batch: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
  """Returns logits of masked positions only, [B, P, V], and [B, 2] of order."""
  positions = batch["masked_lm_positions"]
  outputs = model.albert(**{name: batch[name] for name in INPUTS})
  rows = torch.arange(len(positions), device=positions.device)[:, None]
  logits = model.predictions(outputs.last_hidden_state[rows, positions])
  return logits, model.sop_classifier(outputs.pooler_output)


def _training_step(workload: protocol.Workload, device: str):
  tuned = workload.variant in ("tuned", "compiled")
  model = make_model(workload.config, workload.variant, device)
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=workload.learning_rate, weight_decay=0.01, fused=True
  )
  batch = tensors(protocol.batch(workload), device)
  inputs = {name: batch[name] for name in INPUTS}
  targets, order = batch["masked_lm_ids"], batch["next_sentence_labels"][:, 0]
  # The model's own loss ignores -100.
  labels = torch.full_like(inputs["input_ids"], -100)
  labels.scatter_(1, batch["masked_lm_positions"], targets)

  def loss():
    if not tuned:
      return model(**inputs, labels=labels, sentence_order_label=order).loss
    logits = pretraining_logits(model, batch)
    cross_entropy = torch.nn.functional.cross_entropy
    return cross_entropy(
      logits[0].flatten(0, 1), targets.flatten()
    ) + cross_entropy(logits[1], order)

  if workload.variant == "compiled":
    loss = torch.compile(loss)

  def step() -> float:
    optimizer.zero_grad()
    with autocast(workload.precision, device):
      value = loss()
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if device == "cuda":
      torch.cuda.synchronize()
    return value.item()

  return step


def _served(workload: protocol.Workload, device: str) -> protocol.Answer:
  is_compiled = workload.variant == "compiled"
  if is_compiled and not shutil.which(os.environ.get("CXX", "g++")):
    sys.exit("torch.compile needs a C++ compiler: install g++ or set CXX.")
  model = transformers.AlbertModel.from_pretrained(
    f"{workload.models_dir}/huggingface",
    attn_implementation="sdpa" if is_compiled else workload.variant,
    dtype=workload.settings.get("dtype", "float32"),
  )
  model = model.to(device).eval()
  # One program for all sizes of requests.
  run = torch.compile(model, dynamic=True) if is_compiled else model

  def answer(features: protocol.Features):
    with torch.inference_mode():
      pooled = run(**tensors(features, device)).pooler_output
    return pooled.float().cpu().numpy()

  return answer


if __name__ == "__main__":
  serves = json.loads(sys.argv[1])["models_dir"]
  (protocol.serve_model if serves else protocol.serve)(build)
