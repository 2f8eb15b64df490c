"""Tests of held-out examples, and of those that are in two files."""

from __future__ import annotations

import json

import pytest

from official_albert.tasks import common, registry
from official_albert.tasks.common import own_files

Example = common.TextExample


def test_hold_out():
  rows = [Example(str(i), f"text {i}", None, "ab"[i % 2]) for i in range(300)]
  train, dev = map(list, own_files.hold_out(rows, 0.2))
  assert sorted(train + dev, key=rows.index) == rows
  # Three standard deviations of the binomial distribution, sqrt(300 * 0.16).
  assert abs(len(dev) - 60) < 21
  # Neither the order nor the other rows matter.
  assert list(own_files.hold_out(rows[::-3], 0.2)[1]) == [
    row for row in rows[::-3] if row in dev
  ]
  # A larger share holds out the same rows, and others.
  assert set(dev) < set(own_files.hold_out(rows, 0.3)[1])
  # Equal texts stay together; a pair is another text.
  for row, side in ((train[0], train), (dev[0], dev)):
    again = Example("x", row.text_a, None, "c")
    found = own_files.hold_out([*rows, again], 0.2)
    assert [again in x for x in found] == [side is train, side is dev]
  pairs = [Example(row.guid, row.text_a, "b", row.label) for row in rows]
  numbers = {row.guid for row in own_files.hold_out(pairs, 0.2)[1]}
  assert numbers != {row.guid for row in dev}


def test_rows_that_are_in_two_files():
  train = [
    Example("0", "A  day", "B", "x", "train.tsv, line 2"),
    Example("1", "a day", None, "x", "train.tsv, line 3"),
    Example("2", "a day", "b", "y", "train.tsv, line 4"),
  ]
  dev = [
    Example("0", "the sea", None, "x", "dev.tsv, line 2"),
    Example("1", "\uff21 DAY ", "\tb", "y", "dev.tsv, line 3"),  # Full width.
    Example("2", "A day", "b", "x", "dev.tsv, line 4"),
  ]
  first = "dev.tsv, line 3, which is train.tsv, line 2"
  assert own_files.find_shared(train, dev) == (2, first)
  # One text is no pair.
  assert own_files.find_shared(train[:1], [Example("0", "a day")]) == (0, "")


_ROWS = {
  "text_classification": {"text": "a b", "label": "x"},
  "text_embedding": {"text": "a", "text_b": "b"},
  "token_classification": {"tokens": ["a"]},
}
_LATE = {"text_embedding": "text_c", "token_classification": "spans"}


@pytest.mark.parametrize("name", _ROWS)
def test_columns_that_only_later_rows_have(tmp_path, name):
  """Without a word, labels, ids or wrong candidates would be ignored."""

  def make(first, *others):
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps(x) + "\n" for x in (first, *others)))
    options = {"test_file": str(path), "id_column": "key", "labels": ("x", "y")}
    return registry.make_task(name, common.TaskOptions(**options))

  row = _ROWS[name]
  bare = {k: x for k, x in row.items() if k != "label"}
  late = _LATE.get(name, "label")
  for column in (late, "key"):
    with pytest.raises(ValueError, match=f"line 2: there is '{column}', which"):
      make(bare, {**bare, column: "x"}).examples("test")
  task = make({**bare, "key": 7}, {**row, "key": "b", "other": 1})
  if name == "text_classification":  # The late label is refused.
    with pytest.raises(ValueError, match="'label', which the first row lacks"):
      task.check(["test"])
    task = make({**row, "key": 7}, {**row, "key": "b", "other": 1})
  task.check(["test"])
  assert [x.guid for x in task.examples("test")] == ["7", "b"]


@pytest.mark.parametrize("name", _ROWS)
def test_files_without_a_valid_row(tmp_path, name):
  path = tmp_path / "new.jsonl"
  path.write_text("{}\n3\n")
  options = {"test_file": str(path), "labels": ("x",), "skip_invalid": True}
  task = registry.make_task(name, common.TaskOptions(**options))
  with pytest.raises(ValueError, match="no valid row; the first: .*line 1"):
    task.check(["test"])
  path.write_text("")
  with pytest.raises(ValueError, match="new.jsonl is empty"):
    task.check(["test"])


def test_what_other_programs_say_of_a_row_is_obeyed(tmp_path):
  path = tmp_path / "train.jsonl"
  # Prodigy's users refuse labels; TFDS has bytes, which pandas writes so.
  rows = [{"label": "0.5", "answer": x} for x in ("accept", "reject", "ignore")]
  rows += [{"label": "1", "text_b": "b'c'"}, {"label": "1", "text": 'b"c"'}]
  rows = [{"text": "b'a' is", "text_b": "b'a", **row} for row in rows]
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  options = {"train_file": str(path), "skip_invalid": True, "labels": ("x",)}

  def texts(name, **changes):
    changed = common.TaskOptions(**options | changes)
    examples = registry.make_task(name, changed).examples("train")
    return [example.texts for example in examples]

  pair = ["b'a' is", "b'a"]
  assert texts("text_pair_classification") == [pair]
  assert texts("text_classification") == [["b'a' is", None]] * 2
  # A column that is read has no such answers.
  found = texts("text_classification", text_column="answer")
  assert found == [["accept", None], ["reject", None], ["ignore", None]]


_TRAIN: dict[str, list[dict]] = {
  "text_classification": [
    {"text": "a b", "label": "x"},
    {"text": "c", "label": "y"},
  ],
  "text_embedding": [
    {"text": "a", "text_b": "b"},
    {"text": "c", "text_b": "d"},
  ],
  "token_classification": [
    {"tokens": ["a"], "tags": ["B-x"]},
    {"tokens": ["c"], "tags": ["O"]},
  ],
}


@pytest.mark.parametrize("name", _TRAIN)
def test_ids_and_rows_that_are_left_out_or_in_two_files(tmp_path, name):
  rows, notes = _TRAIN[name], []

  def make(dev, **changes):
    files = {"train": rows, "dev": dev}
    for split, lines in files.items():
      text = "".join(f"{json.dumps(x)}\n" for x in lines)
      (tmp_path / f"{split}.jsonl").write_text(text)
    options = {f"{x}_file": str(tmp_path / f"{x}.jsonl") for x in files}
    options |= {"id_column": "key", "note": notes.append, **changes}
    task = registry.make_task(name, common.TaskOptions(**options))
    task.check(["train", "dev"])
    return task

  dev = [{**row, "key": 5 + i} for i, row in enumerate(rows)]
  bad = {**dev[0], next(iter(rows[0])): ""}
  task = make([*dev, bad], skip_invalid=True)
  ids = [[x.guid for x in task.examples(y)] for y in ("train", "dev")]
  assert ids == [["0", "1"], ["5", "6"]]
  left, shared, *_ = notes
  assert "left out 1 rows" in left and "dev.jsonl, line 3" in left
  assert "warning: 2 of the 2 dev rows are also training rows" in shared
  assert "dev.jsonl, line 1, which is " in shared
  with pytest.raises(ValueError, match="dev.jsonl, line 3: .* is empty"):
    make([*dev, bad])
  with pytest.raises(ValueError, match="dev id '5' is empty, occurs twice"):
    make(dev[:1] * 2)
  with pytest.raises(ValueError, match="--id_column=n: none of the files"):
    make(dev, id_column="n")
