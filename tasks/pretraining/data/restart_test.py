"""Kills builds at many moments; tests the folder of an unfinished dataset.

A real process is killed with SIGKILL, from inside at an exact call, so that
each moment is hit every time. It is forked from a process that has loaded
all modules, because loading takes most of the time here.
"""

from __future__ import annotations

import collections
import dataclasses
import multiprocessing
import os
import pathlib
import pkgutil
import shutil
import signal

import pytest

from official_albert import files
from official_albert.tasks.pretraining.data import (
  build_worker,
  dataset_builder,
  documents,
)

# The same pieces as those of the killed process.
pytestmark = pytest.mark.usefixtures("small_pieces")
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__])
_DATA = "official_albert.tasks.pretraining.data"


def _take_for_a_bucket(setattr=setattr):
  """Lets TensorFlow's names of local files stand for gs://."""
  setattr(files, "check_folder", lambda path: None)
  # Buckets have no folders, which would have to be made again.
  setattr(files, "remove_tree", lambda path: None)


def _build(settings, call, number, argument):
  """Builds until the kill, in pieces so small that there are many of each."""
  _take_for_a_bucket()
  os.environ["XDG_CACHE_HOME"] = f"{settings.output_dir[7:]}/cache"
  build_worker._BATCH = 9
  documents.BLOCK_BYTES = 600
  owner, name = call.rsplit(".", 1)
  owner = pkgutil.resolve_name(f"{_DATA}.{owner}")
  original = getattr(owner, name)

  def stop(*args, **kwargs):
    nonlocal number
    number -= argument in str(args[:1])
    if not number:
      os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)

  setattr(owner, name, stop)
  dataset_builder.build_dataset(settings)


def build_killed(settings, call, number, argument=""):
  """Runs a build that is killed before the `number`th call of `call`.

  If `argument` is given, only calls whose first argument contains it count.
  """
  process = _SERVER.Process(
    target=_build, args=(settings, call, number, argument)
  )
  process.start()
  process.join()
  assert process.exitcode == -signal.SIGKILL


@pytest.fixture
def calls(monkeypatch):
  """Counts the pieces of work."""
  counts = collections.Counter()
  for name in ("tokenize", "make_examples"):
    original = getattr(build_worker.Job, name)

    def counted(*args, name=name, original=original):
      counts[name] += 1
      return original(*args)

    monkeypatch.setattr(build_worker.Job, name, counted)
  return counts


def _finished(folder):
  """Returns the number of blocks and of shards that a restart skips."""
  staging = pathlib.Path(folder, ".unfinished")
  notes = [*staging.glob("*-*.json")]
  is_joined = (staging / "rows").exists()
  blocks = _BLOCKS if is_joined else len([*staging.glob("*.npz")])
  return blocks, len(notes)


_BLOCKS = 12
_RECORD = "build_worker.tfrecords.writer.frame"
_MANIFEST = "dataset_builder.tfrecords.write_manifest"


@pytest.mark.parametrize(
  # The call before which the build is killed, the finished blocks and shards.
  "case",
  [
    ("dataset_builder.np.savez", "", 4, 3, 0),
    ("dataset_builder.np.load", "", 1, 12, 0),
    ("dataset_builder.files.replacing", "rows", 1, 12, 0),
    ("dataset_builder.os.remove", "npz", 16, 12, 0),
    (_RECORD, "", 5, 12, 0),
    (_RECORD, "", 200, 12, 3),
    # Between a shard and its counts.
    ("build_worker.files.write_json", "train-00003", 1, 12, 3),
    (_MANIFEST, "", 1, 12, 7),
  ],
)
def test_same_bytes_after_a_kill(
  make_settings, hash_files, whole, calls, tmp_path, case
):
  call, argument, number, *expected = case
  settings = make_settings(tmp_path)
  build_killed(settings, call, number, argument)
  blocks, shards = _finished(tmp_path)
  assert [blocks, shards] == expected
  dataset_builder.build_dataset(settings)
  assert hash_files(tmp_path) == whole
  assert calls["tokenize"] == _BLOCKS - blocks
  assert calls["make_examples"] == 7 - shards


def test_another_number_of_shards_needs_no_new_tokens(
  make_settings, hash_files, whole, calls, tmp_path, monkeypatch
):
  with (
    monkeypatch.context() as patch,
    pytest.raises(OSError, match=r"GiB, .*use --num_shards=\d+; the same"),
  ):
    patch.setattr(dataset_builder, "_MEMORY_SHARE", 1e-6)
    dataset_builder.build_dataset(make_settings(tmp_path, num_shards=1))
  assert calls["tokenize"] > 5
  build_killed(make_settings(tmp_path, num_shards=3), _RECORD, 3)
  calls.clear()
  dataset_builder.build_dataset(make_settings(tmp_path))
  assert hash_files(tmp_path) == whole
  assert not calls["tokenize"]


