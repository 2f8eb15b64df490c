"""Tests of folders of sentence-transformers: what is obeyed, what refused."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

import official_albert as albert
from official_albert import AlbertModel, checkpoints, modeling
from official_albert.checkpoints.opening_test import pack
from official_albert.testing import toy_models, toy_vocabulary

_HF = toy_models.GOLDEN / "hf_one_group" / "pretraining"
_OLD = "sentence_transformers.models."
_NEW = {
  "Transformer": "sentence_transformers.base.modules.transformer.",
  "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.",
  "Normalize": "sentence_transformers.base.modules.normalize.",
}
_FLAGS = [
  f"pooling_mode_{x}"
  for x in (
    *("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens"),
    *("weightedmean_tokens", "lasttoken"),
  )
]
_TEXTS = ["1 5 9 2 6", "40 3 3 8 12 17 2", "7"]


def _write_json(path, value):
  os.makedirs(path.parent, exist_ok=True)
  path.write_text(json.dumps(value))


def _write_modules(folder, *names, prefixes=_NEW, first=""):
  _write_json(
    folder / "modules.json",
    [
      {
        "idx": i,
        "name": str(i),
        "path": f"{i}_{name}" if i else first,
        "type": f"{prefixes[name]}{name}",
      }
      for i, name in enumerate(names)
    ],
  )


@pytest.fixture
def folder(tmp_path):
  """A folder as version 6 writes it, of a mean of length 1."""
  path = tmp_path / "st"
  shutil.copytree(_HF, path)
  (path / "spiece.model").write_bytes(toy_vocabulary.numbers(113))
  _write_modules(path, "Transformer", "Pooling", "Normalize")
  _write_json(
    path / "1_Pooling" / "config.json",
    {"embedding_dimension": 40, "pooling_mode": "mean", "include_prompt": True},
  )
  names = "module_input_name", "module_output_name"
  values = dict.fromkeys(names, "sentence_embedding")
  _write_json(path / "2_Normalize" / "config.json", values)
  text = {"method": "forward", "method_output_name": "last_hidden_state"}
  _write_json(
    path / "sentence_bert_config.json",
    {
      "transformer_task": "feature-extraction",
      "modality_config": {"text": text},
      "module_output_name": "token_embeddings",
    },
  )
  _write_json(
    path / "config_sentence_transformers.json",
    {
      "__version__": {"sentence_transformers": "6.2.0"},
      "model_type": "SentenceTransformer",
      "prompts": {"query": "", "document": ""},
      "default_prompt_name": None,
      "similarity_fn_name": "cosine",
    },
  )
  return path


def _change(path, **changes):
  values = json.loads(path.read_text()) if path.exists() else {}
  _write_json(path, {**values, **changes})


def _read(folder):
  with checkpoints.open(str(folder)) as checkpoint:
    return checkpoint


def test_vectors_are_as_the_folder_says(folder, tmp_path):
  """By all ways to open one; without modules.json, it is an encoder."""
  found = _read(folder)
  assert found.head == "embedding" and not found.head_problem
  assert found.pooling == modeling.Pooling("mean", True)
  assert found.max_seq_length == found.config.max_position_embeddings
  _change(folder / "1_Pooling" / "config.json", pooling_mode="max")
  for length, most in [(10**30, 37), (1e30, 37), (None, 37), (5.0, 5), (5, 5)]:
    _change(folder / "tokenizer_config.json", model_max_length=length)
    assert _read(folder).max_seq_length == most
  _write_modules(folder, "Transformer", "Pooling")
  model = albert.load(folder)
  assert model.methods == ("embed",) and model.kind == "embedding"
  vectors = model.embed(_TEXTS)
  packed = pack(str(folder), str(tmp_path / "st.tar.gz"))
  np.testing.assert_array_equal(albert.load(packed).embed(_TEXTS), vectors)
  hf = shutil.copytree(folder, tmp_path / "hf")
  (hf / "modules.json").unlink()
  encoder = albert.load(hf, max_seq_length=5)
  np.testing.assert_array_equal(
    encoder.embed(_TEXTS, pooling="max", normalize=False), vectors
  )
  assert np.abs(encoder.embed(_TEXTS) - vectors).max() > 0.1
  with checkpoints.open(str(folder), head="none") as checkpoint:
    assert checkpoint.head == "none" and checkpoint.pooling is None


@pytest.mark.parametrize("mode", ["cls", "max", "mean"])
def test_folders_of_old_versions(mode, folder, tmp_path):
  """Their names, in one folder or with the encoder in one of its own."""
  flags = dict.fromkeys(_FLAGS, False)
  name = "cls_token" if mode == "cls" else f"{mode}_tokens"
  flags[f"pooling_mode_{name}"] = True
  assert len(flags) == 6
  _write_json(
    folder / "1_Pooling" / "config.json",
    {"word_embedding_dimension": 40, **flags},
  )
  _write_json(
    folder / "sentence_bert_config.json",
    {"max_seq_length": 7, "do_lower_case": True},
  )
  _change(folder / "tokenizer_config.json", model_max_length=11)
  for name in ("2_Normalize", "config_sentence_transformers.json"):
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
  old = dict.fromkeys(_NEW, _OLD)
  _write_modules(folder, "Transformer", "Pooling", "Normalize", prefixes=old)
  early = tmp_path / "early"
  shutil.copytree(folder, early / "0_Transformer")
  shutil.move(early / "0_Transformer" / "1_Pooling", early)
  _write_modules(
    *(early, "Transformer", "Pooling", "Normalize"),
    prefixes=old,
    first="0_Transformer",
  )
  for path in (folder, early):
    found = _read(path)
    assert (found.head, found.head_problem) == ("embedding", "")
    assert found.pooling == modeling.Pooling(mode, True)
    assert found.max_seq_length == 7


def test_texts_are_lower_cased_if_either_file_says_so(folder):
  settings = folder / "tokenizer_config.json"
  bert = folder / "sentence_bert_config.json"
  for of_tokenizer, of_encoder in ((False, None), (False, True), (True, False)):
    _change(settings, do_lower_case=of_tokenizer)
    _change(bert, do_lower_case=of_encoder)
    found = _read(folder).tokenizer.rules.lower_case
    assert found == bool(of_tokenizer or of_encoder)
  # Their lower case does not strip the accents that a cased WordPiece keeps.
  (folder / "spiece.model").unlink()
  pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a \u00e5".split()
  (folder / "vocab.txt").write_text("\n".join(pieces), "utf-8")
  _change(bert, do_lower_case=True)
  _change(settings, do_lower_case=False)
  assert _read(folder).tokenizer.open().tokenize("\u00c5 A") == ["\u00e5", "a"]


_REFUSED = [
  ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "mean', 'cls"),
  ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "lasttoken"),
  ("1_Pooling/config.json", {"pooling_mode": 3}, "pooling_mode 3"),
  ("1_Pooling/config.json", {"include_prompt": False}, "include_prompt False"),
  ("2_Normalize/config.json", {"module_input_name": "x"}, "module_input_name"),
  ("sentence_bert_config.json", {"max_seq_length": "9"}, "max_seq_length"),
  ("sentence_bert_config.json", {"max_seq_length": -9}, "max_seq_length"),
  ("sentence_bert_config.json", {"query_expansion": {"a": 1}}, "query_expa"),
  ("sentence_bert_config.json", {"tokenizer_args": {"a": 1}}, "tokenizer_args"),
  ("sentence_bert_config.json", {"transformer_task": "x"}, "transformer_task"),
  ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim 8"),
  ("config_sentence_transformers.json", {"model_type": "X"}, "model_type 'X'"),
  (
    "config_sentence_transformers.json",
    {"prompts": {"q": "find: "}, "default_prompt_name": "q"},
    "default_prompt_name 'q', not None",
  ),
]


@pytest.mark.parametrize("file, changes, message", _REFUSED)
def test_settings_that_are_refused(file, changes, message, folder):
  """By `load` and conversions; an encoder for other heads is still read."""
  _change(folder / file, **changes)
  found = _read(folder)
  assert found.head_problem
  with pytest.raises(ValueError, match=f"{message}.*--head=encoder"):
    albert.load(folder)
  with pytest.raises(ValueError, match=f"{message}.*--head=none"):
    checkpoints.read_checkpoint(str(folder), head="embedding")
  assert not AlbertModel.from_checkpoint(str(folder)).load_report.missing


@pytest.mark.parametrize(
  "modules, message",
  [
    ([], "the modules none"),
    ([("", "Transformer")], "the modules Transformer"),
    (
      [("", "Transformer"), ("1_Pooling", "Pooling"), ("2", "Dense")],
      ", Dense",
    ),
    ([("", "WordEmbeddings")], "WordEmbeddings"),
    ([("", "my_code.Transformer")], "my_code.Transformer"),
    ([("", "Transformer"), ("../up", "Pooling")], "paths .*'../up'"),
    ([("x", "Transformer"), ("1_Pooling", "Pooling")], "paths .'x'"),
    ([("1_Pooling", "Pooling"), ("", "Transformer")], "Pooling, Transformer"),
    ({}, "is {}, but must be"),
    ([{"type": 3, "path": ""}], "'0.type' is 3"),
  ],
)
def test_modules_that_are_refused(modules, message, folder):
  if modules and isinstance(modules[0], tuple):
    modules = [
      {"path": path, "type": name if "." in name else f"{_OLD}{name}"}
      for path, name in modules
    ]
  _write_json(folder / "modules.json", modules)
  with pytest.raises(ValueError, match=rf"modules.json.*{message}"):
    albert.load(folder)


def test_notes_on_what_embed_does_not_do(folder):
  _change(
    folder / "config_sentence_transformers.json",
    prompts={"query": "find: "},
    similarity_fn_name="dot",
  )
  (folder / "config_setfit.json").write_text("{}")
  head, prompts, measure = _read(folder).notes
  assert "model_head.pkl" in head
  assert "prompts" in prompts and "similarity_fn_name 'dot'" in measure


def test_written_folders_say_the_same(folder, tmp_path):
  checkpoint = _read(folder)
  for pooling in (modeling.Pooling("cls", False), modeling.Pooling("max")):
    checkpoint.pooling, checkpoint.max_seq_length = pooling, 9
    new = tmp_path / pooling.pooling
    new.mkdir()
    checkpoints.WRITERS["hf"](checkpoint, str(new))
    found = _read(new)
    assert (found.pooling, found.max_seq_length) == (pooling, 9)
    settings = json.loads((new / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 9
    names = {x.name for x in pathlib.Path(new).iterdir() if x.is_dir()}
    assert names == {"1_Pooling", *["2_Normalize"] * pooling.normalize}
