"""Tests of training at several depths: what a stretch computes, and resuming.

Depth 2 of a model that has 5 layers, with dropout.
"""

from __future__ import annotations

import dataclasses
import io
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, training
from official_albert.testing import toy_task, toy_vocabulary
from official_albert.training import Phase, TrainConfig
from tasks.pretraining import data as data_lib
from tasks.pretraining import recipes
from tasks.pretraining import task as task_lib

DEEP = 5
SCHEDULE = (
  Phase(3, num_layers=2),
  Phase(4, num_layers=DEEP, same_data=True),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
  """A folder of records and a model that fits them."""
  folder = tmp_path_factory.mktemp("depth")
  words = "tea rain stone river cloud amber slowly under every green".split()
  rng = np.random.default_rng(0)
  documents = [
    "\n".join(" ".join(rng.choice(words, 5)) for _ in range(6))
    for _ in range(20)
  ]
  (folder / "a.txt").write_text("\n\n".join(documents))
  model = toy_vocabulary.train("\n".join(documents).split("\n"), 45)
  (folder / "toy.model").write_bytes(model)
  manifest = data_lib.build_dataset(
    data_lib.BuildSettings(
      input_files=str(folder / "a.txt"),
      output_dir=str(folder / "data"),
      spm_model_file=str(folder / "toy.model"),
      examples=data_lib.ExampleSettings(
        max_seq_length=29, max_predictions_per_seq=4, masking="dynamic"
      ),
      dupe_factor=1,
      heldout_share=0.2,
      num_shards=2,
    )
  )
  config = AlbertConfig(
    vocab_size=manifest.tokenizer.vocab_size,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=DEEP,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=29,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
    initializer_range=0.3,
  )
  return str(folder / "data"), config


def train(data, model_dir, schedule=(), stop=None, recompute=False, **changes):
  """Seven updates; with `stop`, the data of stretches ends as it says.

  Returns:
    The last evaluation, and the log.
  """
  folder, albert_config = data
  task = task_lib.PretrainingTask(
    albert_config, folder, seed=3, recompute_activations=recompute
  )
  tasks = [task]
  if schedule:
    tasks = task_lib.at_depths(task, [phase.num_layers for phase in schedule])
  for index, updates in (stop or {}).items():
    whole = tasks[index].train_dataset
    tasks[index].train_dataset = (
      lambda *arguments, whole=whole, updates=updates: whole(*arguments).take(
        updates
      )
    )
  values = dict(
    model_dir=str(model_dir),
    num_train_steps=7,
    phases=schedule,
    num_warmup_steps=1,
    learning_rate=0.01,
    train_batch_size=6,
    eval_batch_size=4,
    steps_per_loop=2,
    eval_steps=2,
    save_checkpoints_steps=1,
    keep_checkpoint_max=20,
  )
  config = TrainConfig(**{**values, **changes})
  stream = io.StringIO()
  strategy = distribution.make_strategy("one_device")
  with training.Reporter(config.model_dir, stream) as report:
    last = training.train(tasks, config, strategy, report)
  return last, stream.getvalue()


def checkpoint(model_dir, step):
  reader = tf.train.load_checkpoint(str(model_dir / f"model.ckpt-{step}"))
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and "save_counter" not in name
  }


def assert_same(a, b, step):
  a, b = checkpoint(a, step), checkpoint(b, step)
  assert a.keys() == b.keys() and len(a) > 50
  for name, value in a.items():
    np.testing.assert_array_equal(value, b[name], err_msg=name)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
  """An uninterrupted run of the schedule: folder, last evaluation and log."""
  folder = tmp_path_factory.mktemp("whole")
  return (folder, *train(data, folder, SCHEDULE))


