"""Tests that changes reach the files, and are told."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, modeling
from tools.conversion import changes as checkpoint_changes
from tools.conversion import conversion as checkpoint_conversion
from tools.conversion import proof as checkpoint_proof

_GOLDEN = (
  pathlib.Path(__file__).resolve().parents[2] / "official_albert" / "testdata"
)
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(autouse=True)
def no_other_framework(monkeypatch):
  monkeypatch.setattr(checkpoint_proof, "find_hf_python", lambda path: "")


def convert(tmp_path, changes, source="one_group", **kwargs):
  return checkpoint_conversion.convert(
    "tf1",
    "official_albert",
    str(_GOLDEN / source / "model.ckpt"),
    str(tmp_path / "output"),
    changes=changes,
    **kwargs,
  )


def test_nothing_asked_for_is_no_change():
  assert not checkpoint_changes.Changes()
  assert not checkpoint_changes.Changes(position_method="interpolate")
  assert checkpoint_changes.Changes(num_hidden_groups=2)


def test_groups_and_positions_at_once(tmp_path):
  """Up to the old length, the new model computes what the old one did."""
  config = modeling.AlbertConfig.from_json_file(
    str(_GOLDEN / "one_group" / "albert_config.json")
  )
  layers, length = config.num_hidden_layers, config.max_position_embeddings
  changes = checkpoint_changes.Changes(layers, length + 3)
  report = convert(tmp_path, changes)
  assert any(f"{layers} groups instead of 1" in n for n in report.notes)
  assert any(f"{length + 3} positions instead of" in n for n in report.notes)
  assert any("changed on the way" in note for note in report.notes)
  assert report.proofs["values read again by name"][0] == 0
  model = modeling.AlbertModel.from_checkpoint(str(tmp_path / "output"))
  assert model.config.num_hidden_groups == layers
  stored = np.load(_GOLDEN / "one_group" / "pretraining_batch.npz")
  batch = {name: tf.constant(stored[name]) for name in modeling.INPUTS}
  golden = np.load(_GOLDEN / "one_group" / "pretraining_outputs.npz")
  np.testing.assert_allclose(
    model(batch)["pooled_output"], golden["pooled_output"], atol=1e-5
  )
  longer = {"input_ids": tf.ones([1, length + 3], tf.int32)}
  assert model(longer)["sequence_output"].shape[1] == length + 3


def write_vocabulary(path, pieces):
  path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
  return checkpoints.TokenizerFile(str(path), "wordpiece")


def test_another_vocabulary(tmp_path):
  rows = modeling.AlbertConfig.from_json_file(
    str(_GOLDEN / "one_group" / "albert_config.json")
  ).vocab_size
  words = [f"w{i}" for i in range(rows - len(_SPECIAL))]
  old = write_vocabulary(tmp_path / "old.txt", _SPECIAL + words)
  new = write_vocabulary(tmp_path / "new.txt", [*_SPECIAL, "new", "w3", "w0"])
  changes = checkpoint_changes.Changes(tokenizer=new)
  with pytest.raises(ValueError, match="where the old one is known"):
    convert(tmp_path, changes)
  assert not (tmp_path / "output").exists()
  report = convert(tmp_path, changes, tokenizer=old)
  assert any("7 pieces copied" in note for note in report.notes)
  before = checkpoints.read_checkpoint(
    str(_GOLDEN / "one_group" / "model.ckpt")
  )
  after = checkpoints.read_checkpoint(str(tmp_path / "output"))
  assert after.config.vocab_size == 8
  assert pathlib.Path(after.tokenizer.path).read_text() == "\n".join(
    [*_SPECIAL, "new", "w3", "w0", ""]
  )
  name = "bert/embeddings/word_embeddings"
  np.testing.assert_array_equal(after.tensors[name][6], before.tensors[name][8])


def test_a_number_of_groups_that_does_not_go(tmp_path):
  with pytest.raises(ValueError, match="group"):
    convert(tmp_path, checkpoint_changes.Changes(1), source="two_groups")
  assert not (tmp_path / "output").exists()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
