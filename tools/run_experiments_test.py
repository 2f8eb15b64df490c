"""Tests of run_experiments.py."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from official_albert.tools.testing import many_commands, toy_data


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """Text, and SST-2's folder."""
  folder = tmp_path_factory.mktemp("experiments")
  for name in ("text", "more"):
    (folder / name).mkdir()
    toy_data.write_corpus(f"{folder}/{name}/a.txt")
  # Data is found in --task_data_dir and in its glue/.
  toy_data.write_glue(f"{folder}/tasks/glue", ["sst2"], train=40)
  return folder


def test_refusals_are_one_sentence(folders, tmp_path):
  given = [
    f"--input_dir={folders}/text",
    f"--task_data_dir={folders}/tasks",
    f"--output_dir={tmp_path}/out",
    "--tasks=SST-2",
  ]
  table_3 = [*given, "--table=3"]
  cases = (
    ([*given, "--table=99"], "--table=99: value should be one of", 2),
    ([*table_3, "--tasks=X"], "--tasks=X: value should be one of", 2),
    ([*table_3, "--input_dir="], "--input_dir is missing"),
    ([*table_3, "--tasks=MNLI"], "has no data of MNLI"),
    ([*given, "--table=7"], "--additional_input_dir"),
  )
  many_commands.check_refusals("run_experiments", cases)


def test_a_dry_run_prints_the_commands(folders, tmp_path):
  given = [
    *("--dry_run", "--seeds=3", "--tasks=SST-2", "--table=4"),
    f"--input_dir={folders}/text",
    f"--task_data_dir={folders}/tasks",
    f"--output_dir={tmp_path}/out",
    "--pretraining_flags=--distribution=tpu --tpu=pod",
  ]
  [dry] = many_commands.run("run_experiments", [given])
  lines = dry.out.splitlines()
  # Vocabulary, records, and ten rows, each trained and fine-tuned.
  assert len(lines) == 2 + 3 * 10 * 2
  assert f"--input_files={folders}/text/*" in lines[0]
  trained = [x for x in lines if "run_pretraining" in x]
  assert len([x for x in trained if "--tpu=pod" in x]) == 30
  assert not os.path.exists(tmp_path / "out")


def _write_long_text(folder) -> None:
  """Of words enough for the scale's 2,000 pieces."""
  rng = np.random.default_rng(5)
  letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
  sizes = rng.integers(3, 10, 8000)
  words = ["".join(rng.choice(letters, size)) for size in sizes]
  documents = [
    "\n".join(" ".join(rng.choice(words, 10)) for _ in range(8))
    for _ in range(400)
  ]
  folder.mkdir()
  (folder / "a.txt").write_text("\n\n".join(documents) + "\n")


@pytest.mark.heavy
def test_a_table_from_text_to_markdown(folders, tmp_path):
  _write_long_text(tmp_path / "text")
  arguments = [
    *("--table=7", "--seeds=1", "--tasks=SST-2", "--num_train_steps=24"),
    f"--input_dir={tmp_path}/text",
    f"--additional_input_dir={folders}/more",
    f"--task_data_dir={folders}/tasks",
    f"--output_dir={tmp_path}/out",
  ]
  many_commands.run("run_experiments", [arguments])
  text = (tmp_path / "out" / "table_7.md").read_text()
  assert "with additional data" in text and "1 seeds from 12345" in text
  record = json.loads((tmp_path / "out" / "table_7.json").read_text())
  for values in record["rows"].values():
    assert {"MLM loss", "MLM", "SST-2", "million parameters"} <= {*values}
  [again] = many_commands.run("run_experiments", [arguments])
  # The trainings alone are asked again.
  assert again.out.count("$ ") == 2 == again.out.count("run_pretraining")
  assert text in again.out
