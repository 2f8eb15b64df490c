"""Tests of crossings between two lanes of versions: this Python, and another.

    OTHER_PYTHON=.venv-other/bin/python .venv/bin/python -m pytest -s \
        tools/lanes_test.py

The programs run as a user runs them, each in a process of its lane. `-s` shows
the measured differences.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import subprocess
import sys
from concurrent import futures
from typing import NamedTuple

import numpy as np
import pytest

from official_albert import runs
from official_albert.testing import toy_task
from official_albert.tools.testing import toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PYTHONS = {"this": sys.executable, "other": os.environ.get("OTHER_PYTHON", "")}
_ENVIRONMENT = {
  **os.environ,
  "CUDA_VISIBLE_DEVICES": "",
  "TF_CPP_MIN_LOG_LEVEL": "3",
}
pytestmark = pytest.mark.skipif(
  not _PYTHONS["other"],
  reason="OTHER_PYTHON does not name a Python of the other lane",
)

# Runs without this package. Writes all outputs of all signatures that take
# texts or ids.
_SERVE = """
import sys
import numpy as np
import tensorflow as tf, tensorflow_text
texts = tf.constant(["The warm [MASK], at 1,922.", "a (dark) [MASK]", "[MASK]"])
ids = tf.constant([[2, 20, 21, 22, 3], [2, 23, 3, 0, 0]])
values = {
  "text": texts, "text_a": texts, "text_b": texts[::-1], "input_ids": ids,
  "input_mask": tf.cast(ids > 0, tf.int32), "segment_ids": ids % 2,
  "masked_lm_positions": tf.constant([[1, 3], [1, 0]]),
}
for folder, path in zip(sys.argv[1::2], sys.argv[2::2]):
  outputs = {}
  for name, signature in tf.saved_model.load(folder).signatures.items():
    wanted = signature.structured_input_signature[1]
    if "examples" not in wanted:
      found = signature(**{key: values[key] for key in wanted})
      for key, x in found.items():
        x = x.numpy()
        # An array of objects would be a pickle.
        outputs[f"{name}/{key}"] = x.astype("S") if x.dtype == object else x
  np.savez(path, **outputs)
