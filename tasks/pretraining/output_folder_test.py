"""Tests that a dataset's folder changes as a whole or not at all."""

from __future__ import annotations

import os
import pathlib

import pytest

from tasks.pretraining import output_folder
from tfrecords import schemas

_SHARD = "train-00000-of-00001.tfrecord"


def _manifest(seed):
  return schemas.Manifest(
    task="pretraining",
    max_seq_length=7,
    max_predictions_per_seq=2,
    features=schemas.pretraining_schema(7, 2),
    tokenizer=schemas.TokenizerInfo("0" * 64, 97, True),
    settings={},
    random_seed=seed,
    splits={"train": schemas.Split((schemas.Shard(_SHARD, 1, 3),), {})},
  )


def _publish(output_dir, seed, overwrite=False):
  with output_folder.staging_folder(str(output_dir), overwrite) as staging:
    pathlib.Path(staging, _SHARD).write_text(f"s{seed}")
    pathlib.Path(staging, "tokenizer.model").write_text(f"t{seed}")
    pathlib.Path(staging, "rest").write_text("not wanted")
    output_folder.publish(staging, str(output_dir), _manifest(seed))


def test_dataset_is_put_in_place_and_replaced(tmp_path):
  output_dir = tmp_path / "new" / "data"
  _publish(output_dir, 1)
  (output_dir / "train-00007-of-00009.tfrecord").write_text("of another set")
  (output_dir / "notes.txt").write_text("mine")
  (output_dir / "vocab.txt").write_text("of another set")
  with pytest.raises(ValueError, match="holds a dataset already"):
    _publish(output_dir, 2)
  assert (output_dir / _SHARD).read_text() == "s1"

  _publish(output_dir, 2, overwrite=True)
  assert sorted(os.listdir(output_dir)) == [
    "dataset.json",
    "notes.txt",
    "tokenizer.model",
    _SHARD,
  ]
  assert (output_dir / _SHARD).read_text() == "s2"
  assert schemas.read_manifest(str(output_dir)).random_seed == 2


def test_failure_leaves_nothing(tmp_path):
  for output_dir in (tmp_path / "new", tmp_path / "there"):
    if output_dir.name == "there":
      output_dir.mkdir()
    staging = output_folder.staging_folder(str(output_dir), False)
    with pytest.raises(RuntimeError, match="stop"), staging as folder:
      pathlib.Path(folder, "half").write_text("x")
      raise RuntimeError("stop")
  assert os.listdir(tmp_path) == ["there"]
  assert os.listdir(tmp_path / "there") == []


def test_failure_leaves_the_old_dataset(tmp_path):
  _publish(tmp_path, 1)
  staging = output_folder.staging_folder(str(tmp_path), True)
  with pytest.raises(RuntimeError, match="stop"), staging:
    raise RuntimeError("stop")
  assert schemas.read_manifest(str(tmp_path)).random_seed == 1


def test_output_that_is_a_file(tmp_path):
  path = tmp_path / "file"
  path.write_text("x")
  staging = output_folder.staging_folder(str(path), True)
  with pytest.raises(ValueError, match="is a file; name a folder"), staging:
    pass
  staging = output_folder.staging_folder(str(path / "below"), True)
  with pytest.raises(OSError, match="Not a directory"), staging:
    pass


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
