"""Hugging Face's ALBERT in PyTorch, as a program that a benchmark measures.

Trains, or serves the model in `Workload.model_dir`. Runs in a separate virtual
environment; see `protocol`.
"""

from __future__ import annotations

from official_albert.tools.benchmarks.peers import protocol

# Descriptions of the variants. The first two are the unchanged public model,
# which computes logits for all positions. Eager attention is faster on CPUs, so
# `compiled` has it only there.
TRAINING_VARIANTS = {
  "eager": "eager attention",
  "sdpa": "scaled_dot_product_attention",
  "tuned": "eager attention, logits of masked positions only, fused tanh GELU",
  "compiled": "as tuned (on GPUs: with SDPA), with torch.compile",
}
SERVING_VARIANTS = {
  "eager": "eager attention",
  "sdpa": "scaled_dot_product_attention",
}


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the program that trains or serves."""
  import torch
  import transformers

  torch.set_num_threads(workload.threads)
  torch.manual_seed(workload.seed)
  device, of_gpu = "cpu", {}
  if torch.cuda.is_available():
    device = "cuda"
    of_gpu["wait"] = torch.cuda.synchronize
    of_gpu["peak_bytes"] = torch.cuda.max_memory_allocated
  if workload.model_dir:
    about = SERVING_VARIANTS[workload.variant]
    step = _serving_step(workload, device)
  else:
    about = f"{TRAINING_VARIANTS[workload.variant]}, fused AdamW"
    step = _training_step(workload, device)
  versions = f"torch {torch.__version__}, transformers"
  about = f"{about}; {versions} {transformers.__version__}"
  return protocol.Program(step, about, **of_gpu)


def _training_step(workload: protocol.Workload, device: str):
  import torch
  import transformers

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
  batch = {
    name: torch.from_numpy(value).long().to(device)
    for name, value in protocol.training_batch(workload).items()
  }
  inputs = {
    "input_ids": batch["input_ids"],
    "attention_mask": batch["input_mask"],
    "token_type_ids": batch["segment_ids"],
  }
  positions, targets = batch["masked_lm_positions"], batch["masked_lm_ids"]
  order = batch["next_sentence_labels"][:, 0]
  # The model's own loss ignores -100.
  labels = torch.full_like(batch["input_ids"], -100)
  labels.scatter_(1, positions, targets)
  rows = torch.arange(workload.batch_size, device=device)[:, None]

  def loss():
    if not tuned:
      outputs = model(**inputs, labels=labels, sentence_order_label=order)
      return outputs.loss
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
    with torch.autocast(
      device, torch.bfloat16, enabled=workload.product_dtype == "bfloat16"
    ):
      value = loss()
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return value.item()

  return step


def _serving_step(workload: protocol.Workload, device: str):
  import torch
  import transformers

  model = transformers.AlbertModel.from_pretrained(
    workload.model_dir, attn_implementation=workload.variant
  )
  model = model.to(device).eval()
  features = {
    name: torch.from_numpy(array).long().to(device)
    for name, array in protocol.request(workload).items()
  }

  def step() -> float:
    with (
      torch.inference_mode(),
      torch.autocast(
        device, torch.bfloat16, enabled=workload.product_dtype == "bfloat16"
      ),
    ):
      outputs = model(
        input_ids=features["input_ids"],
        attention_mask=features["input_mask"],
        token_type_ids=features["segment_ids"],
      )
      return float(outputs.pooler_output.float().cpu().numpy().mean())

  return step


if __name__ == "__main__":
  protocol.serve(build)
