"""Tests of the user's own texts: rows, records and metrics."""

from __future__ import annotations

import json
import re

import pytest

from official_albert.tasks import common
from official_albert.tasks.classification import examples
from official_albert.tasks.common import own_files

Example = common.TextExample


def write(folder, *rows, name="rows.tsv"):
  if name.endswith(".jsonl"):
    text = "".join(json.dumps(row) + "\n" for row in rows)
  else:
    text = "".join("\t".join(row) + "\n" for row in rows)
  (folder / name).write_text(text, encoding="utf-8")
  return str(folder / name)


_COLUMNS = {"text": "text", "label": "label"}


def read(path, columns, labels=None, regression=False, **options):
  column = columns.get("label")

  def label_of(record):
    return examples.read_label(record, column, labels, regression)

  found = own_files.find_columns(path, columns, ["id"])
  invalid = options.pop("invalid", common.InvalidRows())
  return own_files.read_examples(
    *(path, found, invalid, label_of if column else None), **options
  )


def test_columns_by_name(tmp_path):
  path = write(
    tmp_path,
    ["stars", "review", "id", "title"],
    ["5", " Good. ", "r1", "Yes"],
    [" 10", "Bad.", "r2", "No"],
  )
  columns = {"text": "review", "label": "stars"}
  assert list(read(path, columns)) == [
    Example("0", " Good. ", None, "5"),
    Example("1", "Bad.", None, "10"),
  ]
  columns |= {"text_b": "title", "id": "id"}
  assert list(read(path, columns)) == [
    Example("r1", " Good. ", "Yes", "5"),
    Example("r2", "Bad.", "No", "10"),
  ]
  # Texts to predict have no labels.
  (found, _) = read(path, {"text": "title"})
  assert found == Example("0", "Yes")
  for label, message in ((" ", "empty"), (["a", "b"], "a list.*multi-label")):
    bad = write(tmp_path, {"text": "a", "label": label}, name="rows.jsonl")
    with pytest.raises(ValueError, match=f"line 1: 'label' is {message}"):
      read(bad, _COLUMNS)


@pytest.mark.parametrize(
  "labels, expected",
  [
    (["b", "a", "b", "C"], ("C", "a", "b")),
    (["10", "9", "-1", "9"], ("-1", "9", "10")),
    (["10", "9", "x"], ("10", "9", "x")),
    # Labels are compared as texts, but not in two forms of one number.
    (["1", "01"], ("01", "1")),
    # Only ASCII digits make a number.
    (["10", "²"], ("10", "²")),
    (["1.5", "0.5"], ("0.5", "1.5")),
    # Words that stand for a missing number, or for a missing gold label.
    (["None", "a"], ("None", "a")),
    (["NA", "none"], ("NA", "none")),
    (["eng", "nan"], ("eng", "nan")),  # The language Min Nan.
    (["NAT", "NAN"], ("NAN", "NAT")),
    (["-", "+"], ("+", "-")),
    # Names with brackets.
    (["a", "(other, misc)"], ("(other, misc)", "a")),
    (["(a) b, (c)", "b"], ("(a) b, (c)", "b")),
    (["{x}", "[c]"], ("[c]", "{x}")),
    (["a", "('90s, '80s)"], ("('90s, '80s)", "a")),
    (["-1", "0", "1"], ("-1", "0", "1")),
    (["1", "0", "-1", "2", "-2"], ("-2", "-1", "0", "1", "2")),
  ],
)
def test_find_labels(labels, expected):
  assert examples.find_labels(labels, "a.tsv") == expected
  for one, found in ((["a"], "'a'"), ([], "none")):
    message = f"^a.tsv: the training .* two labels, it has {found}.$"
    with pytest.raises(ValueError, match=message):
      examples.find_labels(one * 2, "a.tsv")


@pytest.mark.parametrize(
  "labels, message",
  [
    *(
      (("a", several, "b"), re.escape(several) + ".*multi-label")
      for several in (
        "a,b",
        "a; b",
        "b|a|a",
        "a#b",
        "['c']",
        "[b'c' b'd']",
        "[a]",
        "(a, b)",
        "{'c': 1}",
        '{"c d",a}',
        "[]",
        "{'a'}",
        "('a',)",
      )
    ),
    # They fit no table of probabilities.
    (("a\tb", "c"), r"^a\.tsv: the label"),
    (("a\nb", "c"), r"^a\.tsv: the label"),
    (("1", "1.0"), r"^a\.tsv: the labels"),
    (("1", "nan", "0"), "the label 'nan' .* rename it"),
    (("1", "NaN"), "the label 'NaN'"),
    (("0.5", "NULL"), "the label 'NULL'"),
    # An array of SQL.
    (("{a}", "{b}", "{a,b}"), "'{a,b}' is a list of labels"),
    (("0", "?", "1"), r"the label '\?'"),
    (("a", "NaN", "b"), "the label 'NaN'"),
    # As in SNLI, and as `datasets` writes it.
    (("contradiction", "-", "neutral"), "the label '-'"),
    (("-1", "0", "1", "2"), "the label '-1'"),
  ],
)
def test_labels_that_are_refused(labels, message):
  with pytest.raises(ValueError, match=message):
    examples.find_labels(labels, "a.tsv")
  # Names with a comma.
  assert len(examples.find_labels(("a", "a, c", "c|d"), "a.tsv")) == 3


