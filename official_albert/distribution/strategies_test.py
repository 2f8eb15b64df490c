"""Devices, precision, cores and TF_CONFIG, and failures before any work."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import warnings
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.tpu.client import client

from official_albert import machine
from official_albert.distribution import strategies
from official_albert.testing import toy_task

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def restore_policy():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize(
  "arguments, message",
  [
    (("pmap",), "'pmap', but must be one of one_device"),
    (("one_device", 2), "num_devices 2 cannot be used"),
    (("tpu", 8, "local"), "num_devices 8 cannot be used with"),
    (("mirrored", 0, "local"), "tpu 'local' cannot be used with"),
    (("tpu", 0, "grpc://host:0x1"), "write HOST:PORT"),
    # TensorFlow has started.
    (("mirrored", 3), "before TensorFlow's first operation"),
  ],
)
def test_wrong_devices_are_refused(arguments, message):
  tf.zeros([])
  with pytest.raises(ValueError, match=message):
    strategies.make_strategy(*arguments)


def test_one_device_reads_its_dataset_itself():
  def make_dataset(context):
    assert context.num_input_pipelines == context.num_replicas_in_sync == 1
    return tf.data.Dataset.range(3)

  strategy = strategies.make_strategy("one_device")
  assert strategy.num_replicas_in_sync == 1
  with tf.device(strategies.host_of(strategy)):
    assert tf.zeros([]).device.endswith("/task:0/device:CPU:0")
  iterator = strategies.iterate(strategy, make_dataset)
  assert isinstance(iterator, type(iter(tf.data.Dataset.range(1))))
  assert [int(value) for value in iterator] == [0, 1, 2]


@pytest.mark.parametrize("device, found", [("GPU:0", [0, 1]), ("TPU:0", [7])])
def test_a_gpu_reads_its_dataset_itself(device, found):
  strategy = mock.Mock(num_replicas_in_sync=1)
  strategy.extended.worker_devices = [f"/job:worker/device:{device}"]
  strategy.distribute_datasets_from_function.return_value = [7]
  dataset = tf.data.Dataset.range(2)
  assert [*map(int, strategies.iterate(strategy, lambda _: dataset))] == found


def test_precision():
  assert tf.keras.mixed_precision.global_policy().name == "float32"
  assert strategies.set_precision("mixed_bfloat16") == "mixed_bfloat16"
  layer = tf.keras.layers.Dense(3)
  assert layer(tf.ones([2, 5])).dtype == tf.bfloat16
  assert layer.kernel.dtype == tf.float32
  with pytest.raises(ValueError, match="precision is 'float8', but must"):
    strategies.set_precision("float8")


@pytest.mark.parametrize(
  "name, gpus, warns",
  [
    ("mixed_float16", [], True),
    ("mixed_float16", ["a GPU"], False),
    ("mixed_bfloat16", [], False),
  ],
)
def test_float16_without_a_gpu_is_warned_of(monkeypatch, name, gpus, warns):
  devices = {"GPU": gpus, "TPU": []}
  monkeypatch.setattr(tf.config, "list_logical_devices", devices.get)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    strategies.set_precision(name)
  # Keras has a warning of its own.
  assert any("--precision=auto" in str(w.message) for w in caught) is warns


@pytest.mark.parametrize(
  "flags, expected",
  [
    ("fpu avx512_bf16", True),
    ("fpu avx512f", False),
    ("fpu avx512_bf16 avx512_fp16", False),
    ("fpu avx512_bf16 avx512_fp16 amx_bf16", True),
  ],
)
def test_bfloat16_is_read_from_the_cpu(tmp_path, flags, expected):
  path = tmp_path / "cpuinfo"
  assert not strategies.multiplies_bfloat16(str(path))
  path.write_text(f"model name : amx_bf16\nflags : {flags}\n")
  assert strategies.multiplies_bfloat16(str(path)) is expected


_PROGRAM = """
import sys
import tensorflow as tf
from official_albert.distribution import strategies
for address in sys.argv[1:]:
  try:
    strategies.make_tpu_strategy(address)
  except OSError as error:
    print(error)
