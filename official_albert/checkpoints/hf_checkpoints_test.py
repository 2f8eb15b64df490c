"""Tests of Hugging Face folders: names, transposes, settings, errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import shutil
import struct

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official_albert import AlbertConfig, modeling
from official_albert.checkpoints import hf_checkpoints, loading
from official_albert.checkpoints.opening_test import check_same, golden
from official_albert.testing import toy_models

_HF = toy_models.GOLDEN / "hf_one_group"
_WORDS = "albert.embeddings.word_embeddings.weight"


def copied(tmp_path, name, **changes):
  """Returns a copy of a folder that transformers wrote, with other settings."""
  shutil.copytree(_HF / name, tmp_path / "hf")
  change_config(tmp_path / "hf", **changes)
  return tmp_path / "hf"


@pytest.fixture
def folder(tmp_path):
  return copied(tmp_path, "pretraining")


def change_config(folder, **changes):
  """Changes the folder's config.json."""
  path = folder / "config.json"
  path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change(folder, **changes):
  """Changes tensors of the folder; None removes one."""
  path = str(folder / "model.safetensors")
  tensors = {**safetensors.numpy.load_file(path), **changes}
  tensors = {n: v for n, v in tensors.items() if v is not None}
  safetensors.numpy.save_file(tensors, path)


@pytest.mark.golden
@pytest.mark.parametrize(
  "name, head, count",
  [
    ("pretraining", "pretraining", 32),
    ("sequence_classification", "classification", 27),
    ("question_answering", "squad1", 25),
  ],
)
def test_a_folder_is_read_and_written_exactly(name, head, count, tmp_path):
  checkpoint = hf_checkpoints.read(str(_HF / name))
  assert checkpoint.head == head and len(checkpoint.tensors) == count
  assert not checkpoint.unexpected
  assert checkpoint.config.hidden_act == "gelu"
  # transformers' question answering has no pooler.
  assert len(checkpoint.missing) == (2 if head == "squad1" else 0)
  hf_checkpoints.write(checkpoint, str(tmp_path))
  read = safetensors.numpy.load_file
  original = read(str(_HF / name / "model.safetensors"))
  written = read(str(tmp_path / "model.safetensors"))
  assert set(written) == set(original)
  # transformers maps the file into memory, so values are aligned.
  header = (tmp_path / "model.safetensors").read_bytes()[:8]
  assert struct.unpack("<Q", header)[0] % 8 == 0
  for key, value in original.items():
    np.testing.assert_array_equal(written[key], value)
  settings = json.loads((tmp_path / "config.json").read_text())
  # The version of transformers, and settings of fine-tuning.
  other = {"transformers_version", "dtype", "classifier_dropout_prob"}
  original = json.loads((_HF / name / "config.json").read_text())
  for key in original.keys() - other:
    assert settings[key] == original[key], key


@pytest.mark.parametrize("head", ["pretraining", "masked_lm", "none"])
def test_groups_and_equal_widths(head, tmp_path):
  # Two groups of two blocks, and E = H: an identity is written as projection
  # and removed on reading; any other projection is kept.
  source = golden(group="two_groups", head=head)
  hf_checkpoints.write(source, str(tmp_path))
  stored = safetensors.numpy.load_file(str(tmp_path / "model.safetensors"))
  prefix = "" if head == "none" else "albert."
  name = f"{prefix}encoder.embedding_hidden_mapping_in.weight"
  np.testing.assert_array_equal(stored[name], np.eye(24))
  again = hf_checkpoints.read(str(tmp_path))
  assert again.head == head and again.config == source.config
  if head == "masked_lm":  # Which has no pooler there.
    assert set(source.carried) - set(again.carried) == set(again.missing)
  else:
    check_same(source, again)
  change(tmp_path, **{name: stored[name] * 2})
  doubled = hf_checkpoints.read(str(tmp_path))
  assert doubled.config.always_project_embedding
  np.testing.assert_array_equal(
    doubled.tensors["bert/encoder/embedding_hidden_mapping_in/kernel"],
    2 * np.eye(24),
  )


def test_a_full_disk_is_reported(tmp_path):
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
  try:
    with pytest.raises(OSError, match="model.safetensors cannot be written"):
      hf_checkpoints.write(golden(), str(tmp_path))
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_other_users_may_read_the_files(tmp_path):
  umask = os.umask(0o027)
  try:
    hf_checkpoints.write(golden(), str(tmp_path))
  finally:
    os.umask(umask)
  modes = {x.name: x.stat().st_mode & 0o777 for x in tmp_path.iterdir()}
  assert modes == {"config.json": 0o640, "model.safetensors": 0o640}


