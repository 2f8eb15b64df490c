"""Tests of run.json and of what a resumed run is told."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from official_albert import AlbertConfig, run_record

CONFIG = AlbertConfig.from_preset("albert_tiny")
SETTINGS = {"learning_rate": 0.1, "keep_checkpoint_max": 7}


def test_record_holds_settings_data_and_versions(tmp_path):
  folder = str(tmp_path / "run")
  assert run_record.write(folder, CONFIG, SETTINGS, {"sha": "a"}) == []
  record = run_record.read(folder)
  assert record["settings"] == SETTINGS
  assert record["data"] == {"sha": "a"}
  assert record["versions"]["tensorflow"].startswith("2.15")
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  assert config == CONFIG


def test_changes_that_matter_are_told(tmp_path):
  folder = str(tmp_path)
  run_record.write(folder, CONFIG, SETTINGS, {"sha": "a"})
  (tmp_path / "checkpoint").touch()
  free = {**SETTINGS, "keep_checkpoint_max": 9, "profile_steps": "1,2"}
  free["recipe"] = "base_cpu"
  assert run_record.write(folder, CONFIG, free, {"sha": "a"}) == []
  changed = {**free, "learning_rate": 0.2}
  changes = run_record.write(folder, CONFIG, changed, {"sha": "b"})
  assert len(changes) == 2
  assert "learning_rate was 0.1 at the last start and is now 0.2" in changes[0]


def test_another_model_is_refused(tmp_path):
  run_record.write(str(tmp_path), CONFIG, SETTINGS, {})
  other = dataclasses.replace(CONFIG, num_hidden_layers=5)
  # Nothing was trained yet, so nothing binds.
  run_record.write(str(tmp_path), other, SETTINGS, {})
  pathlib.Path(tmp_path, "checkpoint").touch()
  with pytest.raises(ValueError, match="num_hidden_layers 5, .* ask for 4"):
    run_record.write(str(tmp_path), CONFIG, SETTINGS, {})


def test_records_from_before_there_were_kinds_of_tokenizers(tmp_path):
  info = {"sha256": "a"}
  run_record.write(str(tmp_path), CONFIG, SETTINGS, {"tokenizer": info})
  (tmp_path / "checkpoint").write_text("")
  same = {"tokenizer": {"kind": "sentencepiece", **info}}
  run_record.write(str(tmp_path), CONFIG, SETTINGS, same)
  other = {"tokenizer": {"kind": "wordpiece", **info}}
  with pytest.raises(ValueError, match="another tokenizer"):
    run_record.write(str(tmp_path), CONFIG, SETTINGS, other)


def test_another_tokenizer_is_refused(tmp_path):
  data = {"tokenizer": {"sha256": "a"}}
  run_record.write(str(tmp_path), CONFIG, SETTINGS, data)
  (tmp_path / "checkpoint").touch()
  with pytest.raises(ValueError, match="another tokenizer"):
    run_record.write(
      str(tmp_path), CONFIG, SETTINGS, {"tokenizer": {"sha256": "b"}}
    )


def test_no_record_and_broken_record(tmp_path):
  with pytest.raises(FileNotFoundError, match="not the folder of a run"):
    run_record.read(str(tmp_path))
  (tmp_path / "run.json").write_text("{")
  with pytest.raises(ValueError, match="not valid JSON"):
    run_record.read(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
