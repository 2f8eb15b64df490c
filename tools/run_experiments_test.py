"""Tests of run_experiments.py."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from official_albert.tools import run_experiments
from official_albert.tools.testing import many_commands, toy_data


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """Text, and SST-2's folder."""
  folder = tmp_path_factory.mktemp("experiments")
  for name in ("text", "more", "a,b"):
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
  claimed, damaged = tmp_path / "claimed", tmp_path / "damaged"
  for folder, text in ((claimed, '{"scale": "tiny"}'), (damaged, "[]")):
    folder.mkdir()
    (folder / "experiments.json").write_text(text)
  (claimed / "table_4.md").write_text("results")
  table_3 = [*given, "--table=3"]
  cases = {
    "--table is missing": given,
    "--table has no choice 99: choose all, or some of 1, 2": [
      *given,
      "--table=3,99",
    ],
    "--tasks has no choice CoLA": [*table_3, "--tasks=CoLA"],
    "--output_dir is missing": ["--table=3"],
    "--input_dir /no has no text": [*table_3, "--input_dir=/no"],
    "a,b has a comma in its name": [*table_3, f"--input_dir={folders}/a,b"],
    "has no data of MNLI": [*table_3, "--tasks=MNLI"],
    "--additional_input_dir": [*given, "--table=7"],
    "--tpu does not apply to --scale=tiny": [*table_3, "--tpu=pod"],
    "out is on this machine, where the hosts of a TPU": [
      *(*table_3, "--scale=base", "--tpu=pod")
    ],
    "out does not exist": [*table_3, "--report_only"],
    "was made with scale 'tiny', not 'base'": [
      *("--table=4", "--scale=base", "--report_only"),
      f"--output_dir={claimed}",
    ],
    "is [], but must be an object": [*table_3, f"--output_dir={damaged}"],
    "--num_parallel is 999, but there are": [*table_3, "--num_parallel=999"],
  }
  done = many_commands.run("run_experiments", list(cases.values()))
  for message, result in zip(cases, done):
    assert result.code == 1, message
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
  assert (claimed / "table_4.md").read_text() == "results"


def test_texts_of_every_kind_are_found(tmp_path):
  for name in ("a.jsonl.zstd", "b.txt", "c.jsonl.gz", "d.pdf"):
    (tmp_path / name).touch()
  found = run_experiments.text_files("input_dir", str(tmp_path))
  suffixes = "txt", "jsonl.gz", "jsonl.zstd"
  assert found.split(",") == [f"{tmp_path}/*.{x}" for x in suffixes]


def test_list_and_dry_run(folders, tmp_path):
  given = [
    *("--dry_run", "--seeds=3", "--tasks=SST-2"),
    f"--input_dir={folders}/text",
    f"--task_data_dir={folders}/tasks",
    f"--output_dir={tmp_path}/out",
  ]
  listed, dry, first = many_commands.run(
    "run_experiments",
    [["--list"], ["--table=4", *given], ["--table=1", *given]],
  )
  assert "figure_2" in listed.out and "base" in listed.out
  # Vocabulary, records, and ten rows, each trained and fine-tuned.
  assert "62 jobs, " in dry.out
  assert "hours on two CPU cores" in dry.out
  assert "FLOP: on this machine, at any scale" in first.out
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
  [done] = many_commands.run("run_experiments", [arguments])
  assert not done.code, done.out + done.err
  text = (tmp_path / "out" / "table_7.md").read_text()
  assert "with additional data" in text and "one seed" in text
  record = json.loads((tmp_path / "out" / "table_7.json").read_text())
  assert record["missing"] == 0 and not record["failed"]
  for row in record["rows"]:
    assert set(row["values"]) == {
      *("MLM loss", "MLM", "SST-2", "SST-2 chance", "Avg")
    }
  assert (tmp_path / "out" / "table_7.png").exists()
  whole = (tmp_path / "out" / "results.md").read_text()
  assert whole.startswith("Of 2 directions of the paper, 0 are shown")
  assert whole.endswith(text) and "2 not resolved" in whole
  [again] = many_commands.run("run_experiments", [arguments])
  assert not again.code and "[" not in again.out.splitlines()[1]