def test_the_step_is_carried(tmp_path):
  source = golden("trained_lamb.ckpt-10")
  hf_checkpoints.write(source, str(tmp_path))
  again = hf_checkpoints.read(str(tmp_path))
  assert again.step == 10
  check_same(source, again)
  for options in ({"include_optimizer": True}, {"config_file": "base.json"}):
    with pytest.raises(ValueError, match="one model, its configuration and no"):
      loading.read_checkpoint(str(tmp_path), **options)
  for wrong in ("7", None, -1, 2.0, True, 10**19):
    change_config(tmp_path, global_step=wrong)
    again = hf_checkpoints.read(str(tmp_path))
    assert "global_step" not in again.tensors and again.step == 0


def test_copies_of_tied_weights(folder):
  before = hf_checkpoints.read(str(folder))
  words = before.tensors["bert/embeddings/word_embeddings"]
  bias = before.tensors["cls/predictions/output_bias"]
  table, other = "predictions.decoder.weight", "predictions.decoder.bias"
  buffer = {"albert.embeddings.position_ids": np.zeros([1, 37], np.float32)}
  change(folder, **{table: words, other: bias}, **buffer)
  checkpoint = hf_checkpoints.read(str(folder))
  check_same(before, checkpoint)
  assert not checkpoint.unexpected and not checkpoint.notes
  change(folder, **{other: bias + 1})
  checkpoint = hf_checkpoints.read(str(folder))
  check_same(before, checkpoint)
  assert not checkpoint.unexpected
  (note,) = checkpoint.notes
  assert note.startswith(f"'{other}' differ from")
  change(folder, **{"predictions.bias": None})
  checkpoint = hf_checkpoints.read(str(folder))
  assert checkpoint.head == "pretraining" and not checkpoint.unexpected
  np.testing.assert_array_equal(
    checkpoint.tensors["cls/predictions/output_bias"], bias + 1
  )
  change(folder, **{table: words + 1})
  (note,) = hf_checkpoints.read(str(folder)).notes
  assert note.startswith(f"'{table}' differ from")


def test_names_with_wrappers_and_old_names(folder):
  before = hf_checkpoints.read(str(folder))
  path = str(folder / "model.safetensors")
  values = safetensors.numpy.load_file(path)
  for rename, kind in (
    (lambda x: f"_orig_mod.{x}", "keras"),
    (lambda x: f"module._orig_mod.{x}", "keras"),
    (lambda x: x.replace("albert.", "albert._orig_mod."), "keras"),
    (lambda x: re.sub(r"(?<=LayerNorm\.)weight$", "gamma", x), "hf"),
    (lambda x: re.sub(r"(?<=LayerNorm\.)bias$", "beta", x), "hf"),
  ):
    renamed = {rename(name): value for name, value in values.items()}
    assert renamed.keys() != values.keys()
    safetensors.numpy.save_file(renamed, path)
    found = hf_checkpoints.read(str(folder))
    check_same(before, found)
    assert found.head == "pretraining" and found.format == kind
  renamed = {f"model.{name}": value for name, value in values.items()}
  safetensors.numpy.save_file(renamed, path)
  with pytest.raises(ValueError, match="its first is 'model.albert.emb"):
    hf_checkpoints.read(str(folder))
  safetensors.numpy.save_file(values, path, {"format": "flax"})
  with pytest.raises(ValueError, match="names of Flax: .*from_flax=True"):
    hf_checkpoints.read(str(folder))


def test_unexpected_and_missing_names(folder):
  extra = np.zeros([3], np.float32)
  change(folder, **{"lm_head.extra": extra, "steps": np.array([3])})
  checkpoint = hf_checkpoints.read(str(folder))
  assert checkpoint.unexpected == ("lm_head.extra",)
  (note,) = checkpoint.notes
  assert note.startswith("the weights 'lm_head.extra' are of no model here")
  change(folder, **{"sop_classifier.classifier.bias": None})
  checkpoint = hf_checkpoints.read(str(folder))
  assert checkpoint.head == "masked_lm"
  assert "cls/seq_relationship/output_weights" in checkpoint.unexpected
  change(folder, **{_WORDS: np.zeros([114, 16], np.float32)})
  with pytest.raises(ValueError, match=r"word_embeddings has shape \[114, 16"):
    hf_checkpoints.read(str(folder))
  change(folder, **{_WORDS: None})
  with pytest.raises(ValueError, match="lacks bert/embeddings/word_embedding"):
    hf_checkpoints.read(str(folder))


