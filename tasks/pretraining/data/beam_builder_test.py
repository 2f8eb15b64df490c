"""Tests that Beam builds what the local engine builds, byte by byte."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import pathlib

import numpy as np
import pytest

from official_albert.testing import toy_vocabulary
from tasks.pretraining.data import (
  build_worker,
  dataset_builder,
  documents,
  example_settings,
)

if __name__ == "__main__" and not importlib.util.find_spec("apache_beam"):
  raise SystemExit(0)  # Bazel runs this file itself, where no one skips it.
pytest.importorskip("apache_beam")

from tasks.pretraining.data import beam_builder

_WORDS = "tea rain stone river cloud amber slowly under every green".split()
_MULTI_PROCESSING = (
  "--direct_running_mode=multi_processing --direct_num_workers=2"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  """A tokenizer and 37 documents, in one file and in three."""
  folder = tmp_path_factory.mktemp("corpus")
  rng = np.random.default_rng(0)
  texts = [
    "\n".join(
      " ".join(rng.choice(_WORDS, size=rng.integers(2, 9)))
      for _ in range(rng.integers(2, 20))
    )
    for _ in range(37)
  ]
  texts[5] = "\u200b"  # No token, hence no number.
  (folder / "all.txt").write_text("\n\n".join(texts))
  for name, first, end in (("a", 0, 9), ("b", 9, 31), ("c", 31, 37)):
    (folder / f"part-{name}.txt").write_text("\n\n".join(texts[first:end]))
  (folder / "toy.model").write_bytes(toy_vocabulary.train(_WORDS * 5, 45))
  return folder


def _settings(corpus, output_dir, files="part-*.txt", **changes):
  settings = build_worker.BuildSettings(
    input_files=f"{corpus}/{files}",
    output_dir=str(output_dir),
    spm_model_file=f"{corpus}/toy.model",
    examples=example_settings.ExampleSettings(
      max_seq_length=29, max_predictions_per_seq=5
    ),
    dupe_factor=3,
    heldout_share=0.2,
    num_shards=5,
    num_heldout_shards=2,
  )
  return dataclasses.replace(settings, **changes)


def _hashes(folder):
  return {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in pathlib.Path(folder).iterdir()
  }


@pytest.fixture
def small_elements(monkeypatch):
  """Makes many chunks of a file and buckets of a split."""
  monkeypatch.setattr(documents, "_BLOCK_BYTES", 1000)
  monkeypatch.setattr(beam_builder, "_BUCKET_BYTES", 3000)


def _assert_same(corpus, tmp_path, options="", **changes):
  local = _settings(corpus, tmp_path / "local", **changes)
  expected = dataset_builder.build_dataset(local)
  settings = dataclasses.replace(local, output_dir=str(tmp_path / "beam"))
  manifest = beam_builder.build_dataset_with_beam(
    settings, "DirectRunner", options
  )
  assert manifest == expected
  assert _hashes(tmp_path / "beam") == _hashes(tmp_path / "local")


@pytest.mark.parametrize(
  "changes",
  [
    {"files": "all.txt"},
    {"files": "part-*.txt"},
    {"heldout_share": 0.0, "dupe_factor": 1},
    # More shards than examples: some hold nothing.
    {"num_shards": 150, "dupe_factor": 1},
    {"examples": example_settings.ExampleSettings(sentence_pair="none")},
    {"examples": example_settings.ExampleSettings(masking="dynamic")},
  ],
)
def test_same_bytes_in_memory(corpus, tmp_path, small_elements, changes):
  _assert_same(corpus, tmp_path, **changes)


@pytest.mark.parametrize("files", ["all.txt", "part-*.txt"])
def test_same_bytes_with_processes(corpus, tmp_path, files):
  _assert_same(corpus, tmp_path, _MULTI_PROCESSING, files=files)


def test_equal_keys_keep_their_order(
  corpus, tmp_path, small_elements, monkeypatch
):
  make = build_worker.make_examples

  def few_keys(*arguments):
    made = make(*arguments)
    return made._replace(keys=made.keys >> 61 << 61)

  monkeypatch.setattr(build_worker, "make_examples", few_keys)
  _assert_same(corpus, tmp_path)


def test_number_of_buckets_grows_with_the_text_and_its_duplicates():
  settings = build_worker.BuildSettings("a", "b", "c", dupe_factor=3)
  plan = beam_builder.Plan(settings, "there", b"")
  # (file, chunk, documents, tokens): 3 x 2^28 bytes of records.
  chunks = [(0, 1, 1, 1 << 20), (0, 0, 100, (1 << 25) - (1 << 20))]
  firsts, heldout, buckets = beam_builder._put_in_order(chunks, plan)
  assert firsts == {(0, 0): 0, (0, 1): 100}
  assert len(heldout) == 1
  assert buckets == {"train": 16, "heldout": 1}


def test_storage_with_addresses(corpus, tmp_path):
  # TensorFlow's own names of local files stand for gs:// here.
  local = _settings(corpus, tmp_path / "local")
  dataset_builder.build_dataset(local)
  folder = tmp_path / "there"
  settings = dataclasses.replace(local, output_dir=f"file://{folder}")
  beam_builder.build_dataset_with_beam(settings)
  assert _hashes(folder) == _hashes(tmp_path / "local")
  with pytest.raises(ValueError, match="already holds a dataset"):
    beam_builder.build_dataset_with_beam(settings)
  more = dataclasses.replace(settings, num_shards=3, overwrite=True)
  beam_builder.build_dataset_with_beam(more)
  assert len(list(folder.glob("train-*"))) == 3


def test_failure_on_storage_with_addresses_leaves_no_shard(corpus, tmp_path):
  folder, path = tmp_path / "there", tmp_path / "a.txt"
  path.write_text("tea\n\nrain\n\nstone")
  settings = _settings(corpus, f"file://{folder}", input_files=str(path))
  with pytest.raises(ValueError, match="documents give no example"):
    beam_builder.build_dataset_with_beam(settings)
  assert os.listdir(folder) == []


def _examples(**changes):
  return {"examples": example_settings.ExampleSettings(**changes)}


@pytest.mark.parametrize(
  ("text", "changes", "message"),
  [
    (b"", {}, r"^.*a\.txt holds no document: use a file with text"),
    ("\u200b".encode(), {}, "^the input files have no text"),
    (b"tea", {"heldout_share": 0.0}, "^the train documents give no example"),
    (b"tea rain\nriver", {}, "^the number of documents is 1, too few to hold"),
    (b"tea\nrain \xff", {}, r"^.*a\.txt, line 2, is not UTF-8 .*documents\.$"),
    (b"tea", _examples(sentence_pair="nsp"), "cannot read: use --engine=local"),
    (b"tea", _examples(masking="compat"), "masking compat take segments from"),
    (b"tea", {"spm_model_file": "nowhere"}, "no SentencePiece model file"),
    (b"tea", {"input_files": "nowhere*"}, "no input file matches"),
  ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
  corpus, tmp_path, text, changes, message
):
  path = tmp_path / "a.txt"
  path.write_bytes(text)
  settings = _settings(corpus, tmp_path / "data", input_files=str(path))
  with pytest.raises((ValueError, OSError), match=message):
    beam_builder.build_dataset_with_beam(
      dataclasses.replace(settings, **changes)
    )
  assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
  ("runner", "options", "message"),
  [
    (
      "DirectRunner",
      "--direct_running_mode=multi_threading",
      "multi_threading silently loses records",
    ),
    ("DataflowRunner", "--project=p", "DataflowRunner cannot read .*gs://"),
  ],
)
def test_runner_that_cannot_do_it_is_refused(
  corpus, tmp_path, runner, options, message
):
  with pytest.raises(ValueError, match=message):
    beam_builder.build_dataset_with_beam(
      _settings(corpus, tmp_path / "data"), runner, options
    )
  assert os.listdir(tmp_path) == []


def test_skipped_documents_are_those_of_the_local_engine(corpus, tmp_path):
  lines = ['{"text": "tea rain. Stone river."}', "not this"] * 4
  for name in "ab":
    (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
  _assert_same(
    corpus,
    tmp_path,
    input_files=f"{tmp_path}/*.jsonl",
    reading=documents.ReaderSettings(skip_bad_documents=True),
  )


def test_bad_input_found_by_another_process(corpus, tmp_path):
  path = tmp_path / "a.jsonl"
  path.write_text('{"text": "tea rain"}\n{"te')
  settings = _settings(corpus, tmp_path / "data", input_files=str(path))
  with pytest.raises(ValueError, match=r"^.*a\.jsonl, line 2, is not JSON"):
    beam_builder.build_dataset_with_beam(
      settings, "DirectRunner", _MULTI_PROCESSING
    )
  assert os.listdir(tmp_path) == ["a.jsonl"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
