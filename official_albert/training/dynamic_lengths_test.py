"""Tests that batches cut to their longest example train as padded ones do."""

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
from official_albert.training import loop as training
from official_albert.training import objective, reporting

_ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = AlbertConfig(
  vocab_size=19,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
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
      "example_id": np.arange(EXAMPLES, dtype=np.int32),
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

  def train_dataset(
    self, batch_size, start_example, context=objective.ONE_PIPELINE
  ):
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

  def predict(self, model, batch):
    outputs = model(batch, training=False)
    return {"example_id": batch["example_id"], "logits": outputs["logits"]}

  def score(self, predictions):
    return {"median_logit": float(np.median(predictions["logits"]))}

  def describe(self):
    return {}


def losses(folder):
  return {
    kind: [
      (r["class_loss"], r.get("median_logit", 0), r.get("gradient_norm", 0))
      for r in reporting.read_metrics(str(folder), kind)
    ]
    for kind in ("train", "eval")
  }


def run(folder, task, devices=0, **changes):
  cfg = toy_task.config(
    folder,
    **{
      **dict(train_batch_size=8, eval_batch_size=4, steps_per_loop=1),
      **changes,
    },
  )
  strategy = distribution.make_strategy(
    "mirrored" if devices else "one_device", devices
  )
  with reporting.Reporter(str(folder), io.StringIO()) as report:
    training.train([task], cfg, strategy, report)
  return losses(folder)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
  return run(tmp_path_factory.mktemp("padded"), LengthTask(False))


def assert_same(got, expected):
  for kind, count in (("train", 6), ("eval", 2)):
    assert len(got[kind]) == len(expected[kind]) == count
    # Adam's first steps amplify the rounding of other orders of summation.
    np.testing.assert_allclose(got[kind], expected[kind], rtol=2e-4, atol=1e-6)


def _alone(name, settings, changes):
  """One of what the last case does all at once."""
  return pytest.param(settings, changes, id=name, marks=pytest.mark.heavy)


@pytest.mark.parametrize(
  "settings, changes",
  [
    pytest.param({}, dict(train_batch_size=8), id="plain"),
    _alone("parts", {}, dict(gradient_accumulation_steps=2)),
    _alone("xla", {}, dict(xla=True)),
    _alone("recomputed", dict(recompute=True), {}),
    _alone(
      "xla_parts_recomputed",
      dict(recompute=True),
      dict(xla=True, gradient_accumulation_steps=2),
    ),
  ],
)
def test_cut_batches_give_the_losses_of_padded_ones(
  tmp_path, padded, settings, changes
):
  task = LengthTask(True, **settings)
  assert_same(run(tmp_path, task, **changes), padded)
  # The length is no part of any program: none is made anew for another one.
  assert set(task.traced) == {None}


@pytest.mark.heavy
def test_with_decay_too(tmp_path):
  runs = [
    run(
      tmp_path / str(cut),
      LengthTask(cut, cut, decay=0.5),
      layerwise_lr_decay=0.5,
    )
    for cut in (False, True)
  ]
  assert_same(*runs)


def job(folder, cut, decay):
  """In a process of its own: of two devices, each has its own length."""
  run(folder, LengthTask(cut, decay=decay), 2, layerwise_lr_decay=decay)


@pytest.mark.heavy
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_replicas_with_batches_of_different_lengths(tmp_path, padded, decay):
  """And with learning rates of their own, which copies have to know."""
  program = (
    "from official_albert.training import dynamic_lengths_test as t; "
    f"t.job({str(tmp_path / 'two')!r}, True, {decay})"
  )
  subprocess.run([sys.executable, "-c", program], cwd=_ROOT, check=True)
  if decay != 1.0:
    padded = run(
      tmp_path / "one",
      LengthTask(False, decay=decay),
      layerwise_lr_decay=decay,
    )
  assert_same(losses(tmp_path / "two"), padded)


def test_positions_as_classes():
  """Spans are cross entropies over as many classes as there are tokens."""
  rng = np.random.default_rng(0)
  scores = rng.normal(size=[3, 7]).astype(np.float32)
  labels = tf.constant([0, 6, 3])
  expected = modeling.cross_entropy(tf.constant(scores), labels)
  for compiled in (False, True):

    @tf.function(input_signature=[tf.TensorSpec([3, None])])
    def run_(x, compiled=compiled):
      return modeling.cross_entropy(x, labels, compiled)

    np.testing.assert_allclose(run_(scores), expected, rtol=1e-5)
    with tf.GradientTape() as tape:
      x = tf.constant(scores)
      tape.watch(x)
      total = tf.reduce_sum(run_(x))
    slopes = tf.nn.softmax(scores) - tf.one_hot(labels, 7)
    np.testing.assert_allclose(tape.gradient(total, x), slopes, atol=1e-6)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
