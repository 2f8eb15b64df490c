"""Tests of tables of Parquet and Arrow, and of folders of datasets."""

from __future__ import annotations

import json

import pyarrow
import pytest
from pyarrow import feather, ipc, parquet

from official_albert.tasks.common import disk_list, rows
from official_albert.testing import fake_gcs

_TEXTS = ["one", "two", "löwe", "four", "five"]
_NAMES = ["neg", "pos"]


def columns(**changes):
  """Columns of all types that a text or a label may have."""
  return {
    "text": pyarrow.array(_TEXTS, pyarrow.large_string()),
    "kind": pyarrow.array(["a", "b", "a", "b", "c"]).dictionary_encode(),
    "whole": pyarrow.array([1, 2, 3, 4, None], pyarrow.int8()),
    "real": pyarrow.array([0.5, 2, float("nan"), 1e-3, None]),
    "yes": [True, False, True, False, None],
    "class": pyarrow.array([1, 0, -1, 1, None], pyarrow.int64()),
    "classes": [[0, 1], [], [1], None, [-1]],
    "nested": [{"text": "x"}] * 5,
    **changes,
  }


def write(path, kind, metadata=True, **changes):
  table = pyarrow.table(columns(**changes))
  if metadata:
    label = {"names": _NAMES, "_type": "ClassLabel"}
    features = {"class": label, "classes": {"feature": label, "_type": "List"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    table = table.replace_schema_metadata(about)
  if kind == "parquet":
    parquet.write_table(table, path, row_group_size=2)
  elif kind == "feather":
    feather.write_feather(table, str(path), chunksize=2)
  else:
    make = ipc.new_stream if kind == "stream" else ipc.new_file
    with make(str(path), table.schema) as writer:
      writer.write_table(table, max_chunksize=2)
  return str(path)


def plain(path, column):
  """Returns what is read of a column, or what is wrong."""
  found = []
  for record in rows.read_table(path, [column]):
    try:
      found.append(rows.plain_cell(record, column))
    except rows.InvalidRow as error:
      found.append(error.kind)
  return found


_KINDS = {
  "parquet": "a.parquet",
  "stream": "a.arrow",
  "file": "a.arrow",
  "feather": "a.feather",
}


@pytest.mark.parametrize("kind", _KINDS)
def test_types_are_obeyed_or_refused(tmp_path, kind):
  path = write(tmp_path / _KINDS[kind], kind)
  records = list(rows.read_table(path, ["text", "classes"]))
  assert [x.where for x in records] == [f"{path}, row {i}" for i in range(1, 6)]
  assert [x.cells["text"] for x in records] == _TEXTS
  classes = [["neg", "pos"], [], ["pos"], None, [None]]
  assert [x.cells["classes"] for x in records] == classes
  # The names of all columns, but no values.
  assert [*records[0].cells] == [*columns()]
  assert records[0].cells["kind"] is None
  empty = "'{}' is empty".format
  assert plain(path, "kind") == ["a", "b", "a", "b", "c"]
  assert plain(path, "whole") == ["1", "2", "3", "4", empty("whole")]
  wrong = "'real' must be text"
  assert plain(path, "real") == ["0.5", "2", wrong, "0.001", empty("real")]
  assert plain(path, "yes") == ["true", "false"] * 2 + [empty("yes")]
  names = ["pos", "neg", empty("class"), "pos", empty("class")]
  assert plain(path, "class") == names
  assert plain(path, "nested") == ["'nested' must be text"] * 5
  assert [x.cells for x in rows.read_table(path, [])] == [
    dict.fromkeys(columns())
  ] * 5
  # Without the features of datasets, they are numbers.
  path = write(tmp_path / _KINDS[kind], kind, metadata=False)
  assert plain(path, "class") == ["1", "0", "-1", "1", empty("class")]


def write_folder(folder, *parts):
  folder.mkdir()
  for name in parts:
    write(folder / name, "stream")
  state = {"_data_files": [{"filename": name} for name in parts]}
  (folder / "state.json").write_text(json.dumps(state))
  return str(folder)


def test_lists_globs_and_folders(tmp_path):
  for name in ("b,1.parquet", "a.parquet"):
    write(tmp_path / name, "parquet")
  (tmp_path / "c.tsv").write_text("text\tn\nsix\t6\n")
  folder = write_folder(tmp_path / "train", "data-1.arrow", "data-0.arrow")

  def read(*names):
    found = rows.read_table(
      ",".join(f"{tmp_path}/{x}" for x in names), ["text"]
    )
    return [(x.where.split("/")[-1], x.cells["text"]) for x in found]

  both = [*zip([f"a.parquet, row {i}" for i in range(1, 6)], _TEXTS)]
  both += [(x.replace("a.", "b,1."), text) for x, text in both]
  assert read("*.parquet") == both
  assert read("a.parquet", "c.tsv") == [*both[:5], ("c.tsv, line 2", "six")]
  assert read("b,1.parquet") == both[5:]  # A file with a comma.
  # The order is that of state.json.
  assert [x for x, _ in read("train")][::5] == [
    "data-1.arrow, row 1",
    "data-0.arrow, row 1",
  ]
  state = {"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}
  (tmp_path / "train" / "state.json").write_text(json.dumps(state))
  with pytest.raises(ValueError, match="names _indices_data_files"):
    read("train")
  (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
  with pytest.raises(ValueError, match=f"several splits.*{folder}"):
    read("")
  with pytest.raises(FileNotFoundError, match=r"none\*.tsv"):
    read("none*.tsv")
  (tmp_path / "train" / "state.json").write_text("{}")
  with pytest.raises(ValueError, match="state.json has no '_data_files'"):
    read("train")
  (tmp_path / "train" / "state.json").unlink()
  with pytest.raises(FileNotFoundError, match="without state.json"):
    read("train")


def _texts(names):
  return [row.cells["text"] for row in rows.read_table(names, ["text"])]


def test_tables_in_a_bucket(tmp_path):
  write(tmp_path / "a.parquet", "parquet")
  write(tmp_path / "b.parquet", "parquet")
  write_folder(tmp_path / "train", "data-0.arrow")
  with fake_gcs.FakeGcs() as gcs, gcs.client() as client:
    gcs.upload(tmp_path, "gs://bucket/d")
    for names in ("*.parquet", "a.parquet,gs://bucket/d/b.parquet"):
      assert client(_texts, f"gs://bucket/d/{names}") == 2 * _TEXTS
    assert client(_texts, "gs://bucket/d/train") == _TEXTS


@pytest.mark.parametrize("kind", _KINDS)
def test_damaged_tables(tmp_path, kind):
  path = tmp_path / _KINDS[kind]
  write(path, kind)
  with pytest.raises(ValueError, match="no column 'label'.*'text', 'kind'"):
    list(rows.read_table(str(path), ["label"]))
  content = path.read_bytes()
  for damaged in (content[:-9], content[: len(content) // 2], content[:8]):
    path.write_bytes(damaged)
    with pytest.raises(
      ValueError, match=f"{path.name} is not a complete table"
    ):
      list(rows.read_table(str(path), ["text"]))
  for foreign in (b"", b"text,label\n", b"FEA1 old", b"PK\3\4"):
    path.write_bytes(foreign)
    with pytest.raises(ValueError, match=f"{path.name} is no table of"):
      list(rows.read_table(str(path), ["text"]))
  empty = pyarrow.array([], pyarrow.string())
  parquet.write_table(pyarrow.table({"text": empty}), tmp_path / "e.parquet")
  with pytest.raises(ValueError, match="e.parquet has no rows"):
    list(rows.read_table(f"{tmp_path}/e.parquet", ["text"]))
  twice = pyarrow.table([["x"], ["y"]], ["text", "text"])
  parquet.write_table(twice, tmp_path / "e.parquet")
  with pytest.raises(ValueError, match="has several columns 'text'"):
    list(rows.read_table(f"{tmp_path}/e.parquet", ["text"]))
  raw = pyarrow.array([b"\xff"], pyarrow.binary()).view(pyarrow.string())
  parquet.write_table(pyarrow.table({"text": raw}), tmp_path / "e.parquet")
  with pytest.raises(ValueError, match="e.parquet has text that is not UTF-8"):
    list(rows.read_table(f"{tmp_path}/e.parquet", ["text"]))


def test_times_are_refused(tmp_path):
  path = f"{tmp_path}/a.parquet"
  # Neither has a Python object: it is too late, or has nanoseconds.
  for kind, value in (("ms", 1 << 62), ("ns", 1)):
    time = pyarrow.timestamp(kind)
    nested = pyarrow.struct([("a", pyarrow.list_(time))])
    for x, of in ((value, time), ({"a": [value]}, nested)):
      times = pyarrow.array([x], of)
      parquet.write_table(pyarrow.table({"text": ["x"], "at": times}), path)
      with pytest.raises(ValueError, match=f"column 'at' has times.*{kind}"):
        list(rows.read_table(path, ["text", "at"]))
      (row,) = rows.read_table(path, ["text"])
      assert row.cells == {"text": "x", "at": None}
  path = f"{tmp_path}/a.arrow"
  table = pyarrow.table({"at": pyarrow.array([1], time).dictionary_encode()})
  feather.write_feather(table, path)
  with pytest.raises(ValueError, match="column 'at' has times.*ns"):
    list(rows.read_table(path, ["at"]))


@pytest.mark.parametrize("about", ["", "x", "[1]", '{"info": [1]}', "{}"])
def test_metadata_of_others_names_no_classes(tmp_path, about):
  table = pyarrow.table({"class": [1]}, metadata={"huggingface": about})
  parquet.write_table(table, tmp_path / "a.parquet")
  assert plain(f"{tmp_path}/a.parquet", "class") == ["1"]


def test_the_file_beside_a_table_names_its_classes(tmp_path):
  path = write(tmp_path / "a.parquet", "parquet", metadata=False)
  beside = tmp_path / "dataset_info.json"
  label = {"names": ["N", "P"], "_type": "ClassLabel"}
  beside.write_text(json.dumps({"features": {"class": label, "yes": {}}}))
  named = ["P", "N", "'class' is empty", "P", "'class' is empty"]
  assert plain(path, "class") == named
  # As in `load_from_disk`, its names are the first.
  path = write(tmp_path / "a.arrow", "stream")
  assert plain(path, "class") == named
  records = rows.read_table(path, ["classes"])
  assert next(records).cells["classes"] == ["neg", "pos"]
  for nothing in ({}, {"features": None}):
    beside.write_text(json.dumps(nothing))
    assert plain(path, "class")[:2] == ["pos", "neg"]
  beside.write_text('{"features": ')
  with pytest.raises(ValueError, match="dataset_info.json is not valid JSON"):
    plain(path, "class")


def test_names_of_classes_stay(tmp_path):
  """As after a program that writes names, and copies the metadata."""
  names = {"class": ["pos", "neg", "pos", "neg", None]}
  path = write(tmp_path / "a.parquet", "parquet", **names)
  assert plain(path, "class") == [*names["class"][:4], "'class' is empty"]


def test_a_list_on_the_disk(monkeypatch):
  for limit in (1 << 20, 7):
    monkeypatch.setattr(disk_list, "_MEMORY_BYTES", limit)
    values = disk_list.DiskList([b"abc", b"", b"de"])
    assert values[0] == b"abc"
    values.extend([b"x" * 30, b"y"])  # After one was read.
    assert list(values) == [b"abc", b"", b"de", b"x" * 30, b"y"]
    with pytest.raises(IndexError, match="no value 5 of 5"):
      values[5]