"""


def test_tpus_that_cannot_be_used_are_refused_within_a_minute():
  (silent,) = toy_task.free_addresses(1)
  result = subprocess.run(
    [sys.executable, "-c", _PROGRAM, "local", f"grpc://{silent}"],
    cwd=_ROOT,
    # libtpu, if it is installed, would ask Google Cloud about this machine.
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TPU_SKIP_MDS_QUERY": "1"},
    capture_output=True,
    text=True,
    timeout=120,
  )
  lines = result.stdout.splitlines()
  assert len(lines) == 2, result.stderr
  assert "the TPU local cannot be started (" in lines[0]
  assert f"this TensorFlow ({tf.__version__})" in lines[0]
  assert f"no TensorFlow server answers at {silent}" in lines[1]


def test_a_server_without_a_tpu_is_named(monkeypatch):
  def fail(resolver):
    place = "Graph error:\n\nat node x:\n<stack traces unavailable>\n"
    message = f"{place}TPUs not found [Op:X]\nmore"
    raise tf.errors.NotFoundError(None, None, message)

  monkeypatch.setattr(machine, "listens", lambda address: True)
  monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", fail)
  with pytest.raises(
    OSError, match=r"host:7 cannot be started \(TPUs not foun"
  ):
    strategies.make_tpu_strategy("grpc://host:7")


def test_a_slice_that_cannot_be_looked_up_is_named(monkeypatch):
  """On a machine of Google Cloud, which tells its project and zone."""
  monkeypatch.setattr(client, "_request_compute_metadata", lambda path: "a/b")
  monkeypatch.setattr(
    client.Client,
    "_fetch_cloud_tpu_metadata",
    lambda self: {"state": "CREATING"},
  )
  with pytest.raises(OSError, match="'slice' is ready .*is not yet ready"):
    strategies.make_tpu_strategy("slice")


def _clear_variables(monkeypatch):
  for name in (
    "NEXT_PLUGGABLE_DEVICE_USE_C_API",
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
    "TPU_LOAD_LIBRARY",
  ):
    monkeypatch.setenv(name, "")  # Restored at the end.
    monkeypatch.delenv(name)


def test_a_process_that_trains_nothing_leaves_the_tpu_alone(
  tmp_path, monkeypatch
):
  library = tmp_path / "libtpu.so"
  library.write_text("This cannot be loaded.")
  monkeypatch.setattr(machine, "_LIBTPU", str(library))
  _clear_variables(monkeypatch)
  monkeypatch.setattr(sys, "path", [str(tmp_path)])  # No tensorflow-tpu.
  machine.prepare_tpu("local")
  command = [sys.executable, "-c", "import tensorflow"]
  # TensorFlow reads the variable when it is imported.
  parent = subprocess.run(command, capture_output=True, text=True)
  assert parent.returncode and str(library) in parent.stderr
  monkeypatch.setattr(machine, "_of_the_user", {})
  own = machine.training_environment()
  machine.leave_tpu()
  assert subprocess.run(command).returncode == 0
  # Another process may use it, and so may a training that this one starts.
  assert machine.training_environment() == own
  # What the user has set is kept, even if it is empty.
  monkeypatch.setenv("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", "")
  machine.prepare_tpu("local")
  assert os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] == ""


def test_tensorflow_tpu_loads_the_plugin_of_its_libtpu(tmp_path, monkeypatch):
  _clear_variables(monkeypatch)
  monkeypatch.setattr(sys, "path", [str(tmp_path)])
  for name in ("tensorflow_tpu", "libtpu"):
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
  chips = tmp_path / "vfio"
  monkeypatch.setattr(machine, "_CHIPS", (str(tmp_path / "vfi?"),))
  machine.prepare_tpu("local")
  # Where there is no chip, the plugin would end the process.
  assert "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in os.environ
  chips.touch()
  machine.prepare_tpu("local")
  plugin = os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"]
  assert plugin == str(tmp_path / "libtpu/libtpu.so")
  assert os.environ["NEXT_PLUGGABLE_DEVICE_USE_C_API"] == "true"


# TF_CONFIG, and workers that start late or never.


def _config(index=0, kind="worker", **jobs):
  jobs = jobs or {"worker": ["a:1", "b:2", "c:3"]}
  task = {"type": kind, "index": index}
  return json.dumps({"cluster": jobs, "task": task})


_CHIEF = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
_CHIEF_FIRST = ("c:3", "a:1", "b:2"), {"chief": 1, "worker": 2}


@pytest.mark.parametrize(
  "value, index, others",
  [
    (_config(2), 2, (("a:1", "b:2", "c:3"), {"worker": 3})),
    (_config(1, **_CHIEF), 2, _CHIEF_FIRST),
    (_config(0, "chief", **_CHIEF), 0, _CHIEF_FIRST),
  ],
)
def test_the_chief_is_the_first_worker(monkeypatch, value, index, others):
  monkeypatch.setenv("TF_CONFIG", value)
  assert machine.read_cluster() == (others[0], index, others[1])


@pytest.mark.parametrize(
  "value, message",
  [
    ("", "TF_CONFIG is not set"),
    ("{'cluster'", "not valid JSON"),
    ("[" * 10**5, "not valid JSON (recursion limit exceeded"),
    ('{"cluster": {}}', "TF_CONFIG has no 'task': it looks like"),
    (_config(worker=7), "'cluster.worker' is 7, but must be"),
    (_config("0"), "'task.index' is '0', but must be a valid integer"),
    (_config(3), "the task of this process, counted from 0, but names ('a"),
    (_config(-1), "the task of this process"),
    (_config(0, "ps"), "the task of this process"),
    (_config(worker=["a:1"], chief=["b:2", "c:3"]), "at most one chief"),
    (_config(worker=["a:1", "a:1"]), "each address once"),
    (_config(worker=["a:65536"]), "'a:65536' is no address"),
    (_config(worker=["7"]), "'7' is no address"),
  ],
)
def test_a_wrong_tf_config_is_refused(monkeypatch, value, message):
  monkeypatch.setenv("TF_CONFIG", value)
  with pytest.raises(ValueError, match="^[^\n]*$") as raised:
    machine.read_cluster()
  assert message in str(raised.value)


def test_workers_wait_for_each_other():
  addresses = tuple(toy_task.free_addresses(3))
  came, servers = [], []

  def meet(index):
    machine.meet(machine.Cluster(addresses, index, {}), 20)
    # As TensorFlow's server, which listens from now on.
    servers.append(
      socket.create_server(machine.host_and_port(addresses[index]))
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
  addresses = tuple(toy_task.free_addresses(2))
  begun = time.monotonic()
  with pytest.raises(
    TimeoutError, match=f"worker 0 at {addresses[0]} did not start within 0.5"
  ):
    machine.meet(machine.Cluster(addresses, 1, {}), 0.5)
  assert 0.5 <= time.monotonic() - begun < 5
  # The port is free again.
  machine.meet(machine.Cluster(addresses[1:], 0, {}), 1)


def test_a_port_in_use_is_refused():
  with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
    port = other.getsockname()[1]
    with pytest.raises(OSError, match=f"cannot listen on port {port} of TF_"):
      machine.meet(machine.Cluster((f"127.0.0.1:{port}",), 0, {}), 1)


def test_cpu_count_and_description(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7})
  assert machine.cpu_count() == 3
  assert machine.describe_machine().startswith("3 cores, ")
