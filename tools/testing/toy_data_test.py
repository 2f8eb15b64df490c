"""The toy data is read by the readers of the real one."""

from __future__ import annotations

import numpy as np
import pytest

from tasks import classification, race, squad
from tasks.classification import glue
from tools.testing import toy_data


def test_sentences():
  rng = np.random.default_rng(3)
  for _ in range(20):
    words = toy_data.sentence(rng, toy_data.GOOD).split()
    assert 5 <= len(words) <= 8
    assert sum(word in toy_data.GOOD for word in words) == 3


def test_tables(tmp_path):
  paths = [str(tmp_path / f"{name}.tsv") for name in ("a", "b", "c")]
  for path, label in zip(paths, ("mood", "mood", "")):
    toy_data.write_table(path, 5, label)
  columns = classification.Columns(text="review", label="mood")
  a, b = (classification.read_examples(path, columns) for path in paths[:2])
  assert [e.label for e in a] == ["bad", "good"] * 2 + ["bad"]
  assert [e.text_a for e in a] != [e.text_a for e in b]
  columns = classification.Columns(text="review", label=None)
  assert len(classification.read_examples(paths[2], columns)) == 5


def test_glue(tmp_path):
  toy_data.write_glue(str(tmp_path), train=9)
  for task in glue.GLUE_TASKS.values():
    for split in task.splits:
      examples = glue.read_split(str(tmp_path), task, split).examples
      assert len(examples) == (9 if split == "train" else 7)
      labels = {e.label for e in examples}
      if split in task.test_splits:
        assert labels == {None}
      else:
        assert labels == set(task.labels or ("0.5", "4.5"))


def test_squad(tmp_path):
  path = str(tmp_path / "train.json")
  toy_data.write_squad(path, 7, impossible=True)
  examples = squad.read_examples(path, is_training=True)
  assert [e.is_impossible for e in examples] == [False, False, True] * 2 + [
    False
  ]
  assert toy_data.squad(3, seed=1) != toy_data.squad(3)


def test_race(tmp_path):
  toy_data.write_race(str(tmp_path), train=3)
  for split, count in (("train", 12), ("dev", 4), ("test", 4)):
    examples = race.read_examples(str(tmp_path), split, needs_labels=True)
    assert len(examples) == count


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
