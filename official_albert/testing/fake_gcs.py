"""A fake Google Cloud Storage on the loopback interface, for tests.

TensorFlow's gs:// client cannot be pointed at another server, but its libcurl
honors `https_proxy` and `CURL_CA_BUNDLE`. This server is a proxy that answers
Google's requests itself, with a certificate of its own. The client must be
another process, with `FakeGcs.environment`, as functions of TensorFlow may wait
for the file system while they hold Python's global lock.
"""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import http.server
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import ssl
import tempfile
import threading
import urllib.parse
import zlib
from typing import Any, Callable, Iterator, NamedTuple
from unittest import mock

import trustme

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_API, _DOWNLOADS = "www.googleapis.com", "storage.googleapis.com"
# The kinds of requests by their method and the number of parts of their path.
# An upload is followed by upload_part, which has its bytes; a folder is an
# empty object that stands for one.
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
  """A request and its answer."""

  kind: str  # Of `_KINDS`, "download" or "folder".
  address: str  # Of a list, its prefix.
  status: int


class FakeGcs:
  """gs://bucket in memory behind a server; a context manager."""

  def __init__(self):
    self.requests: list[Request] = []
    self.objects: dict[str, bytes] = {}  # By address.
    self._lock = threading.RLock()
    self._numbers = itertools.count(1)
    # Requests for addresses that start with one of these are answered with 403.
    self.forbidden: tuple[str, ...] = ()
    # Of so many requests, a download is cut or another one refused; 0: none.
    self.fault_every = 0

  def __enter__(self) -> FakeGcs:
    self._folder = tempfile.TemporaryDirectory()
    certificate = os.path.join(self._folder.name, "certificate.pem")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(certificate)
    self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(_API, _DOWNLOADS).configure_cert(self._tls)
    self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    self._server.gcs = self
    threading.Thread(target=self._server.serve_forever, args=(0.05,)).start()
    self.environment = {
      "https_proxy": f"http://127.0.0.1:{self._server.server_port}",
      # gRPC honors proxies too; workers on this machine need none.
      "no_proxy": "localhost,127.0.0.1,::1",
      "CURL_CA_BUNDLE": certificate,
      "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
      "NO_GCE_CHECK": "true",
      # Programs of this package run in any folder.
      "PYTHONPATH": str(_ROOT),
    }
    return self

  def __exit__(self, *_) -> None:
    self._server.shutdown()
    self._server.server_close()
    self._folder.cleanup()

  @contextlib.contextmanager
  def client(self, **environment: str) -> Iterator[Callable[..., Any]]:
    """Starts a process and yields what calls a function there."""
    spawn = multiprocessing.get_context("spawn")
    variables = {**self.environment, **environment}
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
      with mock.patch.dict(os.environ, variables):
        pool.submit(os.getpid).result()
      yield lambda function, *args: pool.submit(function, *args).result()

  def names(self, prefix: str = "gs://") -> list[str]:
    """Returns the addresses that start with `prefix`, sorted."""
    return sorted(name for name in [*self.objects] if name.startswith(prefix))

  def upload(self, folder: str, address: str) -> None:
    """Copies the files of a local folder to ADDRESS/."""
    for path in pathlib.Path(folder).rglob("*"):
      if path.is_file():
        name = path.relative_to(folder).as_posix()
        self.objects[f"{address}/{name}"] = path.read_bytes()

  def download(self, address: str, folder: str) -> None:
    """Copies the objects below ADDRESS/ to a local folder."""
    for name in self.names(f"{address}/"):
      if not name.endswith("/"):
        path = pathlib.Path(folder, name[len(address) + 1 :])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.objects[name])


