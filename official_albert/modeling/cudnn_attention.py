"""The fused attention of cuDNN, for which TensorFlow has no operation.

XLA for NVIDIA GPUs replaces a custom call of a certain name by cuDNN's kernel,
which never writes the scores [B, N, S, T] to memory. Here the call is written
as a program in StableHLO, and XlaCallModule, an operation of TensorFlow, makes
it part of what XLA compiles. It exists for half precision and GPUs only, and a
program that holds it runs nowhere else.

Letters as in `transformer_block`. Sources of the names and numbers below: XLA's
backend_configs.proto, and what JAX writes for the same attention; the tests
compare with both.
"""

from __future__ import annotations

import json
from typing import Any, Optional, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

_PLATFORMS = ["CUDA"]
# Of what XlaCallModule reads.
_VERSION = 9
_OLDEST_TENSORFLOW = (2, 20)
_OLDEST_GPU = (8, 0)  # Compute capability.
_LARGEST_HEAD, _HEAD_MULTIPLE = 128, 8
_ELEMENTS = {
  tf.bfloat16: "bf16",
  tf.float16: "f16",
  tf.float32: "f32",
  tf.int32: "i32",
  tf.uint8: "ui8",
}
# In memory, [B, N, S, D] is [B, S, N, D], as TensorFlow's products are.
_HEADS_INSIDE = (3, 1, 2, 0)
# The axes of the products: which are summed, left and right, and which are
# those of the batch and the heads, left and right. [B, N, S, T] has _SCORES.
_HEADS, _SCORES = (0, 2), (0, 1)
_FORWARD = {
  "bmm1": (3, 3, _HEADS, _HEADS),  # q k^T
  "bmm2": (3, 1, _SCORES, _HEADS),  # probs v
}
_BACKWARD = {
  "bmm1_grad_gemm1": (2, 1, _SCORES, _HEADS),  # dscores^T q
  "bmm1_grad_gemm2": (3, 1, _SCORES, _HEADS),  # dscores k
  "bmm2_grad_gemm1": (2, 1, _SCORES, _HEADS),  # probs^T dy
  "bmm2_grad_gemm2": (3, 3, _HEADS, _HEADS),  # dy v^T
}


def missing(products: Sequence[tf.Tensor], heads: int) -> str:
  """Returns what is missing here for fused attention, "" if nothing is.

  `products` are those of `attention_program.attention`.
  """
  version = tuple(int(x) for x in tf.__version__.split(".")[:2])
  if version < _OLDEST_TENSORFLOW:
    return "TensorFlow 2.20"
  gpus = tf.config.list_physical_devices("GPU")
  details = map(tf.config.experimental.get_device_details, gpus)
  capabilities = [x.get("compute_capability", (0, 0)) for x in details]
  if not gpus or min(capabilities) < _OLDEST_GPU:
    return "an NVIDIA GPU of compute capability 8.0"
  if products[0].dtype not in (tf.bfloat16, tf.float16):
    return "mixed_bfloat16 or mixed_float16"
  if not all(x.shape.is_fully_defined() for x in products):
    return "batches of one length"
  size = sum(x.shape[-1] for x in products) // 3 // heads
  if size > _LARGEST_HEAD or size % _HEAD_MULTIPLE:
    return f"heads of a multiple of {_HEAD_MULTIPLE}, at most {_LARGEST_HEAD}"
  return ""


