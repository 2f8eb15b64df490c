"""Tests that every program works in a bucket as it does on a disk.

TensorFlow's own gs:// client talks to a fake Cloud Storage. The programs run in
an empty folder, which is empty afterwards.
"""

from __future__ import annotations

import os
import pathlib
import re

import numpy as np
import pytest

from official_albert import runs
from official_albert.tasks import common
from official_albert.testing import fake_gcs, toy_task
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_BUCKET = "gs://bucket/tr y"  # A space has to be quoted.


# Programs and their flags, in which ROOT is a folder or an address.
_VOCABULARY = (
  "train_vocabulary",
  "--input_files=ROOT/corpus.txt --output_dir=ROOT/vocabulary --vocab_size=45",
)
_RECORDS = (
  "create_pretraining_data",
  "--input_files=ROOT/corpus*.txt --output_dir=ROOT/records "
  "--spm_model_file=ROOT/vocabulary/tokenizer.model --max_seq_length=24 "
  "--max_predictions_per_seq=4 --dupe_factor=2 --heldout_share=0.2 "
  "--num_shards=3 --num_workers=2",
)
_PRETRAINING = (
  "run_pretraining",
  "--input_dir=ROOT/records --model_dir=ROOT/run "
  "--albert_config_file=ROOT/albert_config.json --train_batch_size=8 "
  "--eval_batch_size=16 --learning_rate=0.01 --num_train_steps=6 "
  "--num_warmup_steps=2 --steps_per_loop=2 --eval_steps=3 "
  "--save_checkpoints_steps=3",
)
_FINETUNING = (
  "run_finetuning",
  "--task=text_classification --init_checkpoint=ROOT/run "
  "--output_dir=ROOT/classifier --train_file=ROOT/train.tsv "
  "--dev_file=ROOT/dev.tsv --test_file=ROOT/test.tsv --text_column=review "
  "--label_column=mood --max_seq_length=24 --train_batch_size=8 "
  "--num_train_steps=6 --eval_steps=3",
)
_EXPORT = (
  "export_saved_model",
  "--model_dir=ROOT/classifier --export_dir=ROOT/served/1",
)
_SERVED = (
  "predict",
  "--model_dir=ROOT/served/1 --input_file=ROOT/test.tsv "
  "--output_file=ROOT/served.tsv --columns=text=review",
)
# From text to answers.
_WAY = (_VOCABULARY, _RECORDS, _PRETRAINING, _FINETUNING, _EXPORT, _SERVED)
_OTHERS = (
  ("inspect_tfrecords", "--input_dir=ROOT/records"),
  (
    "run_pretraining",
    f"{_PRETRAINING[1]} --mode=evaluate --metrics_file=ROOT/metrics.json",
  ),
  ("export_saved_model", "--model_dir=ROOT/run --export_dir=ROOT/fill"),
  (
    "predict",
    "--model_dir=ROOT/classifier --input_file=ROOT/test.tsv "
    "--output_file=ROOT/predicted.tsv",
  ),
  ("convert_checkpoint", "--to=hf --input=ROOT/run --output=ROOT/hf"),
  ("convert_checkpoint", "--to=tf1 --input=ROOT/hf --output=ROOT/tf1"),
  (
    "publish_hub_module",
    "--input=ROOT/run --output_dir=ROOT/hub --handle=team/albert-toy "
    "--license=apache-2.0 --seq_length=24",
  ),
  ("inspect_model", "--model=ROOT/run --text=warm --output_dir=ROOT/model"),
)


def write_inputs(folder: pathlib.Path) -> None:
  folder.mkdir()
  toy_data.write_corpus(str(folder / "corpus.txt"))
  for split, count in (("train", 40), ("dev", 11), ("test", 5)):
    label = "" if split == "test" else "mood"
    toy_data.write_table(str(folder / f"{split}.tsv"), count, label)
  config = toy_runs.config(45, hidden_dropout_prob=0.2)
  config.to_json_file(str(folder / "albert_config.json"))


@pytest.fixture(name="gcs")
def fixture_gcs():
  with fake_gcs.FakeGcs() as gcs:
    yield gcs


@pytest.fixture(name="empty")
def fixture_empty(tmp_path):
  """Returns an empty folder, which has to be empty at the end."""
  path = tmp_path / "empty"
  path.mkdir()
  yield path
  # AutoGraph imports what it writes to TMPDIR.
  assert not {*os.listdir(path)} - {"__pycache__"}


def run(gcs, folder, commands, root):
  """Runs commands; `folder` is their working folder and that of TMPDIR."""
  variables = {**gcs.environment, "TMPDIR": str(folder)}
  for program, line in commands:
    flags = [flag.replace("ROOT", str(root)) for flag in line.split()]
    many_commands.run(program, [flags], variables, str(folder))


_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# These hold other times or absolute paths, or protocol buffers in no fixed
# order.
_MAY_DIFFER = re.compile(
  r"events\.out\.tfevents|metrics\.jsonl|curves\.png"
  r"|layer_similarity\.png"  # Its legend has the path of the model.
  r"|saved_model\.pb|fingerprint\.pb|\.tar\.gz|\.safetensors"
  r"|checkpoint$|\.index|\.data-"
)


def assert_same_files(local, found, root):
  """Compares two folders; of checkpoints, the values.

  `found` is a copy of what is in the bucket, whose address `root` its files
  name instead of `local`.
  """
  names = [
    {
      re.sub("tfevents.*", "tfevents", str(path.relative_to(folder)))
      for path in folder.rglob("*")
      # It has speeds and times.
      if path.is_file() and path.name != "report.json"
    }
    for folder in (local, found)
  ]
  assert names[0] == names[1]
  for name in names[0]:
    if not _MAY_DIFFER.search(name):
      contents = [
        _TIME.sub(b"", (folder / name).read_bytes())
        for folder in (local, found)
      ]
      contents[0] = contents[0].replace(str(local).encode(), root.encode())
      assert contents[0] == contents[1], name
    if name.endswith("/checkpoint"):
      step = runs.list_checkpoints(str((found / name).parent))[-1]
      folders = (local / name).parent, (found / name).parent
      number = int(step.rpartition("-")[2])
      np.testing.assert_equal(*(toy_task.saved(x, number) for x in folders))


def test_from_text_to_served_answers(gcs, empty, tmp_path):
  local, bucket = tmp_path / "local", tmp_path / "bucket"
  root = "gs://bucket/sh ort"
  write_inputs(local)
  gcs.upload(local, root)
  run(gcs, empty, _WAY, root)
  gcs.download(root, bucket)
  served, predicted = (
    common.read_probabilities(str(bucket / name))
    for name in ("served.tsv", "classifier/predictions/test.probabilities.tsv")
  )
  assert served.labels == predicted.labels == ("bad", "good")
  assert len(served.ids) == 5
  np.testing.assert_allclose(served.values, predicted.values, atol=1e-6)


@pytest.mark.heavy
def test_all_programs_write_the_same_files(gcs, empty, tmp_path):
  """The bucket makes faults, after which requests are made again."""
  local, bucket = tmp_path / "local", tmp_path / "bucket"
  write_inputs(local)
  gcs.upload(local, _BUCKET)
  gcs.fault_every = 13
  run(gcs, empty, _WAY + _OTHERS, local)
  run(gcs, empty, _WAY + _OTHERS, _BUCKET)
  gcs.fault_every = 0
  assert sum(request.status == 503 for request in gcs.requests) > 15
  gcs.download(_BUCKET, bucket)
  assert_same_files(local, bucket, _BUCKET)
