"""Tests of the task: accuracies, padding, phases, dynamic masks."""

from __future__ import annotations

import dataclasses
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tfrecords
from official_albert.tasks.pretraining import phases, record_rules
from official_albert.tasks.pretraining import task as task_lib
from official_albert.testing import toy_models
from official_albert.tfrecords import reader_test

V, S, P = 97, 11, 3
CONFIG = toy_models.config(V, 13, initializer_range=0.02)
COUNTS = {"train": 13, "heldout": 7}


def write_data(folder, length=S, counts=COUNTS, **changes):
  """Writes records whose ids are the length of all sequences, without masks."""
  schema = tfrecords.pretraining_schema(length, P)
  record = {x.name: np.zeros(x.shape, x.dtype) for x in schema}
  record["input_ids"] += length
  splits = {split: [[record] * count] for split, count in counts.items()}
  changes = {"task": "pretraining", "sentence_pair": "sop", **changes}
  return reader_test.write_folder(
    folder, schema, splits, length, predictions=P, **changes
  )


def test_accuracies_by_hand_and_padding_without_weight(built):
  """Losses: see `test_outputs_and_losses_equal_the_original`."""
  pieces = built[1].tokenizer.vocab_size
  config = toy_models.config(pieces, 29, initializer_range=0.02)
  task = task_lib.PretrainingTask(config, str(built[0]))
  model = task.build_model()
  batch = next(iter(task.eval_dataset(4)))
  _, metrics = task.forward(model, batch, False, None)
  outputs = model(batch)
  for name, labels, used in (
    ("masked_lm", "masked_lm_ids", batch["masked_lm_weights"].numpy()),
    ("sentence_order", "next_sentence_labels", np.ones((4, 1))),
  ):
    best = outputs[f"{name}_logits"].numpy().argmax(-1).reshape(used.shape)
    right = (best == batch[labels].numpy()) * used
    assert float(metrics[f"{name}_accuracy"].total) == right.sum()
    assert float(metrics[f"{name}_accuracy"].weight) == used.sum()

  def sums(batch_size):
    parts = []
    for batch in task.eval_dataset(batch_size):
      assert batch["input_ids"].shape == [batch_size, 29]
      totals, metrics = task.forward(model, batch, False, None)
      parts.append(tf.nest.flatten((totals, metrics)))
    return np.sum(parts, 0)

  # All held-out examples at once, or with rows of padding.
  many = built[1].split("heldout").records
  np.testing.assert_allclose(sums(many), sums(many - 1), rtol=1e-5)


def test_without_a_pair_objective_only_masked_lm_is_trained(tmp_path):
  folder = write_data(tmp_path, sentence_pair="none")
  one_segment = dataclasses.replace(CONFIG, type_vocab_size=1)
  task_lib.PretrainingTask(one_segment, folder)  # Is not refused.
  task = task_lib.PretrainingTask(CONFIG, folder)
  batch = next(iter(task.eval_dataset(4)))
  totals, metrics = task.forward(task.build_model(), batch, False, None)
  assert set(totals) == set(task.loss_weights(batch)) == {"masked_lm"}
  assert set(metrics) == {"masked_lm_accuracy"}
  head = P * 2 * (10 * 6 + 6 * V)
  expected = 3 * (CONFIG.forward_flops(S, last_rows=P + 1) + head)
  assert (task.tokens_per_example, task.flops_per_example) == (S, expected)
  described = task.describe()
  assert described["tokenizer"]["sha256"] == "0" * 64
  assert described["settings"] == {"sentence_pair": "none"}
  assert "eval" not in described


@pytest.mark.parametrize(
  "data, config, message",
  [
    ({}, {"vocab_size": 98}, "vocabulary of 97 pieces, .* vocab_size 98"),
    ({"task": "squad"}, {}, "holds squad data"),
    ({}, {"type_vocab_size": 1}, "has type_vocab_size 1, so no embedding"),
    ({"masking": "dynamic"}, {}, "lacks .*mask_id, .*dynamic masking needs"),
  ],
)
def test_data_for_another_model_is_refused(tmp_path, data, config, message):
  folder = write_data(tmp_path, **data)
  with pytest.raises(ValueError, match=message):
    task_lib.PretrainingTask(dataclasses.replace(CONFIG, **config), folder)


@pytest.fixture
def folders(tmp_path):
  return [write_data(tmp_path / str(n), n) for n in (7, 13)]


def held_out(task):
  """Returns the first id of each held-out example."""
  batches = list(task.eval_dataset(2).as_numpy_iterator())
  real = np.concatenate([batch["example_weight"] for batch in batches]) > 0
  ids = np.concatenate([batch["input_ids"][:, 0] for batch in batches])
  return ids[real].tolist()


