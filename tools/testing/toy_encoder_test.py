"""The toy encoder is what fine-tuning looks for in a run's folder."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert import AlbertConfig, training
from tasks import pretraining
from tools.testing import toy_data, toy_encoder


def test_a_run_that_can_be_read(tmp_path):
  folder = toy_encoder.write(str(tmp_path / "run"), hidden_size=26)
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  assert config.hidden_size == 26
  model = pretraining.AlbertForPretraining(config)
  assert not training.warm_start(model, folder).missing
  tokenizer = toy_encoder.write_tokenizer(str(tmp_path))
  assert tokenizer.vocab_size == config.vocab_size
  recorded = training.read_run(folder)["data"]["tokenizer"]
  assert recorded["sha256"] == tokenizer.sha256
  words = " ".join(toy_data.GOOD + toy_data.BAD + toy_data.NEUTRAL)
  unknown = tokenizer.piece_to_id("<unk>")
  assert unknown not in tokenizer.encode(words)


def test_the_same_weights_each_time(tmp_path):
  models = []
  for name in ("a", "b"):
    folder = toy_encoder.write(str(tmp_path / name))
    config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
    model = pretraining.AlbertForPretraining(config)
    training.warm_start(model, folder)
    models.append(model.get_weights())
  for one, other in zip(*models):
    np.testing.assert_array_equal(one, other)


def test_another_seed_has_other_pieces(tmp_path):
  (tmp_path / "b").mkdir()
  one = toy_encoder.write_tokenizer(str(tmp_path))
  other = toy_encoder.write_tokenizer(str(tmp_path / "b"), seed=6)
  assert one.sha256 != other.sha256 and one.vocab_size == other.vocab_size


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
