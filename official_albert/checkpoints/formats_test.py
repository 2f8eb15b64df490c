"""Tests of finding and loading checkpoints of every format, and of archives."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile
import tempfile

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official_albert import AlbertModel, modeling, training
from official_albert.checkpoints import (
  checkpoint_files,
  formats,
  loading,
  tf1_checkpoints,
)
from official_albert.testing import toy_vocabulary

_GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"
_TF1 = str(_GOLDEN / "two_groups" / "model.ckpt")
_CONFIG = modeling.AlbertConfig(
  vocab_size=41,
  embedding_size=6,
  hidden_size=8,
  num_attention_heads=2,
  num_hidden_layers=3,
  intermediate_size=12,
  sharing="attention",
)


def _write(folder, config=_CONFIG, **data):
  """Writes a run with random weights and returns its encoder."""
  root = tf.Module()
  root.albert = AlbertModel(config)
  root.head = tf.Variable([1.0, 2.0], name="head")
  training.write_run(str(folder), config, {}, data)
  training.CheckpointManager(str(folder), 1, model=root).save(1)
  return root.albert


def _make(kind, folder):
  """Writes the golden model in a format and returns its path."""
  if kind == "tf1":
    return _TF1
  source = tf1_checkpoints.read_tf1_checkpoint(_TF1)
  os.makedirs(folder)
  if kind != "tf_hub":
    formats.WRITERS[kind](source, folder)
    return folder
  os.makedirs(os.path.join(folder, "variables"))
  open(os.path.join(folder, "saved_model.pb"), "w").close()
  source.config.to_json_file(os.path.join(folder, "albert_config.json"))
  checkpoint_files.write_bundle(
    os.path.join(folder, "variables", "variables"),
    {f"module/{name}": source.tensors[name] for name in source.tensors},
  )
  return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", sorted(formats.READERS))
def test_an_encoder_from_every_format(kind, packed, tmp_path, monkeypatch):
  path = _make(kind, str(tmp_path / "there"))
  assert formats.choose(path)[0] == kind
  if packed:
    path = _pack(path, str(tmp_path / "albert.tar.gz"))
  (tmp_path / "scratch").mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
  model = AlbertModel.from_checkpoint(path, recompute_activations=True)
  assert not os.listdir(tmp_path / "scratch")
  assert model.encoder.recompute_activations
  source = tf1_checkpoints.read_tf1_checkpoint(_TF1)
  assert model.config == source.config
  variables = loading.tf1_variables(model)
  assert set(model.load_report.matched) == set(variables)
  assert not model.load_report.missing
  assert len(model.load_report.unexpected) == 7  # Of the two heads.
  for name, variable in variables.items():
    np.testing.assert_array_equal(variable, source.tensors[name])


def _pack(path, archive):
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


@pytest.mark.parametrize(
  "kind, ignored", [("tf1", 65), ("official_albert", 70)]
)
def test_optimizer_state_is_not_unexpected(kind, ignored, tmp_path):
  path = str(_GOLDEN / "one_group" / "trained_lamb.ckpt-10")
  if kind == "official_albert":
    source = tf1_checkpoints.read_tf1_checkpoint(path, include_optimizer=True)
    path = str(tmp_path)
    formats.WRITERS[kind](source, path)
  report = AlbertModel.from_checkpoint(path).load_report
  assert not report.missing and len(report.matched) == 25
  assert len(report.unexpected) == 7  # Of the two heads.
  # m and v of 32 variables and the step; our runs have five more values.
  assert len(report.ignored) == ignored
  assert len(str(report).splitlines()) == 8


def test_outputs_are_those_of_the_original():
  model = AlbertModel.from_checkpoint(_TF1)
  batch = dict(np.load(_GOLDEN / "two_groups" / "pretraining_batch.npz"))
  expected = np.load(_GOLDEN / "two_groups" / "pretraining_outputs.npz")
  outputs = model(
    {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")}
  )
  for name in ("sequence_output", "pooled_output"):
    np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)


@pytest.mark.parametrize("act", ["gelu_new", "gelu"])
@pytest.mark.parametrize("equal_widths", [False, True])
def test_exact_gelu_and_projections_of_equal_width(act, equal_widths, tmp_path):
  """Hugging Face has both, the original neither."""
  config = dataclasses.replace(
    _CONFIG,
    sharing="all",
    embedding_size=8 if equal_widths else 6,
    hidden_act={"gelu_new": "gelu", "gelu": "gelu_erf"}[act],
    always_project_embedding=equal_widths,
  )
  model = _write(tmp_path / "run", config)
  read = formats.read_checkpoint(str(tmp_path / "run"))
  hf = tmp_path / "hf"
  hf.mkdir()
  formats.WRITERS["hf"](read, str(hf))
  settings = json.loads((hf / "config.json").read_text())
  assert settings["hidden_act"] == act
  assert "always_project_embedding" not in settings
  weights = safetensors.numpy.load_file(str(hf / "model.safetensors"))
  np.testing.assert_array_equal(
    weights["encoder.embedding_hidden_mapping_in.weight"].T,
    model.embedding.projection.kernel,
  )
  again = AlbertModel.from_checkpoint(str(hf))
  assert again.config == config
  assert not again.load_report.missing and not again.load_report.unexpected
  ids = {"input_ids": tf.constant([[2, 7, 40, 3]])}
  np.testing.assert_array_equal(
    model(ids)["sequence_output"], again(ids)["sequence_output"]
  )
  notes = formats.read_checkpoint(str(hf)).notes
  assert any("gelu_new there" in note for note in notes) == (act == "gelu")
  if act == "gelu" or equal_widths:
    what = "hidden_act gelu_erf" if act == "gelu" else "between equal widths"
    with pytest.raises(ValueError, match=f"{what}.* the converted model would"):
      formats.WRITERS["tf1"](read, str(tmp_path / "tf1"))
    assert not (tmp_path / "tf1").exists()


def _archive(path, members):
  """Writes an archive; members are names with contents, or TarInfos."""
  with tarfile.open(path, "w:gz") as archive:
    for name, content in members:
      if isinstance(name, tarfile.TarInfo):
        archive.addfile(name)
        continue
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return str(path)


def _special(kind):
  info = tarfile.TarInfo("link")
  info.type, info.linkname = kind, "/etc/passwd"
  return info


def test_the_content_of_an_archive(tmp_path):
  path = _archive(tmp_path / "a.tgz", [("./x", b"1"), ("/etc/y", b"2")])
  with formats.unpacked_archive(path) as folder:
    # An absolute path stays in the folder.
    assert sorted(os.listdir(folder)) == ["etc", "x"]
  assert not os.path.exists(folder)
  path = _archive(tmp_path / "b.tgz", [("base/assets/x", b"one")])
  with formats.unpacked_archive(path) as folder:
    assert pathlib.Path(folder, "assets", "x").read_bytes() == b"one"
  with formats.unpacked_archive(str(tmp_path)) as folder:
    assert folder == str(tmp_path)


@pytest.mark.parametrize(
  "name, message",
  [
    ("a/../../x", "outside the destination"),
    (_special(tarfile.SYMTYPE), "neither a file nor a folder"),
    (_special(tarfile.LNKTYPE), "neither a file nor a folder"),
    (_special(tarfile.CHRTYPE), "neither a file nor a folder"),
  ],
  ids=["up", "symlink", "hardlink", "device"],
)
def test_unsafe_members_are_refused(name, message, tmp_path, monkeypatch):
  path = _archive(tmp_path / "a.tar.gz", [("good", b"1"), (name, b"2")])
  (tmp_path / "scratch").mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
  with pytest.raises(ValueError, match=message):
    AlbertModel.from_checkpoint(path)
  assert sorted(os.listdir(tmp_path)) == ["a.tar.gz", "scratch"]
  assert not os.listdir(tmp_path / "scratch")


def _refusal(path, **arguments):
  opened = formats.unpacked_archive(str(path), **arguments)
  with pytest.raises(ValueError) as caught, opened:
    pass
  return str(caught.value)


def test_archives_that_unpack_to_too_much(tmp_path):
  path = _archive(tmp_path / "a.tar.gz", [("x", bytes(3_000_000))])
  assert os.path.getsize(path) < 10_000
  message = _refusal(path, max_bytes=1_000_000)
  assert "unpacks to more than 1,000,000 bytes" in message
  _archive(path, [(f"f{i}", b"") for i in range(1001)])
  assert "or 1000 files" in _refusal(path)
  info = tarfile.TarInfo("PaxHeaders/x")
  info.type, info.size = tarfile.XHDTYPE, 5 * 2**30
  content = gzip.compress(info.tobuf() + bytes(2**20))
  pathlib.Path(path).write_bytes(content)
  assert "a header claims 5,368,709,120 bytes" in _refusal(path)


def test_damaged_archives_and_an_old_python(tmp_path, monkeypatch):
  path = tmp_path / "a.tar.gz"
  path.write_bytes(b"not gzip at all")
  assert "damaged, truncated or not a .tar.gz" in _refusal(path)
  _archive(path, [("x", os.urandom(5000))])
  path.write_bytes(path.read_bytes()[:-2500])
  assert "damaged, truncated or not a .tar.gz" in _refusal(path)
  monkeypatch.delattr(tarfile, "data_filter")
  assert "use 3.10.12, 3.11.4 or newer" in _refusal(path)


@pytest.mark.parametrize(
  "path", ["none", "gs://bucket/run", "gs://bucket/albert.tar.gz"]
)
def test_paths_without_a_checkpoint(path):
  message = "addresses are not supported" if ":" in path else "no checkpoint at"
  with pytest.raises((OSError, ValueError), match=message):
    AlbertModel.from_checkpoint(path)


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_layers_that_share_less_than_everything(tmp_path, sharing):
  config = dataclasses.replace(_CONFIG, sharing=sharing)
  stored = _write(tmp_path, config)
  model = AlbertModel.from_checkpoint(str(tmp_path))
  assert model.config == config
  for ours, theirs in zip(model.variables, stored.variables, strict=True):
    np.testing.assert_array_equal(ours, theirs)
  assert len(model.load_report.matched) == len(stored.variables)
  assert not model.load_report.missing
  assert model.load_report.unexpected == ("head",)
  deeper = dataclasses.replace(config, num_hidden_layers=4)
  deeper.to_json_file(str(tmp_path / "deeper.json"))
  with pytest.raises(ValueError, match="lacks albert/encoder/.*/3/"):
    AlbertModel.from_checkpoint(str(tmp_path), str(tmp_path / "deeper.json"))


def test_the_tokenizer_and_its_record(tmp_path):
  _write(tmp_path, tokenizer={"lower_case": False})
  assert formats.read_checkpoint(str(tmp_path)).tokenizer is None
  (tmp_path / "spm.model").write_bytes(toy_vocabulary.numbers(41))
  found = formats.read_checkpoint(str(tmp_path)).tokenizer
  assert found.kind == "sentencepiece" and not found.lower_case


# Finding checkpoints and their files.

_TENSORS = {"b/c": np.arange(6, dtype=np.float32).reshape(2, 3)}


def _write_bundle(folder, name="x.ckpt", tensors=None):
  os.makedirs(folder, exist_ok=True)
  prefix = str(folder / name)
  checkpoint_files.write_bundle(prefix, tensors or _TENSORS)
  return prefix


def test_values_are_read_by_name(tmp_path):
  half = np.array([0.5, -2.0], np.float16)
  prefix = _write_bundle(
    tmp_path, tensors={**_TENSORS, "a": np.int64(7), "h": half}
  )
  bundle = checkpoint_files.TensorBundle(prefix)
  shapes = {name: value.shape for name, value in bundle.values.items()}
  assert shapes == {"b/c": (2, 3), "a": (), "h": (2,)}
  np.testing.assert_array_equal(bundle.values["b/c"].read(), _TENSORS["b/c"])
  assert bundle.get("a") == 7 and bundle.get("a").dtype == np.int64
  assert bundle.get("h").dtype == np.float32
  assert bundle.get("h").tolist() == [0.5, -2.0]


def test_the_prefix_of_a_path(tmp_path):
  prefix = _write_bundle(tmp_path / "one")
  assert checkpoint_files.find_prefix(prefix) == prefix
  assert checkpoint_files.find_prefix(str(tmp_path / "one")) == prefix
  hub = _write_bundle(tmp_path / "hub" / "variables", "variables")
  assert checkpoint_files.find_prefix(str(tmp_path / "hub")) == hub
  with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
    checkpoint_files.find_prefix(str(tmp_path))
  _write_bundle(tmp_path / "one", "y.ckpt")
  with pytest.raises(ValueError, match="holds 2 checkpoints"):
    checkpoint_files.find_prefix(str(tmp_path / "one"))
  # In a list from another machine, only the names are used.
  (tmp_path / "one" / "checkpoint").write_text(
    'model_checkpoint_path: "/elsewhere/y.ckpt"\n'
  )
  assert checkpoint_files.find_prefix(str(tmp_path / "one")).endswith("y.ckpt")


def _write_run(folder, latest, best=None):
  """Writes a run with two checkpoints and optionally a best one."""
  for step in (latest - 1, latest):
    _write_bundle(folder, f"model.ckpt-{step}")
  if best is not None:
    _write_bundle(folder / "best", f"model.ckpt-{best}")
    record = {"checkpoint": f"model.ckpt-{best}", "step": best}
    (folder / "best" / "best.json").write_text(json.dumps(record))


def test_the_chosen_checkpoint_of_a_run(tmp_path):
  folder = str(tmp_path / "run")
  _write_run(tmp_path / "run", 10)
  latest = os.path.join(folder, "model.ckpt-10")
  # Without TensorFlow's list, the highest step counts.
  assert checkpoint_files.find_prefix(folder) == latest
  with pytest.raises(FileNotFoundError, match="keeps no best checkpoint"):
    checkpoint_files.find_prefix(folder, "best")
  (tmp_path / "run" / "damaged-model.ckpt-11.index").write_bytes(b"")
  assert checkpoint_files.find_prefix(folder, "latest") == latest
  _write_run(tmp_path / "run", 10, best=7)
  best = os.path.join(folder, "best", "model.ckpt-7")
  for wanted in ("", "best"):
    assert checkpoint_files.find_prefix(folder, wanted) == best
  for wanted in ("latest", latest):
    assert checkpoint_files.find_prefix(folder, wanted) == latest
  with pytest.raises(FileNotFoundError, match="no checkpoint at newest"):
    checkpoint_files.find_prefix(folder, "newest")
  with pytest.raises(ValueError, match="is one checkpoint, and --checkpoint="):
    checkpoint_files.find_prefix(latest, "best")
  assert checkpoint_files.step_of_best(best) == 7
  assert checkpoint_files.step_of_best(latest) is None
  assert checkpoint_files.is_best(best) and not checkpoint_files.is_best(latest)


def test_the_best_of_several_seeds(tmp_path):
  _write_run(tmp_path / "seed_5", 10, best=7)
  _write_run(tmp_path / "seed_6", 20, best=17)
  summary = tmp_path / "summary.json"
  summary.write_text('{"seeds": {"5": {}, "6": {}}, "best_seed": 6}')
  found = checkpoint_files.find_prefix(str(tmp_path))
  assert found == str(tmp_path / "seed_6" / "best" / "model.ckpt-17")
  found = checkpoint_files.find_prefix(str(tmp_path), "latest")
  assert found == str(tmp_path / "seed_6" / "model.ckpt-20")
  summary.write_text('{"seeds": {"6": {}}, "best_seed": 6}')
  assert checkpoint_files.run_folder(str(tmp_path)) == str(tmp_path)
  summary.write_text("{")
  with pytest.raises(
    ValueError, match="summary.json is not a valid JSON object"
  ):
    checkpoint_files.run_folder(str(tmp_path))


def test_damaged_and_unwritable_files(tmp_path):
  prefix = _write_bundle(tmp_path)
  data = pathlib.Path(f"{prefix}.data-00000-of-00001")
  whole = data.read_bytes()
  data.write_bytes(whole[:-1])
  with pytest.raises(ValueError, match="lists 24 bytes, but the data files"):
    checkpoint_files.TensorBundle(prefix)
  data.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
  with pytest.raises(ValueError, match="b/c in .* cannot be read"):
    checkpoint_files.TensorBundle(prefix).get("b/c")
  index = pathlib.Path(f"{prefix}.index")
  index.write_bytes(index.read_bytes()[:-9])
  with pytest.raises(ValueError, match="index is damaged"):
    checkpoint_files.TensorBundle(prefix)
  with pytest.raises((OSError, tf.errors.OpError), match="index"):
    checkpoint_files.write_bundle(str(index / "x"), _TENSORS)


def test_the_nearest_tokenizer_is_taken(tmp_path):
  (tmp_path / "best").mkdir()
  folders = checkpoint_files.folders_of(str(tmp_path / "best" / "x.ckpt"))
  assert folders == [str(tmp_path / "best"), str(tmp_path)]
  assert checkpoint_files.find_tokenizer(folders) is None
  (tmp_path / "vocab_chinese.txt").write_text("[PAD]\n")
  found = checkpoint_files.find_tokenizer(folders, lower_case=False)
  assert found.kind == "wordpiece" and not found.lower_case
  (tmp_path / "best" / "30k-clean.model").write_bytes(b"x")
  assert checkpoint_files.find_tokenizer(folders).kind == "sentencepiece"
  # A folder of another name is searched alone.
  other = str(tmp_path / "best_of_all")
  assert checkpoint_files.folders_of(f"{other}/x.ckpt") == [other]


def test_a_tokenizer_is_opened_by_its_kind(tmp_path):
  content = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ntea\n"
  (tmp_path / "vocab.txt").write_bytes(content)
  path = str(tmp_path / "vocab.txt")
  file = checkpoint_files.TokenizerFile(path, "wordpiece", False)
  assert file.sha256() == hashlib.sha256(content).hexdigest()
  tokenizer = file.open()
  assert tokenizer.kind == "wordpiece" and not tokenizer.lower_case
  assert tokenizer.encode("tea Tea") == [5, 1]
  (tmp_path / "tokenizer.model").write_bytes(toy_vocabulary.numbers(23))
  file = checkpoint_files.recorded_tokenizer(str(tmp_path), {})
  assert file.lower_case and file.open().kind == "sentencepiece"


def test_the_tokenizer_given_by_flags(tmp_path):
  path = str(tmp_path / "vocab.txt")
  chosen = checkpoint_files.chosen_tokenizer
  assert chosen("", "", True) is None
  with pytest.raises(FileNotFoundError, match="vocab.txt does not exist"):
    chosen("", path, True)
  (tmp_path / "vocab.txt").touch()
  assert chosen("", path, False) == checkpoint_files.TokenizerFile(
    path, "wordpiece", False
  )
  assert chosen(path, "", True).kind == "sentencepiece"
  with pytest.raises(ValueError, match="two tokenizers for one model"):
    chosen("a", "b", True)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
