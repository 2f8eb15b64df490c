"""Runs the tool as its users do, on records as the original writes them.

They are those of google-research/albert create_pretraining_data.py
(write_instance_to_example_files).
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from official_albert import tfrecords
from official_albert.tasks.pretraining import task as task_lib
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tfrecords import reader
from official_albert.tools.records import record_survey_test
from official_albert.tools.testing import many_commands

_WORDS = "tea rain stone river cloud amber slowly under every green".split()
_S = 11
_UNMASKED = {
  "masked_lm_positions": [0] * 3,
  "masked_lm_ids": [0] * 3,
  "masked_lm_weights": np.zeros(3, np.float32),
  "input_ids": [2, 5, 6, 7, 3, 8, 9, 10, 3, 0, 0],
}


def _features(number, **changes):
  """[CLS] 5 [MASK] 7 [SEP] 8 9 10 [SEP] _ _: 5 was 8, 6 is masked, 9 kept."""
  features = {
    "input_ids": [2, 5, 4, 7, 3, 8, 9, 10, 3, 0, 0],
    "token_boundary": [1] * 9 + [0] * 2,
    "masked_lm_positions": [1, 2, 6],
    "masked_lm_ids": [8, 6 + number % 3, 9],
    "masked_lm_weights": np.ones(3, np.float32),
  }
  return record_survey_test.record(number, **{**features, **changes})


def _write(path, numbers, **changes):
  """Integers as int64 lists, the weights as floats, an Example a record."""
  record_survey_test.write_examples(
    path, *(_features(number, **changes) for number in numbers)
  )


@pytest.fixture
def old(tmp_path):
  """Three files to train on, one to evaluate on; the model elsewhere."""
  lines = [" ".join(_WORDS) + " and more text"] * 9
  words = [f"▁{word}" for word in _WORDS]
  model = toy_vocabulary.train(lines, 50, user_defined_symbols=words)
  (tmp_path / "30k-clean.model").write_bytes(model)
  (tmp_path / "old").mkdir()
  for index, numbers in ((0, range(4)), (1, range(4, 6)), (2, [6]), (9, [20])):
    _write(tmp_path / "old" / f"pretrain.tfrecord-{index}", numbers)
  return tmp_path / "old"


def _adoption(folder, train="pre*", heldout="*-9"):
  return [
    f"--input_files={folder}/{train}",
    f"--heldout_files={folder}/{heldout}",
    f"--spm_model_file={folder.parent}/30k-clean.model",
  ]


def _run(*lines):
  return [out for _, out, _ in many_commands.run("inspect_tfrecords", lines)]


def _table(text):
  lines = text.splitlines()
  (start,) = (n for n, line in enumerate(lines) if line.startswith(" " * 9))
  rows = (line.split() for line in lines[start + 1 :])
  return {row[0]: row[1] for row in rows if len(row) >= 2}


def test_original_records_are_shown_adopted_and_trained_on(old):
  single = [*_adoption(old)[::2], "--num_examples=0"]
  only, adopted, shown = _run(
    single, _adoption(old), [f"--input_dir={old}", "--num_examples=2"]
  )
  assert _table(only)["instances"] == "8"
  assert f"--input_dir={old} can be run" in adopted
  manifest = tfrecords.read_manifest(str(old))
  assert (manifest.max_seq_length, manifest.max_predictions_per_seq) == (11, 3)
  assert manifest.features == tfrecords.pretraining_schema(_S, 3)
  assert [s.records for s in manifest.splits["train"].shards] == [4, 2, 1]
  assert manifest.splits["heldout"].records == 1
  statistics = manifest.splits["train"].statistics
  assert statistics["label_1_share"] == 3 / 7
  for name in ("mask_token_share", "kept_share", "random_share"):
    assert statistics[name] == 1 / 3
  assert manifest.settings == {"adopted": True}
  assert shown.startswith(
    "To predict: {[MASK]:masked}, {random:replaced}, {=kept}\n"
    "\n== train: 3 files ==\n\n"
    "Example 0: 9 of 11 tokens, 3 to predict, next_sentence_labels 0 "
    "(in order)\n"
    "A: [CLS] {tea:river} {[MASK]:rain} stone [SEP]\n"
    "B: river {=cloud} amber [SEP]\n\n"
    "Example 1: 9 of 11 tokens, 3 to predict, next_sentence_labels 1 (swapped "
    "or random)\n"
    "A: [CLS] {tea:river} {[MASK]:stone} stone [SEP]\n"
  )
  assert "Example 2" not in shown
  assert _table(shown)["padding_share"] == "0.1818"
  assert "\n8 records checked: nothing is wrong" in shown

  (batch,) = reader.read_dataset(str(old), "heldout", 1, training=False)
  for name, values in _features(20).items():
    assert batch[name][0].numpy().tolist() == list(values)
  config = toy_models.config(manifest.tokenizer.vocab_size, 13)
  task = task_lib.PretrainingTask(config, str(old))
  for batch in task.eval_dataset(5):
    losses, _ = task.forward(task.build_model(), batch, False, None)
    assert set(losses) == {"masked_lm", "sentence_order"}
    assert all(np.isfinite(loss) for loss in losses.values())


def test_chinese_records_keep_their_vocabulary_and_need_no_order(old):
  for path in old.iterdir():
    _write(path, range(2), next_sentence_labels=[0])
  path = old.parent / "vocab_chinese.txt"
  special = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
  path.write_text("\n".join([*special, *"天地玄黄宇宙"]), "utf-8")
  # These ids are where the features have 2, 3 and 4, too.
  _, shown = _run(
    [*_adoption(old)[:2], f"--vocab_file={path}", "--keep_accents"],
    [f"--input_dir={old}"],
  )
  manifest = tfrecords.read_manifest(str(old))
  assert manifest.settings["sentence_pair"] == "none"
  tokenizer = manifest.tokenizer
  assert (tokenizer.kind, tokenizer.vocab_size) == ("wordpiece", 11)
  assert tokenizer.keep_accents and tokenizer.rules.lower_case
  assert (old / "vocab.txt").read_bytes() == path.read_bytes()
  assert not (old / "tokenizer.model").exists()
  assert "A:[CLS]{天:黄}{[MASK]:地}玄[SEP]" in shown.replace(" ", "")


def test_what_cannot_be_adopted_leaves_nothing_behind(old):
  other = old.parent / "other"
  shutil.copytree(old, other)
  model = (old.parent / "30k-clean.model").read_bytes()
  cases = [(_adoption(old, heldout="../other/*"), "into one folder")]
  for name, index, changes, message in (
    ("segment", 2, {"segment_ids": [0] * _S}, "-2, record 0 (counted from 0)"),
    ("unmasked", 9, _UNMASKED, "heldout files have nothing to predict"),
    ("all", None, {}, "--heldout_files has all of --input_files"),
    ("dataset.json", None, {}, "dataset.json exists already"),
    ("tokenizer.model", None, {}, "tokenizer.model exists already"),
  ):
    folder = old.parent / f"{name}.case"
    shutil.copytree(old, folder)
    if index is not None:
      _write(folder / f"pretrain.tfrecord-{index}", [0], **changes)
    elif name != "all":
      # Another model with the same pieces: an unknown field at the end.
      (folder / name).write_bytes(model + b"\xa2\x06\x01x")
    heldout = "pre*" if name == "all" else "*-9"
    cases.append((_adoption(folder, heldout=heldout), message))
  cases.append((_adoption(old, heldout="*-9:2"), "leave out its weight"))
  before = sorted(old.parent.rglob("*"))
  many_commands.check_refusals("inspect_tfrecords", cases)
  assert sorted(old.parent.rglob("*")) == before


def test_damaged_files(old):
  _run(_adoption(old))
  folders = {name: old.parent / name for name in ("damaged", "other", "count")}
  for folder in folders.values():
    shutil.copytree(old, folder)
  path = folders["damaged"] / "pretrain.tfrecord-0"
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  model = folders["other"] / "tokenizer.model"
  model.write_bytes(model.read_bytes() + b"\xa2\x06\x01x")
  manifest = json.loads((old / "dataset.json").read_text())
  manifest["splits"]["train"]["shards"][0]["records"] += 1
  (folders["count"] / "dataset.json").write_text(json.dumps(manifest))
  given = f"--input_dir={old}"
  cases = (
    ([f"--input_dir={path.parent}"], f"{path} is damaged after its first 2 re"),
    ([given, f"--input_files={old}/x"], "give either --input_dir or"),
    ([given, f"--heldout_files={old}/x"], "--heldout_files is for --input_fil"),
    ([given, f"--vocab_file={old}/x"], "--vocab_file is for --input_files"),
    ([f"--input_dir={model.parent}"], "tokenizer.model is not the tokenizer"),
    ([f"--input_dir={folders['count']}"], "7 records, but dataset.json says 8"),
  )
  many_commands.check_refusals("inspect_tfrecords", cases)
