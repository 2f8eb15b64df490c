"""Tests of the update against NumPy, and of the schedules.

Ten steps against the original's numbers are in tasks/pretraining/model_test.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, modeling
from official_albert.testing import toy_task
from official_albert.training import OPTIMIZERS, optimization, train_config

B1, B2, EPSILON, DECAY, RATE = 0.9, 0.999, 1e-6, 0.01, 0.05


def numpy_steps(w, gradients, lamb, excluded, corrected):
  m, v = np.zeros_like(w), np.zeros_like(w)
  for k, g in enumerate(gradients, start=1):
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * g * g
    mm, vv = (m / (1 - B1**k), v / (1 - B2**k)) if corrected else (m, v)
    u = mm / (np.sqrt(vv) + EPSILON)
    if not excluded:
      u = u + DECAY * w
    ratio = 1.0
    if lamb and not excluded:
      norms = np.linalg.norm(w), np.linalg.norm(u)
      ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    w = w - RATE * ratio * u
  return w


@pytest.mark.parametrize("name", ["lamb", "adamw"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
  "variable_name, excluded",
  [("dense/kernel", False), ("x/LayerNorm/gamma", True), ("bias", True)],
)
def test_update_equals_numpy(
  name, corrected, variable_name, excluded, compiled, monkeypatch
):
  monkeypatch.setattr(
    optimization, "_WORTH_COMPILING", 1 if compiled else 10**9
  )
  rng = np.random.default_rng(0)
  start = rng.normal(size=[3, 5])
  gradients = rng.normal(size=[4, 3, 5])
  variable = tf.Variable(start, dtype=tf.float32, name=variable_name)
  optimizer = optimization.make_optimizer(name, RATE, bias_correction=corrected)
  for g in gradients:
    optimizer.apply_gradients([(tf.constant(g, tf.float32), variable)])
  expected = numpy_steps(start, gradients, name == "lamb", excluded, corrected)
  # 1 - beta_2 loses five digits in float32, of which the root halves the error.
  np.testing.assert_allclose(variable, expected, rtol=5e-5, atol=1e-5)


def test_rate_follows_the_square_root_of_the_batch():
  assert optimization.scaled_learning_rate(4096) == 0.00176  # Exactly.
  assert optimization.scaled_learning_rate(1024) == 0.00088
  # Four times the batch, twice the rate.
  np.testing.assert_allclose(
    optimization.scaled_learning_rate(7 * 4),
    2 * optimization.scaled_learning_rate(7),
    rtol=1e-15,
  )
  with pytest.raises(ValueError, match="at least 1 example, got 0"):
    optimization.scaled_learning_rate(0)


def test_zero_weights_have_ratio_one():
  variable = tf.Variable(tf.zeros([2, 3]), name="kernel")
  optimizer = optimization.make_optimizer("lamb", RATE)
  gradient = np.full([2, 3], 0.5)
  optimizer.apply_gradients([(tf.constant(gradient, tf.float32), variable)])
  expected = numpy_steps(np.zeros([2, 3]), [gradient], True, False, False)
  np.testing.assert_allclose(variable, expected, rtol=1e-5)
  assert np.all(expected != 0)


def test_sparse_gradients_move_every_row():
  rng = np.random.default_rng(1)
  start = rng.normal(size=[5, 3])
  dense = np.zeros([5, 3])
  slices = rng.normal(size=[3, 3])
  for index, row in zip([4, 1, 4], slices):
    dense[index] += row
  table = tf.Variable(start, dtype=tf.float32, name="table")
  optimizer = optimization.make_optimizer("lamb", RATE)
  sparse = tf.IndexedSlices(
    tf.constant(slices, tf.float32), tf.constant([4, 1, 4]), [5, 3]
  )
  optimizer.apply_gradients([(sparse, table)])
  expected = numpy_steps(start, [dense], True, False, False)
  np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-6)


def test_original_schedule_drops_when_the_warmup_ends():
  schedule = optimization.WarmupPolynomialDecay(1.0, 800, 200)
  values = [float(schedule(k)) for k in (0, 100, 199, 200, 500, 800, 900)]
  np.testing.assert_allclose(
    values, [0, 0.5, 0.995, 0.75, 0.375, 0, 0], atol=1e-6
  )


def test_continuous_schedule_does_not():
  schedule = optimization.WarmupPolynomialDecay(
    1.0, 800, 200, decay="continuous"
  )
  values = [float(schedule(k)) for k in (0, 100, 200, 500, 800, 900)]
  np.testing.assert_allclose(values, [0, 0.5, 1.0, 0.5, 0, 0], atol=1e-6)


def test_schedule_without_warmup_and_with_power():
  schedule = optimization.WarmupPolynomialDecay(2.0, 10, 0, power=2.0)
  np.testing.assert_allclose(
    [float(schedule(k)) for k in (0, 5, 10)], [2.0, 0.5, 0.0], atol=1e-6
  )


@pytest.mark.parametrize(
  "kwargs, message",
  [
    (dict(learning_rate=0.0), "learning_rate must be positive"),
    (dict(num_train_steps=0), "num_train_steps must be at least 1"),
    (dict(num_warmup_steps=11), "between 0 and num_train_steps 10"),
    (dict(decay="cosine"), "unknown learning-rate decay 'cosine'"),
  ],
)
def test_bad_schedules_are_refused(kwargs, message):
  values = dict(learning_rate=1.0, num_train_steps=10, num_warmup_steps=2)
  with pytest.raises(ValueError, match=message):
    optimization.WarmupPolynomialDecay(**{**values, **kwargs})


def test_unknown_optimizer_is_refused():
  # kamalkraj/ALBERT-TF2.0 took "lamp" for LAMB and trained with Adam.
  with pytest.raises(ValueError, match="'lamp'; choose one of lamb, adamw"):
    optimization.make_optimizer("lamp", 1.0)


def test_serialization():
  schedule = optimization.WarmupPolynomialDecay(0.1, 10, 2)
  optimizer = optimization.make_optimizer("adamw", schedule, beta_2=0.98)
  clone = optimization.AlbertOptimizer.from_config(optimizer.get_config())
  assert clone.get_config() == optimizer.get_config()
  assert not clone.layer_adaptation


D = 0.7
CONFIG = AlbertConfig(
  vocab_size=19,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=11,
  initializer_range=0.3,
)
BATCH = {
  "input_ids": tf.constant([[2, 7, 11, 3, 5], [2, 13, 4, 3, 0]]),
  "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
}


def made(decay=1.0, recompute=False, seed=1, **changes):
  tf.keras.utils.set_random_seed(seed)
  config = dataclasses.replace(CONFIG, **changes)
  return AlbertModel(config, recompute, decay)


def gradients(model, training=False):
  """Of a number that the pooled output and a layer have parts in.

  There is no dropout; recomputation is for training.
  """

  @tf.function
  def compute():
    with tf.GradientTape() as tape:
      outputs = model(BATCH, training=training)
      rng = np.random.default_rng(0)
      total = sum(
        tf.reduce_sum(tf.cast(x, tf.float32) * rng.normal(size=x.shape))
        for x in (outputs["pooled_output"], outputs["encoder_outputs"][0])
      )
    return tape.gradient(total, model.trainable_variables)

  return {
    v.ref(): tf.convert_to_tensor(g).numpy()
    for v, g in zip(model.trainable_variables, compute())
  }


def unshared_copy(model):
  """A model with own variables in every layer, and equal values in them."""
  copy = made(
    seed=2,
    **{
      **dataclasses.asdict(model.config),
      "sharing": "none",
      "num_hidden_groups": 1,
    },
  )
  for part in ("embedding", "pooler"):
    getattr(copy, part).set_weights(getattr(model, part).get_weights())
  for source, target in zip(model.encoder.blocks(), copy.encoder.blocks()):
    for a, b in zip(source, target):
      b.set_weights(a.get_weights())
  return copy


@pytest.mark.parametrize(
  "changes, recompute",
  [
    (dict(), False),
    (dict(sharing="attention"), False),
    (dict(sharing="ffn"), True),
    (dict(sharing="none"), False),
    (dict(num_hidden_layers=4, num_hidden_groups=2), True),
    (dict(num_hidden_layers=2, inner_group_num=2), False),
  ],
  ids=["all", "attention", "ffn", "none", "groups", "inner_groups"],
)
def test_rate_times_gradient_is_that_of_a_rate_for_each_layer(
  changes, recompute
):
  """Multiplier times gradient = the sum of d^(L-1-k) times layer k's part."""
  model = made(D, recompute, **changes)
  copy = unshared_copy(model)
  parts, got = gradients(copy), gradients(model, recompute)
  layers = model.config.num_hidden_layers
  expected = {}
  for index, (pair, own) in enumerate(
    zip(model.encoder.blocks(), copy.encoder.blocks())
  ):
    layer = index // model.config.inner_group_num
    for half, own_half in zip(pair, own):
      for v, w in zip(half.trainable_variables, own_half.trainable_variables):
        part = D ** (layers - 1 - layer) * parts[w.ref()]
        expected[v.ref()] = expected.get(v.ref(), 0) + part
  for v, w in zip(
    model.embedding.trainable_variables, copy.embedding.trainable_variables
  ):
    expected[v.ref()] = D**layers * parts[w.ref()]
  for v, w in zip(
    model.pooler.trainable_variables, copy.pooler.trainable_variables
  ):
    expected[v.ref()] = parts[w.ref()]
  rates = {v.ref(): f for v, f in model.rate_multipliers()}
  assert expected.keys() == got.keys()
  for v in model.trainable_variables:
    value = rates.get(v.ref(), 1.0) * got[v.ref()]
    scale = np.abs(parts[next(iter(parts))]).max()
    np.testing.assert_allclose(
      value, expected[v.ref()], rtol=1e-4, atol=1e-5 * scale, err_msg=v.name
    )


