"""Kills builds at many moments and compares what the same settings make then.

A real process is killed with SIGKILL, from inside at an exact call, so that
each moment is hit every time. It is forked by one that has TensorFlow loaded,
but has not used it: loading takes most of a build's time here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import tfrecords
from official_albert.testing import toy_vocabulary
from tasks.pretraining.data import (
  build_journal,
  build_worker,
  dataset_builder,
  documents,
  examples,
  split_builder,
)

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_WORDS = "tea rain stone river cloud amber slowly under every green".split()

_FORKER = """
import json, os, signal, sys
from official_albert import files
from tasks.pretraining.data import build_journal, build_worker, dataset_builder
from tasks.pretraining.data import documents, examples
from tasks.pretraining.data import output_folder, split_builder, token_store
from tfrecords import external_sort, schemas, writer

build_journal._INTERVAL_SECONDS = 0
documents._BLOCK_BYTES = 1000
split_builder._UNIT_TOKENS = 300
split_builder._BYTES_PER_TOKEN = 1 << 18

def build(settings, call, number):
  owner, name = call.rsplit(".", 1)
  owner = eval(owner)
  original = getattr(owner, name)

  def stop(*args, **kwargs):
    nonlocal number
    number -= 1
    if not number:
      os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)

  setattr(owner, name, stop)
  settings["examples"] = examples.ExampleSettings(**settings["examples"])
  settings["reading"] = documents.ReaderSettings(**settings["reading"])
  dataset_builder.build_dataset(dataset_builder.BuildSettings(**settings))

for line in sys.stdin:
  child = os.fork()
  if not child:
    build(**json.loads(line))
    os._exit(0)
  print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def build_killed():
  """Runs a build that is killed at the `number`th call of `call`."""
  process = subprocess.Popen(
    [sys.executable, "-c", _FORKER],
    cwd=_ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )

  def run(settings, call, number):
    arguments = {
      "settings": dataclasses.asdict(settings),
      "call": call,
      "number": number,
    }
    process.stdin.write(json.dumps(arguments) + "\n")
    process.stdin.flush()
    assert int(process.stdout.readline()) == signal.SIGKILL

  with process:
    yield run
    process.stdin.close()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  """A folder with a tokenizer and 37 documents of 2 to 19 sentences."""
  folder = tmp_path_factory.mktemp("corpus")
  rng = np.random.default_rng(0)
  documents = [
    "\n".join(
      " ".join(rng.choice(_WORDS, size=rng.integers(2, 9)))
      for _ in range(rng.integers(2, 20))
    )
    for _ in range(37)
  ]
  (folder / "a.txt").write_text("\n\n".join(documents[:17]))
  (folder / "b.txt").write_text("\n\n".join(documents[17:]))
  model = toy_vocabulary.train(_WORDS * 5, 45)
  (folder / "toy.model").write_bytes(model)
  return folder


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
  """As in the killed process: what is on the disk counts in these pieces."""
  monkeypatch.setattr(build_journal, "_INTERVAL_SECONDS", 0)
  monkeypatch.setattr(documents, "_BLOCK_BYTES", 1000)
  monkeypatch.setattr(split_builder, "_UNIT_TOKENS", 300)
  monkeypatch.setattr(split_builder, "_BYTES_PER_TOKEN", 1 << 18)


@pytest.fixture
def calls(monkeypatch):
  """Counts the pieces of work and the written records."""
  counts = {}

  def count(owner, name):
    original = getattr(owner, name)
    counts[name] = 0

    def counted(*args):
      counts[name] += 1
      return original(*args)

    monkeypatch.setattr(owner, name, counted)

  count(build_worker, "tokenize")
  count(build_worker, "make")
  count(tfrecords.ShardWriter, "write_encoded")
  return counts


def _settings(corpus, output_dir, **changes):
  settings = dataset_builder.BuildSettings(
    input_files=f"{corpus}/a.txt,{corpus}/b.txt",
    output_dir=str(output_dir),
    spm_model_file=f"{corpus}/toy.model",
    examples=examples.ExampleSettings(
      max_seq_length=29, max_predictions_per_seq=5
    ),
    dupe_factor=3,
    heldout_share=0.2,
    num_shards=5,
    num_heldout_shards=2,
  )
  return dataclasses.replace(settings, **changes)


def _files(folder):
  return {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in pathlib.Path(folder).iterdir()
  }


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
  """The files of a build that nothing has disturbed, made in large pieces."""
  folder = tmp_path_factory.mktemp("whole")
  dataset_builder.build_dataset(_settings(corpus, folder))
  return _files(folder)


def _progress(folder):
  path = pathlib.Path(folder, ".unfinished", build_journal.JOURNAL_FILE)
  return json.loads(path.read_text())["entries"]


