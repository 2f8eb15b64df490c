"""Runs the program as users do; tools.inspect_tfrecords reads its result.

The effect of the settings is tested in
tasks/pretraining/data/dataset_builder_test.py.
"""

from __future__ import annotations

import importlib.util
import json
import os

import numpy as np
import pytest

from official_albert import tfrecords
from official_albert.tools import train_vocabulary
from official_albert.tools.testing import many_commands

_HAS_BEAM = importlib.util.find_spec("apache_beam") is not None


def _arguments(corpus, output_dir, *more):
  return [
    f"--input_files={corpus}/*.jsonl",
    f"--output_dir={output_dir}",
    f"--spm_model_file={corpus}/tokenizer.model",
    "--max_seq_length=64",
    *more,
  ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  """Thirty documents as JSON lines, and a vocabulary of 35 pieces."""
  folder = tmp_path_factory.mktemp("corpus")
  rng = np.random.default_rng(0)
  words = "tea rain stone river cloud amber slowly under every green".split()
  texts = [
    " ".join(
      " ".join(rng.choice(words, 6)).capitalize() + "." for _ in range(20)
    )
    for _ in range(30)
  ]
  rows = [json.dumps({"text": text}) + "\n" for text in texts]
  (folder / "a.jsonl").write_text("".join(rows))
  lines = " ".join(texts).lower().replace(". ", ".\n").splitlines()
  model = train_vocabulary.train(iter(lines), 35, 1.0, 1)
  train_vocabulary.write(model, str(folder / "tokenizer"))
  return folder


_FLAGS = (
  "--max_predictions_per_seq=5",
  "--dupe_factor=2",
  "--heldout_share=0.1",
  "--num_shards=3",
  "--random_seed=7",
)


@pytest.fixture(scope="module")
def dataset(corpus):
  """The result of the program and the folder of the dataset."""
  line = _arguments(corpus, corpus / "data", *_FLAGS, "--num_workers=2")
  (result,) = many_commands.run("create_pretraining_data", [line])
  return result, corpus / "data"


def test_flags_reach_the_data_and_statistics_are_printed(dataset):
  result, folder = dataset
  manifest = tfrecords.read_manifest(str(folder))
  assert (manifest.max_seq_length, manifest.max_predictions_per_seq) == (64, 5)
  assert manifest.random_seed == 7
  assert manifest.settings["dupe_factor"] == 2
  assert len(manifest.split("train").shards) == 3
  statistics = manifest.split("train").statistics
  lines = result.out.splitlines()
  assert lines[0].split() == ["train", "heldout"]
  assert lines[-1] == f"Wrote 4 files and dataset.json to {folder}"
  table = {line.split("  ")[0]: line.split()[-2] for line in lines[1:-1]}
  assert table["instances"] == str(statistics["instances"])
  assert "mask_token_share" in table


_BEAM_ERROR = (
  "a.jsonl, line 2, must be a JSON"
  if _HAS_BEAM
  else "install apache-beam; requirements-beam.txt"
)
_REFUSALS = [
  ([], "a.jsonl, line 2, must be a JSON"),
  (["--output_dir=/dev/null/x"], "/dev/null is a file, and so /dev/null/x"),
  ([f"--spm_model_file={__file__}"], "is not a SentencePiece model"),
  (["--spm_model_file=", f"--vocab_file={__file__}"], "[PAD]"),
  (["--runner=DataflowRunner"], "--runner needs --engine=beam"),
  (["--engine=beam"], _BEAM_ERROR),
  (["--output_dir={dataset}"], "already holds a dataset"),
]


def test_bad_input_is_one_sentence(corpus, dataset, tmp_path):
  _, made = dataset
  before = sorted(os.listdir(made))
  (tmp_path / "a.jsonl").write_text('{"text": "ok"}\n{"te')
  cases = []
  for more, message in _REFUSALS:
    more = [x.format(dataset=made) for x in more]
    more = [f"--input_files={tmp_path}/a.jsonl", "--num_workers=1", *more]
    cases.append((_arguments(corpus, tmp_path / "data", *more), message))
  done = many_commands.check_refusals("create_pretraining_data", cases, 9)
  assert not any("while running" in result.err for result in done)
  assert os.listdir(tmp_path) == ["a.jsonl"]
  assert sorted(os.listdir(made)) == before
  assert tfrecords.read_manifest(str(made)).max_seq_length == 64


def test_dynamic_masking_writes_unmasked_records(corpus, tmp_path):
  more = ("--masking=dynamic", "--heldout_share=0.1")
  line = _arguments(corpus, tmp_path, *more)
  (result,) = many_commands.run("create_pretraining_data", [line])
  assert "masked_share_of_tokens" not in result.out
  manifest = tfrecords.read_manifest(str(tmp_path))
  assert manifest.features == tfrecords.unmasked_schema(64)
  assert manifest.max_predictions_per_seq == 10  # 15% of 64.
  assert manifest.settings["dupe_factor"] == 10
  assert manifest.settings["mask_id"] == 4
  assert manifest.settings["special_ids"] == [0, 1, 2, 3, 4]
  assert "label_1_share" not in manifest.split("train").statistics
  assert "heldout" in manifest.splits
  inspect = [f"--input_dir={tmp_path}", "--num_examples=1"]
  ((_, shown, _),) = many_commands.run("inspect_tfrecords", [inspect])
  assert "no masks: masks, order labels" in shown
  assert " 0 to predict" not in shown and "{[MASK]:" in shown
  rows = [line.split() for line in shown.splitlines()]
  table = {row[0]: row[1] for row in rows if len(row) == 3}
  assert 0.4 < float(table["label_1_share"]) < 0.6
  assert 0.14 < float(table["masked_share_of_tokens"]) < 0.17
  assert "records checked: nothing is wrong" in shown


_STOPPED = """
import runpy
from official_albert.tasks.pretraining import data

def stop(*unused):
  raise KeyboardInterrupt

data.build_dataset = stop
program = "official_albert.tools.create_pretraining_data"
runpy.run_module(program, run_name="__main__")
"""


def test_a_stopped_build_says_how_to_resume(corpus, tmp_path):
  """tasks/pretraining/data/restart_test.py resumes it."""
  stopped = many_commands.start("-c", _STOPPED, *_arguments(corpus, tmp_path))
  assert stopped.code == 130, stopped.err
  assert "run the same command again to resume" in stopped.err
  assert "Traceback" not in stopped.err