"""


class Lane(NamedTuple):
  """What the programs wrote with the Python of one lane.

  `folder` has vocabulary, records, a run of 20 updates with a checkpoint at 10
  too, a classifier, and the exports of both. `served` are the outputs of the
  exports of each lane, served by this one.
  """

  folder: pathlib.Path
  served: dict[str, dict[str, np.ndarray]]


def call(name, *arguments, **settings):
  """Runs a Python in the lane `name`; returns its output."""
  result = subprocess.run(
    [_PYTHONS[name], *map(str, arguments)],
    env=_ENVIRONMENT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    **{"cwd": _ROOT, **settings},
  )
  assert result.returncode == 0, result.stdout
  return result.stdout


_PRETRAINING = (
  "run_pretraining --input_dir={lane}/records --model_dir={run} "
  "--albert_config_file={text}/albert_config.json --num_train_steps=20 "
  "--num_warmup_steps=2 --learning_rate=0.01 --train_batch_size=8 "
  "--eval_batch_size=16 --steps_per_loop=5 --save_checkpoints_steps=10 "
  "--eval_steps=10"
)
# From the text to two exports.
_COMMANDS = (
  "train_vocabulary --vocab_size=45 --input_files={text}/corpus.txt "
  "--output_dir={lane}/vocabulary",
  "create_pretraining_data --input_files={text}/corpus.txt --num_workers=2 "
  "--output_dir={lane}/records --max_seq_length=24 --max_predictions_per_seq=4 "
  "--spm_model_file={lane}/vocabulary/tokenizer.model --dupe_factor=2 "
  "--heldout_share=0.2 --num_shards=3",
  _PRETRAINING,
  "run_finetuning --task=text_classification --init_checkpoint={run} "
  "--output_dir={lane}/classifier --train_file={text}/train.tsv "
  "--dev_file={text}/dev.tsv --text_column=review --label_column=mood "
  "--max_seq_length=24 --train_batch_size=8 --num_train_steps=6 --eval_steps=6",
  "export_saved_model --model_dir={run} --export_dir={lane}/fill",
  "export_saved_model --model_dir={lane}/classifier "
  "--export_dir={lane}/classify",
)


def run_program(name, command, lane, run):
  """Runs a command with the folders of a lane and a run; returns its output."""
  line = command.format(lane=lane, text=lane.parent, run=run).split()
  return call(name, "-m", f"tools.{line[0]}", *line[1:])


def make_folder(name, folder):
  for command in _COMMANDS:
    run_program(name, command, folder, folder / "run")


@pytest.fixture(scope="session", name="lanes")
def fixture_lanes(tmp_path_factory):
  """Returns a `Lane` for each of `_PYTHONS`."""
  text = tmp_path_factory.mktemp("lanes")
  toy_data.write_corpus(str(text / "corpus.txt"), 60)
  for split, count in (("train", 40), ("dev", 11)):
    toy_data.write_table(str(text / f"{split}.tsv"), count)
  config = toy_runs.config(
    45, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1
  )
  config.to_json_file(str(text / "albert_config.json"))
  folders = {name: text / name for name in _PYTHONS}
  with futures.ThreadPoolExecutor() as pool:
    list(pool.map(make_folder, *zip(*folders.items())))
  exports = list(itertools.product(folders, ("fill", "classify")))

  def serve(name, folder):
    arguments = [
      path
      for owner, export in exports
      for path in (folders[owner] / export, folder / f"{owner}-{export}.npz")
    ]
    # -I removes the current folder, and so this package, from the path.
    call(name, "-I", "-c", _SERVE, *arguments, cwd=folder)
    served = {owner: {} for owner in folders}
    for owner, export in exports:
      outputs = np.load(folder / f"{owner}-{export}.npz")
      served[owner].update({f"{export}/{n}": outputs[n] for n in outputs.files})
    return Lane(folder, served)

  with futures.ThreadPoolExecutor() as pool:
    lanes = dict(zip(folders, pool.map(serve, *zip(*folders.items()))))
  versions = {
    name: runs.read_run(str(folder / "run"))["versions"]["tensorflow"]
    for name, folder in folders.items()
  }
  assert len(set(versions.values())) == 2, (
    f"two Pythons of one lane: {versions}"
  )
  return lanes


def difference(found, expected):
  """Returns the largest relative difference of two checkpoints.

  That of a variable is the largest difference of a value, divided by the
  largest absolute value. Biases of keys are left out: they shift all scores of
  a query alike, which softmax ignores, so their gradients are rounding errors.
  """
  assert found.keys() == expected.keys()
  worst = 0.0
  for name, value in expected.items():
    if value.dtype.kind != "f" or not value.any():
      np.testing.assert_array_equal(found[name], value, err_msg=name)
    elif "key/bias" not in name:
      far = np.abs(found[name] - value).max() / np.abs(value).max()
      worst = max(worst, float(far))
  return worst


def test_vocabulary_and_records_are_equal_to_the_byte(lanes):
  names = [
    sorted(
      path.relative_to(lane.folder)
      for part in ("vocabulary", "records")
      for path in (lane.folder / part).iterdir()
    )
    for lane in lanes.values()
  ]
  assert names[0] == names[1]
  assert sum(name.suffix == ".tfrecord" for name in names[0]) == 4
  for name in names[0]:
    this, other = ((lane.folder / name).read_bytes() for lane in lanes.values())
    assert this == other, name


def test_runs_of_one_seed_agree_after_ten_steps(lanes):
  """Initial weights, dropout masks and batches are those of the seed."""
  this, other = (
    toy_task.saved(lane.folder / "run", 10) for lane in lanes.values()
  )
  found = difference(this, other)
  print(f"\n10 steps on each lane: weights and moments differ by {found:.1e}")
  # Measured: 3.9e-5.
  assert found < 3e-4


@pytest.fixture(scope="session", name="continued")
def fixture_continued(lanes, tmp_path_factory):
  """Returns, for each lane, its run continued on the other one: folder, log."""
  folder = tmp_path_factory.mktemp("continued")

  def resume(start, end):
    lane, run = lanes[start], folder / start
    shutil.copytree(lane.folder / "run", run)
    for path in run.glob("model.ckpt-20.*"):
      path.unlink()
    return run, run_program(end, _PRETRAINING, lane.folder, run)

  with futures.ThreadPoolExecutor() as pool:
    return dict(zip(lanes, pool.map(resume, lanes, reversed(lanes))))


@pytest.mark.parametrize("start", _PYTHONS)
def test_a_run_continues_on_the_other_lane(lanes, continued, start):
  lane, (run, output) = lanes[start], continued[start]
  assert f"resumed from {run}/model.ckpt-10" in output
  versions = [
    runs.read_run(str(folder))["versions"]["tensorflow"]
    for folder in (lane.folder / "run", run)
  ]
  assert versions[0] != versions[1]
  assert (
    f"warning: tensorflow was '{versions[0]}' at the last start and is now "
    f"'{versions[1]}'; the resumed run is not the same run.\n"
  ) in output
  assert output.count("warning:") == 1
  saved = [toy_task.saved(x, 20) for x in (run, lane.folder / "run")]
  found = difference(*saved)
  print(
    f"\n10 steps with TensorFlow {versions[0]} and 10 with {versions[1]}: "
    f"weights and moments differ from 20 with {versions[0]} by {found:.1e}"
  )
  # Measured: 1.6e-6, and 1.2e-6 in the other direction.
  assert found < 2e-5


@pytest.mark.parametrize("start, end", [("this", "other"), ("other", "this")])
def test_exports_are_served_by_the_other_lane(lanes, start, end):
  expected, found = (lanes[name].served[start] for name in (start, end))
  assert found.keys() == expected.keys()
  names = {name.rpartition("/")[0] for name in expected}
  assert names >= {"fill/encode", "fill/ids", "classify/classify"}
  worst = 0.0
  for name, value in expected.items():
    if value.dtype.kind == "f":
      worst = max(worst, float(np.abs(found[name] - value).max()))
    else:  # Ids, tokens, labels.
      np.testing.assert_array_equal(found[name], value, err_msg=name)
  print(f"\nexported by {start}, served by {end}: differs by {worst:.1e}")
  # Of logits and hidden states up to a few units. Measured: 3.6e-7.
  assert worst < 5e-6