def test_each_phase_has_its_data_and_its_evaluation(folders, tmp_path):
  tasks = phases.make_tasks(CONFIG, folders, 3)
  assert [task.tokens_per_example for task in tasks] == [7, 13]
  assert tasks[0].flops_per_example < tasks[1].flops_per_example / 1.4
  assert [held_out(task) for task in tasks] == [[7] * 7, [13] * 7]
  for task, length in zip(tasks, (7, 13)):
    batch = next(iter(task.train_dataset(4, 0)))
    assert batch["input_ids"].shape == [4, length]
  # Another folder for all evaluations, or one for each phase.
  whole = write_data(tmp_path / "whole", 9, {"train": 4})
  part = write_data(tmp_path / "part", 11, {"train": 4, "heldout": 1})
  one = phases.make_tasks(CONFIG, folders, 3, [whole])
  assert [held_out(task) for task in one] == [[9] * 4] * 2
  each = phases.make_tasks(CONFIG, folders, 3, [whole, part])
  assert [held_out(task) for task in each] == [[9] * 4, [11]]
  assert each[1].describe()["eval"]["input_dir"] == part
  with pytest.raises(ValueError, match="eval_input_dir has 3 values for 2"):
    phases.make_tasks(CONFIG, folders, 3, [whole, part, part])


def test_each_phase_has_its_masks_and_layers(unmasked, folders):
  path, config = unmasked
  deep = dataclasses.replace(config, num_hidden_layers=3)
  first, last = phases.make_tasks(
    deep, [path, path], 3, mask_shares=[0.4, 0.2], layers=[1, 3]
  )
  sizes = [
    next(iter(x.train_dataset(4, 0)))["masked_lm_ids"].shape[1]
    for x in (first, last)
  ]
  assert sizes == [round(s * first.manifest.max_seq_length) for s in (0.4, 0.2)]
  assert (first.num_layers, last.num_layers) == (1, 3)
  assert first.flops_per_example < 0.7 * last.flops_per_example
  tf.keras.utils.set_random_seed(3)
  model = first.build_model()
  (batch,) = itertools.islice(last.eval_dataset(5), 1)
  losses = [
    float(x.evaluate(model, batch)[0]["masked_lm"]) for x in (first, last)
  ]
  assert losses[0] != losses[1]
  for name in ("mask_shares", "layers"):
    with pytest.raises(ValueError, match="has 3 values for 2 phases"):
      phases.make_tasks(CONFIG, folders, 3, **{name: [0, 0, 0]})
  fixed = dataclasses.replace(CONFIG, num_hidden_layers=4, num_hidden_groups=2)
  with pytest.raises(ValueError, match="2 groups and 4 layers cannot have 3"):
    phases.make_tasks(fixed, folders, 3, layers=[3, 4])
  with pytest.raises(
    ValueError, match="last of phase_layers is 2, .* all its 3"
  ):
    phases.make_tasks(deep, [path, path], 3, layers=[3, 2])


def test_phases_of_shorter_sequences_train_all_positions(folders):
  first, last = phases.make_tasks(CONFIG, folders, 3, shift_positions=True)
  (plain, _) = phases.make_tasks(CONFIG, folders, 3)
  assert (plain.position_shift, first.position_shift) == (0, 6)
  assert last.position_shift == 0
  tf.keras.utils.set_random_seed(3)
  model = first.build_model()
  table = model.albert.embedding.position_embeddings
  batch = next(iter(first.train_dataset(4, 0)))

  def loss_and_rows(task, training, seed=0):
    with tf.GradientTape() as tape:
      totals, _ = task.forward(model, batch, training, tf.constant([seed, 5]))
    rows = tape.gradient(totals["sentence_order"], table).numpy().any(axis=1)
    return float(totals["sentence_order"]), np.flatnonzero(rows).tolist()

  seen = {}
  for seed in range(12):
    loss, rows = loss_and_rows(first, True, seed)
    assert rows == list(range(rows[0], rows[0] + 7))
    seen[rows[0]] = loss
  assert len(seen) > 4 and max(seen) <= 6
  # Neither evaluations nor other runs are shifted.
  assert loss_and_rows(first, False) == loss_and_rows(plain, False)
  assert loss_and_rows(plain, True)[1] == list(range(7))
  values = table.numpy()
  for position, loss in itertools.islice(seen.items(), 2):
    table.assign(np.roll(values, -position, axis=0))
    shifted, _ = loss_and_rows(plain, True)
    assert shifted == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("counts", [{"train": 4}, {"train": 4, "heldout": 0}])
def test_missing_held_out_examples_are_refused(folders, tmp_path, counts):
  bare = write_data(tmp_path / "bare", 9, counts)
  with pytest.raises(ValueError, match="no held-out .*--heldout_share above 0"):
    phases.make_tasks(CONFIG, [folders[0], bare], 3)
  task, _ = phases.make_tasks(CONFIG, [bare, bare], 3, [folders[1]])
  assert held_out(task) == [13] * 7


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(length=9, sha256="cd" * 32), "built with another tokenizer or"),
    (dict(length=9, sentence_pair="none"), "tokenizer or --sentence_pair"),
    (dict(length=14), "max_seq_length 14 exceeds the model's 13 position"),
  ],
)
@pytest.mark.parametrize("place", ["phase", "eval"])
def test_phases_that_do_not_fit_are_refused(
  folders, tmp_path, changes, message, place
):
  folder = write_data(tmp_path / "other", **changes)
  inputs = [*folders, folder] if place == "phase" else folders
  evals = [folder] if place == "eval" else []
  with pytest.raises(ValueError, match=message):
    phases.make_tasks(CONFIG, inputs, 3, evals)


