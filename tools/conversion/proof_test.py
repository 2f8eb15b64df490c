"""Tests of comparing checkpoints and models."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

from official_albert import AlbertConfig, checkpoints, tokenization
from official_albert.testing import toy_vocabulary
from tools import finetuning
from tools.conversion import proof

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TESTDATA = _ROOT / "official_albert" / "testdata"
_CONFIG = AlbertConfig(
  vocab_size=31,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
  num_attention_heads=5,
  intermediate_size=14,
  max_position_embeddings=9,
)


@pytest.mark.parametrize("head", sorted(checkpoints.HEADS))
def test_the_table_has_every_variable_of_every_model(head):
  classes = {"classification": 3, "regression": 1}.get(head, 0)
  model = finetuning.registry.make_model(head, _CONFIG, classes)
  prefix = "" if hasattr(model, "albert") else "albert/"
  variables = checkpoints.by_path(model)
  shapes = {f"{prefix}{path}": v.shape for path, v in variables.items()}
  rows = checkpoints.rows(_CONFIG, head)
  if head == "masked_lm":  # Its model has both pretraining heads.
    rows += checkpoints.HEADS["pretraining"][-2:]
  assert {row.own: row.shape_in(_CONFIG, classes) for row in rows} == shapes
  assert len(checkpoints.tf1_variables(model)) == len(rows)


@pytest.mark.parametrize(
  "name, outputs",
  [
    (
      "pretraining",
      {
        "prediction_logits": "masked_lm_logits",
        "sop_logits": "sentence_order_logits",
      },
    ),
    ("sequence_classification", {"logits": "logits"}),
    (
      "question_answering",
      {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
  ],
)
def test_outputs_of_transformers(name, outputs):
  folder = _TESTDATA / "hf_one_group" / name
  checkpoint = checkpoints.READERS["hf"](str(folder))
  model = finetuning.registry.make_model(checkpoint.head, checkpoint.config, 3)
  report = checkpoints.fill(model, checkpoint)
  assert not report.unexpected
  expected = np.load(folder / "reference_outputs.npz")
  ids = expected["input_ids"].astype(np.int32)
  batch = {
    "input_ids": ids,
    "input_mask": expected["attention_mask"].astype(np.int32),
    "segment_ids": expected["token_type_ids"].astype(np.int32),
  }
  if name == "pretraining":
    batch["masked_lm_positions"] = np.tile(
      np.arange(ids.shape[1], dtype=np.int32), [len(ids), 1]
    )
  ours = model(batch)
  mask = expected["attention_mask"].astype(bool)
  for theirs, own in {
    "last_hidden_state": "sequence_output",
    **outputs,
  }.items():
    a, b = expected[theirs], ours[own].numpy()
    assert a.shape == b.shape
    per_token = a.shape[:2] == mask.shape
    a, b = (a[mask], b[mask]) if per_token else (a, b)
    # Measured: 4e-7 in float32.
    np.testing.assert_allclose(b, a, atol=1e-5, rtol=0)


def _read(head="none"):
  path = str(_TESTDATA / "one_group" / "model.ckpt")
  return checkpoints.read_tf1_checkpoint(path, head)


def test_one_wrong_value_is_found():
  path = str(_TESTDATA / "one_group" / "model.ckpt")
  a, b = (checkpoints.read_tf1_checkpoint(path, "none") for _ in range(2))
  assert proof.by_name(a, b) == 0
  b.tensors = {name: value.copy() for name, value in b.tensors.items()}
  bias = b.tensors["bert/pooler/dense/bias"]
  bias[7] += np.float32(0.25)
  assert proof.by_name(a, b) == pytest.approx(0.25, rel=1e-5)
  bias[7] = np.nan
  assert proof.by_name(a, b) == np.inf
  b.tensors["bert/pooler/dense/bias"] = bias[1:]
  assert proof.by_name(a, b) == np.inf


def test_tolerances_depend_on_the_size_of_outputs():
  theirs = {"x": np.full([2, 3], 100.0), "y": np.zeros([1])}
  ours = {"x": theirs["x"].copy(), "y": np.zeros([1]), "more": np.ones([1])}
  ours["x"][1, 1] += 0.5
  where, difference, allowed = proof.by_batch(ours, theirs)
  assert (where, difference) == ("x", pytest.approx(0.5))
  assert allowed == pytest.approx(1e-3)
  ours["y"][0] = np.nan
  assert proof.by_batch(ours, theirs) == ("y", np.inf, 1e-5)
  with pytest.raises(ValueError, match="x of the two models differs in shape"):
    proof.by_batch({"x": np.zeros([3, 2])}, theirs)


def test_a_batch_has_padding_and_both_segments():
  batch = proof.make_batch(_CONFIG, "none")
  assert batch["input_ids"].shape == (2, 9)
  assert batch["input_mask"].sum(1).tolist() == [9, 7]
  assert set(batch["segment_ids"].flat) == {0, 1}
  options = proof.make_batch(_CONFIG, "multiple_choice")
  assert options["input_ids"].shape == (1, 2, 9)
  del options["masked_lm_positions"]  # Of heads that score the vocabulary.
  model = finetuning.registry.make_model("multiple_choice", _CONFIG)
  assert model(options)["logits"].shape == [1, 2]


def test_outputs_of_a_head_without_positions(tmp_path):
  """The batch has positions for heads that score the vocabulary."""
  path = str(_TESTDATA / "one_group" / "classifier.ckpt")
  checkpoint = checkpoints.read_tf1_checkpoint(path)
  batch = proof.make_batch(checkpoint.config, "classification")
  outputs = proof.own_outputs(path, checkpoint, batch)
  assert outputs["logits"].shape == (2, 3)


def test_finding_and_running_the_other_framework(tmp_path):
  with pytest.raises(FileNotFoundError, match="is not a program"):
    proof.find_hf_python(str(tmp_path))
  assert proof.find_hf_python(sys.executable) == sys.executable
  batch = proof.make_batch(_CONFIG, "none")
  # The last line of its output is reported.
  with pytest.raises(ValueError, match="Hugging Face cannot run the model: .+"):
    proof.hf_outputs(sys.executable, str(tmp_path), batch)


def test_ids_of_the_other_tokenizer(tmp_path, monkeypatch):
  path = tmp_path / "tokenizer.model"
  path.write_bytes(toy_vocabulary.numbers(97))
  tokenizer = tokenization.SentencePieceTokenizer(str(path))
  wrong = ()

  def theirs(python, folder, batch):
    assert (python, folder) == ("it", "folder")
    rows = [tokenizer.encode(text) for text in batch["texts"].tolist()]
    for row in wrong:
      rows[row] = rows[row][1:]
    return {
      "ids": np.array([i for row in rows for i in row], np.int32),
      "lengths": np.array([len(row) for row in rows], np.int32),
    }

  monkeypatch.setattr(proof, "hf_outputs", theirs)
  sentence = proof.by_texts("it", "folder", tokenizer)
  assert "gives the same ids for all 8 texts" in sentence
  wrong = (1, 6)
  sentence = proof.by_texts("it", "folder", tokenizer)
  assert "other ids than this package for 2 of the 8 texts" in sentence
  assert "such as '.hidden" in sentence
  monkeypatch.undo()
  sentence = proof.by_texts(sys.executable, str(tmp_path), tokenizer)
  assert (
    "were not compared: Hugging Face cannot run the tokenizer: " in sentence
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