def test_what_each_sharing_leaves_to_the_optimizer():
  shared = made(D)
  known = {v.ref(): f for v, f in shared.rate_multipliers()}
  for v in shared.encoder.trainable_variables:
    assert known[v.ref()] == 1.0
  for v in shared.embedding.trainable_variables:
    assert known[v.ref()] == pytest.approx(D**3)
  assert shared.pooler.kernel.ref() not in known
  # A rate for each layer, and gradients that are those without decay.
  own, plain = made(D, sharing="none"), made(sharing="none")
  known = {v.ref(): f for v, f in own.rate_multipliers()}
  for layer, block in enumerate(own.encoder.blocks()):
    for half in block:
      for v in half.trainable_variables:
        assert known[v.ref()] == pytest.approx(D ** (2 - layer))
  for a, b in zip(gradients(own).values(), gradients(plain).values()):
    np.testing.assert_array_equal(a, b)


def test_the_decay_changes_gradients_and_no_output():
  model, plain = made(D), made()
  for name in ("sequence_output", "pooled_output"):
    np.testing.assert_array_equal(
      model(BATCH, training=True)[name], plain(BATCH, training=True)[name]
    )
  norms = [
    [np.linalg.norm(g) for g in gradients(m).values()] for m in (model, plain)
  ]
  differ = [abs(a / b - 1) > 0.01 for a, b in zip(*norms) if b > 1e-3]
  assert sum(differ) > 10


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_moves_a_variable_by_its_rate(name, policy):
  tf.keras.mixed_precision.set_global_policy(policy)
  try:
    layers = [tf.keras.layers.Dense(3) for _ in range(3)]
    for layer in layers:
      layer.build([None, 2])
      layer.kernel.assign([[1.0, 2.0, -1.0], [0.5, -0.5, 3.0]])
    variables = [layer.kernel for layer in layers]
    optimizer = optimization.make_optimizer(name, 0.1)
    optimizer.set_rate_multipliers([(variables[0], 0.5), (variables[2], 0.1)])
    before = variables[0].numpy()
    g = tf.constant([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])

    @tf.function
    def update():
      optimizer.apply_gradients([(g, v) for v in variables])

    update()
    half, whole, tenth = (v.numpy() - before for v in variables)
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(half, 0.5 * whole, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(tenth, 0.1 * whole, rtol=1e-4, atol=1e-6)
    rates = [optimizer.rate_multiplier(v) for v in variables]
    assert rates == [0.5, 1.0, 0.1]
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")


def test_the_head_keeps_the_rate():
  model = modeling.AlbertForSequenceClassification(
    CONFIG, 3, layerwise_lr_decay=D
  )
  pairs = optimization.rate_multipliers(model, D)
  assert {v.name.split("/")[0] for v, _ in pairs}.isdisjoint({"classifier"})
  embeddings = model.albert.embedding.trainable_variables
  assert len(pairs) == len(embeddings)
  assert all(factor == pytest.approx(D**3) for _, factor in pairs)
  assert {v.ref() for v, _ in pairs} == {v.ref() for v in embeddings}
  clone = type(model).from_config(model.get_config())
  assert clone.albert.layerwise_lr_decay == D


def test_settings_and_model_have_to_agree(tmp_path):
  assert optimization.rate_multipliers(made(), 1.0) == []
  with pytest.raises(ValueError, match="is 0.7 in the settings, .* with 1.0"):
    optimization.rate_multipliers(made(), 0.7)
  with pytest.raises(ValueError, match="is 1.0 in the settings, .* with 0.7"):
    optimization.rate_multipliers(made(0.7), 1.0)
  with pytest.raises(ValueError, match="is 0.9 in the settings"):
    cfg = toy_task.config(tmp_path, layerwise_lr_decay=0.9)
    toy_task.run(toy_task.ToyTask(), cfg)


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.5, float("nan")])
def test_factors_that_are_none(decay):
  with pytest.raises(ValueError, match=r"must be in \(0, 1\], got"):
    train_config.TrainConfig("run", 6, 2, 0.01, 12, layerwise_lr_decay=decay)
  with pytest.raises(ValueError, match=r"must be in \(0, 1\], got"):
    made(decay)


