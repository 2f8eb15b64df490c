"""Tests that the folder of a dataset appears complete or not at all."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import tfrecords
from official_albert import files
from tasks.pretraining.data import output_folder

_SHARD = "train-00000-of-00001.tfrecord"


def _staging(output_dir, overwrite=False, seed=0):
  return output_folder.staging_folder(
    str(output_dir), overwrite, {"seed": seed}
  )


def _finish_shard(staging):
  path = os.path.join(staging, _SHARD)
  pathlib.Path(path).write_text("x")
  output_folder.finish_piece(path, {"work": 7})


def _publish(output_dir, seed, overwrite=False):
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=7,
    max_predictions_per_seq=2,
    features=tfrecords.pretraining_schema(7, 2),
    tokenizer=tfrecords.TokenizerInfo("0" * 64, 97, True),
    settings={},
    random_seed=seed,
    splits={"train": tfrecords.Split((tfrecords.Shard(_SHARD, 1, 3),), {})},
  )
  with _staging(output_dir, overwrite, seed) as staging:
    if not os.path.exists(f"{output_dir}/{_SHARD}") or overwrite:
      pathlib.Path(staging, _SHARD).write_text(f"s{seed}")
    pathlib.Path(staging, "rest").write_text("not wanted")
    output_folder.publish(str(output_dir), manifest, __file__)


def test_dataset_is_put_in_place_and_replaced(tmp_path):
  output_dir = tmp_path / "new" / "data"
  _publish(output_dir, 1)
  (output_dir / "train-00007-of-00009.tfrecord").write_text("of another set")
  (output_dir / "notes.txt").write_text("mine")
  (output_dir / "vocab.txt").write_text("of another set")
  with pytest.raises(ValueError, match="already holds a dataset"):
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
  assert tfrecords.read_manifest(str(output_dir)).random_seed == 2


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError])
def test_failure_before_any_work_leaves_nothing(tmp_path, error):
  for output_dir in (tmp_path / "new", tmp_path / "there"):
    if output_dir.name == "there":
      output_dir.mkdir()
    with pytest.raises(error, match="stop"), _staging(output_dir) as staging:
      pathlib.Path(staging, "half").write_text("x")
      raise error("stop")
  assert os.listdir(tmp_path) == ["there"]
  assert os.listdir(tmp_path / "there") == []


@pytest.mark.parametrize(
  ("error", "remains"),
  [
    # A second try would fail again after a ValueError; else it may succeed.
    (ValueError("bad input"), False),
    (OSError("disk"), True),
    (KeyboardInterrupt(), True),
    (SystemExit(143), True),
  ],
)
def test_work_is_kept_if_it_can_be_resumed(tmp_path, error, remains):
  output_dir = tmp_path / "data"
  with pytest.raises(type(error)), _staging(output_dir) as staging:
    _finish_shard(staging)
    pathlib.Path(staging, f"{_SHARD}.5.tmp").write_text("half")
    raise error
  assert output_dir.exists() == remains
  # A folder of a kill within the removal.
  (output_dir / ".unfinished-12").mkdir(parents=True)
  with _staging(output_dir) as staging:
    found = output_folder.find_piece(os.path.join(staging, _SHARD))
    assert found == ({"work": 7} if remains else None)
    assert os.path.exists(os.path.join(staging, _SHARD)) == remains
    assert not os.path.exists(f"{staging}/{_SHARD}.5.tmp")
    assert os.listdir(output_dir) == [".unfinished"]
  assert os.listdir(output_dir) == []


def test_build_with_other_settings_is_refused_or_replaced(tmp_path):
  with pytest.raises(RuntimeError), _staging(tmp_path, seed=1) as staging:
    _finish_shard(staging)
    raise RuntimeError
  with (
    pytest.raises(ValueError, match=r"with other settings \(seed\): repeat"),
    _staging(tmp_path, seed=2),
  ):
    pass
  with _staging(tmp_path, overwrite=True, seed=2) as staging:
    assert sorted(os.listdir(staging)) == ["lock", "progress.json"]


_HOLDER = """
import sys, time
from tasks.pretraining.data import output_folder
with output_folder.staging_folder(sys.argv[1], False, {"seed": 0}) as staging:
  path = f"{staging}/train-00000-of-00001.tfrecord"
  open(path, "w").close()
  output_folder.finish_piece(path, {"work": 7})
  print("ready", flush=True)
  time.sleep(60)
"""


def test_second_build_is_refused_until_the_first_has_ended(tmp_path):
  command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
  root = pathlib.Path(__file__).resolve().parents[3]
  with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as holder:
    assert holder.stdout.readline() == b"ready\n"
    for overwrite in (False, True):
      with (
        pytest.raises(OSError, match="another process is building a dataset"),
        _staging(tmp_path, overwrite),
      ):
        pass
    holder.kill()
  with _staging(tmp_path) as staging:
    found = output_folder.find_piece(os.path.join(staging, _SHARD))
    assert found == {"work": 7}


def test_lock_is_taken_again_when_its_folder_was_just_removed(
  tmp_path, monkeypatch
):
  flock = files.fcntl.flock
  removed = []

  def remove_first(file, how):
    if not removed:
      removed.append(os.path.dirname(file.name))
      shutil.rmtree(removed[0])
    flock(file, how)

  monkeypatch.setattr(files.fcntl, "flock", remove_first)
  with _staging(tmp_path) as staging:
    assert removed == [staging]
    assert sorted(os.listdir(staging)) == ["lock", "progress.json"]


def test_file_system_without_locks(tmp_path, monkeypatch):
  def no_locks(file, how):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr(files.fcntl, "flock", no_locks)
  _publish(tmp_path, 1)
  assert tfrecords.read_manifest(str(tmp_path)).random_seed == 1


def test_output_that_is_a_file(tmp_path):
  path = tmp_path / "file"
  path.write_text("x")
  for output_dir in (path, path / "below"):
    with (
      pytest.raises(NotADirectoryError, match="file is a file.*a folder"),
      _staging(output_dir, True),
    ):
      pass


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
