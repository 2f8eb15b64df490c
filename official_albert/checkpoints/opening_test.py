"""Tests of reading and writing checkpoints of every format."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import shutil
import sys
import tarfile
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, checkpoints, files, runs
from official_albert.checkpoints import loading, tensor_bundle
from official_albert.testing import fake_gcs, toy_models, toy_vocabulary

_TF1 = str(toy_models.GOLDEN / "two_groups" / "model.ckpt")
_FORMATS = ("tf1", "tf_hub", "hf", "official_albert")
_CONFIG = toy_models.config(41, 11, num_hidden_layers=3, sharing="attention")


def golden(name="model.ckpt", group="one_group", **arguments):
  path = str(toy_models.GOLDEN / group / name)
  return loading.read_checkpoint(path, **arguments)


def check_same(first, second):
  assert set(first.carried) == set(second.carried)
  for name in first.carried:
    np.testing.assert_array_equal(first.tensors[name], second.tensors[name])


def write_run(folder, config=_CONFIG, **data):
  """Writes a run with random weights and returns its encoder."""
  root = tf.Module()
  root.albert = AlbertModel(config)
  root.head = tf.Variable([1.0, 2.0], name="head")
  runs.write_run(str(folder), config, {}, data)
  tf.train.Checkpoint(model=root).write(f"{folder}/{runs.CHECKPOINT_NAME}-1")
  return root.albert


def write(kind, folder):
  """Writes the golden model in a format and returns its path."""
  if kind == "tf1":
    return _TF1
  source = loading.read_checkpoint(_TF1)
  os.makedirs(folder)
  if kind != "tf_hub":
    loading.WRITERS[kind](source, folder)
    return folder
  for name in ("variables", "assets"):
    os.makedirs(os.path.join(folder, name))
  with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
    file.write(b"never read")
  source.config.to_json_file(os.path.join(folder, "assets/albert_config.json"))
  tensor_bundle.write_bundle(
    os.path.join(folder, "variables", "variables"),
    {f"module/{name}": value for name, value in source.tensors.items()},
  )
  return folder


def test_a_run_in_a_phase_of_fewer_layers_has_these(tmp_path):
  config = toy_models.config(41, 11, num_hidden_layers=5)
  settings = {"phases": [{"steps": 3}, {"steps": 2}, {"steps": 4}]}
  settings["phase_layers"] = "2,3,5"
  runs.write_run(str(tmp_path), config, settings, {})
  root = tf.Module()
  root.albert = AlbertModel(config)
  for step, layers in ((3, 2), (4, 3), (5, 3), (6, 5), (9, 5)):
    prefix = str(tmp_path / f"{runs.CHECKPOINT_NAME}-{step}")
    tf.train.Checkpoint(model=root).write(prefix)
    found = loading.read_checkpoint(str(tmp_path))
    assert found.config.num_hidden_layers == layers
    notes = [x for x in found.notes if f"applied {layers} layers" in x]
    assert len(notes) == (layers < 5)
  settings["phases"] = [{}]
  runs.write_run(str(tmp_path), config, settings, {})
  with pytest.raises(ValueError, match="run.json has phase_layers '2,3,5'"):
    loading.read_checkpoint(str(tmp_path))


@pytest.fixture
def hub(tmp_path, monkeypatch):
  """The library of the Hugging Face Hub, offline, with an empty cache."""
  constants = pytest.importorskip("huggingface_hub.constants")
  cache = tmp_path / "cache"
  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  monkeypatch.chdir(tmp_path)
  return cache


def test_a_name_of_the_hub_is_read_from_the_cache(hub, tmp_path, monkeypatch):
  name, commit = "team/albert-toy", "f" * 40
  for wrong in (name, "team/.."):
    with pytest.raises(FileNotFoundError, match=f"{name[:4]}.*on the Hugging"):
      loading.read_checkpoint(wrong)
  # As the library lays it out.
  folder = hub / "models--team--albert-toy"
  write("hf", str(folder / "snapshots" / commit))
  (folder / "refs").mkdir()
  (folder / "refs" / "main").write_text(commit)
  with loading.open(name) as found:
    check_same(found, loading.read_checkpoint(_TF1))
    assert found.shown(found.source) == name
  (found_file,) = folder.glob("snapshots/*/config.json")
  found_file.write_text("{")
  with pytest.raises(ValueError, match=f"^{name}/config.json is not valid"):
    loading.read_checkpoint(name)
  # A path comes first, and without the library a name is a path.
  write_run(tmp_path / name)
  assert loading.read_checkpoint(name).config == _CONFIG
  shutil.rmtree(tmp_path / name)
  monkeypatch.setitem(sys.modules, "huggingface_hub", None)
  with pytest.raises(FileNotFoundError, match=f"no checkpoint at {name}: "):
    loading.read_checkpoint(name)


def pack(path, archive):
  """Writes a .tar.gz as the releases have it: with one folder."""
  with tarfile.open(archive, "w:gz", dereference=True) as file:
    if os.path.isdir(path):
      file.add(path, "base")
    else:  # The folder holds more than a release does.
      for end in ("index", "data-00000-of-00001"):
        file.add(f"{path}.{end}", f"base/model.ckpt.{end}")
      config = os.path.join(os.path.dirname(path), "albert_config.json")
      file.add(config, "base/albert_config.json")
  return archive


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", _FORMATS)
def test_an_encoder_from_every_format(kind, packed, tmp_path, monkeypatch):
  path = write(kind, str(tmp_path / "there"))
  expected = "tf1" if kind == "tf_hub" else kind
  assert loading.read_checkpoint(path).format == expected
  if packed:
    path = pack(path, str(tmp_path / "albert.tar.gz"))
  (tmp_path / "scratch").mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
  model = AlbertModel.from_checkpoint(path, recompute_activations=True)
  assert not os.listdir(tmp_path / "scratch")
  assert model.encoder.recompute_activations
  source = loading.read_checkpoint(_TF1)
  assert model.config == source.config
  variables = loading.tf1_variables(model)
  assert set(model.load_report.matched) == set(variables)
  assert not model.load_report.missing
  assert len(model.load_report.unexpected) == 7  # Of the two heads.
  for name, variable in variables.items():
    np.testing.assert_array_equal(variable, source.tensors[name])


def test_paths_are_as_the_user_wrote_them(tmp_path):
  folder = write("hf", str(tmp_path / "there"))
  files.write_bytes(f"{folder}/modules.json", b"[]")
  files.write_bytes(f"{folder}/spiece.model", toy_vocabulary.numbers(97))
  archive = pack(folder, str(tmp_path / "albert.tar.gz"))
  for path in (folder, archive):
    with checkpoints.open(path) as checkpoint:
      assert checkpoint.shown(checkpoint.source) == path
      assert checkpoint.notes[0].startswith(f"{path}/modules.json has the mod")
    assert checkpoint.tokenizer.path.startswith(path)
    assert checkpoint.tokenizer.open().vocab_size == 97


def _read_encoders(addresses):
  """Returns weights by TF1 name for each address, and the temporary files."""
  found = []
  for address in addresses:
    model = AlbertModel.from_checkpoint(address)
    variables = loading.tf1_variables(model)
    found.append({name: x.numpy() for name, x in variables.items()})
  return found, os.listdir(tempfile.gettempdir())


def test_every_format_in_a_bucket(tmp_path):
  (tmp_path / "scratch").mkdir()
  addresses = []
  with fake_gcs.FakeGcs() as gcs:
    for kind in _FORMATS:
      path = write(kind, str(tmp_path / kind))
      folder = os.path.dirname(path) if kind == "tf1" else path
      addresses.append(path.replace(folder, f"gs://bucket/{kind}"))
      for name in files.walk(folder):
        content = files.read_bytes(os.path.join(folder, name))
        gcs.objects[f"gs://bucket/{kind}/{name}"] = content
    archive = pack(_TF1, str(tmp_path / "albert.tar.gz"))
    addresses.append("gs://bucket/albert.tar.gz")
    gcs.objects[addresses[-1]] = files.read_bytes(archive)
    with gcs.client(TMPDIR=str(tmp_path / "scratch")) as client:
      found, left = client(_read_encoders, addresses)
    downloads = collections.Counter(
      request.address for request in gcs.requests if request.kind == "download"
    )
  source = loading.read_checkpoint(_TF1)
  assert len(found) == 5 and not left
  for weights in found:
    for name, value in weights.items():
      np.testing.assert_array_equal(value, source.tensors[name])
  values = [a for a in downloads if ".data-" in a or "safetensors" in a]
  assert len(values) == 4 and max(downloads[a] for a in values) < 99


@pytest.mark.parametrize(
  "act, equal_widths, refused",
  [("gelu", False, "hidden_act gelu_erf"), ("gelu_new", True, "between equal")],
)
def test_exact_gelu_and_projections_of_equal_width(
  act, equal_widths, refused, tmp_path
):
  """Hugging Face has both, the original neither."""
  config = dataclasses.replace(
    _CONFIG,
    sharing="all",
    embedding_size=10 if equal_widths else 6,
    hidden_act={"gelu_new": "gelu", "gelu": "gelu_erf"}[act],
    always_project_embedding=equal_widths,
  )
  write_run(tmp_path / "run", config)
  read = loading.read_checkpoint(str(tmp_path / "run"))
  hf = tmp_path / "hf"
  hf.mkdir()
  loading.WRITERS["hf"](read, str(hf))
  settings = json.loads((hf / "config.json").read_text())
  assert settings["hidden_act"] == act
  assert "always_project_embedding" not in settings
  again = loading.read_checkpoint(str(hf))
  assert again.config == config
  check_same(read, again)
  with pytest.raises(
    ValueError, match=f"{refused}.* the converted model would"
  ):
    loading.WRITERS["tf1"](read, str(tmp_path / "tf1"))
  assert not (tmp_path / "tf1").exists()


def test_addresses_of_other_stores_are_refused():
  for path in ("s3://bucket/run", "s3://bucket/albert.tar.gz"):
    with pytest.raises(ValueError, match="neither a local path nor gs://"):
      AlbertModel.from_checkpoint(path)


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_layers_that_share_less_than_everything(tmp_path, sharing, monkeypatch):
  config = dataclasses.replace(_CONFIG, sharing=sharing)
  stored = write_run(tmp_path, config)
  model = AlbertModel.from_checkpoint(str(tmp_path))
  assert model.config == config
  for ours, theirs in zip(model.variables, stored.variables, strict=True):
    np.testing.assert_array_equal(ours, theirs)
  assert len(model.load_report.matched) == len(stored.variables)
  assert not model.load_report.missing
  assert model.load_report.unexpected == ("head",)
  # Before anything of that size is allocated.
  monkeypatch.setattr(AlbertModel, "__init__", None)
  for layers, message in (
    (4, "lacks .*/group_3/"),
    (2, "/2/.*, which is not part of the encoder"),
  ):
    other = dataclasses.replace(config, num_hidden_layers=layers)
    other.to_json_file(str(tmp_path / "other.json"))
    with pytest.raises(ValueError, match=message):
      AlbertModel.from_checkpoint(str(tmp_path), str(tmp_path / "other.json"))


def test_a_checkpoint_of_another_size(tmp_path):
  golden_folder = toy_models.GOLDEN / "one_group"
  for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
    shutil.copy(golden_folder / name, tmp_path)
  with pytest.raises(ValueError, match="no albert_config.json beside .*: put"):
    loading.read_checkpoint(str(tmp_path / "model.ckpt"))
  config_file = str(golden_folder / "albert_config.json")
  read = loading.read_checkpoint(str(tmp_path), config_file=config_file)
  check_same(read, golden())
  (tmp_path / "best").mkdir()
  for name in files.glob(str(tmp_path / "model.ckpt.*")):
    files.copy(name, name.replace("model.ckpt", "best/model.ckpt-best"))
  best = str(tmp_path / "best")
  check_same(loading.read_checkpoint(best, config_file=config_file), golden())
  shutil.copy(toy_models.GOLDEN / "two_groups" / "albert_config.json", tmp_path)
  with pytest.raises(ValueError, match="lacks bert/encoder/transformer/group"):
    loading.read_checkpoint(str(tmp_path / "model.ckpt"))


def test_an_encoder_alone_and_the_state_of_a_run(tmp_path):
  source = golden(head="none")
  model = AlbertModel(source.config)
  loading.fill(model, source)
  source.config.to_json_file(str(tmp_path / "albert_config.json"))
  saved = tf.train.Checkpoint(model=model, scale=tf.Variable(2.0))
  saved.write(f"{tmp_path}/best/{runs.CHECKPOINT_NAME}-5")
  read = loading.read_checkpoint(str(tmp_path / "best"))
  assert read.head == "none" and len(read.carried) == 26 and read.step == 5
  assert not read.unexpected


# The names in a TF2 module of TF Hub, and how TF1 names end.
_GARDEN = {
  "word_embeddings/embeddings": "embeddings/word_embeddings",
  "position_embedding/embeddings": "embeddings/position_embeddings",
  "type_embeddings/embeddings": "embeddings/token_type_embeddings",
  "embeddings/layer_norm": "embeddings/LayerNorm",
  "embedding_projection": "encoder/embedding_hidden_mapping_in",
  "transformer/self_attention/query": "self/query",
  "transformer/self_attention/key": "self/key",
  "transformer/self_attention/value": "self/value",
  "transformer/self_attention/attention_output": "attention_1/output/dense",
  "transformer/self_attention_layer_norm": "inner_group_0/LayerNorm",
  "transformer/intermediate": "intermediate/dense",
  "transformer/output": "intermediate/output/dense",
  "transformer/output_layer_norm": "LayerNorm_1",
  "pooler_transform": "pooler/dense",
  "bert/cls/predictions/transform/dense": "transform/dense",
  "bert/cls/predictions/transform/LayerNorm": "transform/LayerNorm",
  "bert/cls/predictions/output_bias/bias": "predictions/output_bias",
}


def write_garden(folder, source):
  """Writes a SavedModel like the TF2 modules of ALBERT on TF Hub."""
  heads, width = source.config.num_attention_heads, source.config.hidden_size
  module = tf.Module()
  module.variables_of_keras = []
  for name, value in source.carried.items():
    layer, _, end = name.rpartition("/")
    if end not in ("kernel", "bias", "gamma", "beta"):
      layer, end = name, ""
    (garden,) = (x for x, y in _GARDEN.items() if layer.endswith(y))
    value, split = np.asarray(value), [heads, width // heads]
    if "/self_attention/" in garden and "attention_output" not in garden:
      value = value.reshape([*value.shape[:-1], *split])
    elif "attention_output" in garden and end == "kernel":
      value = value.reshape([*split, width])
    garden = f"{garden}/{end}" if end else garden
    module.variables_of_keras.append(tf.Variable(value, name=garden))
  module.step = tf.Variable(3, name="step")
  tf.saved_model.save(module, folder)


def test_a_tf2_module_of_tf_hub_is_read_exactly(tmp_path):
  source = golden(head="masked_lm")
  source.tensors.pop("global_step", None)
  folder = str(tmp_path / "module")
  write_garden(folder, source)
  # No variable tells the number of layers.
  with pytest.raises(ValueError, match="--albert_config_file"):
    loading.read_checkpoint(folder)
  config = str(tmp_path / "config.json")
  source.config.to_json_file(config)
  found = loading.read_checkpoint(folder, config)
  assert (found.head, found.format) == ("masked_lm", "tf1")
  assert not found.missing and not found.unexpected
  check_same(source, found)
  wider = dataclasses.replace(source.config, hidden_size=35)
  wider.to_json_file(config)
  with pytest.raises(ValueError, match="has shape"):
    loading.read_checkpoint(folder, config)
  # Not a module of a BERT with the same embeddings.
  prefix = f"{folder}/variables/variables"
  _, read_names = tensor_bundle.read_bundle(prefix)
  assert len(read_names()) == len(source.carried) + 1
  data = f"{prefix}.data-00000-of-00001"
  content = files.read_bytes(data).replace(b"transformer/", b"transformex/")
  files.write_bytes(data, content)
  source.config.to_json_file(config)
  with pytest.raises((ValueError, OSError), match="lacks bert/|damaged"):
    loading.read_checkpoint(folder, config)


def test_the_state_of_other_optimizers_is_left_out(tmp_path):
  """tf.compat.v1.train's Adam gives its slots other names."""
  source = golden()
  ends = "", "/Adam", "/Adam_1"
  tensors = {f"{n}{end}": x for n, x in source.tensors.items() for end in ends}
  tensor_bundle.write_bundle(str(tmp_path / "model.ckpt-7"), tensors)
  source.config.to_json_file(str(tmp_path / "albert_config.json"))
  found = loading.read_checkpoint(str(tmp_path))
  check_same(source, found)
  assert found.unexpected == source.unexpected
