"""Tests of the toys that tests share."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert import AlbertConfig, training
from tasks import classification, pretraining, race, squad
from tasks.classification import glue
from tools import finetuning
from tools.testing import toy_data, toy_runs


def test_toy_encoders(tmp_path):
  weights = []
  for name in ("a", "b"):
    folder = toy_runs.write_pretrained(str(tmp_path / name), hidden_size=26)
    config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
    assert config.hidden_size == 26
    model = pretraining.AlbertForPretraining(config)
    assert not training.warm_start(model, folder).missing
    weights.append(model.get_weights())
  for one, other in zip(*weights):
    np.testing.assert_array_equal(one, other)
  tokenizer = toy_runs.write_tokenizer(str(tmp_path))
  assert tokenizer.vocab_size == config.vocab_size
  recorded = training.read_run(folder)["data"]["tokenizer"]
  assert recorded["sha256"] == tokenizer.sha256
  words = " ".join(toy_data.GOOD + toy_data.BAD + toy_data.NEUTRAL)
  unknown = tokenizer.piece_to_id("<unk>")
  assert unknown not in tokenizer.encode(words)
  other = toy_runs.write_tokenizer(str(tmp_path / "b"), seed=6)
  assert tokenizer.sha256 != other.sha256
  assert tokenizer.vocab_size == other.vocab_size


@pytest.mark.parametrize(
  "task, labels", [("sst2", ("0", "1")), ("squad_v2", None), ("race", None)]
)
def test_toy_finetuned_runs(tmp_path, task, labels):
  folder = str(tmp_path / "run")
  model = toy_runs.write_finetuned(
    folder, task, labels, threshold=-1.5, max_qa_length=9
  )
  run = finetuning.trained_run.read(folder)
  assert (run.task, run.labels, run.max_seq_length) == (task, labels, 24)
  assert run.null_score_diff_threshold == -1.5
  assert run.settings["max_qa_length"] == 9
  path = finetuning.run.find_weights(folder)
  assert not training.warm_start(model, path).missing
  encoder = toy_runs.read_encoder(folder)
  assert encoder.config == model.config
  assert encoder.tokenizer.vocab_size == model.config.vocab_size
  assert all(variable.numpy().any() for variable in model.trainable_variables)


def test_toy_tables(tmp_path):
  paths = [str(tmp_path / f"{name}.tsv") for name in ("a", "b", "c")]
  for path, label in zip(paths, ("mood", "mood", "")):
    toy_data.write_table(path, 5, label)
  columns = {"text": "review", "label": "mood"}
  a, b = (classification.read_examples(path, columns) for path in paths[:2])
  assert [e.label for e in a] == ["bad", "good"] * 2 + ["bad"]
  assert [e.text_a for e in a] != [e.text_a for e in b]
  for example, words in zip(a, (toy_data.BAD, toy_data.GOOD) * 2):
    assert sum(word in words for word in example.text_a.split()) == 3
  found = classification.read_examples(paths[2], {"text": "review"})
  assert len(found) == 5


def test_toy_data_sets(tmp_path):
  toy_data.write_glue(str(tmp_path), train=9)
  for task in glue.GLUE_TASKS.values():
    for split in task.splits:
      examples = glue.read_split(str(tmp_path), task, split)
      assert len(examples) == (9 if split == "train" else 7)
      labels = {e.label for e in examples}
      if split in task.test_splits:
        assert labels == {None}
      else:
        assert labels == set(task.labels or ("0.5", "4.5"))
  path = str(tmp_path / "train.json")
  toy_data.write_squad(path, 7, impossible=True)
  examples = squad.read_examples(path, is_training=True)
  answered = [not e.is_impossible for e in examples]
  assert answered == [True, True, False] * 2 + [True]
  assert toy_data.squad(3, seed=1) != toy_data.squad(3)
  toy_data.write_race(str(tmp_path), train=3)
  for split, count in (("train", 12), ("dev", 4), ("test", 4)):
    examples = race.read_examples(str(tmp_path), split, needs_labels=True)
    assert len(examples) == count


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
