"""Tests of losses, gradients and ten steps against the original's numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints
from official_albert import training as training_lib
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tasks.pretraining import task as task_lib
from official_albert.testing import toy_models


def load(group: str, recompute: bool = False):
  config = toy_models.golden_config(group)
  model = model_lib.AlbertForPretraining(config, recompute)
  path = str(toy_models.GOLDEN / group / "model.ckpt")
  assert not checkpoints.load_tf1_checkpoint(model, path).missing
  batch = np.load(toy_models.GOLDEN / group / "pretraining_batch.npz")
  batch = {name: tf.constant(batch[name]) for name in batch.files}
  return model, {**batch, "example_weight": tf.ones(len(batch["input_ids"]))}


def total_loss(model, batch, training=False, logits_only=False):
  """The training loss, its parts and the outputs."""
  outputs = model(batch, training=training, logits_only=logits_only)
  totals, _ = task_lib.losses(outputs, batch, compiled=training)
  weights = task_lib.loss_weights(batch)
  losses = {name: totals[name] / weights[name] for name in totals}
  return sum(losses.values()), losses, outputs


@pytest.mark.golden
@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_outputs_and_losses_equal_the_original(group):
  model, batch = load(group)
  golden = np.load(toy_models.GOLDEN / group / "pretraining_outputs.npz")
  total, losses, outputs = total_loss(model, batch)
  log_probs = {
    f"{name}_log_probs": tf.nn.log_softmax(outputs[f"{name}_logits"])
    for name in losses
  }
  layers = enumerate(outputs["encoder_outputs"])
  found = {
    **{f"encoder_layer_{index}": output for index, output in layers},
    **{f"{name}_loss": loss for name, loss in losses.items()},
    **{"total_loss": total, **outputs, **log_probs},
  }
  for name, expected in golden.items():
    value = tf.reshape(found[name], expected.shape)
    np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=name)
  assert f"encoder_layer_{len(outputs['encoder_outputs'])}" not in golden


@pytest.mark.golden
@pytest.mark.parametrize("kind", ["tf1", "hf", "official_albert"])
def test_a_start_from_every_format_has_all_weights(tmp_path, kind):
  path = toy_models.GOLDEN / "one_group" / "model.ckpt"
  source = checkpoints.read_checkpoint(str(path))
  checkpoints.WRITERS[kind](source, str(tmp_path))
  model = model_lib.AlbertForPretraining(source.config)
  report = checkpoints.warm_start(model, str(tmp_path))
  assert not report.missing and not report.unexpected
  for name, variable in checkpoints.tf1_variables(model).items():
    np.testing.assert_array_equal(variable, source.tensors[name], name)


_MODES = ["evaluation", "training", "logits_only", "recomputed", "xla"]


@pytest.mark.golden
@pytest.mark.parametrize(
  "group, mode",
  [
    *(("one_group", mode) for mode in (*_MODES, "float16")),
    ("two_groups", "logits_only"),
    *(
      pytest.param("two_groups", mode, marks=pytest.mark.heavy)
      for mode in ("evaluation", "training", "all")
    ),
  ],
)
def test_gradients_equal_the_original(group, mode):
  """With a scaled loss where the products are float16."""
  half = mode in ("float16", "all")
  if half:
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    model, batch = load(group, recompute=mode in ("recomputed", "all"))
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  assert model.compute_dtype == ("float16" if half else "float32")
  golden = np.load(toy_models.GOLDEN / group / "pretraining_gradients.npz")
  total_golden = np.load(toy_models.GOLDEN / group / "pretraining_outputs.npz")
  variables = checkpoints.tf1_variables(model)
  assert set(golden.files) == set(variables)
  scale = 2.0**10 if half else 1.0

  @tf.function(jit_compile=mode in ("xla", "all"), autograph=False)
  def compute():
    training, logits_only = mode != "evaluation", mode == "logits_only"
    with tf.GradientTape() as tape:
      total, _, outputs = total_loss(model, batch, training, logits_only)
      scaled = total * scale
    gradients = tape.gradient(scaled, variables)
    return (
      total,
      outputs.get("encoder_outputs"),
      {name: tf.convert_to_tensor(g) for name, g in gradients.items()},
    )

  total, layers, gradients = compute()
  np.testing.assert_allclose(
    total, total_golden["total_loss"], rtol=2e-3 if half else 1e-5
  )
  if mode != "logits_only":
    config = model.config
    assert len(layers) == config.num_hidden_layers * config.inner_group_num
  # float16 rounds to 11 bits, 0.05%, in each of some hundred products.
  share = 0.02 if half else 1e-4
  for name, gradient in gradients.items():
    expected = golden[name]
    # A bias on every key shifts all scores of a query alike, which softmax
    # ignores: its gradient is 0, with rounding errors of 1e-8 in both codes.
    largest = max(np.abs(expected).max(), 1e-2 if half else 2e-4)
    assert gradient.dtype == tf.float32
    np.testing.assert_allclose(
      gradient / scale, expected, atol=share * largest, rtol=0, err_msg=name
    )


@pytest.mark.golden
@pytest.mark.parametrize(
  "group", ["one_group", pytest.param("two_groups", marks=pytest.mark.heavy)]
)
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_ten_steps_equal_the_original(group, name, monkeypatch):
  """On CPUs and GPUs, the original looks up token types by a gather.

  So the norm that it clips by has a row for each token, instead of their sum
  for each type (see `train_step`).
  """
  model, batch = load(group)
  golden = np.load(toy_models.GOLDEN / group / f"training_{name}.npz")
  rate = {"lamb": 0.00176, "adamw": 0.001}[name]
  schedule = training_lib.WarmupPolynomialDecay(rate, 12, 4)
  np.testing.assert_allclose(
    [schedule(k) for k in range(10)], golden["learning_rates"], rtol=1e-6
  )
  kind = {"lamb": training_lib.LAMB, "adamw": training_lib.AdamW}[name]
  optimizer = kind(schedule, bias_correction=False)
  named = checkpoints.tf1_variables(model)
  variables = list(named.values())
  token_types = list(named).index("bert/embeddings/token_type_embeddings")
  norm_layer, inputs = model.albert.embedding.layer_norm, []
  normalize = norm_layer.call

  def call(x, **options):
    inputs.append(x)  # <float32>[B, S, E], a row for each token.
    return normalize(x, **options)

  monkeypatch.setattr(norm_layer, "call", call)

  @tf.function(autograph=False)
  def step():
    with tf.GradientTape() as tape:
      total, _, _ = total_loss(model, batch, training=True)
    *gradients, rows = tape.gradient(total, [*variables, inputs[-1]])
    terms = [*gradients, rows]
    del terms[token_types]
    norm = tf.linalg.global_norm(terms)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0, norm)
    optimizer.apply_gradients(zip(clipped, variables))
    return total, norm

  losses, norms = zip(*(step() for _ in range(10)))
  losses = [*losses, total_loss(model, batch)[0]]
  np.testing.assert_allclose(losses, golden["losses"], rtol=1e-5)
  np.testing.assert_allclose(norms, golden["gradient_norms"], rtol=1e-5)
  for n, variable in named.items():
    np.testing.assert_allclose(
      variable, golden[n], atol=2e-5, rtol=0, err_msg=n
    )
  if name == "adamw":
    return
  # m and v of the original's checkpoint show a wrong decay of either.
  path = toy_models.GOLDEN / group / "trained_lamb.ckpt-10"
  reader = tf.train.load_checkpoint(str(path))
  for n, variable in named.items():
    if n.endswith("key/bias"):
      continue  # See the test of the gradients.
    for slot in "mv":
      expected = reader.get_tensor(f"{n}/adam_{slot}")
      np.testing.assert_allclose(
        optimizer.get_slot(variable, slot),
        expected,
        atol=1e-4 * np.abs(expected).max(),
        rtol=0,
        err_msg=f"{n} {slot}",
      )
