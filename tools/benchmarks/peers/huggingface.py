"""Hugging Face's ALBERT in PyTorch, as a program that a benchmark measures.

Trains or serves. Runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import torch
import transformers

from official_albert.tools.benchmarks.peers import protocol

# The variants "eager" and "sdpa" name the attention of the unchanged public
# model, which computes logits for all positions. "tuned" has eager attention,
# logits of masked positions only, and a fused GELU. "compiled" is the same with
# torch.compile; on GPUs with SDPA, as eager attention is faster on CPUs only.


def build(workload: protocol.Workload) -> tuple[protocol.Step, protocol.Facts]:
  """Builds the program that trains or serves."""
  torch.set_num_threads(workload.threads)
  torch.manual_seed(1)
  device = "cuda" if torch.cuda.is_available() else "cpu"
  make_step = _serving_step if workload.models_dir else _training_step
  about = (
    f"{workload.variant}; torch {torch.__version__}, "
    f"transformers {transformers.__version__}"
  )

  def facts():
    peak = {}
    if device == "cuda":
      peak["peak_bytes"] = torch.cuda.max_memory_allocated()
    return {"about": about, **peak}

  return make_step(workload, device), facts


def _autocast(workload: protocol.Workload, device: str) -> torch.autocast:
  is_low = workload.precision == "mixed_bfloat16"
  return torch.autocast(device, torch.bfloat16, enabled=is_low)


def _tensors(arrays, device: str):
  """Returns arrays as tensors of int64; inputs have the library's names."""
  names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
  return {
    names.get(name, name): torch.from_numpy(value).long().to(device)
    for name, value in arrays.items()
  }


def _training_step(workload: protocol.Workload, device: str):
  tuned = workload.variant in ("tuned", "compiled")
  sdpa = {"sdpa": True, "compiled": device == "cuda"}
  config = transformers.AlbertConfig(
    **{
      **workload.config,
      # The same function, but the library needs eight operations for gelu_new.
      "hidden_act": "gelu_pytorch_tanh" if tuned else "gelu_new",
    },
    classifier_dropout_prob=0.0,
    attn_implementation="sdpa" if sdpa.get(workload.variant) else "eager",
  )
  model = transformers.AlbertForPreTraining(config).to(device).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=workload.learning_rate, weight_decay=0.01, fused=True
  )
  inputs = _tensors(protocol.batch(workload), device)
  positions = inputs.pop("masked_lm_positions")
  targets = inputs.pop("masked_lm_ids")
  order = inputs.pop("next_sentence_labels")[:, 0]
  del inputs["masked_lm_weights"]  # All of them are 1.
  # The model's own loss ignores -100.
  labels = torch.full_like(inputs["input_ids"], -100)
  labels.scatter_(1, positions, targets)
  rows = torch.arange(workload.batch_size, device=device)[:, None]

  def loss():
    if not tuned:
      return model(**inputs, labels=labels, sentence_order_label=order).loss
    outputs = model.albert(**inputs)
    logits = model.predictions(outputs.last_hidden_state[rows, positions])
    cross_entropy = torch.nn.functional.cross_entropy
    return cross_entropy(
      logits.flatten(0, 1), targets.flatten()
    ) + cross_entropy(model.sop_classifier(outputs.pooler_output), order)

  if workload.variant == "compiled":
    loss = torch.compile(loss)

  def step() -> float:
    optimizer.zero_grad()
    with _autocast(workload, device):
      value = loss()
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if device == "cuda":
      torch.cuda.synchronize()
    return value.item()

  return step


def _serving_step(workload: protocol.Workload, device: str):
  model = transformers.AlbertModel.from_pretrained(
    f"{workload.models_dir}/huggingface", attn_implementation=workload.variant
  )
  model = model.to(device).eval()
  inputs = _tensors(protocol.request(workload), device)

  def step() -> float:
    with torch.inference_mode(), _autocast(workload, device):
      pooled = model(**inputs).pooler_output
    return float(pooled.float().cpu().numpy().mean())

  return step


if __name__ == "__main__":
  protocol.serve(build)