@pytest.mark.parametrize(
  ("call", "number", "entries"),
  [
    # While tokenizing.
    ("token_store.TokenStoreWriter.append", 6, ["token store"]),
    # While making, before and after a unit has been written down.
    ("external_sort.ExternalSort.add", 6, ["train examples"]),
    ("external_sort.ExternalSort.state", 4, ["train examples"]),
    # While writing the first, and the third shard.
    ("writer.ShardWriter.write_encoded", 5, ["train examples"]),
    ("writer.ShardWriter.write_encoded", 150, ["train shards"]),
    # Between the name of a shard and the journal's knowing of it.
    ("files.sha256", 2, ["train shards"]),
    ("external_sort.ExternalSort.discard", 3, ["train shards"]),
    # While the dataset is put in place.
    ("schemas.write_manifest", 1, ["heldout shards", "publishing"]),
    ("output_folder._remove", 1, ["heldout shards", "publishing"]),
  ],
)
def test_same_bytes_after_a_kill(
  build_killed, corpus, whole, calls, tmp_path, call, number, entries
):
  settings = _settings(corpus, tmp_path)
  build_killed(settings, call, number)
  found = _progress(tmp_path)
  assert set(entries) <= set(found), found.keys()
  finished = {
    pathlib.Path(path): os.stat(path)
    for path in tmp_path.rglob("*.tfrecord")
    for shard in (found.get("train shards") or {}).values()
    if os.path.basename(path) == shard["shard"]["file"]
  }
  dataset_builder.build_dataset(settings)
  assert _files(tmp_path) == whole

  resumed = dict(calls)
  calls.update(dict.fromkeys(calls, 0))
  dataset_builder.build_dataset(_settings(corpus, tmp_path / "again"))
  assert min(calls.values()) > 5
  if "train shards" in found:
    assert resumed["make"] < calls["make"] / 4
    assert resumed["write_encoded"] < calls["write_encoded"]
  if "train examples" in found:
    assert resumed["tokenize"] == 0
    assert resumed["make"] < calls["make"]
  assert resumed["tokenize"] < calls["tokenize"]
  for path, stat in finished.items():
    now = os.stat(tmp_path / path.name)
    assert (now.st_ino, now.st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns)


def test_killed_again_and_again(build_killed, corpus, whole, tmp_path):
  settings = _settings(corpus, tmp_path, num_workers=2)
  for call, number in (
    ("token_store.TokenStoreWriter.append", 4),
    ("token_store.TokenStoreWriter.append", 4),
    ("external_sort.ExternalSort.add", 5),
    ("external_sort.ExternalSort.add", 5),
    # While the workers write the next ones.
    ("external_sort.ExternalSort.discard", 1),
    ("external_sort.ExternalSort.discard", 2),
  ):
    build_killed(settings, call, number)
  dataset_builder.build_dataset(settings)
  assert _files(tmp_path) == whole


