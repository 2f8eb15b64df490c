"""Opens text files by their content: compressed or not, JSON lines or not.

The first bytes decide, not the name, because WikiExtractor writes `wiki_00` and
a download may have any name. What is no text at all is refused by name.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zlib
from typing import IO, Any, Iterator, Optional

from official_albert import files

# The names of compressed files.
ENDINGS = {
  ".gz": "gzip",
  ".bz2": "bzip2",
  ".xz": "xz",
  ".zst": "zstd",
  ".zstd": "zstd",
}
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_MAGIC = {
  b"\x1f\x8b": "gzip",
  b"BZh": "bzip2",
  b"\xfd7zXZ\0": "xz",
  b"\x28\xb5\x2f\xfd": "zstd",
}
# The first bytes of files that are no text, their kind, and what to do.
_UNPACK = "unpack it"
_EXTRACT = "write its text to a file"
_CONVERT = "convert it to UTF-8, for example with iconv"
_OTHERS = (
  (b"PAR1", "a Parquet file", "write its text as JSON lines"),
  (b"ARROW1", "an Arrow file", "write its text as JSON lines"),
  (b"Obj\x01", "an Avro file", "write its text as JSON lines"),
  (b"\x89HDF", "an HDF5 file", "write its text as JSON lines"),
  (b"SQLite format 3", "a SQLite database", _EXTRACT),
  (b"PK\x03\x04", "a ZIP archive, such as .zip, .xlsx or .docx", _UNPACK),
  (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
  (b"Rar!", "a RAR archive", _UNPACK),
  (b"\x04\x22\x4d\x18", "an LZ4 file", _UNPACK),
  (b"\x1f\x9d", "a .Z file of compress", _UNPACK),
  (b"%PDF", "a PDF file", _EXTRACT),
  (b"\xd0\xcf\x11\xe0", "an old Office file", _EXTRACT),
  (b"{\\rtf", "an RTF file", _EXTRACT),
  (b"\xff\xfe\0\0", "UTF-32, not UTF-8", _CONVERT),
  (b"\0\0\xfe\xff", "UTF-32, not UTF-8", _CONVERT),
  (b"\xff\xfe", "UTF-16, not UTF-8", _CONVERT),
  (b"\xfe\xff", "UTF-16, not UTF-8", _CONVERT),
)
_MARKUP = re.compile(
  rb"<(\?xml|!doctype|html|mediawiki|doc id=|doc url=|tei\b)", re.IGNORECASE
)
_HEAD_BYTES = 1 << 16
_READ_BYTES = 1 << 20
# In compressed bytes; their decompressed content is held in memory.
_ZSTD_READ_BYTES = 1 << 16
# The largest window of `zstd --long=31`; the default limit is 2^27.
_ZSTD_MAX_WINDOW_BYTES = 1 << 31


class DamagedError(ValueError):
  """A compressed file that is cut or damaged; the message says how."""


def kind_of_name(path: str) -> str:
  """Returns the kind of compression that the name of a file says, or ""."""
  for ending, kind in ENDINGS.items():
    if path.lower().endswith(ending):
      return kind
  return ""


def without_ending(path: str) -> str:
  """Returns the path without the ending of a compressed file."""
  for ending in ENDINGS:
    if path.lower().endswith(ending):
      return path[: -len(ending)]
  return path


def unpacked(path: str, file: IO[bytes]) -> tuple[Iterator[bytes], str]:
  """Returns the decompressed content of a file, in parts that are not empty.

  Args:
    path: the path; its ending decides only for a file of unknown content.
    file: the file, open for reading at its start.

  Returns:
    The parts, which raise `DamagedError` at a damaged place, after what comes
    before it; and the kind of compression, or "".
  """
  start = _peek(file)
  kinds = [kind for magic, kind in _MAGIC.items() if start.startswith(magic)]
  kind = kinds[0] if kinds else kind_of_name(path)
  return _parts(file, kind), kind


def _peek(file: Any) -> bytes:
  """Returns the first bytes of a file, which stay to be read."""
  return file.peek(8)[:8]


def _parts(file: Any, kind: str) -> Iterator[bytes]:
  if kind == "zstd":
    yield from _decompress_zstd(file)
    return
  stream: Any = file
  if kind == "gzip":
    stream = gzip.GzipFile(fileobj=file)
  elif kind == "bzip2":
    stream = bz2.BZ2File(file)
  elif kind == "xz":
    stream = lzma.LZMAFile(file)
  while True:
    try:
      # `read1` returns what comes before a damaged place before it raises.
      # From a pipe, it returns what is there.
      data = stream.read1(_READ_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
      raise DamagedError(str(error)) from error
    except OSError as error:
      if kind != "bzip2" or error.errno is not None:
        raise
      raise DamagedError(str(error)) from error
    if not data:
      return
    yield data


def _decompress_zstd(file: IO[bytes]) -> Iterator[bytes]:
  """Decompresses frames; zstandard's `stream_reader` ignores truncation."""
  import zstandard  # Few inputs need it, and every worker would load it.

  decompressor = zstandard.ZstdDecompressor(
    max_window_size=_ZSTD_MAX_WINDOW_BYTES
  )
  frame = None
  while data := file.read(_ZSTD_READ_BYTES):
    while data:
      frame = frame or decompressor.decompressobj()
      try:
        output = frame.decompress(data)
      except zstandard.ZstdError as error:
        raise DamagedError(str(error)) from error
      if output:
        yield output
      data = b""
      if frame.eof:
        data, frame = frame.unused_data, None
  if frame:
    raise DamagedError("it ends in the middle of a frame")


