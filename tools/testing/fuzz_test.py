"""The fuzzer sees each kind of failure."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import strategies as st

from official_albert.tools.testing import fuzz


def _read(folder: str) -> None:
  path = pathlib.Path(folder, "file")
  content = path.read_bytes()
  if content == b"nameless":
    raise ValueError("the file is refused.")
  if content == b"long":
    raise ValueError(f"{path}: {'x' * 300}")
  if content == b"left":
    path.with_name("new").touch()
    raise ValueError(f"{path} is refused.")
  if b"\0" in content:
    raise TypeError("not for users")
  if content == b"memory":
    bytearray(4 << 30)
  if content == b"refused":
    raise ValueError(f"{path} is refused.")


@pytest.mark.parametrize(
  ("content", "error", "message"),
  [
    (b"nameless", AssertionError, "a message without the file"),
    (b"long", AssertionError, "a long message"),
    (b"left", AssertionError, "left behind: new"),
    (b"a\0", TypeError, "not for users"),
    (b"memory", MemoryError, None),
    (b"refused", None, None),
  ],
)
def test_failures(content, error, message, tmp_path):
  file = tmp_path / "file"
  target = fuzz.Target(
    "file",
    lambda folder: file.write_bytes(b"valid"),
    lambda valid: st.sampled_from([valid, content]),
    _read,
  )
  if not error:
    fuzz.check(target, str(tmp_path))
    return
  with pytest.raises(error, match=message):
    fuzz.check(target, str(tmp_path))
  assert file.read_bytes() == content
  assert [*tmp_path.iterdir()] == [file]