def safetensors_file(**tensors):
  """Returns the content of a file; tensors are dtypes, shapes and places."""
  keys = "dtype", "shape", "data_offsets"
  header = {name: dict(zip(keys, values)) for name, values in tensors.items()}
  content = json.dumps(header).encode()
  return struct.pack("<Q", len(content)) + content + bytes(8)


def test_damaged_weights(folder):
  path = folder / "model.safetensors"
  place = "F32", [2], [0, 8]
  many = dict.fromkeys(map(str, range(50_000)), ("F32", [0], [8, 8]))
  for part, content in (
    ("the header", path.read_bytes()[:-1]),
    ("the header", b""),
    ("the header", safetensors_file(a=("F32", [2**40], [0, 2**42]))),
    ("the header", safetensors_file(a=place, **many)),
    # Numbers of eight bits.
    (_WORDS, safetensors_file(**{_WORDS: ("F8_E4M3", [8], [0, 8])})),
  ):
    path.write_bytes(content)
    with pytest.raises(
      ValueError, match=f"is damaged, truncated, or not in float32.* .{part}"
    ):
      hf_checkpoints.read(str(folder))
  path.rename(folder / "pytorch_model.bin")
  with pytest.raises(FileNotFoundError, match="pytorch_model.bin .*again"):
    hf_checkpoints.read(str(folder))


def test_weights_in_several_files(folder):
  expected = hf_checkpoints.read(str(folder)).tensors
  path = folder / "model.safetensors"
  values, file_of = safetensors.numpy.load_file(path), {}
  for i in range(3):
    part = {name: values[name] for name in sorted(values)[i::3]}
    file = f"model-{i + 1:05d}-of-00003.safetensors"
    file_of.update(dict.fromkeys(part, file))
    # A value that the index has in another file is not read.
    safetensors.numpy.save_file(part | {"x": np.float32([i])}, folder / file)
  path.unlink()
  index, more = folder / "model.safetensors.index.json", {"metadata": {}}
  index.write_text(json.dumps({**more, "weight_map": file_of}))
  found = hf_checkpoints.read(str(folder)).tensors
  np.testing.assert_equal(found, expected)
  for wrong, named in (
    ({}, "'weight_map'"),
    ({"weight_map": {_WORDS: "../a.safetensors"}}, "'../a.safetensors', not a"),
    ({"weight_map": {_WORDS: "a.bin"}}, "'a.bin', not a file beside it"),
    ({"weight_map": {_WORDS: "a.safetensors"}}, "a.safetensors is damaged"),
  ):
    index.write_text(json.dumps({**more, **wrong}))
    with pytest.raises(ValueError, match=named):
      hf_checkpoints.read(str(folder))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_half_precision_is_read_exactly(dtype, folder):
  values = np.full([113, 16], 3.140625, dtype.as_numpy_dtype)
  change(folder, **{_WORDS: values})
  read = hf_checkpoints.read(str(folder))
  words = np.asarray(read.tensors["bert/embeddings/word_embeddings"])
  assert words.dtype == np.float32 and set(words.flat) == {3.140625}


def test_settings_back_and_forth():
  for name, config in modeling.PRESETS.items():
    if config.sharing != "all":
      with pytest.raises(ValueError, match="always share whole"):
        hf_checkpoints.settings_of(config, "pretraining", (), 0)
      continue
    settings = hf_checkpoints.settings_of(config, "pretraining", (), 0)
    act = "relu" if name.endswith("_zh") else "gelu_new"
    assert settings["hidden_act"] == act
    assert hf_checkpoints.config_of(settings, "config.json") == config
  # transformers' defaults are Google's xxlarge.
  xxlarge = AlbertConfig.from_preset("albert_xxlarge_v2")
  for theirs, ours, written in (
    ("gelu_python", "gelu_erf", "gelu"),
    ("gelu_pytorch_tanh", "gelu", "gelu_new"),
    ("relu", "relu", "relu"),
    ("", "gelu", "gelu_new"),
  ):
    settings = {"hidden_act": theirs} if theirs else {}
    config = hf_checkpoints.config_of(settings, "config.json")
    assert config == dataclasses.replace(xxlarge, hidden_act=ours)
    settings = hf_checkpoints.settings_of(config, "none", (), 0)
    assert settings["hidden_act"] == written


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"hidden_act": "silu"}, "hidden_act 'silu'; supported are gelu, gelu_py"),
    ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05; only 1e-12"),
    ({"model_type": "bert"}, "model_type 'bert'"),
    ({"is_decoder": True}, "is_decoder True; only False"),
    ({"add_cross_attention": True}, "add_cross_attention True"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ({"quantization_config": {"bits": 8}}, "quantization_config"),
    ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
    ({"per_layer_config": {"0": {"hidden_act": "relu"}}}, "per_layer_config"),
    ({"inner_group_num": 2}, "lacks bert/.*inner_group_1"),
    ({"vocab_size": None}, "config.json: vocab_size is None, but must"),
    ({"vocab_size": 10**9}, "word_embeddings has shape .* in .*hf but"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers . inner_group_num must"),
    (
      {"num_hidden_layers": 18, "num_hidden_groups": 14},
      "rounds the group of layer 9",
    ),
    ({"num_hidden_groups": 3}, "lacks bert/.*group_1.* and 31 more"),
    ("[1]", "config.json is .*must be an object"),
    ("", "config.json"),
  ],
)
def test_settings_that_do_not_fit(changes, message, folder):
  path = folder / "config.json"
  if isinstance(changes, dict):
    change_config(folder, **changes)
  elif changes:
    path.write_text(changes)
  else:
    path.unlink()
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    hf_checkpoints.read(str(folder))


