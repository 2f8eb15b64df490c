"""Tests of saving, restoring, warm starts and their reports."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, distribution, modeling
from official_albert import checkpoints as checkpoints_lib
from official_albert.training import best_checkpoint, optimization, run_record
from official_albert.training import checkpoint_manager as checkpoints

GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"
SMALL = AlbertConfig(
  vocab_size=29,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=11,
)


def manager(folder, model, **kwargs):
  return checkpoints.CheckpointManager(str(folder), 2, model=model, **kwargs)


def test_own_checkpoint_comes_before_the_warm_start(tmp_path):
  model, seen = AlbertModel(SMALL), tf.Variable(0, dtype=tf.int64)
  first = manager(tmp_path, model, examples_seen=seen)
  assert "from scratch" in first.initialize(model, "")
  seen.assign(41)
  first.save(7)
  other, seen_again = AlbertModel(SMALL), tf.Variable(0, dtype=tf.int64)
  second = manager(tmp_path, other, examples_seen=seen_again)
  message = second.initialize(other, "no/such/checkpoint")
  assert message.startswith("resumed from") and "model.ckpt-7" in message
  assert int(seen_again) == 41
  for a, b in zip(model.get_weights(), other.get_weights()):
    np.testing.assert_array_equal(a, b)


def test_only_the_newest_are_kept(tmp_path):
  model = AlbertModel(SMALL)
  saver = manager(tmp_path, model)
  for step in (1, 2, 3):
    saver.save(step)
  kept = sorted(p.name for p in tmp_path.glob("*.index"))
  assert kept == ["model.ckpt-2.index", "model.ckpt-3.index"]


def test_what_a_killed_save_left_is_removed(tmp_path):
  model = AlbertModel(SMALL)
  saver = manager(tmp_path, model)
  saver.save(1)
  (tmp_path / "model.ckpt-2_temp").mkdir()
  (tmp_path / "model.ckpt-2_temp" / "part").write_text("half")
  assert "model.ckpt-1" in manager(tmp_path, model).initialize(model, "")
  assert not (tmp_path / "model.ckpt-2_temp").exists()


def _truncate(path):
  path.write_bytes(path.read_bytes()[:100])


def _flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 0xFF
  path.write_bytes(bytes(data))


@pytest.mark.parametrize("harm", [_truncate, _flip, pathlib.Path.unlink])
@pytest.mark.parametrize("part", ["data-00000-of-00001", "index"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, harm, part):
  model, seen = AlbertModel(SMALL), tf.Variable(1, dtype=tf.int64)
  saver = manager(tmp_path, model, examples_seen=seen)
  saver.save(1)
  before = model.get_weights()
  seen.assign(2)
  model.set_weights([w + 1 for w in before])
  saver.save(2)
  harm(tmp_path / f"model.ckpt-2.{part}")
  other = AlbertModel(SMALL)
  second = manager(tmp_path, other, examples_seen=seen)
  message = second.initialize(other, "")
  assert "model.ckpt-1, because model.ckpt-2 cannot be read" in message
  assert int(seen) == 1
  for a, b in zip(before, other.get_weights()):
    np.testing.assert_array_equal(a, b)
  # It is out of the way: the run goes on and saves the same step again.
  second.save(2)
  third = manager(tmp_path, AlbertModel(SMALL), examples_seen=seen)
  assert "model.ckpt-2" in third.initialize(other, "")


def test_only_damaged_checkpoints_are_an_error(tmp_path):
  model = AlbertModel(SMALL)
  manager(tmp_path, model).save(1)
  _flip(tmp_path / "model.ckpt-1.data-00000-of-00001")
  with pytest.raises(ValueError, match="all 1 are damaged"):
    manager(tmp_path, model).initialize(model, "")


def test_checkpoints_are_found_without_their_list(tmp_path):
  model = AlbertModel(SMALL)
  saver = manager(tmp_path, model)
  saver.save(9)
  saver.save(10)
  (tmp_path / "checkpoint").unlink()
  message = manager(tmp_path, model).initialize(model, "")
  assert message.endswith("model.ckpt-10")


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path, monkeypatch):
  model = AlbertModel(SMALL)
  saver = manager(tmp_path, model)
  saver.save(1)

  def fail(*args, **kwargs):
    (tmp_path / "model.ckpt-2_temp").mkdir()
    raise tf.errors.ResourceExhaustedError(None, None, "No space left")

  monkeypatch.setattr(tf.train.Checkpoint, "_write", fail)
  monkeypatch.setattr(tf.train.Checkpoint, "write", fail)
  monkeypatch.setattr(tf.train.Checkpoint, "save", fail)
  with pytest.raises(OSError, match="step 2 could not.*No space left.*ckpt-1"):
    saver.save(2)
  assert not list(tmp_path.glob("*_temp*"))
  monkeypatch.undo()
  assert "ckpt-1" in manager(tmp_path, model).initialize(model, "")


@pytest.mark.parametrize("sharing", ["all", "attention", "none"])
def test_warm_start_reads_every_weight(tmp_path, sharing):
  config = dataclasses.replace(SMALL, sharing=sharing)
  model, other = AlbertModel(config), AlbertModel(config)
  manager(tmp_path, model).save(3)
  report = checkpoints.warm_start(other, str(tmp_path))
  assert len(report.matched) == len(model.weights)
  assert not report.missing and not report.unexpected
  for a, b in zip(model.get_weights(), other.get_weights()):
    np.testing.assert_array_equal(a, b)


def test_warm_start_reports_both_sides(tmp_path):
  manager(tmp_path, AlbertModel(SMALL)).save(3)
  other = AlbertModel(dataclasses.replace(SMALL, num_hidden_groups=2))
  report = checkpoints.warm_start(other, str(tmp_path / "model.ckpt-3"))
  assert len(report.missing) == 16 and not report.unexpected


def test_warm_start_reads_the_original(tmp_path):
  config = AlbertConfig.from_json_file(
    str(GOLDEN / "one_group" / "albert_config.json")
  )
  model = AlbertModel(config)
  message = manager(tmp_path, model).initialize(
    model, str(GOLDEN / "one_group" / "model.ckpt")
  )
  assert "warm start from" in message and "25 variables matched" in message
  expected = tf.train.load_checkpoint(
    str(GOLDEN / "one_group" / "model.ckpt")
  ).get_tensor("bert/pooler/dense/bias")
  np.testing.assert_array_equal(model.pooler.bias, expected)


class _Pretrained(tf.keras.Model):
  """The names of `AlbertForPretraining`, which belongs to a task."""

  def __init__(self, config=SMALL):
    super().__init__(autocast=False)
    self.albert = AlbertModel(config, name="albert")
    self.sentence_order = modeling.ClassificationHead(2, config.hidden_size)

  def call(self, features):
    return self.sentence_order(self.albert(features)["pooled_output"])


def classifier(classes=3, config=SMALL):
  return modeling.AlbertForSequenceClassification(config, classes)


HEAD = ("classifier/output_bias", "classifier/output_weights")


@pytest.fixture(params=["run", "best", "prefix"])
def pretrained(request, tmp_path):
  """A pretrained model and what to give as --init_checkpoint."""
  model = _Pretrained()
  if request.param == "best":
    best = best_checkpoint.BestCheckpoint(str(tmp_path), model, "loss")
    best.offer(5, 1, {"loss": 1.0})
    return model, str(tmp_path / "best"), 0
  optimizer = optimization.make_optimizer("lamb", 0.1)
  optimizer._create_all_weights(model.trainable_variables)
  saver = manager(
    tmp_path, model, optimizer=optimizer, examples_seen=tf.Variable(7)
  )
  path = saver.save(5)
  slots = 2 * len(model.trainable_variables)
  return (
    model,
    str(tmp_path) if request.param == "run" else path,
    # Step, five settings, the examples and the number of saves.
    slots + 8,
  )


def test_fine_tuning_starts_from_all_but_the_heads(pretrained, tmp_path):
  source, path, ignored = pretrained
  model = classifier()
  head = model.classifier.output_weights.numpy()
  report = checkpoints.warm_start(model, path)
  assert len(report.matched) == len(model.albert.weights)
  assert "albert/pooler/kernel" in report.matched
  assert report.missing == HEAD and report.other_shape == ()
  assert report.unexpected == (
    "sentence_order/output_bias",
    "sentence_order/output_weights",
  )
  assert len(report.ignored) == ignored
  for a, b in zip(source.albert.get_weights(), model.albert.get_weights()):
    np.testing.assert_array_equal(a, b)
  np.testing.assert_array_equal(model.classifier.output_weights, head)
  said = manager(tmp_path / "new", classifier()).initialize(model, path)
  lines = said.splitlines()
  taken = checkpoints_lib.find_prefix(path)
  assert lines[0].startswith(f"warm start from {taken}: ")
  assert "2 missing, 2 unexpected" in lines[0]
  assert lines[1:] == [
    *(f"  missing in the checkpoint: {name}" for name in HEAD),
    "  unexpected in it: sentence_order/output_bias",
    "  unexpected in it: sentence_order/output_weights",
  ]


def test_a_pretraining_checkpoint_of_another_size_is_one_sentence(pretrained):
  _, path, _ = pretrained
  model = classifier(config=dataclasses.replace(SMALL, intermediate_size=15))
  before = model.get_weights()
  with pytest.raises(ValueError, match="checkpoint is of another size") as said:
    checkpoints.warm_start(model, path)
  assert "\n" not in str(said.value) and "has shape [14] in" in str(said.value)
  for a, b in zip(before, model.get_weights()):
    np.testing.assert_array_equal(a, b)


def test_a_task_starts_from_another_with_more_classes(tmp_path):
  """As RTE, STS-B and MRPC from MNLI (paper, section 4.9)."""
  source, model, same = classifier(3), classifier(2), classifier(3)
  manager(tmp_path, source).save(5)
  head = model.classifier.output_weights.numpy()
  report = checkpoints.warm_start(model, str(tmp_path))
  assert report.missing == report.other_shape == HEAD
  assert not report.unexpected
  assert f"  of another shape in the checkpoint: {HEAD[0]}" in str(report)
  np.testing.assert_array_equal(model.classifier.output_weights, head)
  np.testing.assert_array_equal(
    model.albert.pooler.kernel, source.albert.pooler.kernel
  )
  assert not checkpoints.warm_start(same, str(tmp_path)).missing
  np.testing.assert_array_equal(
    same.classifier.output_weights, source.classifier.output_weights
  )


def _classes(*labels):
  return checkpoints.Head("classification", labels)


_NUMBER = checkpoints.Head("regression")
_OPTIONS = checkpoints.Head("multiple_choice")


@pytest.mark.parametrize("where", ["", "best", "model.ckpt-5"])
@pytest.mark.parametrize(
  "data, head, rows, note",
  [
    # Of run_finetuning, and of a conversion.
    (
      {"task": "own", "settings": {"labels": ["pos", "neu", "neg"]}},
      _classes("neg", "pos", "neu"),
      [2, 0, 1],
      "the head is kept, for the classes neg, pos, neu, whose rows are put in "
      "this order; the checkpoint's is for the classes pos, neu, neg",
    ),
    (
      {"head": "classification", "settings": {"labels": ["a", "b", "c"]}},
      _classes("a", "b", "c"),
      [0, 1, 2],
      "the head is kept, for the classes a, b, c",
    ),
    (
      {"head": "classification", "max_seq_length": 64},
      _classes("a", "b", "c"),
      [0, 1, 2],
      "warning: the checkpoint does not name the classes of its head, which is "
      "kept: they are taken to be a, b, c, in this order",
    ),
    (
      None,
      _classes("a", "b", "c"),
      [0, 1, 2],
      "warning: the checkpoint does not name the classes of its head, which is "
      "kept: they are taken to be a, b, c, in this order",
    ),
    (
      {"task": "own", "settings": {"labels": ["a", "b", "c"]}},
      _classes("a", "b", "d"),
      None,
      "a new head is trained, for the classes a, b, d: the checkpoint's is for "
      "the classes a, b, c; to keep it, give the data the same names",
    ),
    (
      {"task": "mnli", "settings": {"labels": ["a", "b", "c"]}},
      _classes("a", "b"),
      None,
      "a new head is trained, for the classes a, b: the checkpoint's is for "
      "the classes a, b, c",
    ),
    (
      {"task": "stsb", "settings": {"labels": None}},
      _NUMBER,
      [0],
      "the head is kept, for a number",
    ),
    (
      {"task": "race", "settings": {"max_qa_length": 9}},
      _NUMBER,
      None,
      "a new head is trained, for a number: the checkpoint's is for the "
      "options of a question",
    ),
    (
      {"task": "stsb", "settings": {"labels": None}},
      _OPTIONS,
      None,
      "a new head is trained, for the options of a question: the checkpoint's "
      "is for a number",
    ),
    (
      {"head": "multiple_choice"},
      _OPTIONS,
      [0],
      "the head is kept, for the options of a question",
    ),
  ],
)
def test_a_head_is_taken_for_what_it_stands_for(
  tmp_path, where, data, head, rows, note
):
  labels = (data or {}).get("settings", {}).get("labels")
  kind = (data or {}).get("head", "")
  is_one = not labels and kind != "classification" and data is not None
  source = classifier(1 if is_one else 3)
  model = classifier(max(len(head.labels), 1))
  source.classifier.output_bias.assign(tf.range(1.0, 2.0 if is_one else 4.0))
  before = model.classifier.output_weights.numpy()
  if data is not None:
    run_record.write_run(str(tmp_path), SMALL, {}, data)
  manager(tmp_path, source).save(5)
  best = best_checkpoint.BestCheckpoint(str(tmp_path), source, "loss")
  best.offer(5, 1, {"loss": 1.0})
  report = checkpoints.warm_start(model, str(tmp_path / where), head)
  assert report.notes == (note,) and f"\n  {note}" in str(report)
  kernel, bias = source.classifier.output_weights.numpy(), [1.0, 2.0, 3.0]
  if rows is None:
    assert report.missing == HEAD
    assert report.left_out == (() if len(head.labels) == 2 else HEAD)
    np.testing.assert_array_equal(model.classifier.output_weights, before)
    assert not model.classifier.output_bias.numpy().any()
  else:
    assert not report.missing
    np.testing.assert_array_equal(model.classifier.output_weights, kernel[rows])
    np.testing.assert_array_equal(
      model.classifier.output_bias, [bias[row] for row in rows]
    )
  # The encoder is taken in any case.
  np.testing.assert_array_equal(
    model.albert.pooler.kernel, source.albert.pooler.kernel
  )


def test_a_head_that_was_never_there_is_no_news(pretrained, tmp_path):
  _, path, _ = pretrained
  run_record.write_run(str(tmp_path), SMALL, {}, {"max_seq_length": 11})
  report = checkpoints.warm_start(classifier(), path, _classes("a", "b", "c"))
  assert report.notes == () and report.missing == HEAD


def test_fine_tuning_starts_from_the_originals_checkpoints():
  folder = GOLDEN / "one_group"
  config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
  model = classifier(4, config)
  report = checkpoints.warm_start(model, str(folder / "model.ckpt"))
  assert len(report.matched) == len(model.albert.weights) == 25
  assert report.missing == ("output_bias", "output_weights")
  assert len(report.unexpected) == 7 and not report.other_shape
  assert {n.split("/")[1] for n in report.unexpected} == {
    "predictions",
    "seq_relationship",
  }
  # From a classifier with another number of classes.
  report = checkpoints.warm_start(model, str(folder / "classifier.ckpt"))
  assert report.missing == report.other_shape
  assert report.missing == ("output_bias", "output_weights")
  assert not report.notes
  report = checkpoints.warm_start(
    classifier(3, config), str(folder / "classifier.ckpt"), _classes(*"abc")
  )
  assert "does not name the classes of its head" in report.notes[0]
  small = classifier(4, dataclasses.replace(config, hidden_act="relu"))
  assert checkpoints.warm_start(small, str(folder / "model.ckpt")).matched
  wide = classifier(4, dataclasses.replace(config, intermediate_size=9))
  with pytest.raises(ValueError, match="checkpoint is of another size"):
    checkpoints.warm_start(wide, str(folder / "model.ckpt"))


def test_wrong_checkpoints_are_refused(tmp_path):
  manager(tmp_path, AlbertModel(SMALL)).save(3)
  larger = AlbertModel(dataclasses.replace(SMALL, vocab_size=31))
  before = larger.get_weights()
  with pytest.raises(ValueError, match=r"has shape \[29, 6\] .* another size"):
    checkpoints.warm_start(larger, str(tmp_path))
  for a, b in zip(before, larger.get_weights()):
    np.testing.assert_array_equal(a, b)
  with pytest.raises(ValueError, match="does not fit this model"):
    manager(tmp_path, larger).initialize(larger, "")
  with pytest.raises(FileNotFoundError, match="without .index"):
    checkpoints.warm_start(larger, str(tmp_path / "none"))
  (tmp_path / "empty").mkdir()
  with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
    checkpoints.warm_start(larger, str(tmp_path / "empty"))


def test_unwritable_folder_is_refused(tmp_path, monkeypatch):
  # Root may write anywhere, so ask the question rather than the disk.
  monkeypatch.setattr(os, "access", lambda path, mode: False)
  with pytest.raises(PermissionError, match="not writable"):
    manager(tmp_path, AlbertModel(SMALL))


@pytest.fixture
def said(monkeypatch):
  """What the chief says; followers hear the last of it."""
  words = []

  def from_chief(strategy, number):
    if strategy == "chief":
      words.append(number)
    return words[-1]

  # Of the room, and where the room has it from.
  monkeypatch.setattr(distribution, "from_chief", from_chief)
  monkeypatch.setattr(
    "official_albert.distribution.multi_worker.from_chief", from_chief
  )
  return words


def _chief(folder, value):
  return checkpoints.ChiefManager(
    "chief", str(folder), 3, variable=tf.Variable(value)
  )


def _follower(folder):
  variable = tf.Variable(0)
  manager = checkpoints.FollowingManager(
    "worker", str(folder), variable=variable
  )
  return manager, variable


def test_followers_read_what_the_chief_chose(tmp_path, said):
  model = tf.keras.Sequential()
  chief = _chief(tmp_path, 7)
  assert "scratch" in chief.initialize(model, "")
  assert said == [-1]
  follower, variable = _follower(tmp_path)
  assert follower.initialize(model, "") == "no checkpoint yet"
  assert follower.latest is None
  path = chief.save(5)
  assert follower.save(5) == path == follower.latest == chief.latest
  assert said == [-1, 0]
  chief = _chief(tmp_path, 0)
  chief.initialize(model, "")
  assert said[-1] == 5
  follower, variable = _follower(tmp_path)
  assert follower.initialize(model, "") == f"resumed from {path}"
  assert int(variable) == 7
  assert follower.latest == path


def test_a_follower_looks_at_nothing_but_the_chosen_one(tmp_path, said):
  chief = _chief(tmp_path, 7)
  chief.save(5)
  chief.save(6)
  said.append(5)
  follower, variable = _follower(tmp_path)
  follower.restore_latest()
  assert follower.latest.endswith("model.ckpt-5")


def test_a_folder_that_is_not_shared(tmp_path, said):
  said.append(5)
  follower, _ = _follower(tmp_path)
  with pytest.raises(OSError, match="a folder that all workers share"):
    follower.restore_latest()


def test_one_process_has_a_manager_of_the_plain_kind(tmp_path):
  strategy = distribution.make_strategy("one_device")
  manager = checkpoints.make_manager(
    strategy, str(tmp_path), 2, variable=tf.Variable(1)
  )
  assert type(manager) is checkpoints.CheckpointManager


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
