"""Tests of the contents of records, and of when they are rebuilt."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import threading

import numpy as np
import pytest

import tfrecords
from official_albert import tokenization
from tasks.common import finetuning_records

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
  vocabulary = tmp_path / "vocab.txt"
  words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "rain"]
  vocabulary.write_text("\n".join(words) + "\n")
  (tmp_path / "a.tsv").write_text("a")
  (tmp_path / "b.tsv").write_text("b")
  return {
    "cache_dir": str(tmp_path / "cache" / "deep"),
    "task": "toy",
    "tokenizer": tokenization.open_tokenizer(vocab_file=str(vocabulary)),
    "max_seq_length": _LENGTH,
    "features": tfrecords.classification_schema(_LENGTH),
    "settings": {"labels": ["x", "y"], "stride": 3},
    "split": "dev",
    "sources": [str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")],
    "make_examples": lambda: iter(_EXAMPLES),
  }


def build(arguments, **changes):
  return finetuning_records.build_records(**{**arguments, **changes})


def read(folder, split="dev", count=None):
  records = tfrecords.read_manifest(folder).split(split).records
  dataset = tfrecords.read_dataset(
    folder, split, count or records, shuffle=False, repeat=False
  )
  batch = next(iter(dataset))
  return {name: x.numpy() for name, x in batch.items()}


def never():
  raise AssertionError("the records are there already.")


def left_in(arguments):
  return sorted(os.listdir(arguments["cache_dir"]))


@pytest.fixture(params=[512, 4], ids=["one_block", "blocks"])
def _blocks(request, monkeypatch):
  monkeypatch.setattr(finetuning_records, "_BLOCK", request.param)


@pytest.mark.usefixtures("_blocks")
def test_records_are_padded_with_zeros(arguments):
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


def test_several_sequences_and_floats(arguments):
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
  manifest = tfrecords.read_manifest(folder)
  assert manifest.split("dev").statistics == {"mean_tokens": 10}

  spans = {
    **_EXAMPLES[3],
    "p_mask": [0, 1, 0.5, 0, 1],
    "start_positions": 2,
    "end_positions": 3,
    "is_impossible": False,
  }
  del spans["label_ids"]
  folder = build(
    arguments,
    features=tfrecords.span_schema(_LENGTH),
    make_examples=lambda: [{**spans, "example_id": 0}],
  )
  rows = read(folder)
  assert rows["p_mask"].tolist() == [[0, 1, 0.5, 0, 1, 0, 0]]
  assert rows["p_mask"].dtype == np.float32
  assert [rows[f"{name}_positions"][0] for name in ("start", "end")] == [2, 3]
  assert rows["is_impossible"].tolist() == [0]

  scores = tfrecords.regression_schema(_LENGTH)
  folder = build(
    arguments,
    features=scores,
    make_examples=lambda: [{**_EXAMPLES[0], "label_ids": 3.25}],
  )
  assert read(folder)["label_ids"].tolist() == [3.25]


@pytest.mark.usefixtures("_blocks")
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


def test_manifest(arguments):
  folder = build(arguments)
  manifest = finetuning_records.check(folder)
  assert manifest.task == "toy"
  assert manifest.max_seq_length == _LENGTH
  assert manifest.features == arguments["features"]
  assert manifest.settings == arguments["settings"]
  # Lengths cycle through 2, 3, 4 and 5 tokens.
  assert manifest.split("dev").statistics == {"mean_tokens": 3.36}
  tokenizer = manifest.tokenizer
  assert (tokenizer.kind, tokenizer.vocab_size) == ("wordpiece", 7)
  copy = tokenization.open_tokenizer(
    vocab_file=os.path.join(folder, tokenizer.file)
  )
  assert copy.sha256 == tokenizer.sha256


def test_records_are_made_once(arguments, tmp_path):
  notes = []
  folder = build(arguments, note=notes.append)
  assert left_in(arguments) == [os.path.basename(folder)]
  assert notes == [f"wrote 11 dev records of toy to {folder}"]
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
  assert notes[1] == f"found dev records of toy in {folder}"
  # Others may read a shared cache.
  assert os.stat(folder).st_mode & 0o777 == 0o777 & ~_umask()


def _umask():
  mask = os.umask(0)
  os.umask(mask)
  return mask


def test_settings_select_the_records(arguments, tmp_path):
  first = build(arguments)
  folder = tmp_path / "other"
  folder.mkdir()
  other = folder / "vocab.txt"
  with open(arguments["tokenizer"].model_file, encoding="utf-8") as file:
    other.write_text(file.read() + "river\n")
  (folder / "a.tsv").write_text("a\n")
  renamed = [
    tfrecords.Feature("labels" if f.name == "label_ids" else f.name, *rest)
    for f in arguments["features"]
    for rest in [(f.dtype, f.shape)]
  ]
  examples = [{**e, "labels": e["label_ids"]} for e in _EXAMPLES]
  changes = {
    "task": "toys",
    "tokenizer": tokenization.open_tokenizer(vocab_file=str(other)),
    "lower_case": tokenization.open_tokenizer(
      vocab_file=arguments["tokenizer"].model_file, lower_case=False
    ),
    "length": 8,
    "dtype": tfrecords.regression_schema(_LENGTH),
    "shape": tfrecords.classification_schema(8),
    "name": renamed,
    "order_of_labels": {"labels": ["y", "x"], "stride": 3},
    "stride": {"labels": ["x", "y"], "stride": 4},
    "no_stride": {"labels": ["x", "y"]},
    "split": "test",
    "contents": [str(folder / "a.tsv"), arguments["sources"][1]],
    "order": arguments["sources"][::-1],
    "fewer": arguments["sources"][:1],
  }
  argument_of = {
    "lower_case": "tokenizer",
    "length": "max_seq_length",
    **dict.fromkeys(["dtype", "shape", "name"], "features"),
    **dict.fromkeys(["order_of_labels", "stride", "no_stride"], "settings"),
    **dict.fromkeys(["contents", "order", "fewer"], "sources"),
  }
  keys = {first}
  for what, value in changes.items():
    changed = {argument_of.get(what, what): value}
    keys.add(build(arguments, make_examples=lambda: examples, **changed))
  assert len(keys) == 1 + len(changes)
  assert [name for name in left_in(arguments) if name.startswith(".")] == []


def test_version_selects_the_records(arguments, monkeypatch):
  first = build(arguments)
  monkeypatch.setattr(finetuning_records, "_VERSION", 99)
  assert build(arguments) != first


def _cut(path):
  with open(path, "r+b") as file:
    file.truncate(os.path.getsize(path) - 9)


def _break(path):
  with open(path, "w", encoding="utf-8") as file:
    json.dump({"format_version": 1, "task": "toy"}, file)


@pytest.mark.parametrize(
  "file, damage",
  [
    ("dev-00000-of-00001.tfrecord", _cut),
    ("dev-00000-of-00001.tfrecord", os.remove),
    ("dataset.json", _cut),
    ("dataset.json", _break),
    ("dataset.json", os.remove),
    ("vocab.txt", os.remove),
  ],
)
def test_damaged_folder(arguments, file, damage):
  folder = build(arguments)
  damage(os.path.join(folder, file))
  message = f"records in {folder} are damaged .{file}.: remove that fold"
  with pytest.raises(ValueError, match=message):
    build(arguments, make_examples=never)
  with pytest.raises(ValueError, match=message):
    finetuning_records.check(folder)


def _fails_later():
  yield from _EXAMPLES
  raise ValueError("row 12 is odd.")


@pytest.mark.parametrize(
  "examples, message",
  [
    ([], "the split 'dev' has no example"),
    (_fails_later(), "row 12 is odd"),
    (
      [{**_EXAMPLES[0], "input_ids": [1] * 8}],
      r"input_ids of an example has \[8\] values.* into \[7\]",
    ),
  ],
)
def test_failures_leave_nothing(arguments, examples, message):
  with pytest.raises(ValueError, match=message):
    build(arguments, make_examples=lambda: examples)
  assert left_in(arguments) == []
  build(arguments)


def test_too_few_options(arguments):
  two = [[2, 5, 3], [2, 3]]
  example = {**_EXAMPLES[0], "input_ids": two, "segment_ids": two}
  with pytest.raises(ValueError, match=r"has \[3, 2\] values.* into \[3, 7\]"):
    build(
      arguments,
      features=tfrecords.multiple_choice_schema(_LENGTH, 3),
      make_examples=lambda: [example],
    )


def test_full_disk_leaves_nothing(arguments, monkeypatch):
  def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "shard")

  for owner, name in (
    (tfrecords.ShardWriter, "write_encoded"),
    (tfrecords, "write_manifest"),
    (finetuning_records.shutil, "copyfile"),
    (finetuning_records.os, "rename"),
  ):
    with monkeypatch.context() as patch:
      patch.setattr(owner, name, full)
      with pytest.raises(OSError, match="No space left"):
        build(arguments)
    assert left_in(arguments) == []
  build(arguments)


def test_missing_source(arguments, tmp_path):
  path = str(tmp_path / "none.tsv")
  with pytest.raises(FileNotFoundError, match="none.tsv"):
    build(arguments, sources=[path], make_examples=never)
  assert not os.path.exists(arguments["cache_dir"])


def test_two_processes_at_once(arguments):
  """Both find no records before one of them finishes."""
  both = threading.Barrier(2)
  folders = []

  def examples():
    both.wait(timeout=60)
    return _EXAMPLES

  threads = [
    threading.Thread(
      target=lambda: folders.append(build(arguments, make_examples=examples))
    )
    for _ in range(2)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(folders) == 2 and len(set(folders)) == 1
  assert left_in(arguments) == [os.path.basename(folders[0])]
  assert read(folders[0])["example_id"].tolist() == list(range(11))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
