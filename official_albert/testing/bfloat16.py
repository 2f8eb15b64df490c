"""The errors of bfloat16: of single products and of an encoder."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel

_OUTLIER = 7

# Measured: 0.0072 and 0.0042 (frozen: 0.0074 and 0.0039), and 0.0095 and 0.0051
# for the same encoder of Hugging Face under PyTorch's autocast. With truncated
# products, they are 0.0097 and 0.0068 (frozen: 0.0117 and 0.0081).
BOUNDS = {"random": 0.0085, "trained": 0.005}


def rms(got, expected):
  """Returns the root mean square of the error, relative to `expected`."""
  got, expected = (np.asarray(tf.cast(x, tf.float64)) for x in (got, expected))
  return np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2))


def check_rounded(got, expected):
  """Checks that `got` is `expected`, rounded to 8 bits.

  To nearest, the relative error is 0.17% in the mean square and 0 on average;
  truncated, 0.33% and -0.28%. Sums in another order may change a last bit.
  """
  assert got.dtype == tf.bfloat16
  got, expected = (np.asarray(tf.cast(x, tf.float64)) for x in (got, expected))
  assert rms(got, expected) < 0.0019
  assert abs(np.mean((got - expected) * np.sign(expected))) < 3e-4 * np.std(
    expected
  )


def _assign(model, kind):
  """Assigns random weights, or some with the statistics of trained ones.

  These have an activation 12 times as large as others, and large key biases.
  """
  rng = np.random.default_rng(1)
  for variable in model.variables:
    values = rng.normal(size=variable.shape)
    name = variable.name
    if "gamma" in name:
      values = 1 + (0.1 * values if kind == "trained" else 0)
    elif "beta" in name and kind == "trained":
      values *= 0.1
      values[_OUTLIER] = 12.3
    elif "bias" in name and kind == "trained":
      values = 12 * np.sign(values) if "key" in name else 0.02 * values
    elif "beta" in name or "bias" in name:
      values = 0
    else:
      values *= 0.04 if kind == "trained" else 0.02
    variable.assign(np.broadcast_to(values, variable.shape))


def features():
  """Returns three sequences of different lengths."""
  rng = np.random.default_rng(2)
  return {
    "input_ids": tf.constant(rng.integers(5, 997, [3, 95]), tf.int32),
    "input_mask": tf.sequence_mask([95, 61, 13], 95, tf.int32),
  }


def model(kind, policy="float32"):
  """Returns a model of a global `policy`, which stays as it is."""
  config = AlbertConfig(
    vocab_size=997,
    embedding_size=64,
    hidden_size=256,
    num_hidden_layers=12,
    num_attention_heads=4,
    intermediate_size=1024,
    max_position_embeddings=128,
  )
  settings = AlbertModel(config).get_config()
  made = AlbertModel.from_config({**settings, "dtype": policy})
  _assign(made, kind)
  return made


def last_layer(encoder):
  """Returns the last layer's <float32>[tokens, H] without the outlier."""
  inputs = features()
  values = tf.function(encoder, autograph=False)(inputs)["sequence_output"]
  real = inputs["input_mask"].numpy() > 0
  return np.delete(tf.cast(values, tf.float32).numpy()[real], _OUTLIER, -1)


def run_without_onednn(*command):
  """Runs a command where TensorFlow multiplies with its own kernels."""
  environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
  done = subprocess.run(
    command, capture_output=True, text=True, env=environment
  )
  assert done.returncode == 0, done.stdout + done.stderr
