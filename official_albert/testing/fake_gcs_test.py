"""Tests the fake bucket with TensorFlow's own gs:// client."""

from __future__ import annotations

import pytest

from official_albert.testing import fake_gcs


@pytest.fixture(scope="module", name="gcs")
def fixture_gcs():
  with fake_gcs.FakeGcs() as gcs:
    yield gcs


@pytest.fixture(scope="module", name="client")
def fixture_client(gcs):
  with gcs.client(
    GCS_APPEND_MODE="compose", TF_CPP_MIN_LOG_LEVEL="3"
  ) as client:
    yield client


def _gfile():
  import tensorflow as tf

  return tf.io.gfile


def _read(path):
  return _gfile().GFile(path, "rb").read()


def _write(path, *parts, mode="wb"):
  with _gfile().GFile(path, mode) as file:
    for part in parts:
      file.write(part)
      file.flush()


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
  return sorted(gfile.listdir(root)), [x.rpartition("/")[2] for x in texts]


def test_names(gcs, client):
  root = "gs://bucket/nä mes"
  names, texts = client(_handle_names, root)
  assert names == ["b.txt", "c.txt", "e.txt", "f/"]
  assert texts == ["b.txt", "c.txt", "e.txt"]
  kept = ["", "b.txt", "c.txt", "e.txt", "f/g.txt"]
  assert set(gcs.names(root)) <= {f"{root}/{name}" for name in kept}
  assert gcs.read(f"{root}/c.txt") == b"one\n"


def _append(path):
  _write(path, b"one\n", b"two\n", mode="ab")
  _write(path, b"three\n", b"four\n", mode="ab")


def test_each_flush_appends_what_is_new(gcs, client):
  path = "gs://bucket/append.txt"
  start = len(gcs.requests)
  client(_append, path)
  assert gcs.read(path) == b"one\ntwo\nthree\nfour\n"
  kinds = [request.kind for request in gcs.requests[start:]]
  assert kinds.count("compose") == 2
  # The parts are removed.
  assert not [name for name in gcs.names() if "/.tmpcompose/" in name]


@pytest.mark.parametrize(
  "address, message",
  [
    ("gs://bucket/secret/x", "code 403.*this account may not access"),
    ("gs://other/x", "code 404.*the bucket does not exist"),
    ("gs://bucket/missing", "path gs://bucket/missing was not found"),
  ],
)
def test_refusals(gcs, client, address, message):
  gcs.forbid("gs://bucket/secret/")
  with pytest.raises(Exception, match=message):
    client(_read, address)
