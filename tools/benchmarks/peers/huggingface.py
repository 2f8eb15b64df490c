"""Hugging Face's ALBERT in PyTorch, as a program that a benchmark measures.

Trains, or serves the model in `Workload.model_dir`. Runs in a
separate virtual environment; see `protocol`.
"""

from __future__ import annotations

from typing import Any, Optional

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
  "half": "scaled_dot_product_attention, all in bfloat16, not autocast",
}


def build(workload: protocol.Workload) -> protocol.Program:
  """Builds the program that trains or serves."""
  if workload.model_dir:
    return _build_serving(workload)
  return _build_training(workload)


def _build_training(workload: protocol.Workload) -> protocol.Program:
  about = TRAINING_VARIANTS[workload.variant]
  import torch
  import transformers

  torch.set_num_threads(workload.threads)
  torch.manual_seed(workload.seed)
  device, gpu = _device()
  tuned = workload.variant in ("tuned", "compiled")
  sdpa = workload.variant == "sdpa" or (gpu and workload.variant == "compiled")
  config = make_config(
    workload,
    # The same function, but the library computes gelu_new by eight operations.
    hidden_act="gelu_pytorch_tanh" if tuned else "gelu_new",
    attn_implementation="sdpa" if sdpa else "eager",
  )
  model = transformers.AlbertForPreTraining(config).to(device).train()
  optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=workload.learning_rate,
    weight_decay=workload.weight_decay,
    fused=True,
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
    torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
    optimizer.step()
    return value.item()

  dtype = getattr(torch, workload.product_dtype)
  b, h, i = workload.tokens, workload.hidden_size, workload.intermediate_size
  left, right = (
    torch.randn(sizes, dtype=dtype, device=device) for sizes in ([b, h], [h, i])
  )
  return protocol.Program(
    step,
    {"torch": torch.__version__, "transformers": transformers.__version__},
    f"{about}, fused AdamW",
    lambda: torch.matmul(left, right),
    gpu=gpu,
  )


def _device() -> tuple[str, Optional[protocol.Gpu]]:
  """Returns PyTorch's name of the device, and what a GPU needs."""
  import torch

  if not torch.cuda.is_available():
    return "cpu", None
  return "cuda", protocol.Gpu(
    torch.cuda.synchronize, torch.cuda.max_memory_allocated
  )


def make_config(workload: protocol.Workload, **settings: Any) -> Any:
  """Returns the library's configuration of the workload's model."""
  import transformers

  return transformers.AlbertConfig(
    vocab_size=workload.vocab_size,
    embedding_size=workload.embedding_size,
    hidden_size=workload.hidden_size,
    num_hidden_layers=workload.num_hidden_layers,
    num_attention_heads=workload.num_attention_heads,
    intermediate_size=workload.intermediate_size,
    max_position_embeddings=workload.max_position_embeddings,
    hidden_dropout_prob=workload.hidden_dropout_prob,
    attention_probs_dropout_prob=workload.attention_probs_dropout_prob,
    classifier_dropout_prob=0.0,
    **settings,
  )


def _build_serving(workload: protocol.Workload) -> protocol.Program:
  about = SERVING_VARIANTS[workload.variant]
  import torch
  import transformers

  torch.set_num_threads(workload.threads)
  half = workload.variant == "half"
  model = transformers.AlbertModel.from_pretrained(
    workload.model_dir,
    attn_implementation="eager" if workload.variant == "eager" else "sdpa",
  ).eval()
  device, gpu = _device()
  model = model.to(device)
  if half:
    model = model.to(torch.bfloat16)
  autocast = workload.product_dtype == "bfloat16" and not half
  features = {
    name: torch.from_numpy(array).long().to(device)
    for name, array in protocol.request(workload).items()
  }

  def step() -> float:
    with (
      torch.inference_mode(),
      torch.autocast(device, torch.bfloat16, enabled=autocast),
    ):
      outputs = model(
        input_ids=features["input_ids"],
        attention_mask=features["input_mask"],
        token_type_ids=features["segment_ids"],
      )
      return float(outputs.pooler_output.float().cpu().numpy().mean())

  return protocol.Program(
    step,
    {"torch": torch.__version__, "transformers": transformers.__version__},
    about,
    gpu=gpu,
  )


if __name__ == "__main__":
  protocol.serve(build)