@pytest.mark.heavy
def test_one_stretch_is_the_plain_run_to_the_bit(data, tmp_path):
  plain, plain_log = train(data, tmp_path / "plain")
  schedule = (Phase(7, num_layers=DEEP),)
  last, log = train(data, tmp_path / "one", schedule)
  assert last == plain
  assert "depth" not in plain_log and "step 4 held-out (depth 5)" in log
  assert_same(tmp_path / "plain", tmp_path / "one", 7)
  bests = [
    training.read_best(str(tmp_path / name)) for name in ("plain", "one")
  ]
  assert bests[0] == bests[1]


@pytest.mark.heavy
def test_a_stretch_computes_what_a_model_of_its_depth_does(
  data, whole, tmp_path
):
  """Each is handed the run, as it is at the border, like a run of its own.

  So weights, moments, examples seen and dropout masks go on as they were.
  """
  folder, config = data
  begin = 0
  for phase in SCHEDULE:
    model_dir = tmp_path / str(phase.num_layers)
    model_dir.mkdir()
    if begin:
      for path in whole[0].glob(f"model.ckpt-{begin}.*"):
        shutil.copy(path, model_dir)
    shallow = dataclasses.replace(config, num_hidden_layers=phase.num_layers)
    train((folder, shallow), model_dir)
    begin += phase.steps
    assert_same(whole[0], model_dir, begin)
    own, ours = (
      {r["step"]: r["loss"] for r in training.read_metrics(str(f), "train")}
      for f in (model_dir, whole[0])
    )
    assert own[begin] == ours[begin]


@pytest.mark.heavy
def test_evaluations_say_their_depth_and_the_best_one_is_at_full_depth(whole):
  folder, last, log = whole
  held_out = training.read_metrics(str(folder), "eval")
  assert [(r["step"], r["phase"], r["depth"]) for r in held_out] == [
    (0, 1, 2),
    (2, 1, 2),
    (3, 1, 2),
    (3, 2, 5),
    (4, 2, 5),
    (6, 2, 5),
    (7, 2, 5),
  ]
  # The same weights at two depths.
  assert held_out[2]["loss"] != held_out[3]["loss"]
  assert held_out[2]["loss"] == pytest.approx(held_out[3]["loss"], rel=0.1)
  assert held_out[-1]["loss"] == last["loss"]
  assert "step 3 held-out (phase 2, depth 5)  loss" in log
  assert "phase 2 of 2: to step 7, depth 5, batch 6, 29 tokens" in log
  assert (
    "3 steps of 6 sequences at depth 2, then 4 steps of 6 sequences at depth 5"
  ) in log
  best = training.read_best(str(folder))
  full = [r for r in held_out if r["depth"] == DEEP]
  assert best["phase"] == 2
  assert best["values"]["loss"] == min(r["loss"] for r in full)


@pytest.mark.heavy
def test_operations_are_those_of_the_depth(data, whole):
  folder, config = data
  train_records = training.read_metrics(str(whole[0]), "train")
  per_sequence = {
    r["step"]: r["model_flops_per_second"] / r["sequences_per_second"]
    for r in train_records
  }
  for step, depth in ((1, 2), (3, 2), (4, 5), (7, 5)):
    shallow = dataclasses.replace(config, num_hidden_layers=depth)
    assert per_sequence[step] == pytest.approx(
      recipes.training_flops(shallow, 29, 4), rel=1e-6
    )


# Of a toy's model in phases_test.py, too.
@pytest.mark.heavy
@pytest.mark.parametrize(
  "stop, resumed_at",
  [
    ({0: 2}, 2),  # Within the first stretch.
    ({1: 0}, 3),  # Right after the switch.
    ({1: 2}, 5),  # Within the second.
  ],
)
def test_a_killed_run_goes_on_to_the_bit(
  data, whole, tmp_path, stop, resumed_at
):
  folder, last, _ = whole
  with pytest.raises(tf.errors.OutOfRangeError):
    train(data, tmp_path, SCHEDULE, stop)
  again, log = train(data, tmp_path, SCHEDULE)
  assert f"resumed from {tmp_path}/model.ckpt-{resumed_at}" in log
  assert again == last
  assert_same(folder, tmp_path, 7)
  assert training.read_best(str(folder)) == training.read_best(str(tmp_path))


