"""Files that TF Serving reads beside a SavedModel: warm-up, models, batching.

Two of them are text. The warm-up needs only six fields of the messages in
tensorflow-serving-api, so this module encodes them itself.

Sources: tensorflow/serving: saved_model_warmup.md, prediction_log.proto,
predict.proto, model.proto, session_bundle_config.proto.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np
import tensorflow as tf

WARMUP_FILE = "tf_serving_warmup_requests"
MODELS_FILE = "models.config"
BATCHING_FILE = "batching_parameters.txt"
# TF Serving ignores further requests.
MAX_WARMUP_REQUESTS = 1000


def _field(number: int, value: bytes) -> bytes:
  """Encodes a field of bytes: key, length, value; numbers as varints."""
  head = bytearray()
  for rest in (number << 3 | 2, len(value)):
    while rest > 0x7F:
      head.append(rest & 0x7F | 0x80)
      rest >>= 7
    head.append(rest)
  return bytes(head) + value


def prediction_log(
  model_name: str, signature: str, inputs: Mapping[str, np.ndarray]
) -> bytes:
  """Returns a serialized PredictionLog of one request."""
  # ModelSpec: 1 name, 3 signature_name.
  spec = _field(1, model_name.encode()) + _field(3, signature.encode())
  # PredictRequest: 1 model_spec, 2 a map of inputs.
  request = _field(1, spec)
  for name, value in inputs.items():
    tensor = tf.make_tensor_proto(value).SerializeToString()
    request += _field(2, _field(1, name.encode()) + _field(2, tensor))
  # PredictionLog: 6 predict_log; PredictLog: 1 request.
  return _field(6, _field(1, request))


def write_warmup(
  path: str, model_name: str, requests: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
  """Writes requests (pairs of signature and inputs) as a TFRecord file.

  Raises:
    ValueError: there are more requests than TF Serving reads.
  """
  if len(requests) > MAX_WARMUP_REQUESTS:
    raise ValueError(
      f"the warm-up would have {len(requests):,} requests, and TF Serving "
      f"reads {MAX_WARMUP_REQUESTS:,}: give fewer batch sizes or lengths."
    )
  with tf.io.TFRecordWriter(path) as writer:
    for signature, inputs in requests:
      writer.write(prediction_log(model_name, signature, inputs))


def models_config(model_name: str) -> str:
  """Returns a ModelServerConfig of one model, in /models/NAME."""
  return (
    "model_config_list {\n"
    "  config {\n"
    f'    name: "{model_name}"\n'
    f'    base_path: "/models/{model_name}"\n'
    '    model_platform: "tensorflow"\n'
    "  }\n"
    "}\n"
  )


def batching_parameters(batch_sizes: Sequence[int], pads: bool = True) -> str:
  """Returns BatchingParameters with batches no larger than those warmed up.

  TF Serving pads a batch to the next allowed size. Powers of two are allowed
  too, so less than half of a batch is padding.

  Args:
    batch_sizes: the warm-up's batch sizes; if empty, the limit is 32.
    pads: whether requests of different lengths may share a batch, which needs
      a model with a known `cls_id`.
  """
  largest = max(batch_sizes, default=32)
  allowed = set(batch_sizes)
  if allowed:
    allowed.update(2**i for i in range(largest.bit_length()))
  return (
    f"max_batch_size {{ value: {largest} }}\n"
    "batch_timeout_micros { value: 1000 }\n"
    "max_enqueued_batches { value: 64 }\n"
    "num_batch_threads { value: 2 }\n"
    + "".join(f"allowed_batch_sizes: {size}\n" for size in sorted(allowed))
    + f"pad_variable_length_inputs: {str(pads).lower()}\n"
  )