class _Handler(http.server.BaseHTTPRequestHandler):
  """Answers the requests of TensorFlow's gs:// client."""

  protocol_version = "HTTP/1.1"
  disable_nagle_algorithm = True  # Would add 40 ms to each request.

  def log_message(self, *_) -> None:
    pass

  def handle(self) -> None:
    with contextlib.suppress(OSError):  # Clients may be killed at any time.
      super().handle()

  def finish(self) -> None:
    super().finish()
    self.connection.close()

  def do_CONNECT(self) -> None:
    """Begins what clients take for a tunnel to Google."""
    self.send_response(200)
    self.end_headers()
    self.request = self.server.gcs._tls.wrap_socket(self.connection, True)
    self.setup()  # What follows is encrypted.

  def _handle(self) -> None:
    self.gcs: FakeGcs = self.server.gcs
    self.body = self._read_body()
    self._parse()
    with self.gcs._lock:
      every, number = self.gcs.fault_every, next(self.gcs._numbers)
      fails = every > 0 and number % every == 0 and self.kind != "upload_part"
      is_cut = fails and self.kind == "download"
      if any(x.startswith(self.gcs.forbidden) for x in self.addresses):
        status, answer = 403, b"this account may not access the object"
      elif not all(x.startswith("gs://bucket/") for x in self.addresses):
        status, answer = 404, b"the bucket does not exist"
      elif fails and not is_cut:
        status, answer = 503, b"unavailable, as the test wants it"
      else:
        try:
          status, answer = getattr(self, f"_{self.kind}")()
        except KeyError:
          status, answer = 404, b"the object does not exist"
    self.gcs.requests.append(Request(self.kind, self.addresses[0], status))
    self.send_response(status)
    self.send_header("Content-Length", str(len(answer)))
    if self.kind == "upload":
      # TensorFlow uploads the content to the address that it gets here.
      self.send_header("Location", f"https://{_API}{self.path}")
    self.end_headers()
    self.wfile.write(answer[: len(answer) // 2] if is_cut else answer)
    self.close_connection |= is_cut

  do_GET = do_POST = do_PUT = do_DELETE = _handle

  def _read_body(self) -> bytes:
    if self.headers["Transfer-Encoding"] != "chunked":
      size = int(self.headers.get("Content-Length", 0))
      body = self.rfile.read(size)
      if len(body) < size:
        raise ConnectionError("the client was killed")
      return body
    chunks = []
    while not chunks or chunks[-1]:
      chunks.append(self.rfile.read(int(self.rfile.readline(), 16)))
      self.rfile.readline()
    return b"".join(chunks)

  def _parse(self) -> None:
    """Sets the kind of the request, and the one or two addresses it names."""
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
    self.addresses = [f"gs://{self.bucket}/{'/'.join(names)}"]
    if self.kind == "copy":
      self.addresses.append(f"gs://{parts[8]}/{parts[10]}")

  def _bucket(self) -> tuple[int, bytes]:
    # As for the role Storage Object User.
    return 403, b"this account does not have storage.buckets.get"

  def _stat(self) -> tuple[int, bytes]:
    content = self.gcs.objects[self.addresses[0]]
    answer = {"size": len(content), "generation": zlib.crc32(content)}
    answer = {name: str(number) for name, number in answer.items()}
    answer["updated"] = "2026-11-01T00:00:00.0Z"
    return 200, json.dumps(answer).encode()

  def _list(self) -> tuple[int, bytes]:
    """Returns objects, and the prefixes that stand for folders."""
    (prefix,), start = self.addresses, len("gs://bucket/")
    kinds = {}
    for address in self.gcs.names(prefix):
      end = 0
      if "delimiter" in self.query:
        end = address.find(self.query["delimiter"], len(prefix)) + 1
      name = address[start : end or None]
      kinds[name] = "prefixes" if end else "items"
    answer: dict[str, Any] = {"items": [], "prefixes": []}
    most = int(self.query.get("maxResults", 10**9))
    for name, kind in itertools.islice(kinds.items(), most):
      answer[kind].append(name if kind == "prefixes" else {"name": name})
    return 200, json.dumps(answer).encode()

  def _download(self) -> tuple[int, bytes]:
    content = self.gcs.objects[self.addresses[0]]
    first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
    if first >= len(content):
      return 416, b"the object has fewer bytes"
    return 206, content[first : last + 1]

  def _folder(self) -> tuple[int, bytes]:
    if self.addresses[0] in self.gcs.objects:
      return 412, b"the object has another generation"
    return self._upload_part()

  def _upload(self) -> tuple[int, bytes]:
    return 200, b""  # Its content follows.

  def _upload_part(self) -> tuple[int, bytes]:
    self.gcs.objects[self.addresses[0]] = self.body
    return 200, b"{}"

  def _compose(self) -> tuple[int, bytes]:
    # TensorFlow quotes as Python does, not as JSON does.
    content = b""
    for source in ast.literal_eval(self.body.decode())["sourceObjects"]:
      content += self.gcs.objects[f"gs://{self.bucket}/{source['name']}"]
    self.gcs.objects[self.addresses[0]] = content
    return 200, b"{}"

  def _copy(self) -> tuple[int, bytes]:
    source, destination = self.addresses
    self.gcs.objects[destination] = self.gcs.objects[source]
    return 200, b'{"done": true}'

  def _remove(self) -> tuple[int, bytes]:
    del self.gcs.objects[self.addresses[0]]
    return 204, b""