@pytest.mark.heavy
@pytest.mark.parametrize(
  "settings", [{}, dict(xla=True), dict(gradient_accumulation_steps=3)]
)
def test_an_update_at_a_random_depth_is_that_of_a_model_of_this_depth(
  data, tmp_path, settings
):
  """From the checkpoint before; also in a run that is killed there."""
  folder, albert_config = data
  depths = (2, 3, DEEP)
  settings = dict(settings, random_depths=depths)
  last, log = train(data, tmp_path / "random", **settings)
  assert "each step at a random depth of 2, 3, 5" in log
  (held_out,) = {r.get("depth") for r in metrics(tmp_path / "random")}
  assert held_out is None
  config = toy_task.config("run", random_depths=depths, seed=12345)
  drawn = [
    depths[int(training.draw_depth(config, np.int64(n)))] for n in range(7)
  ]
  assert len(set(drawn)) == 3
  settings.pop("random_depths")
  for depth in depths:
    step = drawn.index(depth)
    alone = tmp_path / str(depth)
    alone.mkdir()
    for path in (tmp_path / "random").glob(f"model.ckpt-{step}.*"):
      shutil.copy(path, alone)
    config = dataclasses.replace(albert_config, num_hidden_layers=depth)
    with pytest.raises(tf.errors.OutOfRangeError):
      train((folder, config), alone, stop={0: 1}, **settings)
    assert_same(tmp_path / "random", alone, step + 1)
  with pytest.raises(tf.errors.OutOfRangeError):
    train(
      data,
      tmp_path / "parts",
      stop={0: 4},
      random_depths=depths,
      **settings,
    )
  again, _ = train(data, tmp_path / "parts", random_depths=depths, **settings)
  assert again == last


def metrics(folder):
  return training.read_metrics(str(folder), "eval")


@pytest.mark.heavy
@pytest.mark.parametrize(
  "settings",
  [dict(recompute=True, gradient_accumulation_steps=3), dict(xla=True)],
)
def test_other_ways_to_compute_the_same(data, whole, tmp_path, settings):
  """Gradients by recomputation and in parts; another compiler."""
  plain = train(data, tmp_path / "plain", **settings)[0]
  one = (Phase(7, num_layers=DEEP),)
  assert train(data, tmp_path / "one", one, **settings)[0] == plain
  scheduled = train(data, tmp_path / "scheduled", SCHEDULE, **settings)[0]
  with pytest.raises(tf.errors.OutOfRangeError):
    train(data, tmp_path / "parts", SCHEDULE, {1: 1}, **settings)
  assert train(data, tmp_path / "parts", SCHEDULE, **settings)[0] == scheduled
  assert scheduled != plain


@pytest.mark.heavy
def test_recomputed_activations_change_no_gradient(data, tmp_path):
  """Dropout of application k is the same, whatever is recomputed."""
  last = [
    train(data, tmp_path / str(recompute), SCHEDULE, recompute=recompute)[0]
    for recompute in (False, True)
  ]
  # Sums in another order, over seven updates.
  assert last[1]["loss"] == pytest.approx(last[0]["loss"], rel=1e-4)


def test_a_schedule_ends_at_the_models_depth(data):
  folder, config = data
  task = task_lib.PretrainingTask(config, folder)
  with pytest.raises(ValueError, match="ends at 3, but must end at .*layers 5"):
    task_lib.at_depths(task, [2, 3])


def test_a_model_with_groups_has_no_other_depth(data):
  folder, config = data
  config = dataclasses.replace(config, num_hidden_groups=2)
  task = task_lib.PretrainingTask(config, folder)
  with pytest.raises(ValueError, match="2 groups .* cannot have 3"):
    task_lib.at_depths(task, [3, 5])
  assert task_lib.at_depths(task, [5])[0].num_layers == 5


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
