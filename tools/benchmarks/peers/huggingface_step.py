"""Hugging Face's ALBERT in PyTorch as a program that a benchmark times.

Run by the interpreter of its own virtual environment; see `peer_protocol`.
"""

from __future__ import annotations

from tools.benchmarks.peers import protocol as peer_protocol

# Variants, and what a table calls them. The first two are the public model as
# it is, which computes logits for every position; eager attention is the faster
# one on CPUs.
VARIANTS = {
  "eager": "eager attention",
  "sdpa": "scaled_dot_product_attention",
  "tuned": "eager attention, logits of masked positions only, fused tanh GELU",
  "compiled": "as tuned, with torch.compile",
}


def build(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The model, torch's fused AdamW, and the batch.

  Raises:
    ValueError: no such variant.
  """
  if workload.variant not in VARIANTS:
    raise ValueError(
      f"unknown variant {workload.variant!r}; choose one of "
      f"{', '.join(VARIANTS)}."
    )
  import torch
  import transformers

  torch.set_num_threads(workload.threads)
  torch.manual_seed(workload.seed)
  tuned = workload.variant in ("tuned", "compiled")
  config = transformers.AlbertConfig(
    vocab_size=workload.vocab_size,
    embedding_size=workload.embedding_size,
    hidden_size=workload.hidden_size,
    num_hidden_layers=workload.num_hidden_layers,
    num_attention_heads=workload.num_attention_heads,
    intermediate_size=workload.intermediate_size,
    max_position_embeddings=workload.max_position_embeddings,
    # The same function; the library writes gelu_new out in eight operations.
    hidden_act="gelu_pytorch_tanh" if tuned else "gelu_new",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout_prob=0.0,
    attn_implementation="sdpa" if workload.variant == "sdpa" else "eager",
  )
  model = transformers.AlbertForPreTraining(config).train()
  optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=workload.learning_rate,
    weight_decay=workload.weight_decay,
    fused=True,
  )
  shape = [workload.batch_size, workload.max_seq_length]
  ids = torch.randint(5, workload.vocab_size, shape)
  positions = torch.rand(shape).topk(workload.predictions).indices
  targets = ids.gather(1, positions)
  inputs = {
    "input_ids": ids.scatter(1, positions, 4),
    "attention_mask": torch.ones(shape, dtype=torch.long),
    "token_type_ids": torch.randint(0, 2, shape),
  }
  order = torch.randint(0, 2, shape[:1])
  # What the model's own loss leaves out.
  labels = torch.full(shape, -100).scatter(1, positions, targets)
  rows = torch.arange(shape[0])[:, None]

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
      "cpu", torch.bfloat16, enabled=workload.product_dtype == "bfloat16"
    ):
      value = loss()
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
    optimizer.step()
    return value.item()

  dtype = getattr(torch, workload.product_dtype)
  left = torch.randn([workload.tokens, workload.hidden_size], dtype=dtype)
  right = torch.randn(
    [workload.hidden_size, workload.intermediate_size], dtype=dtype
  )
  return peer_protocol.Program(
    step,
    {"torch": torch.__version__, "transformers": transformers.__version__},
    f"{VARIANTS[workload.variant]}, fused AdamW",
    lambda: torch.matmul(left, right),
  )


if __name__ == "__main__":
  peer_protocol.serve(build)
