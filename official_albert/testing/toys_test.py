"""Tests of the toys that tests share."""

from __future__ import annotations

import json
import socket
import sys

import numpy as np
import pytest

from official_albert import distribution, tokenization
from official_albert.testing import odd_texts, toy_job, toy_task, toy_vocabulary


def test_workers_have_a_place_each():
  addresses = toy_job.free_addresses(3)
  assert len(set(addresses)) == 3
  for index in range(3):
    read = distribution.read_cluster(toy_job.environment(addresses, index))
    assert (read.addresses, read.index) == (tuple(addresses), index)


def test_free_addresses_are_free():
  (address,) = toy_job.free_addresses(1)
  with socket.create_server(distribution.host_and_port(address)):
    pass


def test_what_is_left_of_a_job_is_killed():
  command = [sys.executable, "-c", "import time; time.sleep(1000)"]
  with toy_job.started(2, command) as processes:
    assert [p.poll() for p in processes] == [None, None]
  assert [p.returncode for p in processes] == [-9, -9]


def test_a_wrong_setting_is_an_exit_code(tmp_path, capsys):
  settings = {"model_dir": str(tmp_path), "config": {"clip_norm": 0}}
  assert toy_job.main(json.dumps(settings)) == 1
  assert "clip_norm must be positive" in capsys.readouterr().err


def test_data_that_ends(tmp_path):
  settings = {"model_dir": str(tmp_path), "config": {}, "stop_after": 3}
  assert toy_job.main(json.dumps(settings)) == 0
  names = {path.name for path in tmp_path.glob("*.index")}
  assert names == {"model.ckpt-3.index"}


def test_stream_starts_where_it_is_told_and_never_ends():
  task = toy_task.ToyTask()
  batches = iter(task.train_dataset(5, 35))
  rows = np.concatenate([next(batches)["x"] for _ in range(3)])
  np.testing.assert_array_equal(rows[:2], task.x[35:])
  np.testing.assert_array_equal(rows[2:], task.x[:13])


def test_rows_that_fill_up_the_last_batch_weigh_nothing():
  batches = list(toy_task.ToyTask().eval_dataset(10))
  assert [len(batch["x"]) for batch in batches] == [10] * 4
  assert np.all(batches[-1]["w"][7:] == 0)
  assert np.all(batches[-1]["w"][:7] > 0)


def _open(model: bytes, tmp_path) -> tokenization.Tokenizer:
  path = tmp_path / "tokenizer.model"
  path.write_bytes(model)
  return tokenization.open_tokenizer(str(path))


def test_numbers(tmp_path):
  tokenizer = _open(toy_vocabulary.numbers(12), tmp_path)
  assert tokenizer.vocab_size == 12
  assert tokenizer.encode("7 11") == [7, 11]
  assert tokenizer.mask_id == 4


def test_training(tmp_path):
  lines = ["the mill by the river", "the wheel of the mill"] * 3
  model = toy_vocabulary.train(lines, 30, user_defined_symbols="\u2581mill")
  tokenizer = _open(model, tmp_path)
  assert 5 < tokenizer.vocab_size <= 30
  assert tokenizer.tokenize("the mill")[-1] == "\u2581mill"
  assert tokenizer.unk_id not in tokenizer.encode("the river")


def test_letters_lengths_and_seeds():
  texts = odd_texts.make("ab", 300, 5, lambda rng: "")
  assert len(texts) == 300 and set("".join(texts)) == {"a", "b"}
  assert {len(text) for text in texts} == set(range(25))
  assert texts == odd_texts.make("ab", 300, 5, lambda rng: "")
  assert texts != odd_texts.make("ab", 300, 7, lambda rng: "")


def test_letters_from_outside():
  texts = odd_texts.make("ab", 300, 5, lambda rng: rng.choice(["", "z"]))
  with_one = [text for text in texts if "z" in text]
  assert 100 < len(with_one) < 200
  assert all(text.count("z") == 1 for text in with_one)
  # Not always at the end.
  assert len({text.index("z") for text in with_one}) > 9


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
