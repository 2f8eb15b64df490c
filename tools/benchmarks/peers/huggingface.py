"""Hugging Face's ALBERT in PyTorch, as a program that a benchmark measures.

Trains or serves. Runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import json
import os
import re
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
# The setting "mode" of torch.compile is of serving: a program of each size of
# requests, not one of all, which "reduce-overhead" replays as a CUDA graph.

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def build(workload: protocol.Workload) -> tuple[Any, protocol.Facts]:
  """Builds the program that trains, or serves the model of a folder."""
  torch.set_num_threads(workload.threads)
  torch.manual_seed(1)
  device = "cuda" if torch.cuda.is_available() else "cpu"
  if device == "cuda" and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0":
    torch.set_float32_matmul_precision("high")  # TF32, as TensorFlow's default.
  about = (
    f"{workload.variant}; torch {torch.__version__}, "
    f"transformers {transformers.__version__}"
  )

  def facts():
    if device == "cpu":
      return {"about": about}
    peak = torch.cuda.max_memory_allocated()
    return {"about": f"{about}, GPU", "peak_bytes": peak}

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


def adamw(settings: Any, named: Mapping[str, torch.nn.Parameter]) -> Any:
  """Returns AdamW with the settings of a run, as in `training.optimization`."""
  groups: list[dict[str, Any]] = [
    {"params": []},
    {"params": [], "weight_decay": 0.0},
  ]
  for name, parameter in named.items():
    is_plain = bool(re.search("bias|LayerNorm|layer_norm", name))
    groups[is_plain]["params"].append(parameter)
  betas, decay = (settings.beta_1, settings.beta_2), settings.weight_decay
  return torch.optim.AdamW(
    groups, settings.learning_rate, betas, 1e-6, decay, fused=True
  )


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
  settings = workload.settings
  classifies = settings.get("output") == "probabilities"
  kind = transformers.AlbertModel
  if classifies:
    kind = transformers.AlbertForSequenceClassification
  model = kind.from_pretrained(
    f"{workload.models_dir}/huggingface",
    attn_implementation="sdpa" if is_compiled else workload.variant,
    dtype=settings.get("dtype", "float32"),
  )
  model = run = model.to(device).eval()
  if is_compiled:
    mode = settings.get("mode")
    run = torch.compile(model, dynamic=not mode, mode=mode)
    # By default, the model is not compiled for the ninth size of requests.
    torch._dynamo.config.recompile_limit = 1000

  def answer(features: protocol.Features):
    with torch.inference_mode():
      outputs = run(**tensors(features, device))
      if classifies:
        result = outputs.logits.float().softmax(-1)
      else:
        result = outputs.pooler_output.float()
    return result.cpu().numpy()

  return answer


if __name__ == "__main__":
  serves = json.loads(sys.argv[1])["models_dir"]
  (protocol.serve_model if serves else protocol.serve)(build)
