"""Reads text files by their content: compressed or not, JSON lines or not.

The first bytes decide, not the name, because WikiExtractor writes `wiki_00` and
a download may have any name. What is no text at all is refused. Tables of
Parquet and Arrow are read by pyarrow.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import zlib
from typing import IO, Any, Iterator, Sequence

from official_albert import files

# The names of compressed files.
ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zstd")
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
# The first bytes of compressed files.
_PACKED = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ\0": lzma}
_ZSTD = b"\x28\xb5\x2f\xfd"
# The first bytes of Parquet, Arrow, Avro, HDF5, ZIP (also .xlsx and .docx), 7z,
# RAR, LZ4, compress, PDF, RTF, old Office, UTF-16 with a byte order mark, and
# WET and WARC of Common Crawl, whose headers would be taken for text.
_NO_TEXT = (
  *(b"PAR1", b"ARROW1", b"Obj\x01", b"\x89HDF", b"PK\x03\x04", b"7z\xbc\xaf"),
  *(b"Rar!", b"\x04\x22\x4d\x18", b"\x1f\x9d", b"%PDF", b"{\\rtf"),
  *(b"\xd0\xcf\x11\xe0", b"\xff\xfe", b"\xfe\xff", b"WARC/"),
)
# Of Parquet, and of Arrow's files and streams.
TABLE_HEADS = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_TABLE_ROWS = 1024  # That are converted together.
_MARKUP = re.compile(
  rb"<(\?xml|!doctype|html|mediawiki|doc\b|text\b|corpus\b|tei\b)",
  re.IGNORECASE,
)
_BEGUN_OBJECT = re.compile(rb'\{\s*"[^"\n]*"\s*:')
_JSON_NOT_IN_LINES = re.compile(rb'\[\s*\{\s*"|\{\s*\n\s*"[^"\n]*"\s*:')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 1 << 16
_MOST_ZEROS = 9  # In a thousand bytes; other binary files have more.
_READ_BYTES = 1 << 20
# In compressed bytes; their decompressed content is held in memory.
_ZSTD_READ_BYTES = 1 << 16
# The largest window of `zstd --long=31`; the default limit is 2^27.
_ZSTD_MAX_WINDOW_BYTES = 1 << 31


def without_ending(path: str) -> str:
  """Returns the path without the ending of a compressed file."""
  for ending in ENDINGS:
    if path.lower().endswith(ending):
      return path[: -len(ending)]
  return path


def parts(path: str, file: IO[bytes]) -> Iterator[bytes]:
  """Yields the decompressed content of an open file, in parts.

  Raises:
    ValueError: the file is cut or damaged, after what comes before that place.
  """
  start = file.peek(8)[:8]  # type: ignore[attr-defined]
  opened: Any = file
  for magic, module in _PACKED.items():
    if start.startswith(magic):
      opened = module.open(file)
  try:
    if start.startswith(_ZSTD):
      yield from _decompress_zstd(file)
    else:
      # `read1` returns what comes before a damaged place before it raises.
      # From a pipe, it returns what is there.
      yield from iter(lambda: opened.read1(_READ_BYTES), b"")
  except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
    is_system_error = isinstance(error, OSError) and not (
      isinstance(error, gzip.BadGzipFile)
      or str(error) == "Invalid data stream"  # Of bzip2.
    )
    if is_system_error:
      raise
    raise ValueError(
      f"{path} is not a complete compressed file ({error}): copy it again."
    ) from error


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
        yield frame.decompress(data)
      except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error
      data = b""
      if frame.eof:
        data, frame = frame.unused_data, None
  if frame:
    raise EOFError("it ends in the middle of a frame")


def lines(path: str, file: IO[bytes]) -> Iterator[bytes]:
  """Yields the decompressed lines of an open file, with their ends.

  Only a newline ends a line; bytes.splitlines would know other ends.

  Raises:
    ValueError: the file is no text, or cut or damaged.
  """
  begun: list[bytes] = []
  is_first = True
  for part in parts(path, file):
    if is_first:
      check_head(path, part)
      is_first = False
    *whole, rest = part.split(b"\n")
    for line in whole:
      yield b"".join([*begun, line, b"\n"])
      begun = []
    begun.append(rest)
  if last := b"".join(begun):
    yield last


def read_head(path: str) -> bytes:
  """Returns the first decompressed bytes of a file, 64 KiB or more.

  Raises:
    ValueError: the file is cut or damaged there.
  """
  head = bytearray()
  with files.open(path, "rb") as file:
    for part in parts(path, file):
      head += part
      if len(head) >= _HEAD_BYTES:
        break
  return bytes(head)


def check_head(path: str, head: bytes) -> None:
  """Refuses a file by its first decompressed bytes.

  Raises:
    ValueError: they are not those of a text.
  """
  zeros = head.count(b"\0", 0, 1000)
  if head.startswith(_NO_TEXT) or zeros > min(_MOST_ZEROS, len(head) // 4):
    raise ValueError(
      f"{path} is no UTF-8 text (it begins with {head[:8]!r}): unpack it, "
      "extract its text, or convert it, for example with iconv."
    )
  text = head.rstrip()
  if b"\n" not in text and text.count(b"\r") > head.count(b"\n"):
    raise ValueError(
      f"{path} ends lines by carriage returns alone, which are spaces here: "
      "convert them, for example with tr '\\r' '\\n'."
    )
  if _MARKUP.match(head.removeprefix(_BYTE_ORDER_MARK).lstrip()):
    raise ValueError(
      f"{path} is XML or HTML: extract its text; for a dump of Wikipedia, use "
      "tools.gather_corpus --wikipedia_dump, or WikiExtractor with --json."
    )


def is_json_lines(path: str, head: bytes) -> bool:
  """Returns whether a file has JSON lines, by its name or its first bytes.

  One of the first three lines must be a whole object. The first one need not
  be, because it may be the rest of one that `split` has cut. A single line that
  is longer than `head` must begin like an object.

  Raises:
    ValueError: it is JSON, but not lines.
  """
  text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
  if _JSON_NOT_IN_LINES.match(text):
    raise ValueError(
      f"{path} is JSON, but not in lines: write one object like "
      '{"text": "..."} on each line, for example with jq -c.'
    )
  if without_ending(path).lower().endswith(JSON_ENDINGS):
    return True
  first, *others = text.split(b"\n", 3)[:3]
  is_long = not others and len(head) >= _HEAD_BYTES
  return (is_long and bool(_BEGUN_OBJECT.match(first))) or any(
    _is_object(line) for line in (first, *others)
  )


def _is_object(line: bytes) -> bool:
  try:
    return isinstance(json.loads(line), dict)
  except (ValueError, RecursionError):
    return False


def table_rows(
  path: str, file: Any, columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
  """Yields the rows of an open file of Parquet or Arrow.

  A row has the keys of all columns, but only the values of `columns`; others
  are not converted, and are None. Integers of a ClassLabel of Hugging Face
  `datasets`, also in lists, become its names, and -1, for no label, None.

  Raises:
    ValueError: pyarrow is missing, a column is, or the file is damaged.
  """
  try:
    from pyarrow import ArrowException, ipc, parquet
  except ModuleNotFoundError as error:
    raise ValueError(
      f"{path} is a table of Parquet or Arrow: python -m pip install pyarrow."
    ) from error
  head = file.peek(8)
  try:
    if head.startswith(b"PAR1"):
      # With a buffer, a row group is read in parts.
      table = parquet.ParquetFile(file, buffer_size=_READ_BYTES)
      schema = table.schema_arrow
      batches = table.iter_batches(_TABLE_ROWS, columns=list(columns))
    elif head.startswith(b"ARROW1"):
      table = ipc.open_file(file)
      schema = table.schema
      batches = map(table.get_batch, range(table.num_record_batches))
    elif head.startswith(TABLE_HEADS):
      batches = ipc.open_stream(file)
      schema = batches.schema
    else:
      raise ValueError(
        f"{path} is no table of Parquet or Arrow: it begins with {head[:8]!r}."
      )
    for column in columns:
      if (count := schema.names.count(column)) != 1:
        raise ValueError(
          f"{path} has {'several columns' if count else 'no column'} "
          f"{column!r}, the columns are {files.quote(*schema.names)}: name "
          "another."
        )
      if _has_times(kind := schema.field(column).type):
        raise ValueError(
          f"{path}: column {column!r} has times ({kind}): write them as text "
          "or numbers, or name another."
        )
    features = _features(path, schema.metadata)
    classes = {x: _class_names(features.get(x)) for x in columns}
    empty = dict.fromkeys(schema.names)
    for batch in batches:
      for start in range(0, batch.num_rows, _TABLE_ROWS):
        part = batch.slice(start, _TABLE_ROWS).select(list(columns))
        for row in part.to_pylist():
          yield {**empty, **{k: _named(x, classes[k]) for k, x in row.items()}}
  except UnicodeDecodeError as error:
    raise ValueError(f"{path} has text that is not UTF-8: mend it.") from error
  except (ArrowException, OSError) as error:
    if isinstance(error, OSError) and error.errno:
      raise
    raise ValueError(
      f"{path} is not a complete table ({str(error)[:200]}): copy it again."
    ) from error


def _has_times(kind: Any) -> bool:
  """Returns whether a type of Arrow has times, also in lists and structs."""
  from pyarrow import types

  inside = [kind.field(i).type for i in range(kind.num_fields)]
  if types.is_dictionary(kind):
    inside.append(kind.value_type)
  return types.is_temporal(kind) or any(map(_has_times, inside))


def _features(path: str, metadata: Any) -> dict[str, Any]:
  """Returns the features of columns, first as `load_from_disk` reads them."""
  try:
    own = dict(json.loads(metadata[b"huggingface"])["info"]["features"])
  except (KeyError, TypeError, ValueError):
    own = {}  # Others than `datasets` wrote the table.
  beside = os.path.join(os.path.dirname(path), "dataset_info.json")
  if not files.exists(beside):
    return own
  info = files.read_json(beside, dict[str, Any], "save the data set again")
  features = info.get("features")
  return {**own, **features} if isinstance(features, dict) else own


def _class_names(feature: Any) -> Sequence[str]:
  """Returns the names of a ClassLabel, also of one in lists; () of others."""
  if isinstance(feature, list):  # An older form of lists.
    return _class_names(feature[0]) if feature else ()
  if not isinstance(feature, dict):
    return ()
  if feature.get("_type") == "ClassLabel":
    return tuple(map(str, feature.get("names") or ()))
  return _class_names(feature.get("feature"))


def _named(value: Any, names: Sequence[str]) -> Any:
  """Returns the name of a class, also of each in a list, if it has names."""
  if not names or not isinstance(value, (int, list)):
    return value  # It may be a name already.
  if isinstance(value, list):
    return [_named(x, names) for x in value]
  return names[value] if 0 <= value < len(names) else None