def numpy_update(w, m, v, k, g, rate, decay, ratio, corrected):
  """Update number `k` (from 1): new values, the change and the ratio."""
  m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
  mm, vv = (m / (1 - B1**k), v / (1 - B2**k)) if corrected else (m, v)
  u = mm / (np.sqrt(vv) + EPSILON) + decay * w
  r = np.linalg.norm(w) / np.linalg.norm(u) if ratio else 1.0
  return w - rate * r * u, m, v, rate * r * np.linalg.norm(u), r


@pytest.mark.parametrize("name", ["lamb", "adamw"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_norms_are_those_of_the_last_update(name, corrected, decay):
  """Rates of 0, 0.2 and 0.4: far larger than any that trains."""
  rng = np.random.default_rng(0)
  shapes = {"dense/kernel": [3, 5], "dense/bias": [5], "other/kernel": [7, 2]}
  variables = [
    tf.Variable(rng.normal(size=shape), dtype=tf.float32, name=n)
    for n, shape in shapes.items()
  ]
  schedule = optimization.WarmupPolynomialDecay(0.4, 100, 2, decay="continuous")
  optimizer = optimization.make_optimizer(
    name, schedule, weight_decay=decay, bias_correction=corrected
  )
  optimizer._create_all_weights(variables)
  measure = optimization.make_update_norms(optimizer, variables)
  state = [(w.numpy().astype(float), 0.0, 0.0) for w in variables]
  for k in range(1, 4):
    gradients = [rng.normal(size=w.shape) for w in variables]
    optimizer.apply_gradients(
      (tf.constant(g, tf.float32), w) for g, w in zip(gradients, variables)
    )
    expected = {}
    squares = np.zeros(2)
    ratios = []
    for i, n in enumerate(shapes):
      kernel = n.endswith("kernel")
      *state[i], change, ratio = numpy_update(
        *state[i],
        k,
        gradients[i],
        0.2 * (k - 1),
        decay if kernel else 0.0,
        name == "lamb" and kernel,
        corrected,
      )
      norms = np.linalg.norm(state[i][0]), change
      squares += np.square(norms)
      expected[f"weight_norm/{n}"], expected[f"update_norm/{n}"] = norms
      if name == "lamb" and kernel:
        expected[f"trust_ratio/{n}"] = ratio
        ratios.append(ratio)
    expected["weight_norm"], expected["update_norm"] = np.sqrt(squares)
    if ratios:
      expected["trust_ratio"] = np.mean(ratios)
    got = measure()
    assert got.keys() == expected.keys()
    for key, value in expected.items():
      # Five digits of v are lost in float32, see optimization_test.
      np.testing.assert_allclose(got[key], value, rtol=1e-4, err_msg=key)


def test_one_lamb_update_by_hand():
  """w (3, 4), g (1, -1): u = (0.1, -0.1) / sqrt(0.001) = (3.16, -3.16)."""
  w = tf.Variable([[3.0, 4.0]], name="kernel")
  optimizer = optimization.make_optimizer("lamb", 0.01, weight_decay=0.0)
  optimizer.apply_gradients([(tf.constant([[1.0, -1.0]]), w)])
  got = optimization.make_update_norms(optimizer, [w])()
  # |u| = 4.472, |w| = 5: the ratio is 1.118, the update 0.01 * 5.
  np.testing.assert_allclose(got["trust_ratio"], 5 / 20**0.5, rtol=1e-4)
  np.testing.assert_allclose(got["update_norm"], 0.05, rtol=1e-4)
  moved = np.hypot(3 - 0.05 / 2**0.5, 4 + 0.05 / 2**0.5)
  np.testing.assert_allclose(got["weight_norm"], moved, rtol=1e-5)


def test_one_adamw_update_by_hand():
  w = tf.Variable([[3.0, 4.0]], name="kernel")
  optimizer = optimization.make_optimizer("adamw", 0.01, weight_decay=0.1)
  optimizer.apply_gradients([(tf.constant([[1.0, -1.0]]), w)])
  got = optimization.make_update_norms(optimizer, [w])()
  # u = (3.162 + 0.3, -3.162 + 0.4).
  np.testing.assert_allclose(
    got["update_norm"], 0.01 * np.hypot(3.4623, -2.7623), rtol=1e-4
  )
  assert "trust_ratio" not in got


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_variable_with_a_learning_rate_of_its_own(name):
  norms = {}
  for factor in (1.0, 0.25):
    w = tf.Variable([[3.0, 4.0]], name="kernel")
    optimizer = optimization.make_optimizer(name, 0.4, weight_decay=0.1)
    optimizer.set_rate_multipliers([(w, factor)])
    before = w.numpy()
    optimizer.apply_gradients([(tf.constant([[1.0, -1.0]]), w)])
    got = optimization.make_update_norms(optimizer, [w])()
    norms[factor] = got["update_norm"]
    np.testing.assert_allclose(
      got["update_norm"], np.linalg.norm(w - before), rtol=1e-4
    )
  assert norms[0.25] == pytest.approx(0.25 * norms[1.0], rel=1e-4)


def test_lengths_of_zero_have_ratio_one():
  w = tf.Variable(tf.ones([2, 2]), name="kernel")
  optimizer = optimization.make_optimizer("lamb", 0.01, weight_decay=0.0)
  optimizer.apply_gradients([(tf.zeros([2, 2]), w)])
  got = optimization.make_update_norms(optimizer, [w])()
  assert got == {
    **{"weight_norm": 2.0, "update_norm": 0.0, "trust_ratio": 1.0},
    **{f"{k}/kernel": got[k] for k in optimization.NORM_NAMES},
  }


def scalars(folder):
  """Every scalar of the last step that TensorBoard would show."""
  values = {}
  for path in sorted(folder.glob("events*")):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        values[value.tag] = float(tf.make_ndarray(value.tensor))
  return values


def test_a_run_logs_them_for_tensorboard_and_not_on_the_terminal(tmp_path):
  """The last update of a run with a loop of one step, weight by weight."""
  cfg = toy_task.config(tmp_path, steps_per_loop=1, save_checkpoints_steps=1)
  _, _, log = toy_task.run(toy_task.ToyTask(), cfg)
  assert "norm/" not in log and "weight norm" not in log
  assert "update norm" not in log and "trust" not in log
  shown = scalars(tmp_path / "train")
  line = (tmp_path / "metrics.jsonl").read_text().splitlines()[-2]
  for name in optimization.NORM_NAMES:
    assert f'"{name}"' in line and f"{name}/" not in line
  readers = [
    tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{k}")) for k in (5, 6)
  ]
  squares = 0.0
  for layer in ("hidden", "out"):
    for part in ("kernel", "bias"):
      key = f"model/{layer}/{part}/.ATTRIBUTES/VARIABLE_VALUE"
      old, new = (reader.get_tensor(key) for reader in readers)
      change = np.linalg.norm(new.astype(float) - old)
      squares += change**2
      # The difference of weights near 1 has lost three digits.
      np.testing.assert_allclose(
        shown[f"update_norm/{layer}/{part}"], change, rtol=1e-3
      )
      np.testing.assert_allclose(
        shown[f"weight_norm/{layer}/{part}"], np.linalg.norm(new), rtol=1e-5
      )
      assert (f"trust_ratio/{layer}/{part}" in shown) is (part == "kernel")
      if part == "kernel":
        rate = float(cfg.make_optimizer().learning_rate(5))
        # LAMB moves a weight by its rate times its length.
        np.testing.assert_allclose(
          change, rate * np.linalg.norm(old), rtol=1e-3
        )
  np.testing.assert_allclose(shown["update_norm"], squares**0.5, rtol=1e-3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
