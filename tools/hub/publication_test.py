"""Tests of a whole publication, and of archives."""

from __future__ import annotations

import dataclasses
import os
import stat
import tarfile

import pytest
import tensorflow as tf

from tools.hub import handle as hub_handle
from tools.hub import publication as hub_publication
from tools.hub import sources as hub_sources
from tools.testing import toy_runs

_PUBLICATION = hub_handle.Publication("my-team/albert_toy/3", "mit")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  return toy_runs.write_pretrained(
    str(tmp_path_factory.mktemp("source") / "run")
  )


def _publish(run, output, **arguments):
  with hub_sources.opened(run) as source:
    hub_publication.publish(source, _PUBLICATION, str(output), **arguments)


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):
  output = tmp_path_factory.mktemp("public") / "hub"
  output.mkdir()
  _publish(run, output, seq_length=19)
  return output


def test_folders_archives_pages_and_assets(run, published):
  output = published
  assert sorted(os.listdir(output)) == ["albert_toy", "albert_toy_preprocess"]
  assert sorted(os.listdir(output.parent)) == ["hub"]
  for name in os.listdir(output):
    assert sorted(os.listdir(output / name)) == ["3", "3.md", "3.tar.gz"]
    page = (output / name / "3.md").read_text()
    assert page.startswith(f"# Module my-team/{name}/3\n")
    assets = output / name / "3" / "assets"
    assert sorted(os.listdir(assets)) == [
      "albert_config.json",
      "tokenizer.model",
    ]
    for asset in os.listdir(assets):
      with open(os.path.join(run, asset), "rb") as file:
        assert (assets / asset).read_bytes() == file.read()
    with tarfile.open(output / name / "3.tar.gz") as archive:
      assert "saved_model.pb" in archive.getnames()
    # The publisher's folders are private.
    proto = (output / name / "3" / "saved_model.pb").read_bytes()
    assert str(output).encode() not in proto and b"hub-assets" not in proto
  preprocessor, encoder = (
    tf.saved_model.load(str(output / name / "3"))
    for name in ("albert_toy_preprocess", "albert_toy")
  )
  inputs = preprocessor(["the sunny day at sea"])
  assert inputs["input_word_ids"].shape == [1, 19]
  assert encoder(inputs)["pooled_output"].shape == [1, 24]
  assert encoder.mlm.variables and encoder.sop.variables
  asset = encoder.sp_model_file.asset_path.numpy().decode()
  assert os.path.samefile(asset, output / "albert_toy/3/assets/tokenizer.model")


def test_refusals_leave_nothing(run, tmp_path, monkeypatch):
  (tmp_path / "note").write_text("mine")
  with pytest.raises(FileExistsError, match="not empty"):
    _publish(run, tmp_path, seq_length=19)
  with pytest.raises(ValueError, match="65 is more than the model's 64"):
    _publish(run, tmp_path / "hub", seq_length=65)
  monkeypatch.setattr(hub_publication, "TOLERANCE", -1.0)
  with pytest.raises(ValueError, match="nothing was written"):
    _publish(run, tmp_path / "hub", seq_length=19)
  assert os.listdir(tmp_path) == ["note"]


@pytest.mark.parametrize(
  "what, message",
  [("tokenizer", "cuts text otherwise"), ("weights", "pooled_output of the")],
)
def test_saved_modules_are_compared(what, message, run, published, tmp_path):
  toy_runs.write_tokenizer(str(tmp_path), seed=6)
  modules = [
    str(published / name / "3")
    for name in ("albert_toy_preprocess", "albert_toy")
  ]
  with hub_sources.opened(run) as source:
    hub_publication.check_modules(source, *modules)
    if what == "tokenizer":
      other = f"{tmp_path}/tokenizer.model"
      file = dataclasses.replace(source.tokenizer, path=other)
      source = dataclasses.replace(source, tokenizer=file)
    else:
      source.model.albert.pooler.bias.assign_add(tf.fill([24], 0.01))
    with pytest.raises(ValueError, match=message):
      hub_publication.check_modules(source, *modules)


_FILES = {
  "saved_model.pb": b"graph" * 1000,
  "variables/variables.index": b"i",
  "variables/variables.data-00000-of-00001": b"data",
  "assets/tokenizer.model": b"pieces",
}


def _write(folder, order):
  for name in order:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_FILES[name])
  return str(folder)


def test_archives_depend_on_names_and_contents_only(tmp_path):
  one = _write(tmp_path / "one", _FILES)
  two = _write(tmp_path / "two", reversed(_FILES))
  (tmp_path / "one" / "empty").mkdir()
  for name in _FILES:
    os.utime(os.path.join(two, name), (7, 7))
    os.chmod(os.path.join(two, name), 0o600)
  hub_publication.write_archive(one, str(tmp_path / "one.tar.gz"))
  hub_publication.write_archive(two, str(tmp_path / "other.tar.gz"))
  packed = (tmp_path / "one.tar.gz").read_bytes()
  assert packed == (tmp_path / "other.tar.gz").read_bytes()
  assert len(packed) < 1000
  assert packed[4:8] == b"\0\0\0\0"  # The time, in gzip's header.
  with tarfile.open(tmp_path / "one.tar.gz") as archive:
    entries = archive.getmembers()
    assert [entry.name for entry in entries] == [
      "assets",
      "assets/tokenizer.model",
      "saved_model.pb",
      "variables",
      "variables/variables.data-00000-of-00001",
      "variables/variables.index",
    ]
    for entry in entries:
      assert (entry.uid, entry.gid, entry.mtime) == (0, 0, 0)
      assert entry.mode & stat.S_IROTH
      if entry.isfile():
        content = archive.extractfile(entry).read()
        assert content == _FILES[entry.name]


@pytest.mark.parametrize("name", [".hidden", "notes/a.txt"])
def test_other_files_are_refused(name, tmp_path):
  folder = _write(tmp_path / "module", _FILES)
  path = tmp_path / "module" / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(b"")
  with pytest.raises(ValueError, match="no file of a SavedModel"):
    hub_publication.write_archive(folder, str(tmp_path / "m.tar.gz"))
  assert sorted(os.listdir(tmp_path)) == ["module"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
