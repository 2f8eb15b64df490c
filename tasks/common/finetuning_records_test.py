"""Tests of the contents of records, and of when they are rebuilt."""

from __future__ import annotations

import errno
import os
import pathlib
import threading
import types
from concurrent import futures

import pytest

from official_albert import tfrecords, tokenization
from official_albert.tasks import common
from official_albert.tasks.common import finetuning_records
from official_albert.testing import toy_models
from official_albert.tfrecords import reader

_LENGTH = 7
_LABEL = tfrecords.Feature("label_ids", "int64", ())
_EXAMPLES = [
  {
    "input_ids": [2, *range(5, 5 + number % 4), 3],
    "segment_ids": [0, *[number % 2] * (number % 4 + 1)],
    "label_ids": number % 3,
  }
  for number in range(11)
]


@pytest.fixture
def make(tmp_path):
  """Returns a function that makes a task, and changes what it has."""
  tokenizer = toy_models.wordpiece(tmp_path, "tea", "rain")

  def make(settings=None, schema=None, examples=_EXAMPLES, **changes):
    options = {
      "cache_dir": str(tmp_path / "cache" / "deep"),
      "tokenizer": tokenizer,
      "note": lambda text: None,
    }
    options |= {k: changes.pop(k) for k in options.keys() & changes.keys()}
    task = types.SimpleNamespace(
      name="toy",
      max_seq_length=_LENGTH,
      options=common.TaskOptions(**options),
      schema=lambda: schema or tfrecords.finetuning_schema([_LENGTH], _LABEL),
      record_settings=lambda split: settings or {"labels": ["x"], "stride": 3},
      examples=lambda split: examples,
      features=lambda split: iter(examples),
    )
    vars(task).update(changes)
    return task

  return make


build = finetuning_records.build_records


def read(folder, split="dev"):
  records = tfrecords.read_manifest(folder).split(split).records
  dataset = reader.read_dataset(folder, split, records, training=False)
  return {name: x.numpy() for name, x in next(iter(dataset)).items()}


def left_in(task):
  folder = task.options.cache_dir
  return sorted(os.listdir(folder)) if os.path.exists(folder) else []


@pytest.mark.parametrize("block", [512, 4])
def test_records_are_padded_with_zeros(make, monkeypatch, block):
  monkeypatch.setattr(finetuning_records, "_BLOCK", block)
  rows = read(build(make(), "dev"))
  assert rows["input_ids"].shape == (11, _LENGTH)
  for number, example in enumerate(_EXAMPLES):
    ids, zeros = example["input_ids"], [0] * (_LENGTH - number % 4 - 2)
    assert rows["input_ids"][number].tolist() == ids + zeros
    assert rows["input_mask"][number].tolist() == [1] * len(ids) + zeros
    segments = example["segment_ids"]
    assert rows["segment_ids"][number].tolist() == segments + zeros
  assert rows["example_id"].tolist() == list(range(11))
  assert rows["label_ids"].tolist() == [number % 3 for number in range(11)]


def test_several_sequences_of_an_example(make):
  options = [[2, 5, 3], [2, 3], [2, 5, 5, 5, 3]]
  segments = [[0, 1, 1], [0, 0], [1] * 5]
  example = {"input_ids": options, "segment_ids": segments, "label_ids": 2}
  schema = tfrecords.finetuning_schema([3, _LENGTH], _LABEL)
  rows = read(build(make(schema=schema, examples=[example]), "dev"))
  expected = [ids + [0] * (_LENGTH - len(ids)) for ids in options]
  assert rows["input_ids"].tolist() == [expected]
  assert rows["input_mask"].sum(axis=-1).tolist() == [[3, 2, 5]]
  assert rows["segment_ids"].sum(axis=-1).tolist() == [[2, 0, 5]]


def test_train_has_a_fixed_random_order(make, tmp_path):
  folder = build(make(), "train")
  rows = read(folder, "train")
  order = rows["example_id"].tolist()
  assert order != sorted(order) and sorted(order) == list(range(11))
  assert rows["label_ids"].tolist() == [number % 3 for number in order]
  again = build(make(cache_dir=str(tmp_path / "other")), "train")
  assert os.path.basename(again) == os.path.basename(folder)
  for name in os.listdir(folder):
    files = [pathlib.Path(path, name) for path in (folder, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_records_are_made_once(make):
  notes = []
  task = make(note=notes.append)
  folder = build(task, "dev")
  assert left_in(task) == [os.path.basename(folder)]
  manifest = tfrecords.read_manifest(folder)
  assert manifest.settings == task.record_settings("dev")
  # Lengths cycle through 2, 3, 4 and 5 tokens.
  assert manifest.split("dev").statistics == {"tokens": 37, "unknown": 0}
  path = os.path.join(folder, manifest.tokenizer.file)
  copy = tokenization.open_tokenizer(vocab_file=path)
  assert copy.sha256 == manifest.tokenizer.sha256
  # The order of settings does not matter.
  again = make({"stride": 3, "labels": ["x"]}, features=None, note=notes.append)
  assert build(again, "dev") == folder
  assert notes == [f"wrote 11 dev records to {folder}"]
  # Others may read a shared cache.
  assert os.stat(folder).st_mode & 0o055 == 0o055


def test_settings_select_the_records(make):
  file = make().options.tokenizer.model_file
  changes = [
    {},
    {"name": "toys"},
    {"tokenizer": tokenization.open_tokenizer("", file, lower_case=False)},
    {"max_seq_length": 8},
    {"schema": tfrecords.finetuning_schema([_LENGTH])},
    {"settings": {"labels": ["x"], "stride": 4}},
    {"examples": [*_EXAMPLES[:10], {**_EXAMPLES[10], "label_ids": 7}]},
  ]
  folders = {build(make(**change), "dev") for change in changes}
  folders.add(build(make(), "test"))
  assert len(folders) == len(changes) + 1 == len(left_in(make()))


def test_failures_leave_nothing(make, monkeypatch):
  def fails_later(split):
    yield from _EXAMPLES
    raise ValueError("row 12 is odd.")

  task = make(features=fails_later)
  with pytest.raises(ValueError, match="row 12 is odd"):
    build(task, "dev")

  def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "shard")

  with monkeypatch.context() as patch:
    patch.setattr(tfrecords, "write_manifest", full)
    with pytest.raises(OSError, match="No space left"):
      build(make(), "dev")
  assert left_in(task) == []


def test_two_processes_at_once(make):
  """Both find no records before one of them finishes."""
  both = threading.Barrier(2)

  def examples(split):
    both.wait(timeout=60)
    return _EXAMPLES

  task = make(features=examples)
  with futures.ThreadPoolExecutor(2) as pool:
    folders = list(pool.map(build, [task, task], ["dev", "dev"]))
  assert left_in(task) == [os.path.basename(folders[0])]
  assert read(folders[1])["example_id"].tolist() == list(range(11))