class _Stream(io.RawIOBase):
  """The parts of a file as a file."""

  def __init__(self, parts: Iterator[bytes]):
    super().__init__()
    self._parts, self._rest = parts, b""

  def readable(self) -> bool:
    return True

  def readinto(self, buffer: Any) -> int:
    if not self._rest:
      self._rest = next(self._parts, b"")
    size = min(len(buffer), len(self._rest))
    buffer[:size], self._rest = self._rest[:size], self._rest[size:]
    return size


def open_unpacked(path: str, file: IO[bytes]) -> IO[bytes]:
  """Returns the decompressed content of an open file, which must be text.

  Raises:
    ValueError: it is no text.
    DamagedError: as it is read.
  """
  parts, _ = unpacked(path, file)
  stream: Any = io.BufferedReader(_Stream(parts), _HEAD_BYTES)
  try:
    head = stream.peek(_HEAD_BYTES)
  except DamagedError:
    head = b""  # Reading it raises again, with the line.
    stream = io.BufferedReader(_Stream(_raise_again(path)), _HEAD_BYTES)
  check_head(path, head)
  return stream


def _raise_again(path: str) -> Iterator[bytes]:
  raise DamagedError("its beginning is damaged")
  yield b""  # Makes this a generator.


def check_head(path: str, head: bytes) -> None:
  """Refuses a file whose first decompressed bytes are no text of documents.

  Raises:
    ValueError: they are of another kind of file, UTF-16, or markup.
  """
  found: Optional[tuple[str, str]] = None
  for magic, kind, advice in _OTHERS:
    if head.startswith(magic):
      found = kind, advice
      break
  text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
  if not found and head[257:262] == b"ustar":
    found = "a tar archive", _UNPACK
  elif not found and head.count(b"\0", 0, 1000) > len(head[:1000]) // 4 > 1:
    found = "UTF-16 or binary, not UTF-8", _CONVERT
  elif not found and _MARKUP.match(text):
    found = (
      "XML or HTML",
      "extract its text; for a dump of Wikipedia, use tools.gather_corpus "
      "--wikipedia_dump, or WikiExtractor with --json",
    )
  if found:
    raise ValueError(f"{path} is {found[0]}: {found[1]}.")


def read_head(path: str) -> bytes:
  """Returns the first decompressed bytes of a file, up to 64 KiB or so.

  Of a damaged file, this is what comes before the damage.
  """
  head = bytearray()
  with files.open(path, "rb") as file:
    parts, _ = unpacked(path, file)
    try:
      while len(head) < _HEAD_BYTES and (part := next(parts, b"")):
        head += part
    except DamagedError:
      pass
  return bytes(head)


def is_json_lines(path: str, head: bytes) -> bool:
  """Returns whether a file has JSON lines, by its name or its first bytes.

  A text whose first line only begins with "{" is none: the line must be a
  complete object, or be longer than `head` and begin like one. If the first
  line is something else, such as the end of an object that `split` has cut, the
  next two must be objects.

  Raises:
    ValueError: they are JSON, but not lines.
  """
  text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
  line, *others = text.split(b"\n", 1)
  advice = (
    'write one object like {"text": "..."} on each line, for example with jq -c'
  )
  value = _json_value(line)
  if isinstance(value, dict):
    return True
  rest = others[0].lstrip() if others else b""
  is_named = without_ending(path).lower().endswith(JSON_ENDINGS)
  is_list = isinstance(value, list) and isinstance((value or [0])[0], str)
  if is_list and not is_named or re.match(rb'\[\s*\{\s*"', text):
    raise ValueError(f"{path} is a JSON array: {advice}.")
  if line.strip() == b"{" and re.match(rb'"[^"\n]*"\s*:', rest):
    raise ValueError(f"{path} is JSON over several lines: {advice}.")
  complete = rest.split(b"\n", 2)[:-1]
  follow = [isinstance(_json_value(x), dict) for x in complete]
  if is_named or follow == [True, True]:
    return True
  is_cut = not others and len(head) >= _HEAD_BYTES
  return bool(is_cut and re.match(rb'\{\s*"[^"\n]*"\s*:', text))


def _json_value(line: bytes) -> Any:
  """Returns what a line is in JSON; None if it is not JSON."""
  try:
    return json.loads(line)
  except (ValueError, RecursionError):
    return None
