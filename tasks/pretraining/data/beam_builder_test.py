"""Tests that Beam builds what the local engine builds, byte by byte."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time

import pytest

from official_albert import files
from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining.data import dataset_builder

pytest.importorskip("apache_beam")

from official_albert.tasks.pretraining.data import beam_builder

_MULTI_PROCESSING = (
  "--direct_running_mode=multi_processing --direct_num_workers=2"
)


@pytest.mark.parametrize(
  ("options", "changes"),
  [
    ("", {}),
    (_MULTI_PROCESSING, {}),
    # More shards than examples: some hold nothing.
    ("", {"heldout_share": 0.0, "dupe_factor": 1, "num_shards": 150}),
    ("", {"examples": data.ExampleSettings(masking="dynamic")}),
    ("", {"examples": data.ExampleSettings(sentence_pair="nsp")}),
  ],
)
def test_same_bytes(
  make_settings, hash_files, small_pieces, tmp_path, options, changes
):
  local = make_settings(tmp_path / "local", **changes)
  expected = dataset_builder.build_dataset(local)
  there = dataclasses.replace(local, output_dir=str(tmp_path / "beam"))
  manifest = beam_builder.build_dataset_with_beam(
    there, "DirectRunner", options
  )
  assert manifest == expected
  assert hash_files(tmp_path / "beam") == hash_files(tmp_path / "local")


def test_same_bytes_on_dask_while_workers_are_killed(
  make_settings, hash_files, tmp_path
):
  distributed = pytest.importorskip("distributed")
  local, there = (
    make_settings(tmp_path / name, num_shards=150) for name in ("local", "dask")
  )
  expected = dataset_builder.build_dataset(local)
  # As a killed worker may leave it.
  leftover = f"train-00026-of-00150.tfrecord.{'0a' * 8}.tmp"
  with distributed.LocalCluster(
    2, threads_per_worker=1, dashboard_address=None
  ) as cluster:
    pids = [worker.pid for worker in cluster.workers.values()]
    killed = []

    def kill():
      for number, pid in enumerate(pids):
        while len(list((tmp_path / "dask").glob("train-*"))) < 9 + 30 * number:
          time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "dask" / leftover).write_bytes(b"x")
        killed.append(pid)

    threading.Thread(target=kill, daemon=True).start()
    manifest = beam_builder.build_dataset_with_beam(
      there,
      "DaskRunner",
      f"--dask_client_address={cluster.scheduler_address} --dask_npartitions=9",
    )
  assert killed == pids
  assert manifest == expected
  assert hash_files(tmp_path / "dask") == hash_files(tmp_path / "local")


def test_remote_storage(make_settings, hash_files, tmp_path, monkeypatch):
  # TensorFlow's own names of local files stand for gs:// here.
  local = make_settings(tmp_path / "local")
  dataset_builder.build_dataset(local)
  folder = tmp_path / "there"
  (folder / ".unfinished").mkdir(parents=True)
  monkeypatch.setattr(files, "check_folder", lambda path: None)
  # Buckets have no folders, which would have to be made again.
  monkeypatch.setattr(files, "remove_tree", lambda path: None)
  settings = dataclasses.replace(local, output_dir=f"file://{folder}")
  beam_builder.build_dataset_with_beam(settings)
  assert hash_files(folder) == hash_files(tmp_path / "local")


@pytest.mark.parametrize(
  ("text", "options", "message"),
  [
    (b"cat", "", "^the . train documents of .* give no ex"),
    (b"cat\nmat \xff", "", r"^.*, line 2, is not UTF-8: .*iconv\.$"),
    # Another process finds it.
    (b"cat\nmat \xff", _MULTI_PROCESSING, r"^.*line 2, is not .*iconv\.$"),
    (b"cat", "--direct_running_mode=multi_threading", "loses records"),
  ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
  make_settings, tmp_path, text, options, message
):
  path = tmp_path / "a.txt"
  path.write_bytes(text)
  settings = make_settings(
    tmp_path / "data", input_files=str(path), heldout_share=0.0
  )
  with pytest.raises(ValueError, match=message):
    beam_builder.build_dataset_with_beam(settings, "DirectRunner", options)
  assert os.listdir(tmp_path) == ["a.txt"]
