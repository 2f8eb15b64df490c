"""Tests of opening any format, and of AlbertModel.from_checkpoint."""

from __future__ import annotations

import os
import pathlib
import tarfile
import tempfile

import numpy as np
import pytest

from official_albert import (
  AlbertModel,
  checkpoint_files,
  pretrained,
  reference_checkpoints,
  tf1_checkpoints,
)

_GOLDEN = pathlib.Path(__file__).parent / "testdata"
_TF1 = str(_GOLDEN / "two_groups" / "model.ckpt")


def _make(kind, folder):
  """The golden model in a format; returns its path."""
  if kind == "tf1":
    return _TF1
  source = tf1_checkpoints.read(_TF1)
  os.makedirs(folder)
  if kind != "tf_hub":
    pretrained.WRITERS[kind](source, folder)
    return folder
  os.makedirs(os.path.join(folder, "variables"))
  open(os.path.join(folder, "saved_model.pb"), "w").close()
  source.config.to_json_file(os.path.join(folder, "albert_config.json"))
  checkpoint_files.write_bundle(
    os.path.join(folder, "variables", "variables"),
    {f"module/{name}": source.tensors[name] for name in source.tensors},
  )
  return folder


@pytest.mark.parametrize("kind", sorted(pretrained.READERS))
def test_an_encoder_from_every_format(kind, tmp_path):
  path = _make(kind, str(tmp_path / "there"))
  assert pretrained.find_format(path) == kind
  model = AlbertModel.from_checkpoint(path, recompute_activations=True)
  assert model.encoder.recompute_activations
  source = tf1_checkpoints.read(_TF1)
  assert model.config == source.config
  variables = reference_checkpoints.tf1_variables(model)
  assert set(model.load_report.matched) == set(variables)
  assert not model.load_report.missing
  assert len(model.load_report.unexpected) == 7  # Of the two heads.
  for name, variable in variables.items():
    np.testing.assert_array_equal(variable, source.tensors[name])


@pytest.mark.parametrize("kind", ["tf1", "official_albert"])
def test_optimizer_state_is_not_unexpected(kind, tmp_path):
  path = str(_GOLDEN / "one_group" / "trained_lamb.ckpt-10")
  if kind == "official_albert":
    source = tf1_checkpoints.read(path, include_optimizer=True)
    path = str(tmp_path)
    pretrained.WRITERS[kind](source, path)
  report = AlbertModel.from_checkpoint(path).load_report
  assert not report.missing and len(report.matched) == 25
  assert len(report.unexpected) == 7  # Of the two heads.
  # m and v of all, and five numbers of our own runs.
  assert len(report.ignored) == {"tf1": 64, "official_albert": 69}[kind]
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


@pytest.mark.parametrize("kind", sorted(pretrained.READERS))
def test_an_encoder_from_an_archive(kind, tmp_path, monkeypatch):
  path = _make(kind, str(tmp_path / "there"))
  archive = str(tmp_path / "albert.tar.gz")
  with tarfile.open(archive, "w:gz") as file:
    folder = os.path.dirname(path) if kind == "tf1" else path
    if kind == "tf1":  # The folder holds more than a release does.
      for end in ("index", "data-00000-of-00001"):
        file.add(f"{path}.{end}", f"base/model.ckpt.{end}")
      file.add(
        os.path.join(folder, "albert_config.json"), "base/albert_config.json"
      )
    else:
      file.add(folder, "base")
  (tmp_path / "scratch").mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
  model = AlbertModel.from_checkpoint(archive)
  source = tf1_checkpoints.read(_TF1)
  assert model.config == source.config and not model.load_report.missing
  for name, variable in reference_checkpoints.tf1_variables(model).items():
    np.testing.assert_array_equal(variable, source.tensors[name])
  assert not os.listdir(tmp_path / "scratch")


def test_a_path_to_nothing(tmp_path):
  with pytest.raises(FileNotFoundError, match="no checkpoint at"):
    AlbertModel.from_checkpoint(str(tmp_path / "none"))
  with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
    AlbertModel.from_checkpoint(str(tmp_path))
  for path in ("gs://bucket/run", "gs://bucket/albert.tar.gz"):
    with pytest.raises(ValueError, match="gs:// addresses are not supported"):
      AlbertModel.from_checkpoint(path)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
