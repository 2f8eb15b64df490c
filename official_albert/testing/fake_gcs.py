"""A fake Google Cloud Storage on the loopback interface, for tests.

TensorFlow's gs:// client cannot be pointed at another server, but its libcurl
honors `https_proxy` and `CURL_CA_BUNDLE`. This server is a proxy that answers
Google's requests itself, with a certificate of its own:

    with fake_gcs.FakeGcs() as gcs:
      gcs.write("gs://bucket/corpus.txt", b"A sentence.\n")
      variables = {**os.environ, **gcs.environment}
      subprocess.run(["albert", "train_vocabulary", ...], env=variables)
      assert gcs.names("gs://bucket/vocabulary/")

The client must be another process, as functions of TensorFlow may wait for the
file system while they hold Python's global lock.

    python -m official_albert.testing.fake_gcs bash

runs a command, here a shell, that finds an empty gs://bucket.
"""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import datetime
import http.server
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from typing import Any, Callable, Iterator, NamedTuple, Optional
from unittest import mock

import trustme

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_API, _DOWNLOADS = "www.googleapis.com", "storage.googleapis.com"
_TOKEN = "token-of-the-fake-bucket"
# The kinds of requests by their method and the number of parts of their path.
_KINDS = {
  ("GET", 4): "bucket",
  ("GET", 5): "list",
  ("GET", 6): "stat",
  ("DELETE", 6): "remove",
  ("POST", 6): "upload",
  ("PUT", 6): "upload_part",
  ("POST", 7): "compose",
  ("POST", 11): "copy",
}


class Request(NamedTuple):
  """A request and the status of its answer.

  Attributes:
    kind: "download", "stat", "list", "bucket", "upload" (the start of one),
      "upload_part" (its bytes), "folder" (an empty object that stands for
      one), "compose", "copy" or "remove".
    address: gs:// and what is asked for; for lists, the prefix.
    range: the Range or Content-Range header, or "".
    status: the HTTP status.
  """

  kind: str
  address: str
  range: str
  status: int


class _Object(NamedTuple):
  content: bytes
  generation: int
  updated: str


class _Refusal(Exception):
  """An answer with a status of 400 or more, and its reason."""


class FakeGcs:
  """gs://bucket in memory behind a server; a context manager.

  Attributes:
    environment: the variables that a client needs.
    requests: all requests so far, in the order of their answers.
  """

  def __init__(self):
    self.requests: list[Request] = []
    self._objects: dict[str, _Object] = {}
    self._lock = threading.RLock()
    self._numbers = itertools.count(1)
    self._errors: list[Exception] = []
    self._forbidden: tuple[str, ...] = ()
    self._fault_every = 0

  def __enter__(self) -> FakeGcs:
    self._folder = tempfile.TemporaryDirectory()
    certificate = os.path.join(self._folder.name, "certificate.pem")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(certificate)
    self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(_API, _DOWNLOADS).configure_cert(self._tls)
    self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    self._server.gcs = self
    threading.Thread(target=self._server.serve_forever, args=(0.05,)).start()
    self.environment = {
      "https_proxy": f"http://127.0.0.1:{self._server.server_port}",
      # gRPC honors proxies too; workers on this machine need none.
      "no_proxy": "localhost,127.0.0.1,::1",
      "CURL_CA_BUNDLE": certificate,
      "GOOGLE_AUTH_TOKEN_FOR_TESTING": _TOKEN,
      "NO_GCE_CHECK": "true",
      # Programs of this package run in any folder.
      "PYTHONPATH": str(_ROOT),
    }
    return self

  def __exit__(self, *_) -> None:
    self._server.shutdown()
    self._server.server_close()
    self._folder.cleanup()
    if self._errors:
      raise self._errors[0]

  @contextlib.contextmanager
  def client(self, **environment: str) -> Iterator[Callable[..., Any]]:
    """Starts a process with these variables and yields a function.

    The function calls another function there, by name, with the arguments that
    follow. It returns the result, or raises what was raised there.
    """
    spawn = multiprocessing.get_context("spawn")
    variables = {**self.environment, **environment}
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
      with mock.patch.dict(os.environ, variables):
        pool.submit(os.getpid).result()
      yield lambda function, *args: pool.submit(function, *args).result()

  def forbid(self, *addresses: str) -> None:
    """Answers requests for addresses that start with one of these with 403."""
    with self._lock:
      self._forbidden = addresses

  def fail(self, every: int) -> None:
    """Answers every Nth request with 503 or, if it is a download, cuts it.

    An upload is answered in any case. 0 ends the faults.
    """
    with self._lock:
      self._fault_every = every

  def write(self, address: str, content: bytes) -> None:
    """Creates or replaces an object."""
    now = datetime.datetime.now(datetime.timezone.utc)
    updated = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with self._lock:
      written = _Object(bytes(content), next(self._numbers), updated)
      self._objects[address] = written

  def read(self, address: str) -> bytes:
    """Returns the content of an object, or raises KeyError."""
    return self._objects[address].content

  def names(self, prefix: str = "gs://") -> list[str]:
    """Returns the addresses that start with `prefix`, sorted."""
    with self._lock:
      return sorted(name for name in self._objects if name.startswith(prefix))

  def upload(self, folder: str, address: str) -> None:
    """Copies the files of a local folder to ADDRESS/."""
    for path in pathlib.Path(folder).rglob("*"):
      if path.is_file():
        name = path.relative_to(folder).as_posix()
        self.write(f"{address}/{name}", path.read_bytes())

  def download(self, address: str, folder: str) -> None:
    """Copies the objects below ADDRESS/ to a local folder."""
    for name in self.names(f"{address}/"):
      if not name.endswith("/"):
        path = pathlib.Path(folder, name[len(address) + 1 :])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.read(name))


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  disable_nagle_algorithm = True  # Would add 40 ms to each request.

  def log_message(self, *_) -> None:
    pass


