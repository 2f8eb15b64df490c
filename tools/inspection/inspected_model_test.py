"""Opens folders of toy runs, whatever they share."""

from __future__ import annotations

import os
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling, tokenization
from official_albert.testing import toy_vocabulary
from tasks import pretraining
from tools import conversion
from tools.inspection import inspected_model
from tools.testing import toy_encoder

_TEXTS = ["the day was cold", "a tall old tree"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  """Toy runs by their sharing, of three layers each."""
  folder = tmp_path_factory.mktemp("runs")
  return {
    sharing: toy_encoder.write(
      str(folder / sharing), num_hidden_layers=3, sharing=sharing
    )
    for sharing in ("all", "attention", "none")
  }


def _stored(folder):
  """The weights that a run holds, by the package's own loader."""
  config = modeling.AlbertConfig.from_json_file(
    os.path.join(folder, "albert_config.json")
  )
  model = pretraining.AlbertForPretraining(config)
  checkpoint = tf.train.Checkpoint(model=model)
  latest = tf.train.latest_checkpoint(folder)
  checkpoint.restore(latest).assert_existing_objects_matched()
  return model.albert


@pytest.mark.parametrize("sharing", ["all", "attention", "none"])
def test_weights_and_tokenizer_of_a_run(runs, sharing):
  opened = inspected_model.open_model(runs[sharing])
  stored = _stored(runs[sharing])
  assert len(opened.model.variables) == len(stored.variables)
  for ours, theirs in zip(opened.model.variables, stored.variables):
    np.testing.assert_array_equal(ours, theirs)
  assert opened.model.config.sharing == sharing
  assert opened.tokenizer.vocab_size == 47


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_the_best_of_a_run_and_a_prefix(runs, sharing, tmp_path):
  folder = tmp_path / "run"
  shutil.copytree(runs[sharing], folder)
  os.makedirs(folder / "best")
  for name in os.listdir(folder):
    if name.startswith("model.ckpt"):
      os.rename(folder / name, folder / "best" / name)
  os.remove(folder / "checkpoint")
  for path in (folder / "best", folder / "best" / "model.ckpt-1"):
    opened = inspected_model.open_model(str(path))
    assert opened.model.config.sharing == sharing
    assert opened.tokenizer.vocab_size == 47


def test_findings_of_every_layer(runs):
  opened = inspected_model.open_model(runs["none"])
  found = inspected_model.look_into(opened, _TEXTS, 64, "run")
  layers, attention = found.values["layers"], found.values["attention"]
  assert [layer["layer"] for layer in layers] == [1, 2, 3]
  assert 0 < layers[2]["degrees"] < 180
  heads = attention[1]["heads"]
  assert [head["head"] for head in heads] == [1, 2]
  assert 0 < heads[0]["cls_share"] < 1
  sentences = found.values["sentences"]
  assert sentences["count"] == 2 and sentences["cut"] == 0
  length = len(found.pieces)
  assert [probs.shape for probs in found.maps] == [(2, length, length)] * 3
  # The maps are of the first sentence.
  np.testing.assert_allclose(found.maps[0].sum(axis=-1), 1, rtol=1e-5)
  alone = inspected_model.look_into(opened, _TEXTS[:1], 64, "run")
  np.testing.assert_array_equal(alone.maps, found.maps)


def test_another_depth_is_of_the_same_layer(runs):
  opened = inspected_model.open_model(runs["all"], num_hidden_layers=5)
  found = inspected_model.look_into(opened, _TEXTS, 64, "run")
  shallow = inspected_model.look_into(
    inspected_model.open_model(runs["all"]), _TEXTS, 64, "run"
  )
  deep, few = (
    [list(layer.values()) for layer in each.values["layers"]]
    for each in (found, shallow)
  )
  assert len(deep) == 5
  np.testing.assert_allclose(deep[:3], few, rtol=1e-5)
  with pytest.raises(ValueError, match="cannot have 5"):
    inspected_model.open_model(runs["none"], num_hidden_layers=5)


def test_tf1_checkpoints_and_archives(tmp_path):
  config = modeling.AlbertConfig(
    vocab_size=41,
    embedding_size=6,
    hidden_size=10,
    num_attention_heads=2,
    num_hidden_layers=2,
    intermediate_size=14,
    initializer_range=0.2,
  )
  conversion.random_checkpoint.write(config, str(tmp_path / "model"))
  opened = inspected_model.open_model(str(tmp_path / "model"))
  assert opened.tokenizer is None
  with pytest.raises(ValueError, match="has no tokenizer: .* --spm_model_file"):
    inspected_model.look_into(opened, _TEXTS, 64, "model")
  vocabulary = tmp_path / "model" / "30k-clean.model"
  vocabulary.write_bytes(toy_vocabulary.numbers(41))
  with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
    archive.add(tmp_path / "model", "model")
  shutil.rmtree(tmp_path / "model")
  opened = inspected_model.open_model(str(tmp_path / "model.tar.gz"))
  found = inspected_model.look_into(opened, ["7 8"], 64, "model")
  assert found.pieces == ["[CLS]", "▁7", "▁8", "[SEP]"]


def test_a_tokenizer_of_another_size_is_refused(runs, tmp_path):
  path = tmp_path / "other.model"
  path.write_bytes(toy_vocabulary.numbers(41))
  other = tokenization.open_tokenizer(str(path))
  with pytest.raises(ValueError, match="41 pieces, but .* vocab_size 47"):
    inspected_model.open_model(runs["all"], tokenizer=other)


def test_damage_and_absence(runs, tmp_path):
  with pytest.raises(FileNotFoundError, match="no checkpoint at"):
    inspected_model.open_model(str(tmp_path / "nothing"))
  folder = tmp_path / "none"
  shutil.copytree(runs["none"], folder)
  config = modeling.AlbertConfig.from_json_file(
    str(folder / "albert_config.json")
  )
  values = {**config.to_dict(), "num_hidden_layers": 4}
  modeling.AlbertConfig(**values).to_json_file(
    str(folder / "albert_config.json")
  )
  with pytest.raises(
    ValueError, match="lacks albert/encoder/.*/3/.* incomplete"
  ):
    inspected_model.open_model(str(folder))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
  path.write_bytes(toy_vocabulary.numbers(41))
  return tokenization.open_tokenizer(str(path))


def test_batches_are_of_similar_length_and_padded(tokenizer):
  words = ["5 6 7", "8", *["9 10"] * 16]
  found = inspected_model.make_batches(words, tokenizer, 9)
  assert (found.count, found.tokens, found.cut) == (18, 5 + 3 + 16 * 4, 0)
  shapes = [batch["input_ids"].shape for batch in found.batches]
  assert shapes == [(16, 4), (2, 5)]
  ids = found.batches[0]["input_ids"]
  assert ids[0].tolist() == [2, 8, 3, 0]  # The shortest is in front.
  assert found.batches[0]["input_mask"][0].tolist() == [1, 1, 1, 0]
  assert not found.batches[0]["segment_ids"].any()
  assert found.batches[1]["input_ids"].tolist() == [
    [2, 9, 10, 3, 0],
    [2, 5, 6, 7, 3],
  ]
  assert found.first["input_ids"].tolist() == [[2, 5, 6, 7, 3]]
  assert found.first["input_ids"].dtype == np.int32
  assert found.pieces == ["[CLS]", "▁5", "▁6", "▁7", "[SEP]"]


def test_long_sentences_are_truncated(tokenizer):
  found = inspected_model.make_batches(["5 6 7 8", "9 10"], tokenizer, 4)
  assert found.pieces == ["[CLS]", "▁5", "▁6", "[SEP]"]
  assert found.cut == 1
  with pytest.raises(ValueError, match="max_seq_length is 2"):
    inspected_model.make_batches(["5"], tokenizer, 2)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
