"""Tests the fake bucket with TensorFlow's own gs:// client."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from official_albert.testing import fake_gcs


@pytest.fixture(scope="module", name="gcs")
def fixture_gcs():
  with fake_gcs.FakeGcs(page_size=3) as gcs:
    yield gcs


@pytest.fixture(scope="module", name="client")
def fixture_client(gcs):
  with gcs.client(
    GCS_APPEND_MODE="compose", TF_CPP_MIN_LOG_LEVEL="3"
  ) as client:
    yield client


@pytest.fixture(autouse=True)
def _no_faults(gcs):
  gcs.set_faults()


def _gfile():
  import tensorflow as tf

  return tf.io.gfile


def _read(path):
  return _gfile().GFile(path, "rb").read()


def _write(path, content):
  with _gfile().GFile(path, "wb") as file:
    file.write(content)


def _handle_names(root):
  gfile = _gfile()
  path = f"{root}/a.txt"
  assert not gfile.exists(path) and not gfile.exists(root)
  _write(path, b"one\n")
  assert gfile.exists(root) and gfile.isdir(root) and not gfile.isdir(path)
  gfile.makedirs(f"{root}/empty/below")
  assert gfile.isdir(f"{root}/empty")
  gfile.rename(path, f"{root}/b.txt")
  gfile.copy(f"{root}/b.txt", f"{root}/c.txt")
  for name in ("d.txt", "e.txt", "f/g.txt"):
    _write(f"{root}/{name}", b"")
  gfile.remove(f"{root}/d.txt")
  gfile.rmtree(f"{root}/empty")
  texts = gfile.glob(f"{root}/*.txt")
  return sorted(gfile.listdir(root)), [
    name.rpartition("/")[2] for name in texts
  ]


def test_names(gcs, client):
  root = "gs://bucket/nä mes"
  names, texts = client(_handle_names, root)
  assert names == ["b.txt", "c.txt", "e.txt", "f/"]
  assert texts == ["b.txt", "c.txt", "e.txt"]
  kept = ["", "b.txt", "c.txt", "e.txt", "f/g.txt"]
  assert set(gcs.names(root)) <= {f"{root}/{name}" for name in kept}
  assert gcs.read(f"{root}/c.txt") == b"one\n"
  counts = gcs.counts(root)
  # A copy is a download and an upload; a move is a copy and a removal.
  assert counts["copy"] == 1 and counts["upload"] == 5
  assert counts["folder"] >= 2


def _append(path, lines):
  with _gfile().GFile(path, "ab") as file:
    for line in lines:
      file.write(line)
      file.flush()


def test_each_flush_appends_what_is_new(gcs, client):
  path = "gs://bucket/append.txt"
  start = len(gcs.requests)
  client(_append, path, [b"one\n", b"two\n"])
  client(_append, path, [b"three\n", b"four\n"])
  assert gcs.read(path) == b"one\ntwo\nthree\nfour\n"
  seen = gcs.requests[start:]
  # The first flush after opening uploads the whole object.
  sent = [request.range for request in seen if request.kind == "upload_part"]
  assert sent == [f"bytes 0-{size - 1}/{size}" for size in (4, 4, 14, 5)]
  assert [request.kind for request in seen].count("compose") == 2
  # The parts are removed.
  assert not [name for name in gcs.names() if "/.tmpcompose/" in name]


def _random(size):
  return np.random.default_rng(0).bytes(size)


def test_requests_that_fail_are_repeated(gcs, client):
  paths = ("gs://bucket/faulty/a", "gs://bucket/faulty/b")
  content = _random(101)
  gcs.set_faults(unavailable_every=4)
  start = len(gcs.requests)
  for path in paths:
    client(_write, path, content)
  assert [request[2:] for request in gcs.requests[start:]] == [
    ("", 200),
    ("bytes 0-100/101", 200),
    ("", 200),
    ("bytes 0-100/101", 503),
    ("bytes */101", 308),
    ("bytes 50-100/101", 200),
  ]
  gcs.set_faults(cut_every=2)
  start = len(gcs.requests)
  for path in paths:
    assert client(_read, path) == content
  kinds = [request.kind for request in gcs.requests[start:]]
  assert kinds == ["stat", "download", "stat", "download", "download"]


@pytest.mark.parametrize(
  "address, status, message",
  [
    ("gs://bucket/secret/x", 403, "code 403.*this account may not access"),
    ("gs://other/x", 404, "code 404.*the bucket does not exist"),
    ("gs://bucket/missing", 404, "path gs://bucket/missing was not found"),
  ],
)
def test_refusals(gcs, client, address, status, message):
  gcs.set_faults(forbidden=("gs://bucket/secret/",))
  start = len(gcs.requests)
  with pytest.raises(Exception, match=message):
    client(_read, address)
  assert status in {request.status for request in gcs.requests[start:]}


def test_the_server_as_a_program():
  variables = "import os, sys; sys.exit('https_proxy' not in os.environ or 3)"
  command = ["-m", "official_albert.testing.fake_gcs", sys.executable, "-c"]
  with fake_gcs.FakeGcs() as gcs:
    done = gcs.run([sys.executable, *command, variables])
  assert done.returncode == 3, done.stderr
