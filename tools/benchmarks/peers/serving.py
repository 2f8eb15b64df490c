"""Programs that answer requests: an export, and Hugging Face's in PyTorch.

Each is run by the interpreter of its own virtual environment; see
`peer_protocol`.
"""

from __future__ import annotations

from tools.benchmarks.peers import protocol as peer_protocol

# Variants of Hugging Face's, and what a table calls them.
VARIANTS = {
  "eager": "eager attention",
  "sdpa": "scaled_dot_product_attention",
  "half": "scaled_dot_product_attention, all in bfloat16, not autocast",
}


def build(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The program of `workload.variant`; "" is the export.

  Raises:
    ValueError: no such variant.
  """
  if not workload.variant:
    return _build_export(workload)
  if workload.variant in VARIANTS:
    return _build_huggingface(workload)
  raise ValueError(
    f"unknown variant {workload.variant!r}; choose one of "
    f"{', '.join(VARIANTS)}."
  )


def _build_export(workload: peer_protocol.Workload) -> peer_protocol.Program:
  """The signature `ids` of the SavedModel in `workload.model_dir`."""
  # As any user of it would: TensorFlow and tensorflow_text alone.
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (its operations)

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(workload.model_dir)
  run = model.signatures["ids"]
  features = {
    name: tf.constant(value)
    for name, value in peer_protocol.request(workload).items()
  }

  def step() -> float:
    return float(run(**features)["pooled_output"].numpy().mean())

  return peer_protocol.Program(
    step,
    {"tensorflow": tf.__version__},
    "SavedModel, signature ids, by tf.saved_model.load",
  )


def _build_huggingface(
  workload: peer_protocol.Workload,
) -> peer_protocol.Program:
  """The model of the folder `workload.model_dir`, without gradients."""
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
  arrays = peer_protocol.request(workload)
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
