"""Tests of inputs.py."""

from __future__ import annotations

import pytest

from tasks.pretraining import data
from tools.experiments import inputs


def test_text_is_named_by_globs(tmp_path):
  folder = tmp_path / "a[b]"
  folder.mkdir()
  for name in ("1.txt", "2.txt", "3.jsonl.gz", "notes.md"):
    (folder / name).write_text("text\n")
  found = inputs.text_files("input_dir", str(folder)).split(",")
  assert len(found) == 2
  names = [path.rsplit("/", 1)[1] for path in data.find_files(",".join(found))]
  assert names == ["1.txt", "2.txt", "3.jsonl.gz"]


def test_folders_without_text(tmp_path):
  with pytest.raises(FileNotFoundError, match="--input_dir .*/no does not"):
    inputs.text_files("input_dir", str(tmp_path / "no"))
  with pytest.raises(FileNotFoundError, match="--input_dir .* has no text"):
    inputs.text_files("input_dir", str(tmp_path))
  folder = tmp_path / "a,b"
  folder.mkdir()
  (folder / "1.txt").write_text("text\n")
  with pytest.raises(ValueError, match="has a comma in its name"):
    inputs.text_files("input_dir", str(folder))


def test_tasks_are_found_in_both_places(tmp_path):
  (tmp_path / "glue" / "MNLI").mkdir(parents=True)
  (tmp_path / "SST-2").mkdir()
  found = inputs.find_task_data(str(tmp_path), ["MNLI", "SST-2"])
  assert found == {"MNLI": str(tmp_path / "glue"), "SST-2": str(tmp_path)}
  with pytest.raises(FileNotFoundError, match="has no data of SQuAD1.1"):
    inputs.find_task_data(str(tmp_path), ["SQuAD1.1"])
  assert inputs.find_task_data("", ()) == {}
  with pytest.raises(ValueError, match="--task_data_dir is missing: .*MNLI"):
    inputs.find_task_data("", ["MNLI"])


def test_a_folder_belongs_to_one_text_and_scale(tmp_path):
  folder = str(tmp_path)
  inputs.claim(folder, scale="tiny", input_files="a")
  inputs.claim(folder, scale="tiny", input_files="a", additional_files="b")
  inputs.claim(folder, scale="tiny", input_files="a")
  with pytest.raises(ValueError, match="with scale 'tiny', not 'base'"):
    inputs.claim(folder, scale="base", input_files="a")
  with pytest.raises(ValueError, match="additional_files 'b', not 'c'"):
    inputs.claim(folder, additional_files="c")


def test_a_check_writes_nothing(tmp_path):
  folder = str(tmp_path)
  assert inputs.check(folder, scale="tiny") == {}
  assert not list(tmp_path.iterdir())
  inputs.claim(folder, scale="tiny")
  assert inputs.check(folder, input_files="a") == {"scale": "tiny"}
  with pytest.raises(ValueError, match="with scale 'tiny', not 'base'"):
    inputs.check(folder, scale="base")


@pytest.mark.parametrize("written", ["{", "[]", ""])
def test_damaged_settings_are_refused(tmp_path, written):
  (tmp_path / "experiments.json").write_text(written)
  with pytest.raises(ValueError, match="is not what this program wrote"):
    inputs.claim(str(tmp_path), scale="tiny")
  assert (tmp_path / "experiments.json").read_text() == written


def test_layers_are_compared_on_a_sentence_of_each_document(tmp_path):
  text, path = tmp_path / "text.txt", str(tmp_path / "data" / "sentences.txt")
  text.write_text("One.\nTwo.\nThree.\n\nFour.\nFive.\n")
  inputs.write_sentences(path, str(text))
  with open(path) as file:
    assert file.read() == "Two.\nFive.\n"
  # Written once: all models see the same.
  text.write_text("Six.\n")
  inputs.write_sentences(path, str(text))
  with open(path) as file:
    assert file.read() == "Two.\nFive.\n"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
