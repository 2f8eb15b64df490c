"""Tests of HDF5 files, written by hand with the names that others give.

tools/conversion/keras_models_test.py runs the other libraries.
"""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest
import safetensors.numpy

from official_albert.checkpoints import hf_checkpoints, loading
from official_albert.checkpoints.opening_test import check_same, golden
from official_albert.testing import toy_models, toy_vocabulary

_HF = toy_models.GOLDEN / "hf_one_group"
_NORMS = ("LayerNorm", "layer_norm")


def tf_name(name):
  """Returns the name that TensorFlow's class of transformers gives."""
  name = name.replace("layer_groups.", "layer_groups_._")
  *layers, end = name.replace("layers.", "layers_._").split(".")
  is_norm = layers[-1].endswith(_NORMS)
  ends = {"weight": "gamma" if is_norm else "kernel"}
  if is_norm:
    ends["bias"] = "beta"
  if layers[-1] == "word_embeddings":
    ends["weight"] = "weight"
  elif layers[-1].endswith("_embeddings"):
    ends["weight"] = "embeddings"
  return "/".join([*layers, ends.get(end, end)])


def write_h5(folder, model="tf_albert/", **more):
  """Writes the golden weights of a folder as tf_model.h5."""
  values = safetensors.numpy.load_file(folder / "model.safetensors")
  with h5py.File(folder / "tf_model.h5", "w") as file:
    for name, value in {**values, **more}.items():
      path = tf_name(name)
      value = value.T if path.endswith("kernel") else value
      layer = path.split("/")[0]
      file[f"{layer}/{model}{path}:0"] = value
    if "predictions.bias" in values:  # A head repeats the encoder's table.
      table = f"{model}albert/embeddings/word_embeddings/weight:0"
      file[f"predictions/{table}"] = file[f"albert/{table}"][()]
  return folder / "tf_model.h5"


@pytest.mark.golden
@pytest.mark.parametrize("model", ["tf_albert_for_x_1/", ""])
@pytest.mark.parametrize(
  "name", ["pretraining", "sequence_classification", "question_answering"]
)
def test_a_tf_model_is_read_exactly(name, model, tmp_path):
  folder = tmp_path / "hf"
  shutil.copytree(_HF / name, folder)
  expected = hf_checkpoints.read(str(folder))
  write_h5(folder, model)
  weights = folder / "model.safetensors"
  content = weights.read_bytes()
  weights.unlink()
  found = hf_checkpoints.read(str(folder))
  assert found.head == expected.head and not found.notes
  assert len(found.tensors) == len(expected.tensors)
  check_same(expected, found)
  # safetensors come first, whatever is in the other file.
  weights.write_bytes(content)
  (folder / "tf_model.h5").write_bytes(b"x")
  check_same(expected, hf_checkpoints.read(str(folder)))


@pytest.fixture
def folder(tmp_path):
  shutil.copytree(_HF / "pretraining", tmp_path / "hf")
  return tmp_path / "hf"


@pytest.mark.golden
def test_safetensors_with_the_names_of_tensorflow(folder):
  """What a TFAlbert... class saves with safe_serialization."""
  expected = hf_checkpoints.read(str(folder))
  path = folder / "model.safetensors"
  values = {}
  for name, value in safetensors.numpy.load_file(path).items():
    name = f"{tf_name(name)}:0"
    is_kernel = name.endswith("kernel:0")
    values[name] = np.ascontiguousarray(value.T) if is_kernel else value
  safetensors.numpy.save_file(values, path, {"format": "tf"})
  found = hf_checkpoints.read(str(folder))
  check_same(expected, found)
  assert (expected.format, found.format) == ("hf", "keras")
  assert found.head == "pretraining" and not found.unexpected


def test_the_bias_that_tensorflow_adds_is_read(folder):
  bias = np.arange(113, dtype=np.float32)
  write_h5(folder, **{"predictions.decoder.bias": bias})
  (folder / "model.safetensors").unlink()
  found = hf_checkpoints.read(str(folder))
  np.testing.assert_array_equal(
    found.tensors["cls/predictions/output_bias"], bias
  )
  assert not found.unexpected


