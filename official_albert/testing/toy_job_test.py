"""Tests of the toy job itself; its uses are in multi_worker_test."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from official_albert import distribution
from official_albert.testing import toy_job


def test_workers_have_a_place_each():
  addresses = toy_job.free_addresses(3)
  assert len(set(addresses)) == 3
  for index in range(3):
    read = distribution.read_cluster(toy_job.environment(addresses, index))
    assert (read.addresses, read.index) == (tuple(addresses), index)


def test_free_addresses_are_free():
  (address,) = toy_job.free_addresses(1)
  with socket.create_server(distribution.host_and_port(address)):
    pass


def test_what_is_left_of_a_job_is_killed():
  command = [sys.executable, "-c", "import time; time.sleep(1000)"]
  with toy_job.started(2, command) as processes:
    assert [p.poll() for p in processes] == [None, None]
  assert [p.returncode for p in processes] == [-9, -9]


def test_a_wrong_setting_is_an_exit_code(tmp_path, capsys):
  settings = {"model_dir": str(tmp_path), "config": {"clip_norm": 0}}
  assert toy_job.main(json.dumps(settings)) == 1
  assert "clip_norm must be positive" in capsys.readouterr().err


def test_data_that_ends(tmp_path):
  settings = {"model_dir": str(tmp_path), "config": {}, "stop_after": 3}
  assert toy_job.main(json.dumps(settings)) == 0
  names = {path.name for path in tmp_path.glob("*.index")}
  assert names == {"model.ckpt-3.index"}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
