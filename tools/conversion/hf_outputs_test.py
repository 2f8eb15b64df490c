"""Tests of the script that runs Hugging Face models.

One test runs the real model if torch and transformers are installed; the others
replace both packages.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest

from tools.conversion import hf_outputs

_GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "official_albert"
_GOLDEN = _GOLDEN / "testdata" / "hf_one_group"
_BATCH = {
  "input_ids": np.array([[3, 5, 8]]),
  "input_mask": np.array([[1, 1, 0]]),
  "segment_ids": np.array([[0, 1, 1]]),
  "masked_lm_positions": np.array([[1, 0]]),
}


class _Tensor(np.ndarray):
  def long(self):
    return self

  def numpy(self):
    return np.asarray(self)


def _tensor(value):
  return np.asarray(value).view(_Tensor)


class _Context:
  def __enter__(self):
    return self

  def __exit__(self, *error):
    return None


def _fake(monkeypatch, info, outputs):
  """Replaces both packages; the model returns `outputs`."""

  class Model:
    @classmethod
    def from_pretrained(cls, folder, output_loading_info, local_files_only):
      assert output_loading_info and local_files_only
      keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
      return cls(), {**dict.fromkeys(keys, ()), **info}

    def eval(self):
      return self

    def __call__(self, input_ids, attention_mask, token_type_ids, **more):
      assert more == {"output_hidden_states": True}
      np.testing.assert_array_equal(input_ids, _BATCH["input_ids"])
      np.testing.assert_array_equal(attention_mask, _BATCH["input_mask"])
      np.testing.assert_array_equal(token_type_ids, _BATCH["segment_ids"])
      return types.SimpleNamespace(**outputs)

  torch = types.SimpleNamespace(
    tensor=_tensor, arange=np.arange, no_grad=_Context
  )
  transformers = types.SimpleNamespace(
    logging=types.SimpleNamespace(set_verbosity_error=lambda: None),
    AlbertForPreTraining=Model,
  )
  monkeypatch.setitem(sys.modules, "torch", torch)
  monkeypatch.setitem(sys.modules, "transformers", transformers)


def _run(tmp_path):
  shutil.copy(_GOLDEN / "pretraining" / "config.json", tmp_path)
  np.savez(tmp_path / "batch.npz", **_BATCH)
  hf_outputs.main(
    str(tmp_path), str(tmp_path / "batch.npz"), str(tmp_path / "outputs.npz")
  )
  return np.load(tmp_path / "outputs.npz")


def test_outputs_at_masked_positions(tmp_path, monkeypatch):
  hidden = _tensor(np.arange(6.0).reshape(1, 3, 2))
  scores = _tensor(np.arange(12.0).reshape(1, 3, 4))
  order = _tensor(np.array([[0.5, -0.5]]))
  outputs = dict(
    hidden_states=[None, hidden], prediction_logits=scores, sop_logits=order
  )
  _fake(monkeypatch, {}, outputs)
  written = _run(tmp_path)
  np.testing.assert_array_equal(written["sequence_output"], hidden)
  np.testing.assert_array_equal(
    written["masked_lm_logits"], [[[4, 5, 6, 7], [0, 1, 2, 3]]]
  )
  np.testing.assert_array_equal(written["sentence_order_logits"], order)


def test_texts_are_tokenized(tmp_path, monkeypatch):
  class Tokenizer:
    @classmethod
    def from_pretrained(cls, folder, local_files_only):
      assert folder == str(tmp_path) and local_files_only
      return cls()

    def __call__(self, texts, add_special_tokens):
      assert texts == ["a", "", "b c"] and not add_special_tokens
      return {"input_ids": [[5], [], [6, 7]]}

  _fake(monkeypatch, {}, {})
  sys.modules["transformers"].AutoTokenizer = Tokenizer
  files = [str(tmp_path / name) for name in ("texts.npz", "ids.npz")]
  np.savez(files[0], texts=np.array(["a", "", "b c"]))
  hf_outputs.main(str(tmp_path), *files)
  written = np.load(files[1])
  assert written["ids"].tolist() == [5, 6, 7]
  assert written["lengths"].tolist() == [1, 0, 2]


def test_a_missing_key(tmp_path, monkeypatch):
  _fake(monkeypatch, {"missing_keys": ["x.weight"]}, {})
  with pytest.raises(SystemExit, match=r"reports missing_keys: \['x.weight'\]"):
    _run(tmp_path)


@pytest.mark.skipif(
  not all(map(importlib.util.find_spec, ("torch", "transformers"))),
  reason="torch and transformers are not installed",
)
@pytest.mark.parametrize(
  "name, own, theirs",
  [
    ("pretraining", "sentence_order_logits", "sop_logits"),
    ("sequence_classification", "logits", "logits"),
    ("question_answering", "start_logits", "start_logits"),
  ],
)
def test_the_real_model(name, own, theirs, tmp_path):
  expected = np.load(_GOLDEN / name / "reference_outputs.npz")
  ids = expected["input_ids"]
  np.savez(
    tmp_path / "batch.npz",
    input_ids=ids,
    input_mask=expected["attention_mask"],
    segment_ids=expected["token_type_ids"],
    masked_lm_positions=np.zeros([len(ids), 1], np.int32),
  )
  output = str(tmp_path / "outputs.npz")
  hf_outputs.main(str(_GOLDEN / name), str(tmp_path / "batch.npz"), output)
  written = json.dumps(sorted(np.load(output)))
  assert own in written
  np.testing.assert_allclose(np.load(output)[own], expected[theirs], atol=1e-5)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
