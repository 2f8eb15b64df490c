"""Hugging Face's ALBERT in PyTorch as a program that answers requests.

Run by the interpreter of its own virtual environment; see `peer_protocol`.
"""

from __future__ import annotations

from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import request as peer_request

# Variants, and what a table calls them.
VARIANTS = {
  "eager": "eager attention",
  "sdpa": "scaled_dot_product_attention",
  "half": "scaled_dot_product_attention, all in bfloat16, not autocast",
}


def build(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The model of the folder `workload.model_dir`, without gradients.

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
  model = transformers.AlbertModel.from_pretrained(
    workload.model_dir,
    attn_implementation="eager" if workload.variant == "eager" else "sdpa",
  ).eval()
  if workload.variant == "half":
    model = model.to(torch.bfloat16)
  autocast = workload.product_dtype == "bfloat16" and workload.variant != "half"
  arrays = peer_request.features(workload)
  inputs = {
    name: torch.from_numpy(arrays[own]).long()
    for name, own in (
      ("input_ids", "input_ids"),
      ("attention_mask", "input_mask"),
      ("token_type_ids", "segment_ids"),
    )
  }

  def step() -> float:
    with (
      torch.inference_mode(),
      torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
      return float(model(**inputs).pooler_output.float().numpy().mean())

  return peer_protocol.Program(
    step,
    {"torch": torch.__version__, "transformers": transformers.__version__},
    VARIANTS[workload.variant],
  )


if __name__ == "__main__":
  peer_protocol.serve(build)
