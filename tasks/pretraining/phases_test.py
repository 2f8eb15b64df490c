"""Tests of the data of several phases: what may go together."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import tfrecords
from official_albert import AlbertConfig
from tasks.pretraining import phases

V, P = 43, 2
CONFIG = AlbertConfig(
  vocab_size=V,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=13,
)


def write_data(folder, length, sha256="ab" * 32, pair="sop", **records):
  """Records whose every id is their length; by default 5 and 3 of them."""
  os.makedirs(folder)
  schema = tfrecords.pretraining_schema(length, P)
  splits = {}
  for split, count in (records or {"train": 5, "heldout": 3}).items():
    path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
    with tfrecords.ShardWriter(path, schema) as shard:
      for _ in range(count):
        ones = np.ones(length, np.int64)
        predictions = np.ones(P, np.int64)
        shard.write(
          {
            "input_ids": ones * length,
            "input_mask": ones,
            "segment_ids": ones,
            "token_boundary": ones,
            "masked_lm_positions": predictions,
            "masked_lm_ids": predictions * 6,
            "masked_lm_weights": np.ones(P, np.float32),
            "next_sentence_labels": np.zeros(1, np.int64),
          }
        )
    splits[split] = tfrecords.Split((shard.result,), {})
  tfrecords.write_manifest(
    folder,
    tfrecords.Manifest(
      task="pretraining",
      max_seq_length=length,
      max_predictions_per_seq=P,
      features=schema,
      tokenizer=tfrecords.TokenizerInfo(sha256, V, True),
      settings={"sentence_pair": pair},
      random_seed=5,
      splits=splits,
    ),
  )
  return folder


@pytest.fixture
def folders(tmp_path):
  return [write_data(str(tmp_path / str(n)), n) for n in (7, 13)]


def held_out(task):
  """Its ids, one for each example."""
  batches = list(task.eval_dataset(2).as_numpy_iterator())
  real = np.concatenate([batch["example_weight"] for batch in batches]) > 0
  ids = np.concatenate([batch["input_ids"][:, 0] for batch in batches])
  return ids[real].tolist()


def test_one_task_for_each_folder(folders):
  tasks = phases.make_tasks(CONFIG, folders, 3)
  assert [task.tokens_per_example for task in tasks] == [7, 13]
  assert tasks[0].flops_per_example < tasks[1].flops_per_example / 1.4
  assert [held_out(task) for task in tasks] == [[7] * 3, [13] * 3]
  for task, length in zip(tasks, (7, 13)):
    batch = next(iter(task.train_dataset(4, 0)))
    assert batch["input_ids"].shape == [4, length]
  assert "eval" not in tasks[0].describe()


def test_another_folder_to_evaluate_on(folders, tmp_path):
  """All of it if nothing of it is held out, else what is."""
  whole = write_data(str(tmp_path / "whole"), 9, train=4)
  part = write_data(str(tmp_path / "part"), 11, train=4, heldout=1)
  one = phases.make_tasks(CONFIG, folders, 3, [whole])
  assert [held_out(task) for task in one] == [[9] * 4] * 2
  each = phases.make_tasks(CONFIG, folders, 3, [whole, part])
  assert [held_out(task) for task in each] == [[9] * 4, [11]]
  described = each[1].describe()
  assert described["input_dir"] == folders[1]
  assert described["eval"]["input_dir"] == part
  with pytest.raises(ValueError, match="3 folders to evaluate .* 2 phases"):
    phases.make_tasks(CONFIG, folders, 3, [whole, part, part])


@pytest.mark.parametrize("records", [{"train": 4}, {"train": 4, "heldout": 0}])
def test_nothing_held_out_is_found_at_once(folders, tmp_path, records):
  folder = write_data(str(tmp_path / "bare"), 9, **records)
  with pytest.raises(ValueError, match="no held-out .*--heldout_share above 0"):
    phases.make_tasks(CONFIG, [folders[0], folder], 3)
  task, _ = phases.make_tasks(CONFIG, [folder, folder], 3, [folders[1]])
  assert held_out(task) == [13] * 3


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(length=9, sha256="cd" * 32), "made with another tokenizer than"),
    (dict(length=9, pair="none"), "--sentence_pair=none, but .*=sop"),
    (dict(length=14), "sequences of 14 tokens, but .* only 13 position"),
  ],
)
@pytest.mark.parametrize("place", ["phase", "eval"])
def test_what_does_not_fit_is_refused(
  folders, tmp_path, changes, message, place
):
  folder = write_data(str(tmp_path / "other"), **changes)
  inputs = [*folders, folder] if place == "phase" else folders
  evals = [folder] if place == "eval" else []
  with pytest.raises(ValueError, match=message):
    phases.make_tasks(CONFIG, inputs, 3, evals)


@pytest.mark.parametrize(
  "phase, split", itertools.product((0, 1), ("train", "heldout"))
)
def test_shards_of_all_phases_are_there(folders, phase, split):
  path = os.path.join(folders[phase], tfrecords.shard_name(split, 0, 1))
  with open(path, "ab") as file:
    file.write(b"x")
  with pytest.raises(ValueError, match=f"{split}-00000-of-00001.tfrecord has"):
    phases.make_tasks(CONFIG, folders, 3)
  os.remove(path)
  with pytest.raises(FileNotFoundError, match="is missing"):
    phases.make_tasks(CONFIG, folders, 3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
