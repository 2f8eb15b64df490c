"""Tests of the task: losses by hand, padded rows, data that does not fit."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

import tfrecords
from official_albert import AlbertConfig, distribution, training
from official_albert.testing import toy_vocabulary
from tasks.pretraining import data as data_lib
from tasks.pretraining import task as task_lib

V, S, P, TRAIN, HELDOUT = 97, 11, 3, 13, 7
CONFIG = AlbertConfig(
  vocab_size=V,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=S,
)


def record(rng):
  length = int(rng.integers(5, S + 1))
  mask = (np.arange(S) < length).astype(np.int64)
  predictions = int(rng.integers(1, P + 1))
  weights = (np.arange(P) < predictions).astype(np.float32)
  positions = np.zeros(P, np.int64)
  positions[:predictions] = np.sort(
    rng.choice(np.arange(1, length), predictions, replace=False)
  )
  return {
    "input_ids": rng.integers(5, V, S) * mask,
    "input_mask": mask,
    "segment_ids": (np.arange(S) >= length // 2) * mask,
    "token_boundary": mask,
    "masked_lm_positions": positions,
    "masked_lm_ids": rng.integers(5, V, P) * (weights > 0),
    "masked_lm_weights": weights,
    "next_sentence_labels": rng.integers(0, 2, 1),
  }


def write_data(folder, sentence_pair="sop", **changes):
  schema = tfrecords.pretraining_schema(S, P)
  rng = np.random.default_rng(0)
  splits = {}
  for split, count in (("train", TRAIN), ("heldout", HELDOUT)):
    name = tfrecords.shard_name(split, 0, 1)
    path = os.path.join(folder, name)
    with tfrecords.ShardWriter(path, schema) as shard:
      for _ in range(count):
        shard.write(record(rng))
    splits[split] = tfrecords.Split((shard.result,), {})
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=S,
    max_predictions_per_seq=P,
    features=schema,
    tokenizer=tfrecords.TokenizerInfo("ab" * 32, V, True),
    settings={"sentence_pair": sentence_pair},
    random_seed=5,
    splits=splits,
  )
  tfrecords.write_manifest(folder, dataclasses.replace(manifest, **changes))


@pytest.fixture
def folder(tmp_path):
  write_data(str(tmp_path))
  return str(tmp_path)


def test_losses_by_hand(folder):
  task = task_lib.PretrainingTask(CONFIG, folder)
  model = task.build_model()
  batch = next(iter(task.eval_dataset(4)))
  totals, metrics = task.forward(model, batch, False, None)
  weights = task.loss_weights(batch)
  outputs = model(batch)
  log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy()
  expected = 0.0
  for b in range(4):
    for p in range(P):
      label = int(batch["masked_lm_ids"][b, p])
      expected -= (
        float(batch["masked_lm_weights"][b, p]) * log_probs[b, p, label]
      )
  np.testing.assert_allclose(totals["masked_lm"], expected, rtol=1e-5)
  count = float(tf.reduce_sum(batch["masked_lm_weights"]))
  np.testing.assert_allclose(weights["masked_lm"], count + 1e-5, rtol=1e-6)
  order = tf.nn.log_softmax(outputs["sentence_order_logits"]).numpy()
  labels = batch["next_sentence_labels"].numpy()[:, 0]
  np.testing.assert_allclose(
    totals["sentence_order"], -order[np.arange(4), labels].sum(), rtol=1e-5
  )
  assert float(weights["sentence_order"]) == 4.0
  assert set(metrics) == {"masked_lm_accuracy", "sentence_order_accuracy"}


def test_padded_rows_change_no_sum(folder):
  """Seven held-out examples in batches of 7 and of 4 + 3 padded to 4."""
  task = task_lib.PretrainingTask(CONFIG, folder)
  model = task.build_model()

  def sums(batch_size):
    parts = []
    for batch in task.eval_dataset(batch_size):
      assert batch["input_ids"].shape == [batch_size, S]
      totals, metrics = task.forward(model, batch, False, None)
      parts.append(tf.nest.flatten((totals, metrics)))
    return np.sum(parts, 0)

  np.testing.assert_allclose(sums(HELDOUT), sums(4), rtol=1e-5)


def test_train_dataset_starts_where_it_is_told(folder):
  task = task_lib.PretrainingTask(CONFIG, folder, seed=3)
  whole = [b["input_ids"].numpy() for b in task.train_dataset(2, 0).take(9)]
  late = next(iter(task.train_dataset(2, 14)))
  np.testing.assert_array_equal(late["input_ids"], whole[7])


def test_without_a_pair_objective_only_masked_lm_is_trained(tmp_path):
  write_data(str(tmp_path), sentence_pair="none")
  task = task_lib.PretrainingTask(CONFIG, str(tmp_path))
  batch = next(iter(task.eval_dataset(4)))
  totals, metrics = task.forward(task.build_model(), batch, False, None)
  assert set(totals) == set(task.loss_weights(batch)) == {"masked_lm"}
  assert set(metrics) == {"masked_lm_accuracy"}


def test_flops_by_hand(folder):
  task = task_lib.PretrainingTask(CONFIG, folder)
  head = P * 2 * (10 * 6 + 6 * V)
  assert P + 1 < S
  expected = 3 * (CONFIG.forward_flops(S, last_rows=P + 1) + head)
  assert task.flops_per_example == expected
  assert task.tokens_per_example == S


def test_fingerprint(folder):
  described = task_lib.PretrainingTask(CONFIG, folder).describe()
  assert described["tokenizer"]["sha256"] == "ab" * 32
  assert described["settings"] == {"sentence_pair": "sop"}


@pytest.mark.parametrize(
  "data, config, message",
  [
    ({}, {"vocab_size": 98}, "vocabulary of 97 pieces, .* vocab_size 98"),
    ({}, {"max_position_embeddings": 10}, "sequences of 11 tokens"),
    ({"task": "squad"}, {}, "holds squad data"),
  ],
)
def test_data_for_another_model_is_refused(tmp_path, data, config, message):
  write_data(str(tmp_path), **data)
  config = dataclasses.replace(CONFIG, **config)
  with pytest.raises(ValueError, match=message):
    task_lib.PretrainingTask(config, str(tmp_path))


def test_missing_data_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="create_pretraining_data"):
    task_lib.PretrainingTask(CONFIG, str(tmp_path / "none"))


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory):
  """A dataset made with --masking=dynamic, and a model that fits it."""
  folder = tmp_path_factory.mktemp("unmasked")
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
        max_seq_length=29, max_predictions_per_seq=5, masking="dynamic"
      ),
      dupe_factor=1,
      heldout_share=0.2,
      num_shards=2,
    )
  )
  config = dataclasses.replace(
    CONFIG,
    vocab_size=manifest.tokenizer.vocab_size,
    max_position_embeddings=29,
  )
  return str(folder / "data"), config


def _restored(batch):
  """The text of each row, its labels put back and its swap undone."""
  batch = {name: value.numpy() for name, value in batch.items()}
  texts = []
  for row, ids in enumerate(batch["input_ids"].copy()):
    used = batch["masked_lm_weights"][row] > 0
    ids[batch["masked_lm_positions"][row, used]] = batch["masked_lm_ids"][
      row, used
    ]
    length = batch["input_mask"][row].sum()
    middle = length - batch["segment_ids"][row].sum()
    a, b = tuple(ids[1 : middle - 1]), tuple(ids[middle : length - 1])
    texts.append((b, a) if batch["next_sentence_labels"][row, 0] else (a, b))
  return texts


def test_masks_drawn_while_training(unmasked):
  """Three epochs: the same texts, each time with other masks and swaps."""
  folder, config = unmasked
  task = task_lib.PretrainingTask(config, folder, seed=3)
  size = task.manifest.split("train").records
  assert size > 8
  epochs = list(itertools.islice(task.train_dataset(size, 0), 3))
  texts = [_restored(batch) for batch in epochs]
  assert sorted(texts[0]) == sorted(texts[1]) == sorted(texts[2])
  shown = [set(map(bytes, batch["input_ids"].numpy())) for batch in epochs]
  assert len(shown[0] | shown[1] | shown[2]) > 2.5 * size
  labels = [batch["next_sentence_labels"].numpy().mean() for batch in epochs]
  assert 0 < np.mean(labels) < 1


def test_masks_are_the_same_after_a_restart_with_another_batch_size(unmasked):
  folder, config = unmasked
  task = task_lib.PretrainingTask(config, folder, seed=3)

  def stream(batch_size, start, count):
    data = task.train_dataset(batch_size, start)
    batches = itertools.islice(
      data.as_numpy_iterator(), -(-count // batch_size)
    )
    batches = list(batches)
    return {
      name: np.concatenate([batch[name] for batch in batches])[:count]
      for name in batches[0]
    }

  whole = stream(7, 0, 63)  # Over the borders of epochs.
  for batch_size, start in ((1, 60), (4, 5), (11, 30)):
    part = stream(batch_size, start, 63 - start)
    for name, value in whole.items():
      np.testing.assert_array_equal(part[name], value[start:], err_msg=name)


def test_workers_draw_the_masks_of_their_places(unmasked):
  folder, config = unmasked
  task = task_lib.PretrainingTask(config, folder, seed=3)
  whole = list(itertools.islice(task.train_dataset(3, 5), 8))
  for worker in (0, 1):
    context = tf.distribute.InputContext(2, worker, 4)  # Two devices each.
    share = itertools.islice(task.train_dataset(3, 5, context), 4)
    expected = [
      whole[4 * step + 2 * worker + i] for step in (0, 1) for i in (0, 1)
    ]
    for ours, theirs in zip(share, expected):
      for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_all_evaluations_have_the_same_masks(unmasked):
  """In another run with another seed and batch size, too."""
  folder, config = unmasked
  size = tfrecords.read_manifest(folder).split("heldout").records
  rows = {}
  for seed, batch_size in ((3, size), (3, size), (4, size - 1)):
    task = task_lib.PretrainingTask(config, folder, seed=seed)
    batches = list(task.eval_dataset(batch_size))
    real = tf.concat([batch["example_weight"] for batch in batches], 0) > 0
    for name in batches[0]:
      values = tf.concat([batch[name] for batch in batches], 0)[real].numpy()
      assert len(values) == size
      np.testing.assert_array_equal(values, rows.setdefault(name, values))
  # What only fills up the last batch is masked, but has no weight.
  assert len(batches) == 2
  assert not batches[1]["masked_lm_weights"][1:].numpy().any()
  assert batches[1]["masked_lm_weights"][0].numpy().any()


def _train(task, model_dir, stop=None):
  """Four steps; with `stop`, the data ends after so many."""
  config = training.TrainConfig(
    model_dir=str(model_dir),
    num_train_steps=4,
    num_warmup_steps=1,
    learning_rate=0.01,
    train_batch_size=6,
    eval_batch_size=4,
    steps_per_loop=2,
    eval_steps=0,
    save_checkpoints_steps=2,
  )
  if stop:
    whole = task.train_dataset
    task.train_dataset = lambda *arguments: whole(*arguments).take(stop)
  strategy = distribution.make_strategy("one_device")
  with training.Reporter(config.model_dir, io.StringIO()) as report:
    return training.train([task], config, strategy, report)


def _checkpoint(model_dir):
  path = tf.train.latest_checkpoint(str(model_dir))
  reader = tf.train.load_checkpoint(path)
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and "save_counter" not in name
  }


@pytest.mark.heavy
def test_two_and_two_steps_are_four_to_the_bit(unmasked, tmp_path):
  folder, config = unmasked

  def task():
    return task_lib.PretrainingTask(config, folder, seed=3)

  whole = _train(task(), tmp_path / "whole")
  with pytest.raises(tf.errors.OutOfRangeError):
    _train(task(), tmp_path / "parts", stop=2)
  assert _train(task(), tmp_path / "parts") == whole
  expected = _checkpoint(tmp_path / "whole")
  got = _checkpoint(tmp_path / "parts")
  assert expected.keys() == got.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(value, got[name], err_msg=name)


def test_unmasked_data_needs_the_settings_of_masking(tmp_path):
  write_data(str(tmp_path), settings={"masking": "dynamic"})
  with pytest.raises(
    ValueError, match="lacks .*mask_id, .*dynamic masking needs"
  ):
    task_lib.PretrainingTask(CONFIG, str(tmp_path))


def test_padding_counts_nowhere():
  vocab = 5
  outputs = {
    "masked_lm_logits": tf.one_hot([[1, 2, 0], [4, 3, 0]], vocab),
    "sentence_order_logits": tf.constant([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]),
  }
  outputs["masked_lm_logits"] = tf.concat(
    [outputs["masked_lm_logits"], tf.one_hot([[0, 0, 0]], vocab)], 0
  )
  batch = {
    "masked_lm_ids": tf.constant([[1, 2, 0], [4, 1, 0], [0, 0, 0]]),
    "masked_lm_weights": tf.constant(
      [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    ),
    "next_sentence_labels": tf.constant([[0], [0], [0]]),
  }
  values = task_lib.accuracies(outputs, batch, tf.constant([1.0, 1.0, 0.0]))
  lm = values["masked_lm_accuracy"]
  order = values["sentence_order_accuracy"]
  assert (float(lm.total), float(lm.weight)) == (3.0, 4.0)
  assert (float(order.total), float(order.weight)) == (1.0, 2.0)


SHORT_V, SHORT_P = 43, 2
SHORT = AlbertConfig(
  vocab_size=SHORT_V,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=13,
)


def write_phase(folder, length, sha256="ab" * 32, pair="sop", **records):
  """Records whose every id is their length; by default 5 and 3 of them."""
  os.makedirs(folder)
  schema = tfrecords.pretraining_schema(length, SHORT_P)
  splits = {}
  for split, count in (records or {"train": 5, "heldout": 3}).items():
    path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
    with tfrecords.ShardWriter(path, schema) as shard:
      for _ in range(count):
        ones = np.ones(length, np.int64)
        predictions = np.ones(SHORT_P, np.int64)
        shard.write(
          {
            "input_ids": ones * length,
            "input_mask": ones,
            "segment_ids": ones,
            "token_boundary": ones,
            "masked_lm_positions": predictions,
            "masked_lm_ids": predictions * 6,
            "masked_lm_weights": np.ones(SHORT_P, np.float32),
            "next_sentence_labels": np.zeros(1, np.int64),
          }
        )
    splits[split] = tfrecords.Split((shard.result,), {})
  tfrecords.write_manifest(
    folder,
    tfrecords.Manifest(
      task="pretraining",
      max_seq_length=length,
      max_predictions_per_seq=SHORT_P,
      features=schema,
      tokenizer=tfrecords.TokenizerInfo(sha256, SHORT_V, True),
      settings={"sentence_pair": pair},
      random_seed=5,
      splits=splits,
    ),
  )
  return folder


@pytest.fixture
def folders(tmp_path):
  return [write_phase(str(tmp_path / str(n)), n) for n in (7, 13)]


def held_out(task):
  """Its ids, one for each example."""
  batches = list(task.eval_dataset(2).as_numpy_iterator())
  real = np.concatenate([batch["example_weight"] for batch in batches]) > 0
  ids = np.concatenate([batch["input_ids"][:, 0] for batch in batches])
  return ids[real].tolist()


def test_one_task_for_each_folder(folders):
  tasks = task_lib.make_tasks(SHORT, folders, 3)
  assert [task.tokens_per_example for task in tasks] == [7, 13]
  assert tasks[0].flops_per_example < tasks[1].flops_per_example / 1.4
  assert [held_out(task) for task in tasks] == [[7] * 3, [13] * 3]
  for task, length in zip(tasks, (7, 13)):
    batch = next(iter(task.train_dataset(4, 0)))
    assert batch["input_ids"].shape == [4, length]
  assert "eval" not in tasks[0].describe()


def test_another_folder_for_the_evaluation(folders, tmp_path):
  """All of it if nothing of it is held out, else what is."""
  whole = write_phase(str(tmp_path / "whole"), 9, train=4)
  part = write_phase(str(tmp_path / "part"), 11, train=4, heldout=1)
  one = task_lib.make_tasks(SHORT, folders, 3, [whole])
  assert [held_out(task) for task in one] == [[9] * 4] * 2
  each = task_lib.make_tasks(SHORT, folders, 3, [whole, part])
  assert [held_out(task) for task in each] == [[9] * 4, [11]]
  described = each[1].describe()
  assert described["input_dir"] == folders[1]
  assert described["eval"]["input_dir"] == part
  with pytest.raises(ValueError, match="3 evaluation folders, but 2 phases"):
    task_lib.make_tasks(SHORT, folders, 3, [whole, part, part])


@pytest.mark.parametrize("records", [{"train": 4}, {"train": 4, "heldout": 0}])
def test_nothing_held_out_is_found_at_once(folders, tmp_path, records):
  folder = write_phase(str(tmp_path / "bare"), 9, **records)
  with pytest.raises(ValueError, match="no held-out .*--heldout_share above 0"):
    task_lib.make_tasks(SHORT, [folders[0], folder], 3)
  task, _ = task_lib.make_tasks(SHORT, [folder, folder], 3, [folders[1]])
  assert held_out(task) == [13] * 3


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(length=9, sha256="cd" * 32), "built with another tokenizer than"),
    (dict(length=9, pair="none"), "--sentence_pair=none, but .*=sop"),
    (dict(length=14), "sequences of 14 tokens, but .* only 13 position"),
  ],
)
@pytest.mark.parametrize("place", ["phase", "eval"])
def test_what_does_not_fit_is_refused(
  folders, tmp_path, changes, message, place
):
  folder = write_phase(str(tmp_path / "other"), **changes)
  inputs = [*folders, folder] if place == "phase" else folders
  evals = [folder] if place == "eval" else []
  with pytest.raises(ValueError, match=message):
    task_lib.make_tasks(SHORT, inputs, 3, evals)


@pytest.mark.parametrize(
  "phase, split", list(itertools.product((0, 1), ("train", "heldout")))
)
def test_shards_of_all_phases_are_there(folders, phase, split):
  path = os.path.join(folders[phase], tfrecords.shard_name(split, 0, 1))
  with open(path, "ab") as file:
    file.write(b"x")
  with pytest.raises(ValueError, match=f"{split}-00000-of-00001.tfrecord has"):
    task_lib.make_tasks(SHORT, folders, 3)
  os.remove(path)
  with pytest.raises(FileNotFoundError, match="is missing"):
    task_lib.make_tasks(SHORT, folders, 3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