@pytest.mark.parametrize("call", ["ExternalSort.add", "ExternalSort.discard"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_files_are_made_again(
  build_killed, corpus, whole, tmp_path, call, damage
):
  settings = _settings(corpus, tmp_path)
  build_killed(settings, f"external_sort.{call}", 4)
  staging = tmp_path / ".unfinished"
  if call == "ExternalSort.discard":
    path = staging / "train-00001-of-00005.tfrecord"
    kept = staging / "train-00002-of-00005.tfrecord"
  else:
    path = max(staging.glob("train-buckets/*"), key=os.path.getsize)
    kept = None
  inode = kept and kept.stat().st_ino
  content = bytearray(path.read_bytes())
  if damage == "flip":
    content[len(content) // 2] ^= 1
  elif damage == "cut":
    del content[-1:]
  path.write_bytes(content)
  if damage == "remove":
    path.unlink()
  dataset_builder.build_dataset(settings)
  assert _files(tmp_path) == whole
  if kept:
    assert (tmp_path / kept.name).stat().st_ino == inode


def test_damaged_token_store_is_made_again(
  build_killed, corpus, whole, calls, tmp_path
):
  settings = _settings(corpus, tmp_path)
  build_killed(settings, "external_sort.ExternalSort.add", 1)
  os.truncate(tmp_path / ".unfinished" / "store" / "ids.bin", 100)
  dataset_builder.build_dataset(settings)
  assert _files(tmp_path) == whole
  assert calls["tokenize"] > 5


_STORE = ("ids.bin", "segment_lengths.bin", "documents.bin")
_DAMAGES = {
  "flip": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
  "cut": lambda data: data[:-1],
  # A whole row of the largest type.
  "lengthen": lambda data: data + data[-16:],
}


def _with_entries(change):
  """Damage to the journal that leaves it JSON."""

  def damage(data):
    value = json.loads(data)
    change(value["entries"])
    return json.dumps(value).encode()

  return damage


_JOURNAL_DAMAGES = {
  **_DAMAGES,
  "no JSON": lambda data: b"{",
  "another shape": lambda data: b'{"fingerprint": {"format": 3}, "entries": 7}',
  "deep": lambda data: b"[" * 100_000,
  "no entry": _with_entries(lambda entries: entries.popitem()),
  "a number": _with_entries(
    lambda entries: entries["token store"].update(documents=3)
  ),
}


@pytest.mark.parametrize(
  ("call", "number", "files", "damages"),
  [
    ("token_store.TokenStoreWriter.append", 6, _STORE, list(_DAMAGES)),
    (
      "token_store.TokenStoreWriter.append",
      5,
      [build_journal.JOURNAL_FILE],
      list(_JOURNAL_DAMAGES),
    ),
    ("external_sort.ExternalSort.add", 4, _STORE, ["flip", "lengthen"]),
    ("schemas.write_manifest", 1, _STORE, ["flip", "lengthen"]),
    (
      "schemas.write_manifest",
      1,
      [build_journal.JOURNAL_FILE, "train-00003-of-00005.tfrecord"],
      ["flip", "cut"],
    ),
  ],
)
def test_damage_never_gives_other_bytes(
  build_killed, corpus, whole, tmp_path, capsys, call, number, files, damages
):
  killed, folder = tmp_path / "killed", tmp_path / "data"
  settings = _settings(corpus, folder)
  build_killed(settings, call, number)
  folder.rename(killed)
  for name in files:
    for damage in damages:
      shutil.copytree(killed, folder)
      (path,) = folder.rglob(name)
      path.write_bytes(_JOURNAL_DAMAGES[damage](path.read_bytes()))
      dataset_builder.build_dataset(settings)
      assert _files(folder) == whole, (name, damage)
      said = capsys.readouterr().err
      # What comes after the bytes that the journal names is cut off.
      is_said = damage != "lengthen" or name == build_journal.JOURNAL_FILE
      lines = [line for line in said.splitlines() if "is made again" in line]
      assert len(lines) == is_said, (name, damage, said)
      shutil.rmtree(folder)


def test_swapped_files_are_made_again(build_killed, corpus, whole, tmp_path):
  settings = _settings(corpus, tmp_path)
  build_killed(settings, "writer.ShardWriter.write_encoded", 150)
  staging = tmp_path / ".unfinished"
  buckets = sorted(staging.glob("train-buckets/*"))[-2:]
  shards = sorted(staging.glob("train-0000[01]*"))
  for one, other in (
    buckets,
    shards,
    [staging / "store" / n for n in _STORE[:2]],
  ):
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
  dataset_builder.build_dataset(settings)
  assert _files(tmp_path) == whole


def test_other_settings_do_not_go_on(build_killed, corpus, whole, tmp_path):
  build_killed(_settings(corpus, tmp_path), "external_sort.ExternalSort.add", 3)
  before = _progress(tmp_path)
  other = _settings(corpus, tmp_path, dupe_factor=2, random_seed=1)
  with pytest.raises(
    ValueError,
    match=r"unfinished build with other settings \(dupe_factor, random_seed\):"
    ".*repeat its command.*give --overwrite or remove it",
  ):
    dataset_builder.build_dataset(other)
  assert _progress(tmp_path) == before
  # The number of workers is none of the settings that count.
  dataset_builder.build_dataset(_settings(corpus, tmp_path, num_workers=2))
  assert _files(tmp_path) == whole


def test_overwrite_gives_up_another_build_and_goes_on_with_its_own(
  build_killed, corpus, whole, calls, tmp_path
):
  build_killed(
    _settings(corpus, tmp_path, dupe_factor=1),
    "external_sort.ExternalSort.add",
    3,
  )
  settings = _settings(corpus, tmp_path, overwrite=True)
  build_killed(settings, "writer.ShardWriter.write_encoded", 150)
  dataset_builder.build_dataset(settings)
  assert calls["tokenize"] == 0
  assert _files(tmp_path) == whole


def test_changed_text_does_not_go_on(build_killed, corpus, tmp_path):
  text = tmp_path / "a.txt"
  text.write_bytes((corpus / "a.txt").read_bytes())
  folder = tmp_path / "data"
  settings = _settings(corpus, folder, input_files=str(text))
  build_killed(settings, "external_sort.ExternalSort.add", 3)
  os.utime(text, ns=(0, 0))
  with pytest.raises(ValueError, match=r"other settings \(input_files\)"):
    dataset_builder.build_dataset(settings)


def test_old_dataset_stays_until_the_new_one_is_whole(
  build_killed, corpus, whole, tmp_path
):
  dataset_builder.build_dataset(_settings(corpus, tmp_path, dupe_factor=1))
  old = _files(tmp_path)
  settings = _settings(corpus, tmp_path, overwrite=True)
  build_killed(settings, "writer.ShardWriter.write_encoded", 150)
  assert {**old, **_files_of_dataset(tmp_path)} == old
  with pytest.raises(ValueError, match="holds a dataset already"):
    dataset_builder.build_dataset(
      dataclasses.replace(settings, overwrite=False)
    )
  build_killed(settings, "schemas.write_manifest", 1)
  assert "dataset.json" not in os.listdir(tmp_path)
  dataset_builder.build_dataset(settings)
  assert _files(tmp_path) == whole


def _files_of_dataset(folder):
  return {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in pathlib.Path(folder).iterdir()
    if path.is_file()
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
