from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from official_albert import tokenization
from official_albert.testing import toy_job, toy_task, toy_vocabulary


def test_remaining_processes_of_a_job_are_killed():
  command = [sys.executable, "-c", "import time; time.sleep(1000)"]
  with toy_job.started(2, command) as processes:
    assert [p.poll() for p in processes] == [None, None]
  assert [p.returncode for p in processes] == [-9, -9]


def test_exit_codes_of_a_job(tmp_path, capsys):
  settings = {"model_dir": str(tmp_path), "config": {"clip_norm": 0}}
  assert toy_job.main(json.dumps(settings)) == 1
  assert "clip_norm must be positive" in capsys.readouterr().err
  settings = {**settings, "config": {}, "task": {"stop_after": 3}}
  assert toy_job.main(json.dumps(settings)) == 0
  names = {path.name for path in tmp_path.glob("*.index")}
  assert names == {"model.ckpt-3.index"}


def test_rows_of_the_toy_task():
  task = toy_task.ToyTask()
  batches = iter(task.train_dataset(5, 35))
  rows = np.concatenate([next(batches)["x"] for _ in range(3)])
  np.testing.assert_array_equal(
    rows, np.concatenate([task.x[35:], task.x[:13]])
  )
  batches = list(task.eval_dataset(10))
  assert [len(batch["x"]) for batch in batches] == [10] * 4
  assert np.all(batches[-1]["w"][7:] == 0) and np.all(batches[-1]["w"][:7] > 0)


def test_vocabularies(tmp_path):
  path = tmp_path / "tokenizer.model"
  path.write_bytes(toy_vocabulary.numbers(12))
  tokenizer = tokenization.open_tokenizer(str(path))
  assert (tokenizer.vocab_size, tokenizer.mask_id) == (12, 4)
  assert tokenizer.encode("7 11") == [7, 11]
  lines = ["the mill by the river", "the wheel of the mill"] * 3
  path.write_bytes(
    toy_vocabulary.train(lines, 30, user_defined_symbols="\u2581mill")
  )
  tokenizer = tokenization.open_tokenizer(str(path))
  assert 5 < tokenizer.vocab_size <= 30
  assert tokenizer.tokenize("the mill")[-1] == "\u2581mill"


def test_odd_texts():
  texts = toy_vocabulary.odd_texts(
    "ab", 300, 5, lambda rng: rng.choice(["", "z"])
  )
  assert {len(text) for text in texts} >= set(range(25))
  assert texts != toy_vocabulary.odd_texts(
    "ab", 300, 7, lambda rng: rng.choice(["", "z"])
  )
  with_one = [text for text in texts if "z" in text]
  assert 100 < len(with_one) < 200
  # Not always at the end.
  assert len({text.index("z") for text in with_one}) > 9


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
