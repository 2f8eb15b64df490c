"""Batches that are cut to their longest example train as padded ones do."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, modeling
from official_albert.testing import toy_task
from official_albert.training import loop, reporting

_ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = AlbertConfig(
  vocab_size=19,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=11,
  hidden_dropout_prob=0.0,
  attention_probs_dropout_prob=0.0,
)
EXAMPLES, LONGEST = 24, 11
# Of examples 0 to 3, 4 to 7 and so on: batches of 4 differ from each other.
LENGTHS = np.repeat([5, 11, 7, 5, 7, 11], 4) - np.tile([0, 1, 2, 3], 6)


class LengthTask:
  """Three classes of random sequences; `cut` drops the common padding."""

  name = "lengths"
  tokens_per_example, flops_per_example = LONGEST, 100

  def __init__(self, cut, recompute=False, decay=1.0):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 19, [EXAMPLES, LONGEST])
    mask = (np.arange(LONGEST) < LENGTHS[:, None]).astype(np.int32)
    self.data = {
      "input_ids": (ids * mask).astype(np.int32),
      "input_mask": mask,
      "label_ids": rng.integers(0, 3, [EXAMPLES]).astype(np.int32),
    }
    self.cut, self.recompute, self.decay = cut, recompute, decay
    self.traced = []

  def build_model(self):
    return modeling.AlbertForSequenceClassification(
      CONFIG, 3, 0.0, self.recompute, self.decay
    )

  def _batches(self, data, batch_size):
    def cut(batch):
      length = tf.reduce_max(tf.reduce_sum(batch["input_mask"], 1))
      return {
        name: x[:, :length] if x.shape.rank == 2 else x
        for name, x in batch.items()
      }

    data = data.batch(batch_size, drop_remainder=True)
    return data.map(cut) if self.cut else data

  def train_dataset(self, batch_size, start_example, context=None):
    data = tf.data.Dataset.from_tensor_slices(self.data).repeat()
    return self._batches(data.skip(start_example), batch_size)

  def eval_dataset(self, batch_size):
    data = tf.data.Dataset.from_tensor_slices(self.data)
    return self._batches(data, batch_size)

  def loss_weights(self, batch):
    return {"class": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)}

  def forward(self, model, batch, training_, dropout_seed):
    self.traced.append(batch["input_ids"].shape[1])
    outputs = model(batch, training=training_, dropout_seed=dropout_seed)
    losses = modeling.cross_entropy(
      outputs["logits"], batch["label_ids"], training_
    )
    return {"class": tf.reduce_sum(losses)}, {}

  def describe(self):
    return {}


def losses(folder):
  return (
    toy_task.logged(folder),
    toy_task.logged(folder, "gradient_norm"),
    toy_task.logged(folder, "loss", "eval"),
  )


def run(folder, task, devices=0, **changes):
  values = dict(train_batch_size=8, eval_batch_size=4, steps_per_loop=1)
  cfg = toy_task.config(folder, **{**values, **changes})
  strategy = distribution.make_strategy(
    "mirrored" if devices else "one_device", devices
  )
  with reporting.Reporter(str(folder), io.StringIO()) as report:
    loop.train([task], cfg, strategy, report)
  return losses(folder)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
  return run(tmp_path_factory.mktemp("padded"), LengthTask(False))


def assert_same(got, expected):
  assert [len(values) for values in got] == [6, 6, 2]
  for a, b in zip(got, expected):
    # Adam's first steps amplify the rounding of other orders of summation.
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
  "settings, changes",
  [
    ({}, {}),
    pytest.param(
      dict(recompute=True),
      dict(xla=True, gradient_accumulation_steps=2),
      marks=pytest.mark.heavy,
    ),
  ],
)
def test_cut_batches_give_the_losses_of_padded_ones(
  tmp_path, padded, settings, changes
):
  task = LengthTask(True, **settings)
  assert_same(run(tmp_path, task, **changes), padded)
  # The graph is made once, for all lengths.
  assert set(task.traced) == {None}


def job(folder, decay):
  """Runs in a new process, with a batch of another length on each device."""
  run(folder, LengthTask(True, decay=decay), 2, layerwise_lr_decay=decay)


@pytest.mark.heavy
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_devices_with_batches_of_different_lengths(tmp_path, decay):
  """With layer-wise rates, which the copies of variables have, too."""
  program = (
    "from official_albert.training import dynamic_lengths_test as t; "
    f"t.job({str(tmp_path / 'two')!r}, {decay})"
  )
  subprocess.run([sys.executable, "-c", program], cwd=_ROOT, check=True)
  for cut in (False, True):  # Cut, with activations recomputed.
    task = LengthTask(cut, cut, decay)
    one = run(tmp_path / str(cut), task, layerwise_lr_decay=decay)
    assert_same(losses(tmp_path / "two"), one)


@pytest.mark.parametrize("compiled", [False, True])
def test_cross_entropy_over_an_unknown_number_of_positions(compiled):
  scores = np.random.default_rng(0).normal(size=[3, 7]).astype(np.float32)
  x, labels = tf.constant(scores), [0, 6, 3]
  loss = tf.function(
    lambda x: modeling.cross_entropy(x, tf.constant(labels), compiled),
    input_signature=[tf.TensorSpec([3, None])],
  )
  with tf.GradientTape() as tape:
    tape.watch(x)
    values = loss(x)
  probabilities = tf.nn.softmax(scores).numpy()
  expected = -np.log(probabilities[range(3), labels])
  np.testing.assert_allclose(values, expected, rtol=1e-5)
  expected = probabilities - np.eye(7)[labels]
  np.testing.assert_allclose(tape.gradient(values, x), expected, atol=1e-6)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