def test_examples_on_the_disk():
  pair = Example("1", "\uff21 DAY ", "\tb", "y", "dev.tsv, line 3")
  stored = common.ExampleList([pair, pair])
  assert list(stored) == [pair] * 2 and stored[1].where == pair.where
  several = Example("", "a", None, ("x", "y"))
  assert common.ExampleList([several])[0] == several


def test_invalid_rows_are_left_out(tmp_path):
  lines = ["text\tlabel", "a\tx", "\tx", "b", "c\t ", " \ty", "d\ty", "e\tz"]
  (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
  path, invalid = f"{tmp_path}/a.tsv", common.InvalidRows(may_skip=True)
  found = list(read(path, _COLUMNS, ("x", "y"), invalid=invalid))
  # The ids are the numbers of the rows in the file.
  assert [(e.guid, e.text_a, e.label, e.where) for e in found] == [
    ("0", "a", "x", f"{path}, line 2"),
    ("5", "d", "y", f"{path}, line 7"),
  ]
  counts = {kind: count for kind, (count, _) in invalid.found.items()}
  assert counts == {
    "'text' is empty": 2,
    "has another number of columns than the header": 1,
    "'label' is empty": 1,
    "unknown label": 1,
  }
  lines = []
  invalid.finish(path, found, lines.append)
  assert lines[0].startswith(
    "warning: left out 2 rows, because 'text' is empty"
  )
  assert f"the first: {path}, line 3: 'text' is empty" in lines[0]
  for rows in ([{"text": "a"}], [[1]], [{"text": "", "label": "x"}]):
    path = write(tmp_path, *rows, name="rows.jsonl")
    invalid = common.InvalidRows(may_skip=True)
    assert not read(path, _COLUMNS, invalid=invalid)
    assert ", line 1" in invalid.first


def test_known_labels_and_numbers(tmp_path):
  path = write(tmp_path, ["text", "label"], ["x", "-1e-3"], ["y", " 7 "])
  for options in ({"regression": True}, {"labels": ("7", "-1e-3")}):
    found = read(path, _COLUMNS, **options)
    assert [e.label for e in found] == ["-1e-3", "7"]
  with pytest.raises(ValueError) as error:
    read(path, _COLUMNS, labels=("-1e-3", "8"))
  assert str(error.value) == (
    f"{path}, line 3: unknown label '7', which must be one of '-1e-3', '8'."
  )
  for label in ("high", "nan", "inf", "1,5", "1e39"):
    path = write(tmp_path, ["text", "label"], ["x", "1"], ["y", label])
    with pytest.raises(ValueError, match="line 3: .* must be a finite number"):
      read(path, _COLUMNS, regression=True)


def test_some_labels_are_missing(tmp_path):
  path = write(tmp_path, ["text", "label"], ["x", "a"], ["y", ""])
  with pytest.raises(ValueError, match="line 3: 'label' is empty.* 1 rows of"):
    read(path, _COLUMNS, ("a", "b"), may_lack_labels=True)
  invalid = common.InvalidRows(may_skip=True)
  options = {"may_lack_labels": True, "invalid": invalid}
  (left,) = read(path, _COLUMNS, ("a", "b"), **options)
  assert left.text_a == "x" and invalid.count == 1
  # If none is known, all rows are predicted.
  invalid.found.clear()
  found = read(path, _COLUMNS, ("c", "d"), **options)
  assert [e.label for e in found] == [None, None] and not invalid.found
  # Texts and labels are counted apart.
  texts, labels = ("x", "\ud800", "y"), ("a", "a", "\udfff")
  lines = [{"text": x, "label": y} for x, y in zip(texts, labels)]
  path = write(tmp_path, *lines, name="rows.jsonl")
  assert len(read(path, _COLUMNS, ("a", "b"), **options)) == 1
  problem = "contains the lone surrogate"
  assert [*invalid.found] == [f"'text' {problem}", f"'label' {problem}"]
