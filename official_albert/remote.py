"""Adapts TensorFlow's remote files to Python's, for `official_albert.files`."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import textwrap
from typing import Any, Iterator

# What TensorFlow reports of a failed request to a bucket.
_REQUEST = "Error executing an HTTP request: "
_ADVICE = {
  "401": "run `gcloud auth application-default login`, or set "
  "GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account",
  "403": "give this account a role on the bucket that permits it, such as "
  "Storage Object User",
  "404": "check the name of the bucket",
}


@contextlib.contextmanager
def client(path: str) -> Iterator[Any]:
  """Yields `tf.io.gfile`; its errors become OSErrors about `path`."""
  import tensorflow as tf

  numbers = {
    tf.errors.NotFoundError: errno.ENOENT,
    tf.errors.PermissionDeniedError: errno.EACCES,
    tf.errors.ResourceExhaustedError: errno.ENOSPC,
  }
  try:
    yield tf.io.gfile
  except tf.errors.UnimplementedError as error:
    raise ValueError(unsupported(path)) from error
  except tf.errors.OpError as error:
    number = numbers.get(type(error), errno.EIO)
    address, reason = explain(error.message)
    if number == errno.ENOENT and not address:
      reason = os.strerror(number)
    raise OSError(number, reason, path) from error


def call(name: str, path: str, *others: Any, **options: Any) -> Any:
  """Calls a function of `tf.io.gfile`; errors are about `path`."""
  with client(path) as gfile:
    return getattr(gfile, name)(path, *others, **options)


def explain(message: str) -> tuple[str, str]:
  """Explains an error message of TensorFlow.

  Returns:
    The address in a bucket to which a request failed, or "" if the message has
    none; and the reason on one line, for a failed request with what to do.
  """
  # Without the graph, the name of the operation, and the places in Python.
  message = message.split("\n\t [[")[0].split("[Op:")[0]
  message = re.sub(r"\{\{(function_)?node .*?\}\} ", "", message)
  if message.startswith("Graph execution error:"):
    message = message.rstrip().rpartition("\n\n")[2]
  before, is_full, _ = message.partition("; No space left on device")
  if is_full:
    return "", f"{before.split()[-1]}: {os.strerror(errno.ENOSPC)}"
  _, is_request, text = message.partition(_REQUEST)
  if not is_request:
    return "", " ".join(message.split())
  cause, _, place = text.partition("\n\t when ")
  path = re.search(r"gs://[^\n]*|$", place)[0].strip()
  status = re.match(r"HTTP response code (\d+)|", cause)[1]
  if status == "404" and "bucket does not" not in cause:
    return path, os.strerror(errno.ENOENT)
  advice = _ADVICE.get(status, "check the network, and run the command again")
  return path, f"{textwrap.shorten(cause, 240)}: {advice}"


class RemoteFile(io.RawIOBase):
  """Adapts a `GFile` to Python's buffered readers and writers."""

  def __init__(self, path: str, mode: str):
    self._path, self._mode = path, mode
    with client(path) as gfile:
      self._file = gfile.GFile(path, f"{mode}b")

  def readable(self) -> bool:
    return self._mode == "r"

  def writable(self) -> bool:
    return self._mode != "r"

  seekable = readable  # Writers only append.

  def _call(self, method: str, *arguments: Any) -> Any:
    with client(self._path):
      return getattr(self._file, method)(*arguments)

  def readinto(self, buffer: Any) -> int:
    content = self._call("read", len(buffer))
    buffer[: len(content)] = content
    return len(content)

  def write(self, content: Any) -> int:
    self._call("write", bytes(content))
    return len(content)

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    self._call("seek", offset, whence)
    return self._call("tell")

  def flush(self) -> None:
    if self.writable() and not self.closed:
      self._call("flush")

  def close(self) -> None:
    if not self.closed:
      try:
        self._call("close")
      finally:
        super().close()


class RemoteWriter(io.BufferedWriter):
  """A buffered writer whose `flush` uploads; the base class only writes."""

  def flush(self) -> None:
    super().flush()
    self.raw.flush()


def unsupported(path: str) -> str:
  """Returns the message for an address that TensorFlow cannot open."""
  return (
    f"{path!r} is neither a local path nor gs://BUCKET/NAME: copy the files to "
    "a disk or to a Cloud Storage bucket."
  )
