"""Tests of the records of runs."""

from __future__ import annotations

import pytest

from official_albert import AlbertConfig, files, training
from tools.finetuning import trained_run

_CONFIG = AlbertConfig.from_preset("albert_tiny")
_DATA = {
  "task": "text_classification",
  "max_seq_length": 17,
  "settings": {"labels": ["no", "yes"], "columns": {"text": "review"}},
}


def write(folder, **changes):
  training.write_run(str(folder), _CONFIG, {}, {**_DATA, **changes})
  return str(folder)


def test_read(tmp_path):
  folder = write(tmp_path)
  run = trained_run.read(folder)
  assert (run.model_dir, run.task) == (folder, "text_classification")
  assert run.max_seq_length == 17
  assert run.labels == ("no", "yes")
  assert run.columns == {"text": "review"}
  assert run.null_score_diff_threshold is None


def test_without_labels_or_columns(tmp_path):
  run = trained_run.read(write(tmp_path, settings={"doc_stride": 8}))
  assert run.labels is None and run.columns == {}
  assert run.settings["doc_stride"] == 8
  # As in the records of a regression.
  assert trained_run.read(
    write(tmp_path, settings={"labels": None})
  ).labels is (None)


def test_threshold_of_the_evaluation(tmp_path):
  folder = write(tmp_path)
  results = {"dev": {"f1": 50.0, "null_score_diff_threshold": -1.25}}
  trained_run.write_results(folder, results)
  assert trained_run.read(folder).null_score_diff_threshold == -1.25
  assert trained_run.read_json(str(tmp_path / "eval_results.json")) == results
  (tmp_path / "eval_results.json").write_text("{")
  with pytest.raises(ValueError, match="not valid JSON .*: remove it, and ev"):
    trained_run.read(folder)


def test_read_of_other_folders(tmp_path):
  with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
    trained_run.read(str(tmp_path))
  training.write_run(str(tmp_path), _CONFIG, {}, {"max_seq_length": 5})
  with pytest.raises(ValueError, match="is the folder of a pretraining run"):
    trained_run.read(str(tmp_path))


def test_check_same_task(tmp_path):
  folder = write(tmp_path)
  other = {**_DATA, "task": "cola"}
  # There is no checkpoint yet.
  trained_run.check_same_task(str(tmp_path / "new"), other)
  trained_run.check_same_task(folder, other)
  (tmp_path / "model.ckpt-3.index").write_text("")
  trained_run.check_same_task(folder, _DATA)
  with pytest.raises(
    ValueError, match="has a run of text_classification, not of cola: choose"
  ):
    trained_run.check_same_task(folder, other)
  other = {**_DATA, "settings": {"labels": ["no", "perhaps"]}}
  with pytest.raises(
    ValueError, match="the classes no, yes, but the training data has no, perh"
  ):
    trained_run.check_same_task(folder, other)


def test_read_json(tmp_path):
  path = str(tmp_path / "x.json")
  assert trained_run.read_json(path) is None
  files.write_json(path, {"a": 1})
  with pytest.raises(TypeError):
    files.write_json(path, {"a": object()})
  assert trained_run.read_json(path) == {"a": 1}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
