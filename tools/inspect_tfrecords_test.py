"""Runs the tool as its users do, on records made here."""

from __future__ import annotations

import json
import shutil

import pytest

from official_albert import tfrecords, tokenization
from official_albert.tools import adopt_tfrecords, adopt_tfrecords_test
from official_albert.tools.testing import many_commands


def _run(*lines):
  return many_commands.run("inspect_tfrecords", lines)


@pytest.fixture
def folder(tmp_path):
  """Two shards of three and one record, a tokenizer, a manifest."""
  model = tmp_path / "tokenizer.model"
  adopt_tfrecords_test.write_vocabulary(model)
  paths = [str(tmp_path / tfrecords.shard_name("train", i, 2)) for i in (0, 1)]
  for path, count in zip(paths, (3, 1)):
    adopt_tfrecords_test.write_as_the_original(path, range(count))
  tokenizer = tokenization.SentencePieceTokenizer(str(model))
  adopt_tfrecords.adopt(paths, paths[:1], tokenizer)
  manifest = json.loads((tmp_path / "dataset.json").read_text())
  del manifest["splits"]["heldout"]
  manifest["splits"]["train"]["statistics"] = {"documents": 3}
  (tmp_path / "dataset.json").write_text(json.dumps(manifest))
  return tmp_path


def _table(text):
  lines = text.splitlines()
  (start,) = (n for n, line in enumerate(lines) if line.startswith(" " * 9))
  rows = (line.split() for line in lines[start + 1 :])
  return {row[0]: row[1] for row in rows if len(row) == 2}


def test_examples_and_statistics(folder):
  given = [f"--input_dir={folder}", "--num_examples=2"]
  single = [f"--input_files={folder}/train-00000*", "--num_examples=1"]
  done, one = _run(given, single)
  assert done.code == 0, done.err
  assert done.out.startswith(
    "To predict: {[MASK]:masked}, {random:replaced}, {=kept}\n"
    "\n== train: 2 files ==\n\n"
    "Example 0: 9 of 11 tokens, 2 to predict, next_sentence_labels 0 "
    "(in order)\n"
    "A: [CLS] tea {[MASK]:rain} stone [SEP]\n"
    "B: river {=cloud} amber [SEP]\n"
    "text A: tea rain stone\n"
    "text B: river cloud amber\n\n"
    "Example 1: 9 of 11 tokens, 2 to predict, next_sentence_labels 1 (swapped "
    "or random)\n"
    "A: [CLS] tea {[MASK]:stone} stone [SEP]\n"
  )
  assert "Example 2" not in done.out
  table = _table(done.out)
  assert table["documents"] == "3"  # Only the manifest knows.
  assert table["instances"] == "4"
  assert table["padding_share"] == "0.1818"
  assert table["label_1_share"] == "0.2500"
  assert "\n4 records checked: nothing is wrong" in done.out
  assert _table(one.out)["instances"] == "3"


def test_unchecked_and_damaged_files(folder):
  damaged = folder / "damaged"
  shutil.copytree(folder, damaged)
  path = damaged / tfrecords.shard_name("train", 0, 2)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  manifest = json.loads((folder / "dataset.json").read_text())
  manifest["splits"]["train"]["statistics"]["instances"] = 77
  (folder / "dataset.json").write_text(json.dumps(manifest))
  # Another model with the same pieces: an unknown field at the end.
  model = (folder / "tokenizer.model").read_bytes()
  (folder / "b").write_bytes(model + b"\xa2\x06\x01x")
  given = f"--input_dir={folder}"
  unchecked, *refused = _run(
    [given, "--num_examples=1", "--nocheck"],
    [f"--input_dir={damaged}"],
    [given, f"--input_files={folder}/x"],
    [given, f"--spm_model_file={folder}/b"],
  )
  # Without a check, the manifest is trusted.
  assert unchecked.code == 0, unchecked.err
  assert _table(unchecked.out) == {"documents": "3", "instances": "77"}
  assert "checked" not in unchecked.out
  messages = [
    f"inspect_tfrecords: error: {path} is damaged after its first 1 records",
    "give either --input_dir or",
    "b is not the tokenizer",
  ]
  for result, message in zip(refused, messages, strict=True):
    assert result.code == 1 and message in result.err.splitlines()[-1]
  assert not any(result.out for result in refused[1:])