def test_other_settings_and_other_input_do_not_resume(
  make_settings, corpus, hash_files, whole, tmp_path, monkeypatch
):
  folder, text = tmp_path / "data", tmp_path / "corpus"
  shutil.copytree(corpus, text)
  files = f"{text}/a.txt,{text}/b.txt.gz"
  settings = make_settings(folder, input_files=files)
  build_killed(settings, "build_worker.Job.write_shard", 3)
  before = _finished(folder)
  other = dataclasses.replace(settings, dupe_factor=2, random_seed=1)
  time = (text / "a.txt").stat().st_mtime_ns
  os.utime(text / "a.txt", ns=(time, time + 1000))
  names = "unicode, input_files, dupe_factor, random_seed"
  message = rf"unfinished build with other settings \({names}\): repeat"
  with monkeypatch.context() as patch, pytest.raises(ValueError, match=message):
    patch.setattr("unicodedata.unidata_version", "12.1.0")
    dataset_builder.build_dataset(other)
  assert _finished(folder) == before
  # The number of workers does not change the records.
  os.utime(text / "a.txt", ns=(time, time))
  dataset_builder.build_dataset(dataclasses.replace(settings, num_workers=2))
  assert hash_files(folder) == whole


def test_a_kill_at_the_end_leaves_a_whole_dataset(
  make_settings, hash_files, whole, calls, tmp_path
):
  settings = make_settings(tmp_path)
  build_killed(settings, "dataset_builder._remove", 2)
  left = hash_files(tmp_path)
  del left[".lock"]
  assert left == whole
  with pytest.raises(ValueError, match="already holds a dataset"):
    dataset_builder.build_dataset(settings)
  # What is left of the build resumes, and is removed.
  dataset_builder.build_dataset(dataclasses.replace(settings, overwrite=True))
  assert hash_files(tmp_path) == whole and not calls
  assert ".unfinished" not in os.listdir(tmp_path)


def test_old_dataset_stays_until_the_first_new_shard(
  make_settings, hash_files, whole, tmp_path
):
  dataset_builder.build_dataset(make_settings(tmp_path, dupe_factor=1))
  # Files of another dataset are replaced, too; others stay.
  for name in ("train-00007-of-00009.tfrecord", "vocab.txt", "notes.txt"):
    (tmp_path / name).write_text("there")
  old = hash_files(tmp_path)
  # --overwrite replaces another unfinished build and resumes its own.
  overwrite = make_settings(tmp_path, overwrite=True)
  another = dataclasses.replace(overwrite, random_seed=1)
  build_killed(another, "dataset_builder.np.savez", 9)
  build_killed(overwrite, "dataset_builder.np.savez", 3)
  assert old.items() <= hash_files(tmp_path).items()
  assert _finished(tmp_path) == (2, 0)
  build_killed(overwrite, _RECORD, 3)
  assert "dataset.json" not in os.listdir(tmp_path)
  dataset_builder.build_dataset(overwrite)
  assert hash_files(tmp_path) == {**whole, "notes.txt": old["notes.txt"]}
  # Bad text is found before the dataset is touched, bad settings after that.
  (tmp_path / "bad.txt").write_bytes(b"a\n\xff")
  bad = dataclasses.replace(overwrite, input_files=str(tmp_path / "bad.txt"))
  with pytest.raises(ValueError, match="is not UTF-8"):
    dataset_builder.build_dataset(bad)
  assert whole.items() <= hash_files(tmp_path).items()
  # Its own shards are removed, and no others.
  (tmp_path / "bad.txt").write_bytes(b"one\n\ntwo")
  with pytest.raises(ValueError, match="give no example"):
    dataset_builder.build_dataset(dataclasses.replace(bad, num_shards=3))
  assert len([*tmp_path.glob("train-*-of-00005.tfrecord")]) == 5
  assert not [*tmp_path.glob("*-of-00003.tfrecord")]
  assert ".unfinished" not in os.listdir(tmp_path)


def test_upload_to_a_bucket_resumes(
  make_settings, hash_files, whole, calls, tmp_path, monkeypatch
):
  _take_for_a_bucket(monkeypatch.setattr)
  (tmp_path / ".unfinished").mkdir()
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  settings = make_settings(f"file://{tmp_path}")
  local = pathlib.Path(dataset_builder.local_folder(settings.output_dir))
  build_killed(settings, "build_worker.files.write_json", 1, "train-00003")
  assert "dataset.json" not in os.listdir(tmp_path) != []
  assert _finished(tmp_path) == (0, 3) and _finished(local) == (12, 0)
  dataset_builder.build_dataset(settings)
  assert not calls["tokenize"] and calls["make_examples"] == 4
  assert hash_files(tmp_path) == whole
  assert not local.exists()


def test_second_build_is_refused(make_settings, tmp_path):
  with dataset_builder.open_build(make_settings(tmp_path, random_seed=0)):
    for overwrite in (False, True):
      settings = make_settings(tmp_path, overwrite=overwrite)
      with pytest.raises(OSError, match="another process is building"):
        dataset_builder.build_dataset(settings)