@pytest.mark.parametrize("phase, split", [(0, "heldout"), (1, "train")])
def test_shards_of_all_phases_are_checked(folders, phase, split):
  path = os.path.join(folders[phase], tfrecords.shard_name(split, 0, 1))
  with open(path, "ab") as file:
    file.write(b"x")
  with pytest.raises(ValueError, match=f"{split}-00000-of-00001.tfrecord has"):
    phases.make_tasks(CONFIG, folders, 3)


def test_each_epoch_has_the_same_texts_with_other_masks(unmasked):
  folder, config = unmasked
  task = task_lib.PretrainingTask(config, folder, seed=3)
  size = task.manifest.split("train").records
  assert size > 8
  dataset = task.train_dataset(size, 0).as_numpy_iterator()
  epochs = list(itertools.islice(dataset, 3))
  # Sorted, because A and B may be swapped.
  texts = [np.sort(record_rules.put_labels_back(batch)) for batch in epochs]
  texts = [sorted(text.tolist()) for text in texts]
  assert texts[0] == texts[1] == texts[2]
  shown = [set(map(bytes, batch["input_ids"])) for batch in epochs]
  assert len(shown[0] | shown[1] | shown[2]) > 2.5 * size
  labels = [batch["next_sentence_labels"].mean() for batch in epochs]
  assert 0 < np.mean(labels) < 1


def test_masks_do_not_depend_on_start_or_worker(unmasked):
  folder, config = unmasked
  task = task_lib.PretrainingTask(config, folder, seed=3)

  def read(count, *arguments):
    dataset = task.train_dataset(3, *arguments)
    return list(itertools.islice(dataset.as_numpy_iterator(), count))

  whole = read(21, 0)  # Over the borders of epochs.
  np.testing.assert_equal(read(10, 33), whole[11:])
  context = tf.distribute.InputContext(2, 1, 4)  # Two workers, two devices.
  expected = [whole[number] for number in (2, 3, 6, 7)]
  np.testing.assert_equal(read(4, 0, context), expected)


def test_all_evaluations_have_the_same_masks(unmasked):
  folder, config = unmasked
  size = tfrecords.read_manifest(folder).split("heldout").records
  rows = {}
  for seed, batch_size in ((3, size), (4, size - 1)):
    task = task_lib.PretrainingTask(config, folder, seed=seed)
    batches = list(task.eval_dataset(batch_size))
    real = tf.concat([batch["example_weight"] for batch in batches], 0) > 0
    for name in batches[0]:
      values = tf.concat([batch[name] for batch in batches], 0)[real].numpy()
      assert len(values) == size
      np.testing.assert_array_equal(values, rows.setdefault(name, values))
  # Padding rows are masked, but have no weight.
  assert len(batches) == 2
  assert not batches[1]["masked_lm_weights"][1:].numpy().any()
  assert batches[1]["masked_lm_weights"][0].numpy().any()


def test_initial_weights_can_come_from_sinusoids_and_the_text(unmasked):
  folder, config = unmasked
  words, positions = [], []
  for computed in (False, True, True):
    names = ("init_word_vectors", "init_neighbor_attention")
    options = dict.fromkeys(names, computed)
    task = task_lib.PretrainingTask(config, folder, **options)
    tf.keras.utils.set_random_seed(3)
    model = task.build_model()
    task.begin(model)
    words.append(model.albert.embedding.word_embeddings.numpy())
    positions.append(model.albert.embedding.position_embeddings.numpy())
  np.testing.assert_array_equal(words[1], words[2])
  # [MASK] does not occur.
  same = (words[1] == words[0]).all(axis=1)
  assert same[4] and not same[2] and same.mean() < 0.5
  assert np.std(positions[1][0, ::2]) == 0 != np.std(positions[0][0, ::2])


def test_training_can_mask_another_share_than_the_evaluation(unmasked, built):
  path, config = unmasked
  task = task_lib.PretrainingTask(config, path)
  more = task_lib.PretrainingTask(config, path, masked_lm_prob=0.4)

  def share(batch):
    tokens = batch["input_mask"] * tf.cast(batch["input_ids"] > 3, tf.int32)
    masked = tf.reduce_sum(batch["masked_lm_weights"])
    return float(masked) / float(tf.reduce_sum(tokens))

  (batch,) = itertools.islice(more.train_dataset(64, 0), 1)
  length = more.manifest.max_seq_length
  assert batch["masked_lm_ids"].shape == (64, round(0.4 * length))
  assert 0.3 < share(batch) < 0.5
  (batch,) = itertools.islice(task.train_dataset(64, 0), 1)
  assert share(batch) < 0.25
  same, other = (
    list(x.eval_dataset(5).as_numpy_iterator()) for x in (task, more)
  )
  np.testing.assert_equal(other, same)
  assert more.flops_per_example > task.flops_per_example
  with pytest.raises(ValueError, match="have masks already.*masking=dynamic"):
    task_lib.PretrainingTask(config, str(built[0]), masked_lm_prob=0.4)
