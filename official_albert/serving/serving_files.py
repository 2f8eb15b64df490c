"""Files that TF Serving reads beside a SavedModel: warm-up, models, batching.

Their formats are Protocol Buffers of tensorflow-serving-api, which nobody needs
to install for an export: two of the files are text, and of the third one's
messages only six fields are used, all of them strings of bytes.

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
# TF Serving reads no more of them.
MAX_WARMUP_REQUESTS = 1000

# Numbers of fields.
_PREDICT_LOG = 6  # in PredictionLog
_REQUEST = 1  # in PredictLog
_MODEL_SPEC, _INPUTS = 1, 2  # in PredictRequest
_NAME, _SIGNATURE_NAME = 1, 3  # in ModelSpec
_KEY, _VALUE = 1, 2  # in an entry of a map


def _field(number: int, value: bytes) -> bytes:
  """A field of strings, bytes or a message: key, length, value.

  Both numbers are written seven bits a byte, the lowest first.
  """
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
  """A serialized PredictionLog of one request.

  Args:
    model_name: as in models.config.
    signature: which one is asked.
    inputs: what it is sent, by names.
  """
  spec = _field(_NAME, model_name.encode())
  spec += _field(_SIGNATURE_NAME, signature.encode())
  request = _field(_MODEL_SPEC, spec)
  for name, value in inputs.items():
    tensor = tf.make_tensor_proto(value).SerializeToString()
    entry = _field(_KEY, name.encode()) + _field(_VALUE, tensor)
    request += _field(_INPUTS, entry)
  return _field(_PREDICT_LOG, _field(_REQUEST, request))


def write_warmup(
  path: str, model_name: str, requests: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
  """Writes the requests, pairs of signature and inputs, as a TFRecord.

  Raises:
    ValueError: they are more than TF Serving reads.
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
  """A ModelServerConfig of one model, in /models/NAME of the server."""
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
  """BatchingParameters whose batches are no larger than those warmed up.

  A batch is filled up to the next allowed size. Powers of two are allowed
  besides those given, so that less than half of it is filling.

  Args:
    batch_sizes: those of the warm-up; none: up to 32, of any size.
    pads: whether requests of different lengths may share a batch, for which
      the model has to know what they are filled up with.
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