def forward(
  q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns softmax(q k^T / sqrt(D)) v, and the log of the softmax's sums.

  Call it in a function that XLA compiles, as `backward`.

  Args:
    q: <half>[B, S, N, D].
    k: <half>[B, T, N, D].
    v: <half>[B, T, N, D].
    lengths: <int32>[B], from 1; the keys from there on are padding.

  Returns:
    <half>[B, S, N, D] and <float32>[B, N, S].
  """
  batch, length, heads, size = q.shape
  context, sums = _custom_call(
    "__cudnn$fmhaSoftmax",
    [q, k, v, *_lengths(q, lengths)],
    [(q.dtype, [batch, heads, length, size])]
    + [(tf.float32, [batch, heads, length])],
    _configuration(q, k, _FORWARD),
  )
  return tf.transpose(context, [0, 2, 1, 3]), sums


def backward(
  q: tf.Tensor,
  k: tf.Tensor,
  v: tf.Tensor,
  lengths: tf.Tensor,
  context: tf.Tensor,
  sums: tf.Tensor,
  dy: tf.Tensor,
) -> list[tf.Tensor]:
  """Returns the gradients of `q`, `k` and `v`.

  `context` and `sums` are the results of `forward`, and `dy` <half>[B, S, N, D]
  is the gradient of `context`.
  """
  gradients = _custom_call(
    "__cudnn$fmhaSoftmaxBackward",
    [q, k, v, sums, dy, context, *_lengths(q, lengths)],
    [(x.dtype, [x.shape[i] for i in (0, 2, 1, 3)]) for x in (q, k, v)],
    # A resumed run has to continue to the bit.
    _configuration(q, k, _BACKWARD, force_deterministic=True),
  )
  return [tf.transpose(x, [0, 2, 1, 3]) for x in gradients]


def _lengths(q, lengths):
  """Returns the lengths of queries and of keys; no query is padding."""
  return tf.fill([q.shape[0]], q.shape[1]), lengths


def _configuration(q, k, products, **others):
  """Returns XLA's GpuBackendConfig, whose integers of 64 bits are text."""
  batch, length, heads, size = q.shape
  scores = (batch, heads, length, k.shape[1])
  attention = {
    "algorithm": {
      "algo_id": "0",
      "math_type": "TENSOR_OP_MATH",
      "tuning_knobs": {"17": "1", "24": "0"},
      "is_cudnn_frontend": True,
      "workspace_size": "0",
    },
    "fmha_scale": size**-0.5,
    "intermediate_tensor_shape": {
      "element_type": _ELEMENTS[q.dtype].upper(),
      "dimensions": [str(x) for x in scores],
      "layout": {"minor_to_major": ["3", "2", "1", "0"]},
      "is_dynamic_dimension": [False] * 4,
    },
    "is_flash_attention": True,
    "mask_type": "PADDING",
    "max_seg_per_batch": 1,
    "seed": 42,  # Of dropout, whose rate is 0.
    **others,
  }
  for name, (left, right, left_batch, right_batch) in products.items():
    attention[f"{name}_dot_dimension_numbers"] = {
      "lhs_contracting_dimensions": [str(left)],
      "rhs_contracting_dimensions": [str(right)],
      "lhs_batch_dimensions": [str(x) for x in left_batch],
      "rhs_batch_dimensions": [str(x) for x in right_batch],
    }
  return {"cudnn_fmha_backend_config": attention}


def _custom_call(
  target: str,
  operands: Sequence[tf.Tensor],
  results: Sequence[tuple[tf.DType, list[int]]],
  configuration: dict[str, Any],
) -> list[tf.Tensor]:
  """Calls `target`; returns tensors of the dtypes and shapes of `results`."""
  return gen_xla_ops.xla_call_module(
    args=operands,
    version=_VERSION,
    module=_module(target, operands, results, configuration),
    Sout=[shape for _, shape in results],
    Tout=[dtype for dtype, _ in results],
    platforms=_PLATFORMS,
  )


def _module(target, operands, results, configuration):
  """Returns the program: one call, whose last result is cuDNN's workspace."""
  inputs = [_type(x.dtype, x.shape) for x in operands]
  outputs = [_type(dtype, shape) for dtype, shape in results]
  workspace = _type(tf.uint8, [0])
  operand_layouts = [_layout(x.shape) for x in operands]
  result_layouts = [
    _layout(shape, _HEADS_INSIDE if len(shape) == 4 else None)
    for _, shape in results
  ]
  names = [f"%arg{i}" for i in range(len(inputs))]
  parameters = [f"{name}: {kind}" for name, kind in zip(names, inputs)]
  text = json.dumps(configuration).replace('"', "\\22")
  returned = [f"%0#{i}" for i in range(len(outputs))]
  return f"""module @attention {{
  func.func public @main({_list(parameters)}) -> ({_list(outputs)}) {{
    %0:{len(outputs) + 1} = stablehlo.custom_call @{target}({_list(names)}) {{
      api_version = 2 : i32,
      backend_config = "{text}",
      operand_layouts = [{_list(operand_layouts)}],
      result_layouts = [{_list([*result_layouts, _layout([0])])}]
    }} : ({_list(inputs)}) -> ({_list([*outputs, workspace])})
    return {_list(returned)} : {_list(outputs)}
  }}
}}
"""


def _list(parts: Sequence[str]) -> str:
  return ", ".join(parts)


def _type(dtype: tf.DType, shape: Sequence[int]) -> str:
  return f"tensor<{'x'.join([*map(str, shape), _ELEMENTS[dtype]])}>"


def _layout(shape: Sequence[int], order: Optional[Sequence[int]] = None) -> str:
  """Returns a layout; `order` lists the axes, the innermost first."""
  axes = order or range(len(shape))[::-1]
  return f"dense<[{_list([*map(str, axes)])}]> : tensor<{len(shape)}xindex>"
