"""Tests of which weights of a run are exported."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, training
from official_albert.testing import toy_models
from tasks.pretraining import export
from tasks.pretraining import model as model_lib

_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e ##x".split()
_CONFIG = toy_models.config(len(_PIECES), 13, num_hidden_layers=1)


def _model(value):
  """One that says the piece `value` everywhere."""
  model = model_lib.AlbertForPretraining(_CONFIG, name="model")
  bias = next(w for w in model.weights if w.shape == [len(_PIECES)])
  bias.assign(tf.one_hot(value, len(_PIECES)) * 50)
  return model


@pytest.fixture
def run(tmp_path):
  """A run of two phases: best at step 2, of the first, says "a"; 4 says "c"."""
  folder = str(tmp_path / "run")
  tokenizer = {"lower_case": True, "kind": "wordpiece"}
  data = [{"tokenizer": tokenizer, "max_seq_length": n} for n in (7, 13)]
  settings = {"num_train_steps": 5, "phases": ({"steps": 3}, {"steps": 2})}
  training.write_run(folder, _CONFIG, settings, training.combined_data(data))
  with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
    file.write("\n".join(_PIECES))
  for step, piece in ((3, 6), (4, 7)):
    training.CheckpointManager(folder, 3, model=_model(piece)).save(step)
  best = training.BestCheckpoint(folder, _model(5), "loss")
  best.offer(2, 1, {"loss": 1.0})
  return folder


def test_the_best_comes_first_then_the_latest(run):
  prefix = os.path.join(run, "model.ckpt-3")
  for checkpoint, piece, length in (
    ("", 5, 7),
    ("best", 5, 7),
    ("latest", 7, 13),
    # At the border, longer sequences have not been seen.
    (prefix, 6, 7),
  ):
    opened = export.open_run(run, checkpoint)
    assert opened.path == checkpoints.find_prefix(run, checkpoint)
    assert opened.max_seq_length == length
    bias = next(w for w in opened.model.weights if w.shape == [len(_PIECES)])
    assert np.argmax(bias) == piece
    assert opened.tokenizer.kind == "wordpiece"
  training.BestCheckpoint(run, _model(5), "loss").clear()
  assert checkpoints.find_prefix(run).endswith("model.ckpt-4")
  with pytest.raises(FileNotFoundError, match="keeps no best checkpoint"):
    checkpoints.find_prefix(run, "best")


def test_what_is_not_a_pretraining_run(run, tmp_path):
  with pytest.raises(FileNotFoundError, match="no checkpoint at elsewhere"):
    export.open_run(run, "elsewhere")
  with pytest.raises(FileNotFoundError, match="not the folder of a run"):
    export.open_run(str(tmp_path))
  training.write_run(run, _CONFIG, {}, {"task": "sst2"})
  with pytest.raises(ValueError, match="is a run of sst2, not of pretraining"):
    export.open_run(run)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
