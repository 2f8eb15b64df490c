"""The record of an export is read, and other folders are refused."""

from __future__ import annotations

import json

import pytest

from tools.prediction import export_reader

_RECORD = {
  "kind": "classification",
  "task": "sst2",
  "signatures": ["classify", "ids", "examples"],
  "serving_default": "classify",
  "labels": ["bad", "good"],
  "max_seq_length": 24,
  "tokenizer": {"file": "vocab.txt", "kind": "wordpiece", "sha256": "0"},
  "lower_case": False,
  "settings": {"inputs": ["text"]},
}


def make(folder, record):
  (folder / "assets").mkdir(parents=True)
  (folder / "saved_model.pb").write_bytes(b"")
  text = record if isinstance(record, str) else json.dumps(record)
  (folder / "assets" / "export.json").write_text(text)
  return str(folder)


def test_what_an_export_says(tmp_path):
  path = make(tmp_path / "1", _RECORD)
  export = export_reader.read_export(path)
  assert export.kind == "classification" and export.labels == ("bad", "good")
  assert export.signatures == ("classify", "ids", "examples")
  assert export.default_signature == "classify"
  assert export.tokenizer_file == f"{path}/assets/vocab.txt"
  assert (export.tokenizer_kind, export.lower_case) == ("wordpiece", False)
  assert export.settings["inputs"] == ["text"]
  bare = {**_RECORD, "tokenizer": None, "lower_case": None, "labels": []}
  export = export_reader.read_export(make(tmp_path / "2", bare))
  assert (export.tokenizer_file, export.labels) == (None, ())


def test_other_folders_are_refused(tmp_path):
  with pytest.raises(
    FileNotFoundError, match="no folder of tools.export_saved"
  ):
    export_reader.read_export(str(tmp_path))
  path = tmp_path / "other"
  path.mkdir()
  (path / "saved_model.pb").write_bytes(b"")
  with pytest.raises(FileNotFoundError, match="export.json does not exist"):
    export_reader.read_export(str(path))
  for number, record in enumerate(
    ("{", "[]", {**_RECORD, "labels": 3}, {"kind": "x"})
  ):
    with pytest.raises(ValueError, match="not what .* writes .*: export again"):
      export_reader.read_export(make(tmp_path / str(number), record))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