def test_settings_without_effect(folder):
  changes = {
    "pruned_heads": {},
    "is_decoder": None,
    "dtype": "bfloat16",
    "torch_dtype": "torch.float16",
    "_attn_implementation": "sdpa",
    "max_length": 20,
    "inner_group_num": 1,
  }
  change_config(folder, **changes)
  assert not hf_checkpoints.read(str(folder)).notes
  (folder / "config.json").unlink()  # As accelerate saves a state.
  with pytest.raises(
    FileNotFoundError, match="safetensors, but no config.json"
  ):
    loading.read_checkpoint(str(folder))
  (folder / "adapter_config.json").write_text("{}")
  (folder / "model.safetensors").unlink()
  with pytest.raises(ValueError, match="adapter_config.json.*merge it"):
    loading.read_checkpoint(str(folder))


def test_weights_of_a_larger_encoder_are_refused(folder, tmp_path):
  """Leaving out weights of the encoder would give another model."""
  extra = "albert.encoder.albert_layer_groups.0.adapter.weight"
  change(folder, **{extra: np.zeros([3], np.float32)})
  with pytest.raises(ValueError, match=f"{extra}, which is not part of"):
    hf_checkpoints.read(str(folder))
  hf_checkpoints.write(golden(group="two_groups"), str(tmp_path))
  change_config(tmp_path, num_hidden_groups=1)
  with pytest.raises(ValueError, match="groups.1.* not part of the enc"):
    hf_checkpoints.read(str(tmp_path))


def test_an_output_table_of_its_own(folder):
  change_config(folder, tie_word_embeddings=False)
  before = hf_checkpoints.read(str(folder), "none")
  words = np.asarray(before.tensors["bert/embeddings/word_embeddings"])
  change(folder, **{"predictions.decoder.weight": words})
  assert hf_checkpoints.read(str(folder)).head == "pretraining"
  change(folder, **{"predictions.decoder.weight": words + 1})
  read = hf_checkpoints.read(str(folder))
  assert read.head == "none" and "tie_word" in read.head_problem
  assert not any("which is used" in note for note in read.notes)


_THREE = {"0": "a", "1": "b", "2": "c"}
# Changes of settings that contradict the head of a folder, or ask for another.
_OTHER_HEADS: dict[str, list[dict]] = {
  "pretraining": [
    {"tie_word_embeddings": False},
    {"num_labels": 3},
    {"architectures": ["AlbertForQuestionAnswering"]},
  ],
  "question_answering": [{"id2label": _THREE}],
  "sequence_classification": [
    {"problem_type": "regression"},
    {"problem_type": ["regression"]},
    {"num_labels": 2, "id2label": None},
    {"num_labels": 5},
    {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}},
    {"id2label": [*"abc"]},
    {"id2label": {**_THREE, "2": "a"}},
    {"id2label": {**_THREE, "1": "b\tc"}},
    {"id2label": {"0": "a", "1": "b", "3": "c"}},
    {"label2id": {"a": 1, "b": 0, "c": 2}, "id2label": _THREE},
    {"architectures": ["AlbertModel", "AlbertForMaskedLM"]},
    {"architectures": "AlbertForSequenceClassification"},
    {"architectures": [["a"]]},
    {"architectures": ["AlbertForQuestionAnswering"]},
    {"architectures": ["BertForSequenceClassification"]},
    {"architectures": ["AlbertForMaskedLM"]},
  ],
}


