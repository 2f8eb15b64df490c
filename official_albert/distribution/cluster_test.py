"""TF_CONFIG, and workers that start late or never."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time

import pytest

from official_albert import distribution
from official_albert.distribution import cluster
from official_albert.testing import toy_job


def _config(index=0, kind="worker", **jobs):
  jobs = jobs or {"worker": ["a:1", "b:2", "c:3"]}
  task = {"type": kind, "index": index}
  return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": task})}


def test_the_chief_is_the_first_worker(monkeypatch):
  expected = (("a:1", "b:2", "c:3"), 2, {"worker": 3})
  assert cluster.read_cluster(_config(2)) == expected
  jobs = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
  expected = (("c:3", "a:1", "b:2"), 2, {"chief": 1, "worker": 2})
  assert cluster.read_cluster(_config(1, **jobs)) == expected
  assert cluster.read_cluster(_config(0, "chief", **jobs)).index == 0
  monkeypatch.setenv("TF_CONFIG", _config(1)["TF_CONFIG"])
  assert cluster.read_cluster().index == 1


@pytest.mark.parametrize(
  "environment, message",
  [
    ({}, "TF_CONFIG is not set"),
    ({"TF_CONFIG": "{'cluster'"}, "not valid JSON"),
    ({"TF_CONFIG": "[]"}, "lacks a part"),
    (_config(worker=7), "lacks a part"),
    (_config(3), "index 3 in TF_CONFIG is out of range: the cluster has 3"),
    (_config(-1), "index -1 in TF_CONFIG is out of range"),
    (_config(0, "chief"), "the cluster has 0 tasks of type chief"),
    (_config(0, "ps"), "makes this process a 'ps'"),
    (_config(worker=["a:1"], chief=["b:2", "c:3"]), "2 chiefs"),
    (_config(worker=["a:1", "a:1"]), "an address twice"),
    (_config(worker=["a:65536"]), "'a:65536' is no address"),
    (_config(worker=[7]), "7 is no address"),
  ],
)
def test_a_wrong_tf_config_is_refused(environment, message):
  with pytest.raises(ValueError, match="^[^\n]*$") as raised:
    cluster.read_cluster(environment)
  assert message in str(raised.value)


def test_addresses():
  assert cluster.host_and_port("a.b:2222") == ("a.b", 2222)
  assert cluster.host_and_port("[::1]:7") == ("::1", 7)


def test_workers_wait_for_each_other():
  addresses = tuple(toy_job.free_addresses(3))
  came, servers = [], []

  def meet(index):
    cluster.meet(cluster.Cluster(addresses, index, {}), 20)
    # As TensorFlow's server, which listens from now on.
    servers.append(
      socket.create_server(cluster.host_and_port(addresses[index]))
    )
    came.append(index)

  threads = [threading.Thread(target=meet, args=(i,)) for i in (1, 2, 0)]
  for thread in threads[:2]:
    thread.start()
  time.sleep(0.5)
  assert not came  # The third has not started yet.
  threads[2].start()
  for thread in threads:
    thread.join(20)
  assert sorted(came) == [0, 1, 2]
  for server in servers:
    server.close()


def test_a_missing_worker_is_named():
  addresses = tuple(toy_job.free_addresses(2))
  begun = time.monotonic()
  with pytest.raises(
    TimeoutError, match=f"worker 0 at {addresses[0]} did not start within 0.5"
  ):
    cluster.meet(cluster.Cluster(addresses, 1, {}), 0.5)
  assert 0.5 <= time.monotonic() - begun < 5
  # The port is free again.
  cluster.meet(cluster.Cluster(addresses[1:], 0, {}), 1)


def test_a_port_in_use_is_refused():
  with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
    port = other.getsockname()[1]
    with pytest.raises(OSError, match=f"cannot listen on port {port} of TF_"):
      cluster.meet(cluster.Cluster((f"127.0.0.1:{port}",), 0, {}), 1)


def test_cpu_count(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7})
  assert distribution.cpu_count() == 3
  line = distribution.describe_machine()
  assert line.startswith("3 cores, ")
  assert line.endswith(f", Python {platform.python_version()}")
  assert "\n" not in line and ", , " not in line


def test_tensorflow_is_not_loaded():
  code = (
    "import sys; from official_albert import distribution; "
    "distribution.cpu_count(); sys.exit('tensorflow' in sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