def test_damaged_files(folder, tmp_path):
  path = write_h5(folder)
  (folder / "model.safetensors").unlink()
  valid = path.read_bytes()

  def is_refused(message):
    with pytest.raises(ValueError, match=message):
      hf_checkpoints.read(str(folder))

  for content in (b"", b"PK\3\4", valid[:-1], valid[: len(valid) // 2]):
    path.write_bytes(content)
    is_refused("tf_model.h5 is damaged, truncated")
  beside = tmp_path / "other"
  beside.write_bytes(bytes(400))
  shape = (10, 10)
  layout = h5py.VirtualLayout(shape, "f4")
  for make in (
    # A small file that would fill the memory, and files of the disk.
    lambda file: file.create_dataset("a", (1 << 20, 1 << 20), "f4"),
    lambda file: file.create_dataset(
      "a", shape, "f4", external=[(str(beside), 0, 400)]
    ),
    lambda file: file.create_virtual_dataset("a", layout),
  ):
    path.write_bytes(valid)
    with h5py.File(path, "a") as file:
      make(file)
    is_refused("tf_model.h5 is damaged.*a is not in it as it is")
  with h5py.File(path, "w") as file:  # Links are not followed.
    file["a"] = h5py.ExternalLink(str(beside), "/")
    file["b"] = h5py.SoftLink("/b")
  is_refused("holds no variable with an ALBERT name|lacks bert/")
  with h5py.File(path, "w") as file:
    file["x/kernel:0"] = np.zeros([3, 2], np.float32)
  is_refused("lacks bert/|no variable")


# The names of layers in a preset.
_LAYERS = {
  "embeddings.word_embeddings": "token_embedding",
  "embeddings.token_type_embeddings": "segment_embedding",
  "embeddings.position_embeddings": "position_embedding",
  "embeddings.LayerNorm": "embeddings_layer_norm",
  "encoder.embedding_hidden_mapping_in": "embedding_projection",
  "pooler": "pooled_dense",
  "attention.query": "self_attention_layer/query",
  "attention.key": "self_attention_layer/key",
  "attention.value": "self_attention_layer/value",
  "attention.dense": "self_attention_layer/attention_output",
  "attention.LayerNorm": "self_attention_layer_norm",
  "ffn": "feedforward_intermediate_dense",
  "ffn_output": "feedforward_output_dense",
  "full_layer_layer_norm": "feedforward_layer_norm",
}


def write_preset(folder, source):
  """Writes an encoder as KerasHub does."""
  c = source.config
  folder.mkdir()
  hf_checkpoints.write(source, str(folder))
  values = safetensors.numpy.load_file(folder / "model.safetensors")
  for path in folder.iterdir():
    path.unlink()
  config = {
    "vocabulary_size": c.vocab_size,
    "num_layers": c.num_hidden_layers,
    "num_heads": c.num_attention_heads,
    "num_groups": c.num_hidden_groups,
    "num_inner_repetitions": c.inner_group_num,
    "embedding_dim": c.embedding_size,
    "hidden_dim": c.hidden_size,
    "intermediate_dim": c.intermediate_size,
    "dropout": 0.125,
    "max_sequence_length": c.max_position_embeddings,
    "num_segments": c.type_vocab_size,
  }
  preset = {"class_name": "AlbertBackbone", "config": config}
  (folder / "config.json").write_text(json.dumps(preset))
  heads, width = c.num_attention_heads, c.hidden_size
  with h5py.File(folder / "model.weights.h5", "w") as file:
    for name, value in values.items():
      place, _, kind = name.rpartition(".")
      is_weight, layers = kind == "weight", []
      if place not in _LAYERS:
        _, _, group, _, inner, place = place.split(".", 5)
        layers = [f"group_{group}_inner_layer_{inner}"]
      layers += _LAYERS[place].split("/")
      is_table = place.endswith("_embeddings")
      value = value if is_table or not is_weight else value.T
      if layers[-1] in ("query", "key", "value"):
        value = value.reshape([*value.shape[:-1], heads, width // heads])
      elif layers[-1] == "attention_output" and is_weight:
        value = value.reshape([heads, width // heads, width])
      path = "layers"
      for layer in layers:  # The paths in the file have no meaning.
        path += f"/_{layer}"
        file.require_group(f"{path}/vars").attrs["name"] = layer
      file[f"{path}/vars/{0 if is_weight else 1}"] = value


@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_a_preset_of_keras_hub_is_read_exactly(group, tmp_path):
  source = golden(group=group, head="none")
  source.tensors.pop("global_step", None)
  folder = tmp_path / "preset"
  write_preset(folder, source)
  with loading.open(str(folder)) as found:
    check_same(source, found)
    config = found.config
    assert not found.notes and found.head == "none" and not found.tokenizer
  assert config.hidden_dropout_prob == 0.125
  assert config.attention_probs_dropout_prob == 0.125
  for name in ("num_hidden_groups", "inner_group_num", "num_hidden_layers"):
    assert getattr(config, name) == getattr(source.config, name)
  (folder / "preprocessor.json").write_text('{"config": [9]}')
  with pytest.raises(ValueError, match=r"preprocessor.json: 'config' is \[9\]"):
    loading.read_checkpoint(str(folder))
  (folder / "preprocessor.json").write_text('{"config":{"sequence_length":9}}')
  found = loading.read_checkpoint(str(folder))
  assert (found.max_seq_length, found.format) == (9, "keras")
  # KerasHub runs the model alone: it neither lower-cases nor strips accents.
  (folder / "task.weights.h5").touch()  # The head of a classifier.
  assert "task.weights.h5" in loading.read_checkpoint(str(folder)).notes[0]
  vocabulary = folder / "assets" / "tokenizer" / "vocabulary.spm"
  vocabulary.parent.mkdir(parents=True)
  vocabulary.write_bytes(toy_vocabulary.numbers(config.vocab_size))
  (folder / "tokenizer.json").write_text('{"class_name": "AlbertTokenizer"}')
  tokenizer = loading.read_checkpoint(str(folder)).tokenizer
  assert tokenizer.read() == vocabulary.read_bytes()
  assert not tokenizer.rules.lower_case and tokenizer.rules.keep_accents


def test_a_preset_in_bfloat16_is_read_exactly(tmp_path):
  source = golden(head="none")
  write_preset(tmp_path / "preset", source)
  with h5py.File(tmp_path / "preset" / "model.weights.h5", "a") as file:
    name = "layers/_pooled_dense/vars/1"  # The pooler's bias.
    value = file[name][()].astype("bfloat16")
    del file[name]
    file.create_dataset(name, data=value.view("V2")).attrs["dtype"] = "bfloat16"
  found = loading.read_checkpoint(str(tmp_path / "preset")).tensors
  bias = found["bert/pooler/dense/bias"]
  assert bias.dtype == np.float32
  np.testing.assert_array_equal(bias, value.astype(np.float32))


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"class_name": "BertBackbone"}, "preset of KerasHub for 'BertBackbone'"),
    ({"config": None}, "preset of KerasHub"),
    ({"config": {"dtype": {"config": {"mode": "int8"}}}}, "quantized"),
    ({"config": {"num_layers": 0}}, "num_hidden_layers"),
    ({"config": {"hidden_dim": 32}}, "shape|lacks|multiple|divi"),
  ],
)
def test_presets_that_do_not_fit(changes, message, tmp_path):
  folder = tmp_path / "preset"
  write_preset(folder, golden(head="none"))
  path = folder / "config.json"
  preset = json.loads(path.read_text())
  if isinstance(changes.get("config"), dict):
    changes = {"config": {**preset["config"], **changes["config"]}}
  path.write_text(json.dumps({**preset, **changes}))
  with pytest.raises(ValueError, match=message):
    hf_checkpoints.read(str(folder))


@pytest.mark.parametrize(
  "change, error, message",
  [
    (lambda path: path.unlink(), FileNotFoundError, "model.weights.h5"),
    (
      lambda path: rename(path, "group_0_inner_layer_0", "group_0_inner_{x}"),
      ValueError,
      "lacks bert/",
    ),
    (
      lambda path: rename(path, "query", "{x.__class__} {9}"),
      ValueError,
      "lacks bert/",
    ),
    (
      lambda path: (
        h5py.File(path, "a").create_dataset("a", data=[1.0]).file.close()
      ),
      ValueError,
      "has albert..a, which is not part of the encoder",
    ),
  ],
)
def test_presets_with_other_weights(change, error, message, tmp_path):
  folder = tmp_path / "preset"
  write_preset(folder, golden(head="none"))
  change(folder / "model.weights.h5")
  with pytest.raises(error, match=message):
    hf_checkpoints.read(str(folder))


def rename(path, old, new):
  """Gives layers of a preset another name."""
  with h5py.File(path, "a") as file:

    def visit(_, node):
      if node.attrs.get("name") == old:
        node.attrs["name"] = new

    file.visititems(visit)
