"""Tests of GPUs: training equals a CPU's and is resumable; exact attention.

    make test-gpu  # Fails if there is no GPU.

The same tests are among the heavy ones with a CPU in place of the GPU. That
shows that the tests work; it says nothing about GPUs. Every training runs in a
process of its own.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, modeling
from official_albert.testing import bfloat16, toy_models, toy_task
from official_albert.tools.testing import toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_STEPS = 12
_SEVERAL = 2
# Float32 on both sides. Sums in another order differ by a few 1e-6, and LAMB
# divides by the size of gradients, however small; those of the keys' biases are
# only rounding.
_RTOL, _RELATIVE, _ABSOLUTE = 1e-4, 1e-3, 1e-5
# On a CPU, products in bfloat16 change losses by up to 4e-5 of themselves and
# gradient norms by 1.2e-3; float16 less.
_HALF_RTOL = 0.01


@pytest.fixture(
  scope="module",
  params=[
    pytest.param("gpu", marks=pytest.mark.gpu),
    pytest.param("cpu", marks=pytest.mark.heavy),
  ],
)
def device(request):
  """The device under test, which is compared with a CPU."""
  if request.param == "gpu" and not tf.config.list_physical_devices("GPU"):
    if request.config.option.markexpr == "gpu":
      pytest.exit("TensorFlow sees no GPU: see `nvidia-smi`.", returncode=1)
    pytest.skip("there is no GPU")
  return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Records of 32 tokens, and models with dropout in no, one or two places."""
  path = tmp_path_factory.mktemp("gpu")
  toy_data.write_corpus(str(path / "corpus.txt"))
  vocabulary = toy_runs.write_tokenizer(str(path))
  toy_runs.write_records(str(path), "records", 32, 0.2)
  for name, dropout, of_probs in (
    ("plain", 0.0, 0.0),
    ("dropout", 0.1, 0.1),
    ("hidden_dropout", 0.1, 0.0),
  ):
    config = toy_models.config(
      *(vocabulary.vocab_size, 40),
      embedding_size=32,
      hidden_size=128,
      num_hidden_layers=3,
      num_attention_heads=4,
      intermediate_size=256,
      initializer_range=0.02,
      hidden_dropout_prob=dropout,
      attention_probs_dropout_prob=of_probs,
    )
    config.to_json_file(str(path / f"{name}.json"))
  return path


def environment(device):
  if device == "cpu":
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
  # Products of float32 in float32, not in TF32: NVIDIA's libraries know the
  # first variable, XLA's own products none, so XLA has to use the libraries.
  flags = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_triton_gemm=false"
  )
  return {**os.environ, "NVIDIA_TF32_OVERRIDE": "0", "XLA_FLAGS": flags}


def command(folder, model_dir, *arguments, model="plain"):
  flags = (
    f"--input_dir={folder}/records --model_dir={model_dir} "
    f"--albert_config_file={folder}/{model}.json --train_batch_size=16 "
    f"--learning_rate=0.005 --num_train_steps={_STEPS} --num_warmup_steps=2 "
    "--steps_per_loop=1 --eval_steps=0 --save_checkpoints_steps=4"
  )
  program = sys.executable, "-m", "tools.run_pretraining"
  return [*program, *flags.split(), *arguments]


