"""Tests of which weights of a run are exported."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, checkpoints, serving, training
from tasks.pretraining import export
from tasks.pretraining import model as model_lib

_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e ##x".split()
_CONFIG = AlbertConfig(
  vocab_size=len(_PIECES),
  embedding_size=6,
  hidden_size=4,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=7,
  max_position_embeddings=13,
)
# Only what these tests look at.
_SMALL = serving.ExportOptions(signatures="text", warmup_seq_lengths=())


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


def _exported(folder):
  """The piece that an export says, and for how many masks at most."""
  loaded = tf.saved_model.load(folder).signatures["serving_default"]
  tokens = loaded(text=tf.constant(["[MASK]" * 20]))["tokens"].numpy()
  assert len(np.unique(tokens)) == 1
  return tokens[0, 0, 0].decode(), tokens.shape[1]


def test_the_best_comes_first_then_the_latest(run, tmp_path):
  prefix = os.path.join(run, "model.ckpt-3")
  for name, checkpoint, expected in (
    ("default", "", ("a", 5)),
    ("best", "best", ("a", 5)),
    # Two of the positions are [CLS] and [SEP].
    ("latest", "latest", ("c", 11)),
    # At the border, longer sequences have not been seen.
    ("prefix", prefix, ("b", 5)),
  ):
    folder = str(tmp_path / name)
    path = export.export_run(run, folder, 1, 0, checkpoint, _SMALL)
    assert _exported(folder) == expected
    assert path == checkpoints.find_prefix(run, checkpoint)
  training.BestCheckpoint(run, _model(5), "loss").clear()
  assert checkpoints.find_prefix(run).endswith("model.ckpt-4")
  with pytest.raises(FileNotFoundError, match="keeps no best checkpoint"):
    checkpoints.find_prefix(run, "best")


def test_an_export_computes_in_float32(run, tmp_path):
  tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
  try:
    export.export_run(run, str(tmp_path / "e"), 1)
    loaded = tf.saved_model.load(str(tmp_path / "e"))
    graph = loaded.signatures["serving_default"].graph
    functions = graph.as_graph_def().library.function
    nodes = [node for function in functions for node in function.node_def]
    dtypes = {node.attr["T"].type for node in nodes if "MatMul" in node.op}
    assert dtypes == {tf.float32.as_datatype_enum}
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")


def test_missing_checkpoints_are_named(run, tmp_path):
  with pytest.raises(FileNotFoundError, match="no checkpoint at elsewhere"):
    export.export_run(run, str(tmp_path / "e"), checkpoint="elsewhere")
  with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
    checkpoints.find_prefix(str(tmp_path), "latest")
  assert os.listdir(tmp_path) == ["run"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
