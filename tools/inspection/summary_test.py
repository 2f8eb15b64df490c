"""Figures of a configuration, and the folder that they go to."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from official_albert import modeling
from tools.inspection import model_size
from tools.inspection import summary as inspection

_BASE = modeling.AlbertConfig.from_preset("albert_base_v2")


def test_figures_use_the_given_sizes():
  found = inspection.figures(
    "name", _BASE, inspection.Load(5, 3, 128, max_predictions_per_seq=20)
  )
  assert json.loads(json.dumps(found)) == found
  assert found["model"] == "name"
  assert modeling.AlbertConfig.from_dict(found["config"]) == _BASE
  assert found["parameters"]["encoder"] == 11_683_584
  assert found["flops_per_token"]["max_predictions_per_seq"] == 20
  for key, recompute in (("training", False), ("training_recomputed", True)):
    for precision in ("float32", "mixed_bfloat16"):
      setting = model_size.Setting(5, 128, 20, precision, recompute)
      expected = model_size.training_bytes(_BASE, setting)
      assert found["memory"][key][precision] == expected
  setting = model_size.Setting(3, 128)
  assert found["memory"]["inference"]["float32"] == (
    model_size.inference_bytes(_BASE, setting)
  )


def test_by_default_sequences_are_as_long_as_they_can_be():
  found = inspection.figures("name", _BASE, inspection.Load())
  assert found["flops_per_token"]["max_seq_length"] == 512
  assert found["flops_per_token"]["max_predictions_per_seq"] == 76
  assert found["memory"]["max_seq_length"] == 512


def test_numbers_out_of_range():
  with pytest.raises(ValueError, match="513, but the model has only 512"):
    inspection.figures("name", _BASE, inspection.Load(max_seq_length=513))
  with pytest.raises(ValueError, match="41, more than the 40 tokens"):
    inspection.figures("name", _BASE, inspection.Load(1, 1, 40, 41))
  for name, value in (
    ("train_batch_size", 0),
    ("batch_size", 0),
    ("max_seq_length", -1),
    ("max_predictions_per_seq", -1),
  ):
    with pytest.raises(ValueError, match=f"--{name} must be at least"):
      inspection.Load(**{name: value}).check()
  inspection.Load().check()


def test_the_folder_is_complete(tmp_path):
  folder = tmp_path / "new" / "out"
  inspection.write(
    str(folder),
    [{"model": "a"}],
    {"a.png": lambda path: pathlib.Path(path).write_bytes(b"drawn")},
  )
  report = json.loads((folder / inspection.REPORT_FILE).read_text())
  assert report == {"models": [{"model": "a"}]}
  assert (folder / "a.png").read_bytes() == b"drawn"
  assert os.listdir(folder.parent) == ["out"]
  with pytest.raises(FileExistsError, match="exists and is not empty"):
    inspection.write(str(folder), [], {})


@pytest.mark.parametrize("value, error", [(1.0, OSError), (1e999, ValueError)])
def test_or_not_there_at_all(tmp_path, value, error):
  def fail(path):
    raise OSError("no room")

  with pytest.raises(error):
    inspection.write(str(tmp_path / "out"), [{"a": value}], {"a.png": fail})
  assert os.listdir(tmp_path) == []


def test_an_empty_folder_is_accepted(tmp_path):
  inspection.write(str(tmp_path / "out"), [], {})
  os.remove(tmp_path / "out" / inspection.REPORT_FILE)
  inspection.write(str(tmp_path / "out"), [], {})
  assert os.listdir(tmp_path / "out") == [inspection.REPORT_FILE]


def test_names_say_which_model_it_is():
  names = inspection.names_of
  assert names(["x/a/", "x/b.tar.gz", "a/best"]) == ["a", "b.tar.gz", "a/best"]
  assert names(["x/run/model.ckpt-200"]) == ["run/model.ckpt-200"]
  assert names(["x/a", "y/a", "y/b"]) == ["x/a", "y/a", "b"]
  with pytest.raises(ValueError, match="the same path twice"):
    names(["x", "x"])


def test_names_of_maps():
  names = [inspection.attention_file(index) for index in range(3)]
  assert names == ["attention.png", "attention_2.png", "attention_3.png"]


def test_texts_precede_files(tmp_path):
  lines = tmp_path / "a.txt"
  lines.write_text("one\n\n two \nthree\n")
  documents = tmp_path / "b.jsonl"
  documents.write_text(json.dumps({"text": "four\nfive"}) + "\n")
  read = inspection.read_sentences(["zero"], f"{lines},{documents}")
  assert read == ["zero", "one", "two", "three", "four", "five"]
  assert inspection.read_sentences([], "") == []


@pytest.mark.parametrize(
  "texts, files, message",
  [
    (["good", " \t"], "", "--text is empty"),
    ([], "{0}/none-*.txt", "no input file matches"),
  ],
)
def test_bad_input(tmp_path, texts, files, message):
  with pytest.raises((ValueError, OSError), match=message):
    inspection.read_sentences(texts, files.format(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