def train(device, folder, model_dir, *arguments, **options):
  """Trains on a device; returns the losses and gradient norms of each step."""
  done = subprocess.run(
    command(folder, model_dir, *arguments, **options),
    cwd=_ROOT,
    env=environment(device),
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return [
    np.array(toy_task.logged(model_dir, name))
    for name in ("loss", "gradient_norm")
  ]


@pytest.fixture(scope="module")
def reference(folder):
  """The folder of a run on a CPU in float32."""
  train("cpu", folder, folder / "reference")
  return folder / "reference"


def check_like(reference, model_dir, found, rtol):
  """Compares the logs with those of the reference; `found` is of `train`."""
  for name, values in zip(("loss", "gradient_norm"), found):
    expected = toy_task.logged(reference, name)
    assert len(expected) == _STEPS
    np.testing.assert_allclose(values, expected, rtol=rtol, err_msg=name)
  # It learned something that could differ.
  assert found[0][-1] < found[0][0]
  if rtol > _RTOL:
    return
  # Weights, and means of gradients and of their squares.
  saved = toy_task.saved(model_dir)
  for name, value in toy_task.saved(reference).items():
    bound = _RELATIVE * np.abs(value).max() + _ABSOLUTE
    difference = np.abs(saved[name] - value).max()
    assert difference <= bound, f"{name}: {difference} > {bound}"


@pytest.mark.parametrize(
  "flag",
  [
    *("", "--gradient_accumulation_steps=4", "--recompute_activations"),
    *("--xla", "--attention=compiled", "--attention=compiled --xla"),
  ],
)
def test_float32_equals_a_cpu(device, folder, reference, tmp_path, flag):
  found = train(device, folder, tmp_path, *flag.split())
  check_like(reference, tmp_path, found, _RTOL)


@pytest.mark.parametrize("attention", ["plain", "fused"])
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_close(
  device, folder, reference, tmp_path, precision, attention
):
  flags = f"--precision={precision}", f"--attention={attention}"
  found = train(device, folder, tmp_path, *flags)
  check_like(reference, tmp_path, found, _HALF_RTOL)
  # It is not float32 after all.
  assert (found[0] != toy_task.logged(reference)).any()


def test_several_devices_equal_one(device, folder, reference, tmp_path):
  if device == "gpu" and len(tf.config.list_physical_devices("GPU")) < _SEVERAL:
    pytest.skip("there is one GPU")
  several = ["--distribution=mirrored", f"--num_devices={_SEVERAL}"]
  found = train(device, folder, tmp_path, *several)
  check_like(reference, tmp_path, found, _RTOL)


def test_losses_with_fused_attention_are_those_of_plain(
  device, folder, tmp_path
):
  steps, tail = 200, 20
  found = [
    train(
      *(device, folder, tmp_path / kind, f"--attention={kind}"),
      *("--precision=mixed_bfloat16", f"--num_train_steps={steps}"),
    )[0]
    for kind in ("plain", "fused")
  ]
  assert len(found[0]) == steps and found[0][-1] < 0.9 * found[0][0]
  # Rounding grows with the steps.
  np.testing.assert_allclose(found[1][:tail], found[0][:tail], rtol=_HALF_RTOL)
  ends = [np.mean(losses[-tail:]) for losses in found]
  np.testing.assert_allclose(ends[1], ends[0], rtol=2 * _HALF_RTOL)


def attention_layer(heads, precision):
  """Returns a layer whose output is that of attention, not its input."""
  config = toy_models.config(
    *(97, 512),
    hidden_size=64 * heads,
    num_attention_heads=heads,
    attention_probs_dropout_prob=0.0,
    hidden_dropout_prob=0.0,
  )
  layer = modeling.SelfAttention(config, dtype=precision)
  layer.build([None, None, 64 * heads])
  generator = np.random.default_rng(2)
  for variable in layer.variables:
    # Values around 0 have an error of their own.
    values = generator.normal(size=variable.shape)
    if len(variable.shape) > 1:
      values *= (50 if "output" in variable.name else 1) / (8 * heads**0.5)
    variable.assign(values)
  return layer


def both_passes(kind, layer, x, mask, dy):
  """Returns the layer's output, and the gradients of its input and weights."""

  @tf.function(autograph=False)
  def run(x, dy):
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = layer(tf.cast(x, layer.compute_dtype), mask, training=True)
    sources = [x, *layer.trainable_variables]
    gradients = tape.gradient(y, sources, tf.cast(dy, y.dtype))
    # The biases of keys have none but rounding errors.
    return [y] + [
      gradient
      for source, gradient in zip(sources, gradients)
      if "key/bias" not in getattr(source, "name", "")
    ]

  with modeling.attention_as(kind):
    return run(x, dy)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("heads", [12, 16, 64])
@pytest.mark.parametrize("length", [64, 128, 384, 512])
def test_attention_is_as_exact_as_plain(device, length, heads, precision):
  """Heads of 64, with padding, whose rows count too."""
  has_gpu = bool(tf.config.list_physical_devices("GPU"))
  is_quick = length * heads <= 128 * 12 and precision == "mixed_bfloat16"
  if device == "cpu" and (has_gpu or not is_quick):
    pytest.skip("needs a GPU, or none")
  distribution.make_deterministic()
  tf.config.experimental.enable_tensor_float_32_execution(False)
  generator = np.random.default_rng(1)
  x, dy = (
    tf.constant(generator.normal(size=[2, length, 64 * heads]), tf.float32)
    for _ in range(2)
  )
  mask = tf.sequence_mask([length, 3 * length // 5], length, tf.int32)
  exact = both_passes("plain", attention_layer(heads, "float32"), x, mask, dy)
  layer = attention_layer(heads, precision)
  plain = both_passes("plain", layer, x, mask, dy)
  for kind in ("compiled", "fused"):
    found = both_passes(kind, layer, x, mask, dy)
    for ours, other, expected in zip(found, plain, exact, strict=True):
      bound = 1.25 * bfloat16.rms(other, expected)
      assert bfloat16.rms(ours, expected) <= bound
    again = both_passes(kind, layer, x, mask, dy)
    for a, b in zip(found, again, strict=True):
      a, b = (tf.cast(y, tf.float32) for y in (a, b))
      np.testing.assert_array_equal(a, b, err_msg=kind)


@pytest.mark.parametrize("attention", ["plain", "fused"])
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_killed_run_resumes_to_the_bit(
  device, folder, tmp_path, precision, attention
):
  if (device, precision) == ("cpu", "mixed_float16"):
    pytest.skip("takes minutes; tools/run_pretraining_test.py has such a run")
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  arguments = f"--precision={precision}", "--num_train_steps=40"
  arguments = *arguments, f"--attention={attention}"
  model = "hidden_dropout" if attention == "fused" else "dropout"
  losses, _ = train(device, folder, whole, *arguments, model=model)
  process = subprocess.Popen(
    command(folder, killed, *arguments, model=model),
    cwd=_ROOT,
    env=environment(device),
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  while not (killed / "model.ckpt-8.index").exists():
    assert process.poll() is None, "finished before it could be killed"
    time.sleep(0.002)
  process.send_signal(signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL
  assert not (killed / "model.ckpt-40.index").exists()
  resumed, _ = train(device, folder, killed, *arguments, model=model)
  assert resumed[-1] == losses[-1]
  np.testing.assert_equal(*map(toy_task.saved, (whole, killed)))