@pytest.mark.parametrize("name", _OTHER_HEADS)
def test_a_head_that_no_model_here_has_is_refused_by_name(name, tmp_path):
  head = hf_checkpoints.read(str(_HF / name)).head
  for number, changes in enumerate(_OTHER_HEADS[name]):
    (tmp_path / str(number)).mkdir()
    folder = copied(tmp_path / str(number), name, **changes)
    read = hf_checkpoints.read(str(folder))
    key, value = [*changes.items()][0]
    problem = read.head_problem
    shown = value[0] if key == "architectures" else key
    assert key in problem or shown in problem, problem
    assert str(folder) in problem and read.head == "none"
    assert not read.labels and "output_weights" not in read.carried
    assert any(problem in note for note in read.notes)
    if "not among the weights" in problem:  # The user knows better.
      assert hf_checkpoints.read(str(folder), head).head == head
      continue
    with pytest.raises(ValueError, match="--head=none reads the rest"):
      hf_checkpoints.read(str(folder), head)
    assert hf_checkpoints.read(str(folder), "none").head == "none"


@pytest.mark.parametrize("is_named", [True, False])
def test_one_output_without_a_name_may_score_options(is_named, tmp_path):
  folder = copied(tmp_path, "sequence_classification")
  values = safetensors.numpy.load_file(str(folder / "model.safetensors"))
  names = [f"classifier.{x}" for x in ("weight", "bias")]
  change(folder, **{name: values[name][:1].copy() for name in names})
  settings = dict.fromkeys(("id2label", "label2id", "num_labels"))
  if not is_named:
    settings["architectures"] = None
  change_config(folder, **settings)
  read = hf_checkpoints.read(str(folder))
  assert read.head == "regression"
  is_noted = any("give --head=multiple_choice" in x for x in read.notes)
  assert is_noted != is_named


def test_a_classifier_without_a_pooler_is_of_tokens(tmp_path):
  folder = copied(tmp_path, "sequence_classification", architectures=None)
  names = [f"albert.pooler.{x}" for x in ("weight", "bias")]
  assert hf_checkpoints.read(str(folder)).head == "classification"
  change(folder, **dict.fromkeys(names))
  labels = {"a": "0", "b": 1, "c": "2"}  # Some write their numbers as text.
  change_config(folder, id2label=_THREE, label2id=labels)
  read = hf_checkpoints.read(str(folder))
  assert (read.head, read.labels) == ("token_classification", ("a", "b", "c"))


def _cross_encoder(activation):
  """Returns what sentence-transformers 4 and 5 write into config.json."""
  return {"sentence_transformers": {"activation_fn": f"torch.nn.{activation}"}}


@pytest.mark.parametrize(
  "outputs, changes, head",
  [
    (1, _cross_encoder("modules.activation.Sigmoid"), "multi_label"),
    (1, _cross_encoder("modules.linear.Identity"), "regression"),
    (1, _cross_encoder("modules.activation.Tanh"), "none"),
    (1, {"problem_type": "multi_label_classification"}, "multi_label"),
    (1, {"sbert_ce_default_activation_function": "x.Sigmoid"}, "multi_label"),
    (2, _cross_encoder("modules.activation.Sigmoid"), "multi_label"),
    (2, {"sentence_transformers": {"version": "5"}}, "classification"),
  ],
)
def test_activations_of_cross_encoders(outputs, changes, head, tmp_path):
  """A sigmoid of each output is that of several labels."""
  folder = copied(tmp_path, "sequence_classification")
  values = safetensors.numpy.load_file(str(folder / "model.safetensors"))
  names = [f"classifier.{x}" for x in ("weight", "bias")]
  change(folder, **{x: values[x][:outputs].copy() for x in names})
  names = dict.fromkeys(("id2label", "label2id", "num_labels"))
  change_config(folder, **names, **changes)
  read = hf_checkpoints.read(str(folder))
  assert read.head == head and ("Tanh" in read.head_problem) == (head == "none")
  assert not any("no problem_type" in note for note in read.notes)
  change_config(folder, **dict.fromkeys(changes))
  read = hf_checkpoints.read(str(folder))
  is_noted = any("no problem_type" in note for note in read.notes)
  assert is_noted == (read.head == "regression") == (outputs == 1)


def test_an_encoder_without_a_pooler(folder):
  names = [f"albert.pooler.{x}" for x in ("weight", "bias")]
  change(folder, **dict.fromkeys(names))
  read = hf_checkpoints.read(str(folder), "none")
  assert len(read.missing) == 2
  with pytest.raises(ValueError, match="lacks bert/pooler/dense"):
    hf_checkpoints.read(str(folder), "pretraining")
  change_config(folder, architectures=["AlbertModel"])
  with pytest.warns(UserWarning, match="has no weights of .*pooler/dense/kern"):
    modeling.AlbertModel.from_checkpoint(str(folder))
