"""Unfinished builds of a dataset, with damaged, swapped and foreign files."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
from typing import Any, Sequence
from unittest import mock

from official_albert import files, tfrecords
from official_albert.tools.testing import fuzz, toy_data, toy_runs

_PACKAGE = "official_albert.tasks.pretraining.data"
# So that a small build has many files.
_SMALL_PIECES = {
  "dataset_builder._BLOCKS_PER_CHUNK": 2,
  "documents._BLOCK_BYTES": 600,
  "external_sort._MIN_BUCKET_BYTES": 15_000,
  "external_sort._MAX_BUCKET_BYTES": 15_000,
}
# The call before which a build is killed, and its number.
_KILLS = {
  "tokens": (f"{_PACKAGE}.token_store.write_chunk", 5),
  "runs": (f"{_PACKAGE}.external_sort.write_run", 9),
  "shards": (f"{_PACKAGE}.external_sort.discard", 30),
  "moves": ("official_albert.files.rename", 2),
  "end": ("official_albert.tfrecords.write_manifest", 1),
}
# The name of a kill, and edits: kind, file, another file, place.
_Content = tuple[str, tuple[tuple[int, int, int, int], ...]]


def _build(folder: str, name: str, seed: int) -> None:
  toy_runs.write_records(folder, name, 24, 0.2, random_seed=seed)


def _build_killed(
  folder: str, name: str, seed: int, call: str, number: int
) -> None:
  """Builds in a process that is killed before the call of that number."""
  process = os.fork()
  if process:
    assert os.waitpid(process, 0)[1] == signal.SIGKILL, call
    return
  calls = iter(range(1, number))

  def count(*args: Any, **options: Any) -> Any:
    if next(calls, None) is None:
      os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **options)

  patched = mock.patch(call, count)
  original, _ = patched.get_original()
  with patched:
    _build(folder, name, seed)
  os._exit(0)


def _prepare(folder: str) -> Sequence[_Content]:
  """Makes an unfinished build of each kind, one of a seed that is resumed."""
  toy_data.write_corpus(f"{folder}/corpus.txt", 60)
  toy_runs.write_tokenizer(folder)
  for name, value in _SMALL_PIECES.items():
    mock.patch(f"{_PACKAGE}.{name}", value).start()
  _build(folder, "whole", 0)
  for kill, (call, number) in _KILLS.items():
    for seed in range(2):
      _build_killed(folder, f"{kill}-{seed}", seed, call, number)
  return [(kill, ()) for kill in _KILLS]


def _damage(content: _Content) -> Any:
  from hypothesis import strategies

  numbers = [strategies.integers(0, most) for most in (9, 500, 500, 1 << 20)]
  edits = strategies.lists(
    strategies.tuples(*numbers), min_size=1, max_size=4
  ).map(tuple)
  return strategies.tuples(strategies.just(content[0]), edits)


def _edit(
  build: pathlib.Path, other: pathlib.Path, edit: tuple[int, int, int, int]
) -> None:
  """Changes a file of a build; `other` is a build of another seed."""
  kind, first, second, place = edit
  names = [name for name in files.walk(str(build)) if name != ".lock"]
  if not names:
    return
  name, its_name = names[first % len(names)], names[second % len(names)]
  path, its_path = build / name, build / its_name
  content, its_content = path.read_bytes(), its_path.read_bytes()
  at = place % max(1, len(content))
  if kind < 2:
    flipped = bytes(x ^ 1 << place % 8 for x in content[at : at + 1])
    path.write_bytes(content[:at] + flipped + content[at + 1 :])
  elif kind == 2:
    path.write_bytes(content[:at])
  elif kind == 3:
    path.write_bytes(content + content[at:])
  elif kind == 4:
    path.unlink()
  elif kind == 5:
    path.write_bytes(its_content)
    its_path.write_bytes(content)
  else:  # A piece with its table and notes.
    donor, foreign = name.split(".note")[0].split(".table")[0], kind > 7
    target = its_name.split(".note")[0].split(".table")[0]
    for suffix in ("", ".note", ".table", ".table.note"):
      source = (other if foreign else build) / (donor + suffix)
      if files.is_file(str(source)):
        copy = build / ((donor if foreign else target) + suffix)
        files.copy(str(source), str(copy))


def _resume(folder: str, content: _Content) -> None:
  """Resumes a copy of an unfinished build; the end must be the whole one."""
  kill, edits = content
  copy, other = pathlib.Path(folder, "copy"), pathlib.Path(folder, f"{kill}-1")
  shutil.copytree(f"{folder}/{kill}-0", copy)
  try:
    for edit in edits:
      _edit(copy, other, edit)
    _build(folder, "copy", 0)
    whole = tfrecords.read_manifest(f"{folder}/whole")
    names = [shard.file for s in whole.splits.values() for shard in s.shards]
    for name in [*names, tfrecords.MANIFEST_FILE, whole.tokenizer.file]:
      ends = [files.sha256(f"{folder}/{x}/{name}") for x in ("whole", "copy")]
      assert ends[0] == ends[1], f"other bytes in {name}"
  finally:
    shutil.rmtree(copy)


TARGETS = (
  fuzz.Target(
    "unfinished", _prepare, _damage, _resume, named="/copy", weight=0.3
  ),
)