class _Proxy(_Handler):
  """Opens what clients take for a tunnel to Google."""

  def do_CONNECT(self) -> None:
    if self.path not in (f"{_API}:443", f"{_DOWNLOADS}:443"):
      self.send_error(403, "only Google Cloud Storage is behind this proxy")
      return
    self.send_response(200)
    self.end_headers()
    self.close_connection = True
    # Clients may be killed at any time.
    with contextlib.suppress(OSError):
      tunnel = self.server.gcs._tls.wrap_socket(self.request, True)
      with tunnel:
        _Google(tunnel, self.client_address, self.server)


class _Google(_Handler):
  """Answers the requests of TensorFlow's gs:// client."""

  def _handle(self) -> None:
    self.gcs: FakeGcs = self.server.gcs
    self.body = self._read_body()
    self.answer_headers: dict[str, str] = {}
    fails = False
    try:
      self._parse()
      with self.gcs._lock:
        self._check()
        every, number = self.gcs._fault_every, next(self.gcs._numbers)
        fails = every > 0 and number % every == 0
        if fails and self.kind not in ("download", "upload_part"):
          raise _Refusal(503, "unavailable, as the test wants it")
        status, answer = getattr(self, f"_{self.kind}")()
    except _Refusal as refusal:
      status, reason = refusal.args
      answer = reason.encode()
    except Exception as error:
      self.gcs._errors.append(error)
      raise
    span = self.headers["Range"] or self.headers["Content-Range"] or ""
    self.gcs.requests.append(Request(self.kind, self.address, span, status))
    self.send_response(status)
    self.send_header("Content-Length", str(len(answer)))
    for name, value in self.answer_headers.items():
      self.send_header(name, value)
    self.end_headers()
    is_cut = fails and self.kind == "download"
    self.wfile.write(answer[: len(answer) // 2] if is_cut else answer)
    self.close_connection |= is_cut

  do_GET = do_POST = do_PUT = do_DELETE = _handle

  def _read_body(self) -> bytes:
    if self.headers["Transfer-Encoding"] != "chunked":
      return self._read(int(self.headers.get("Content-Length", 0)))
    chunks = []
    while not chunks or chunks[-1]:
      size = int(self.rfile.readline() or "0", 16)
      chunks.append(self._read(size))
      self._read(2)  # The end of the line.
    return b"".join(chunks)

  def _read(self, size: int) -> bytes:
    content = self.rfile.read(size)
    if len(content) < size:
      raise ConnectionError("the client was killed")
    return content

  def _parse(self) -> None:
    """Sets the kind of the request, its address, and what else it names."""
    url = urllib.parse.urlsplit(self.path)
    self.query = dict(urllib.parse.parse_qsl(url.query))
    # Slashes within names are quoted. Uploads and lists name in the query.
    parts = [urllib.parse.unquote(part) for part in url.path.split("/")[1:]]
    if self.headers["Host"] == _DOWNLOADS:
      self.kind, self.bucket, *names = "download", *parts
    else:
      self.kind = _KINDS[self.command, len(parts)]
      if self.query.get("uploadType") == "media":
        self.kind = "folder"
      _, _, self.bucket, *names = parts[parts.index("v1") :]
      names = names[1:2] or [
        self.query.get("name") or self.query.get("prefix", "")
      ]
    self.address = f"gs://{self.bucket}/{'/'.join(names)}"
    self.destination = (
      f"gs://{parts[8]}/{parts[10]}" if self.kind == "copy" else ""
    )

  def _check(self) -> None:
    if self.headers["Authorization"] != f"Bearer {_TOKEN}":
      raise _Refusal(401, "the token is not that of the fake bucket")
    for address in filter(None, (self.address, self.destination)):
      if address.startswith(self.gcs._forbidden):
        raise _Refusal(403, "this account may not access the object")
      if address.split("/")[2] != "bucket":
        raise _Refusal(404, "the bucket does not exist")

  def _object(self, address: str, generation: Optional[Any] = None) -> _Object:
    """Returns an object, or refuses a missing one or another generation."""
    found = self.gcs._objects.get(address)
    if not found:
      raise _Refusal(404, "the object does not exist")
    if generation not in (None, found.generation):
      raise _Refusal(412, "the object has another generation")
    return found

  def _bucket(self) -> tuple[int, bytes]:
    # As for the role Storage Object User.
    raise _Refusal(403, "this account does not have storage.buckets.get")

  def _stat(self) -> tuple[int, bytes]:
    content, generation, updated = self._object(self.address)
    answer = {
      "size": str(len(content)),
      "generation": str(generation),
      "updated": updated,
    }
    return 200, json.dumps(answer).encode()

  def _list(self) -> tuple[int, bytes]:
    """Returns objects, and the prefixes that stand for folders."""
    start = len(f"gs://{self.bucket}/")
    kinds = {}
    for address in self.gcs.names(self.address):
      end = 0
      if "delimiter" in self.query:
        end = address.find(self.query["delimiter"], len(self.address)) + 1
      name = address[start : end or None]
      kinds[name] = "prefixes" if end else "items"
    answer: dict[str, Any] = {"items": [], "prefixes": []}
    most = int(self.query.get("maxResults", 10**9))
    for name, kind in itertools.islice(kinds.items(), most):
      answer[kind].append(name if kind == "prefixes" else {"name": name})
    return 200, json.dumps(answer).encode()

  def _download(self) -> tuple[int, bytes]:
    content = self._object(self.address).content
    first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
    if first >= len(content):
      raise _Refusal(416, "the object has fewer bytes")
    return 206, content[first : last + 1]

  def _folder(self) -> tuple[int, bytes]:
    if self.address in self.gcs._objects:
      raise _Refusal(412, "the object has another generation")
    self.gcs.write(self.address, self.body)
    return 200, b"{}"

  def _upload(self) -> tuple[int, bytes]:
    # TensorFlow uploads the content to the address that it gets here.
    self.answer_headers["Location"] = f"https://{_API}{self.path}"
    return 200, b""

  def _upload_part(self) -> tuple[int, bytes]:
    self.gcs.write(self.address, self.body)
    return 200, b""

  def _compose(self) -> tuple[int, bytes]:
    # TensorFlow quotes as Python does, not as JSON does.
    content = b""
    for source in ast.literal_eval(self.body.decode())["sourceObjects"]:
      condition = source.get("objectPrecondition", {})
      generation = condition.get("ifGenerationMatch")
      address = f"gs://{self.bucket}/{source['name']}"
      content += self._object(address, generation).content
    self.gcs.write(self.address, content)
    return 200, b"{}"

  def _copy(self) -> tuple[int, bytes]:
    content = self._object(self.address).content
    self.gcs.write(self.destination, content)
    return 200, json.dumps({"done": True}).encode()

  def _remove(self) -> tuple[int, bytes]:
    self._object(self.address)
    del self.gcs._objects[self.address]
    return 204, b""


if __name__ == "__main__":
  with FakeGcs() as server:
    variables = {**os.environ, **server.environment}
    sys.exit(subprocess.run(sys.argv[1:], env=variables).returncode)
