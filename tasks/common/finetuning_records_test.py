"""Tests of the contents of records, and of when they are rebuilt."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import threading
from concurrent import futures

import pytest

from official_albert import tfrecords, tokenization
from official_albert.tasks.common import finetuning_records
from official_albert.testing import toy_models
from official_albert.tfrecords import reader

_LENGTH = 7
_EXAMPLES = [
  {
    "input_ids": [2, *range(5, 5 + number % 4), 3],
    "segment_ids": [0, *[number % 2] * (number % 4 + 1)],
    "example_id": number,
    "label_ids": number % 3,
  }
  for number in range(11)
]


@pytest.fixture
def arguments(tmp_path):
  """Returns arguments of `build`."""
  (tmp_path / "a.tsv").write_text("a")
  (tmp_path / "b.tsv").write_text("b")
  return {
    "cache_dir": str(tmp_path / "cache" / "deep"),
    "task": "toy",
    "tokenizer": toy_models.wordpiece(tmp_path, "tea", "rain"),
    "max_seq_length": _LENGTH,
    "features": tfrecords.classification_schema(_LENGTH),
    "settings": {"labels": ["x", "y"], "stride": 3},
    "split": "dev",
    "sources": [str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")],
    "make_examples": lambda: iter(_EXAMPLES),
  }


def build(arguments, **changes):
  return finetuning_records.build_records(**{**arguments, **changes})


def read(folder, split="dev"):
  records = tfrecords.read_manifest(folder).split(split).records
  dataset = reader.read_dataset(folder, split, records, training=False)
  return {name: x.numpy() for name, x in next(iter(dataset)).items()}


def never():
  raise AssertionError("the records exist.")


def left_in(arguments):
  folder = arguments["cache_dir"]
  return sorted(os.listdir(folder)) if os.path.exists(folder) else []


@pytest.mark.parametrize("block", [512, 4])
def test_records_are_padded_with_zeros(arguments, monkeypatch, block):
  monkeypatch.setattr(finetuning_records, "_BLOCK", block)
  rows = read(build(arguments))
  assert rows["input_ids"].shape == (11, _LENGTH)
  for number, example in enumerate(_EXAMPLES):
    ids, zeros = example["input_ids"], [0] * (_LENGTH - number % 4 - 2)
    assert rows["input_ids"][number].tolist() == ids + zeros
    assert rows["input_mask"][number].tolist() == [1] * len(ids) + zeros
    segments = example["segment_ids"]
    assert rows["segment_ids"][number].tolist() == segments + zeros
  assert rows["example_id"].tolist() == list(range(11))
  assert rows["label_ids"].tolist() == [number % 3 for number in range(11)]


def test_several_sequences_of_an_example(arguments):
  options = [[2, 5, 3], [2, 3], [2, 5, 5, 5, 3]]
  example = {
    "input_ids": options,
    "segment_ids": [[0, 1, 1], [0, 0], [1] * 5],
    "example_id": 0,
    "label_ids": 2,
  }
  folder = build(
    arguments,
    features=tfrecords.multiple_choice_schema(_LENGTH, 3),
    make_examples=lambda: [example],
  )
  rows = read(folder)
  expected = [ids + [0] * (_LENGTH - len(ids)) for ids in options]
  assert rows["input_ids"].tolist() == [expected]
  assert rows["input_mask"].sum(axis=-1).tolist() == [[3, 2, 5]]
  assert rows["segment_ids"].sum(axis=-1).tolist() == [[2, 0, 5]]
  statistics = tfrecords.read_manifest(folder).split("dev").statistics
  assert statistics == {"mean_tokens": 10, "tokens": 10, "unknown": 0}


def test_train_has_a_fixed_random_order(arguments, tmp_path):
  folder = build(arguments, split="train")
  rows = read(folder, "train")
  order = rows["example_id"].tolist()
  assert order != sorted(order) and sorted(order) == list(range(11))
  assert rows["label_ids"].tolist() == [number % 3 for number in order]
  again = build(arguments, split="train", cache_dir=str(tmp_path / "other"))
  assert os.path.basename(again) == os.path.basename(folder)
  assert len(os.listdir(folder)) == 3
  for name in os.listdir(folder):
    files = [pathlib.Path(path, name) for path in (folder, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_records_are_made_once(arguments, tmp_path):
  notes = []
  folder = build(arguments, note=notes.append)
  assert left_in(arguments) == [os.path.basename(folder)]
  assert notes == [f"wrote 11 dev records of toy in {folder}"]
  manifest = finetuning_records.check(folder)
  assert (manifest.task, manifest.max_seq_length) == ("toy", _LENGTH)
  assert manifest.settings == arguments["settings"]
  # Lengths cycle through 2, 3, 4 and 5 tokens.
  assert manifest.split("dev").statistics == {
    "mean_tokens": 3.36,
    "tokens": 37,
    "unknown": 0,
  }
  path = os.path.join(folder, manifest.tokenizer.file)
  copy = tokenization.open_tokenizer(vocab_file=path)
  assert copy.sha256 == manifest.tokenizer.sha256
  # Names of files and the order of settings do not matter.
  moved = [str(tmp_path / name) for name in ("c.tsv", "b.tsv")]
  os.rename(arguments["sources"][0], moved[0])
  again = build(
    arguments,
    sources=moved,
    settings=dict(reversed(list(arguments["settings"].items()))),
    make_examples=never,
    note=notes.append,
  )
  assert again == folder
  assert notes[1] == f"found 11 dev records of toy in {folder}"
  # Others may read a shared cache.
  assert os.stat(folder).st_mode & 0o055 == 0o055


def test_settings_select_the_records(arguments, tmp_path, monkeypatch):
  folder = tmp_path / "other"
  folder.mkdir()
  file = arguments["tokenizer"].model_file
  (folder / "vocab.txt").write_text(pathlib.Path(file).read_text() + "river\n")
  (folder / "a.tsv").write_text("a\n")
  sources = arguments["sources"]
  stride = arguments["settings"] | {"stride": 4}
  more = str(folder / "vocab.txt")
  changes = [
    {},
    {"task": "toys"},
    {"tokenizer": tokenization.open_tokenizer(vocab_file=more)},
    {
      "tokenizer": tokenization.open_tokenizer(
        vocab_file=file, lower_case=False
      )
    },
    {"max_seq_length": 8},
    {"features": tfrecords.regression_schema(_LENGTH)},
    {"features": tfrecords.classification_schema(8)},
    {"settings": {"labels": ["y", "x"], "stride": 3}},
    {"settings": stride},
    {"split": "test"},
    {"sources": [str(folder / "a.tsv"), sources[1]]},
    {"sources": sources[::-1]},
    {"sources": sources[:1]},
  ]
  folders = {build(arguments, **change) for change in changes}
  monkeypatch.setattr(finetuning_records, "_VERSION", 99)
  folders.add(build(arguments))
  assert len(folders) == len(changes) + 1 == len(left_in(arguments))


def _cut(path):
  os.truncate(path, os.path.getsize(path) - 9)


def _break(path):
  pathlib.Path(path).write_text(json.dumps({"format_version": 1}))


@pytest.mark.parametrize(
  "file, damage",
  [
    ("dev-00000-of-00001.tfrecord", _cut),
    ("dev-00000-of-00001.tfrecord", os.remove),
    ("dataset.json", _break),
    ("dataset.json", os.remove),
    ("vocab.txt", os.remove),
  ],
)
def test_damaged_folder(arguments, file, damage):
  folder = build(arguments)
  damage(os.path.join(folder, file))
  assert build(arguments) == folder
  message = f"records in {folder} are damaged .*{file}.*: remove that fold"
  with pytest.raises(ValueError, match=message):
    finetuning_records.check(folder)


def test_failures_leave_nothing(arguments, monkeypatch, tmp_path):
  def fails_later():
    yield from _EXAMPLES
    raise ValueError("row 12 is odd.")

  with pytest.raises(ValueError, match="row 12 is odd"):
    build(arguments, make_examples=fails_later)
  with pytest.raises(FileNotFoundError, match="none.tsv"):
    build(arguments, sources=[str(tmp_path / "none.tsv")])

  def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "shard")

  with monkeypatch.context() as patch:
    patch.setattr(tfrecords, "write_manifest", full)
    with pytest.raises(OSError, match="No space left"):
      build(arguments)
  assert left_in(arguments) == []
  build(arguments)


def test_two_processes_at_once(arguments):
  """Both find no records before one of them finishes."""
  both = threading.Barrier(2)

  def examples():
    both.wait(timeout=60)
    return _EXAMPLES

  def make(_):
    return build(arguments, make_examples=examples)

  with futures.ThreadPoolExecutor(2) as pool:
    folders = list(pool.map(make, range(2)))
  assert len(set(folders)) == 1
  assert left_in(arguments) == [os.path.basename(folders[0])]
  assert read(folders[0])["example_id"].tolist() == list(range(11))
