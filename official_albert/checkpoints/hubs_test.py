"""Tests of names of hubs, with caches made by hand and without a network.

opening_test.py has the names of the Hugging Face Hub.
"""

from __future__ import annotations

import os
import sys
import types

import kagglehub
import pytest

from official_albert.checkpoints import hubs, loading, opening_test

_PRESET = "keras/albert/keras/toy_en_uncased"


@pytest.fixture
def cache(tmp_path, monkeypatch):
  """The cache of kagglehub, which finds no server."""
  monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "cache"))
  for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
    monkeypatch.setenv(name, "http://127.0.0.1:9")
  monkeypatch.setattr("time.sleep", lambda seconds: None)
  monkeypatch.chdir(tmp_path)
  return tmp_path / "cache" / "models"


def keep(cache, handle, kind):
  """Writes a model into the cache as kagglehub lays it out."""
  folder = cache / handle
  folder.parent.mkdir(parents=True)
  path = opening_test.write(kind, str(folder))
  folder.with_name(f"{folder.name}.complete").touch()
  return path


@pytest.mark.parametrize(
  "handle, kind",
  [
    ("google/albert/tensorFlow1/base/3", "tf_hub"),
    ("my-team/albert/tensorFlow2/encoder/1", "official_albert"),
    ("my_team/albert/Transformers/v.2/12", "hf"),
  ],
)
def test_a_handle_of_kaggle_is_read_from_the_cache(handle, kind, cache):
  path = keep(cache, handle, kind)
  expected = loading.read_checkpoint(path)
  for name in (handle, f"kaggle://{handle}"):
    with loading.open(name) as found:
      opening_test.check_same(found, expected)
      assert found.shown(found.source).startswith(name)
  # A path here comes first, but for an address.
  os.makedirs(handle)
  with pytest.raises((ValueError, OSError), match="checkpoint"):
    loading.read_checkpoint(handle)
  assert hubs.downloaded(f"kaggle://{handle}") == path


def test_the_files_of_other_formats_come_from_the_hugging_face_hub(
  tmp_path, monkeypatch
):
  asked = []

  def download(name, allow_patterns):
    asked.append((name, {*allow_patterns}))
    return str(tmp_path)

  library = types.SimpleNamespace(snapshot_download=download)
  monkeypatch.setitem(sys.modules, "huggingface_hub", library)
  (tmp_path / "tf_model.h5").touch()
  for name in ("team/albert", "hf://team/albert"):
    assert hubs.downloaded(name) == str(tmp_path)
    (_, first), (_, second) = asked[-2:]
    assert second - first == {
      *("*.h5", "*.spm", "saved_model.pb", "variables/*", "assets/*")
    }
  (tmp_path / "model.safetensors").touch()
  hubs.downloaded("hf://team/albert")
  assert len(asked) == 5 and {name for name, _ in asked} == {"team/albert"}


def test_names_that_are_not_found(cache, monkeypatch):
  for name in (f"{_PRESET}/5", f"kaggle://{_PRESET}"):
    with pytest.raises(
      FileNotFoundError, match=f"{name}, and none .* on Kaggle .*/VERSION"
    ):
      loading.read_checkpoint(name)
  # Without a framework of Kaggle, it is a path.
  for path in ("runs/2024/albert/best", "a/b/keras", "a/b/c/keras/1"):
    assert hubs.downloaded(path) == path
  for name in ("kaggle://a/b", "hf://a", "hf://a/b/c", "kaggle://a/b/c/d/e"):
    with pytest.raises(ValueError, match=f"'{name}' names no model: give hf"):
      loading.read_checkpoint(name)
  for package, name in (
    ("kagglehub", _PRESET),
    ("huggingface_hub", "hf://team/albert"),
  ):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"{name} needs .* install {package}"):
      loading.read_checkpoint(name)


def test_errors_of_kaggle_are_one_sentence(cache, monkeypatch):
  def refuse(handle):
    raise kagglehub.exceptions.UnauthenticatedError("log in\nhow")

  monkeypatch.setattr(kagglehub, "model_download", refuse)
  with pytest.raises(FileNotFoundError, match=r"cache \(log in\); its cache"):
    hubs.downloaded(_PRESET)
