"""Tests that a dataset's folder changes as a whole or not at all."""

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


def _manifest(seed):
  return tfrecords.Manifest(
    task="pretraining",
    max_seq_length=7,
    max_predictions_per_seq=2,
    features=tfrecords.pretraining_schema(7, 2),
    tokenizer=tfrecords.TokenizerInfo("0" * 64, 97, True),
    settings={},
    random_seed=seed,
    splits={"train": tfrecords.Split((tfrecords.Shard(_SHARD, 1, 3),), {})},
  )


def _staging(output_dir, overwrite=False, seed=0):
  return output_folder.staging_folder(
    str(output_dir), overwrite, {"seed": seed}
  )


def _publish(output_dir, seed, overwrite=False):
  with _staging(output_dir, overwrite, seed) as journal:
    pathlib.Path(journal.folder, _SHARD).write_text(f"s{seed}")
    pathlib.Path(journal.folder, "tokenizer.model").write_text(f"t{seed}")
    pathlib.Path(journal.folder, "rest").write_text("not wanted")
    output_folder.publish(journal, str(output_dir), _manifest(seed))


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
  assert tfrecords.read_manifest(str(output_dir)).random_seed == 2


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError])
def test_failure_before_any_work_leaves_nothing(tmp_path, error):
  for output_dir in (tmp_path / "new", tmp_path / "there"):
    if output_dir.name == "there":
      output_dir.mkdir()
    with pytest.raises(error, match="stop"), _staging(output_dir) as journal:
      pathlib.Path(journal.folder, "half").write_text("x")
      raise error("stop")
  assert os.listdir(tmp_path) == ["there"]
  assert os.listdir(tmp_path / "there") == []


@pytest.mark.parametrize(
  ("error", "remains"),
  [
    # What is of no use to a second try goes; else the work is kept.
    (ValueError("bad input"), False),
    (OSError("disk"), True),
    (RuntimeError("bug"), True),
    (KeyboardInterrupt(), True),
    (SystemExit(143), True),
  ],
)
def test_work_is_kept_if_it_can_be_gone_on_with(tmp_path, error, remains):
  output_dir = tmp_path / "data"
  with pytest.raises(type(error)), _staging(output_dir) as journal:
    journal.put("work", 7)
    pathlib.Path(journal.folder, _SHARD).write_text("x")
    pathlib.Path(journal.folder, f"{_SHARD}.5.tmp").write_text("half")
    raise error
  assert output_dir.exists() == remains
  # A folder of an older version, or of a kill within the removal.
  (output_dir / ".unfinished-12").mkdir(parents=True)
  with _staging(output_dir) as journal:
    assert journal.get("work") == (7 if remains else None)
    assert os.path.exists(os.path.join(journal.folder, _SHARD)) == remains
    assert not os.path.exists(f"{journal.folder}/{_SHARD}.5.tmp")
    assert os.listdir(output_dir) == [".unfinished"]
  assert os.listdir(output_dir) == []


def _leave_unfinished(output_dir, seed):
  with (
    pytest.raises(RuntimeError),
    _staging(output_dir, overwrite=True, seed=seed) as journal,
  ):
    journal.put("work", 7)
    pathlib.Path(journal.folder, _SHARD).write_text("x")
    raise RuntimeError


def test_build_with_other_settings_is_refused_or_replaced(tmp_path):
  _leave_unfinished(tmp_path, seed=1)
  with (
    pytest.raises(ValueError, match=r"with other settings \(seed\): repeat"),
    _staging(tmp_path, seed=2),
  ):
    pass
  with _staging(tmp_path, overwrite=True, seed=2) as journal:
    assert not journal.holds_work
    assert sorted(os.listdir(journal.folder)) == ["lock", "progress.json"]


def test_dataset_is_refused_beside_an_unfinished_build_too(tmp_path):
  _publish(tmp_path, 1)
  _leave_unfinished(tmp_path, seed=1)
  with (
    pytest.raises(ValueError, match="holds a dataset already"),
    _staging(tmp_path, seed=1),
  ):
    pass
  assert os.path.exists(tmp_path / ".unfinished" / _SHARD)
  _publish(tmp_path, 1, overwrite=True)
  assert ".unfinished" not in os.listdir(tmp_path)


def test_publishing_that_was_stopped_halfway_goes_on(tmp_path):
  (tmp_path / "train-00007-of-00009.tfrecord").write_text("of another set")
  with pytest.raises(RuntimeError), _staging(tmp_path) as journal:
    pathlib.Path(journal.folder, _SHARD).write_text("s")
    journal.put("publishing", True)
    os.replace(f"{journal.folder}/{_SHARD}", tmp_path / _SHARD)
    raise RuntimeError
  with _staging(tmp_path) as journal:
    found = output_folder.find(journal, str(tmp_path), _SHARD)
    assert found == str(tmp_path / _SHARD)
    pathlib.Path(journal.folder, "tokenizer.model").write_text("t")
    output_folder.publish(journal, str(tmp_path), _manifest(3))
  assert sorted(os.listdir(tmp_path)) == [
    "dataset.json",
    "tokenizer.model",
    _SHARD,
  ]


def test_failure_leaves_the_old_dataset(tmp_path):
  _publish(tmp_path, 1)
  staging = _staging(tmp_path, overwrite=True)
  with pytest.raises(RuntimeError, match="stop"), staging:
    raise RuntimeError("stop")
  assert tfrecords.read_manifest(str(tmp_path)).random_seed == 1


_HOLDER = """
import sys, time
from tasks.pretraining.data import output_folder
with output_folder.staging_folder(sys.argv[1], False, {"seed": 0}) as journal:
  journal.put("work", 7)
  print("ready", flush=True)
  time.sleep(60)
"""


def test_two_builds_at_once_are_refused_and_a_killed_one_is_not_in_the_way(
  tmp_path,
):
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
  with _staging(tmp_path) as journal:
    assert journal.get("work") == 7


def test_lock_is_taken_anew_when_its_folder_has_just_been_removed(
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
  with _staging(tmp_path) as journal:
    assert removed == [journal.folder]
    assert sorted(os.listdir(journal.folder)) == ["lock", "progress.json"]


def test_file_system_without_locks(tmp_path, monkeypatch):
  def no_locks(file, how):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr(files.fcntl, "flock", no_locks)
  _publish(tmp_path, 1)
  assert tfrecords.read_manifest(str(tmp_path)).random_seed == 1


def test_output_that_is_a_file(tmp_path):
  path = tmp_path / "file"
  path.write_text("x")
  staging = _staging(path, True)
  refused = pytest.raises(NotADirectoryError, match="file is a file.*a folder")
  with refused, staging:
    pass
  staging = _staging(path / "below", True)
  with refused, staging:
    pass


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
