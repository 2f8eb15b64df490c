"""Adopts records as the original writes them, and trains on them.

They are those of google-research/albert create_pretraining_data.py
(write_instance_to_example_files).
"""

from __future__ import annotations

import numpy as np
import pytest

from official_albert import tfrecords, tokenization
from official_albert.tasks.pretraining import task as task_lib
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tfrecords import reader
from official_albert.tools import adopt_tfrecords
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
  """[CLS] 5 [MASK] 7 [SEP] 8 9 10 [SEP] _ _ : 6 was masked, 9 is kept."""
  return {
    "input_ids": [2, 5, 4, 7, 3, 8, 9, 10, 3, 0, 0],
    "input_mask": [1] * 9 + [0] * 2,
    "segment_ids": [0] * 5 + [1] * 4 + [0] * 2,
    "token_boundary": [1] * 9 + [0] * 2,
    "masked_lm_positions": [2, 6, 0],
    "masked_lm_ids": [6 + number % 3, 9, 0],
    "masked_lm_weights": np.float32([1.0, 1.0, 0.0]),
    "next_sentence_labels": [number % 2],
    **changes,
  }


def write_as_the_original(path, numbers, **changes):
  """Integers as int64 lists, the weights as floats, an Example a record."""
  record_survey_test.write_examples(
    path, *(_features(number, **changes) for number in numbers)
  )


def write_vocabulary(path):
  """Writes a SentencePiece model in which each of the words is one piece."""
  lines = [" ".join(_WORDS) + " and more text"] * 9
  words = [f"▁{word}" for word in _WORDS]
  path.write_bytes(toy_vocabulary.train(lines, 50, user_defined_symbols=words))


@pytest.fixture
def folder(tmp_path):
  """Three files to train on, one to evaluate on; the model elsewhere."""
  write_vocabulary(tmp_path / "30k-clean.model")
  old = tmp_path / "old"
  old.mkdir()
  for index, numbers in ((0, range(4)), (1, range(4, 6)), (2, [6]), (9, [20])):
    write_as_the_original(old / f"pretrain.tfrecord-{index}", numbers)
  return old


def _inspect(folder):
  line = [f"--input_dir={folder}"]
  (result,) = many_commands.run("inspect_tfrecords", [line])
  assert result.code == 0, result.err
  return result.out


def _adopt(folder, train="012", heldout="9", tokenizer=None):
  model_file = str(folder.parent / "30k-clean.model")
  return adopt_tfrecords.adopt(
    [f"{folder}/pretrain.tfrecord-{i}" for i in train],
    [f"{folder}/pretrain.tfrecord-{i}" for i in heldout],
    tokenizer or tokenization.SentencePieceTokenizer(model_file),
  )


def test_original_records_are_adopted_and_checked(folder):
  common = [
    f"--input_files={folder}/*",
    f"--spm_model_file={folder.parent}/30k-clean.model",
  ]
  refused, done = many_commands.run(
    "adopt_tfrecords",
    [[*common, f"--heldout_files={folder}/{x}"] for x in ("*", "*-9")],
  )
  assert refused.code == 1
  assert "all of --input_files are in --heldout_files" in refused.err
  assert done.code == 0, done.err
  manifest = tfrecords.read_manifest(str(folder))
  assert (manifest.max_seq_length, manifest.max_predictions_per_seq) == (11, 3)
  assert manifest.features == tfrecords.pretraining_schema(_S, 3)
  assert [s.records for s in manifest.splits["train"].shards] == [4, 2, 1]
  assert manifest.splits["heldout"].records == 1
  statistics = manifest.splits["train"].statistics
  assert statistics["label_1_share"] == 3 / 7
  assert statistics["mask_token_share"] == statistics["kept_share"] == 0.5
  assert manifest.settings == {"adopted": True}
  shown = _inspect(folder)
  assert "A: [CLS] tea {[MASK]:rain} stone [SEP]" in shown
  assert "8 records checked" in shown


def test_chinese_records_keep_their_vocabulary(folder):
  path = folder.parent / "vocab_chinese.txt"
  special = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
  path.write_text("\n".join([*special, *"天地玄黄宇宙"]), "utf-8")
  # These ids are where the features have 2, 3 and 4, too.
  tokenizer = tokenization.open_tokenizer(vocab_file=str(path))
  manifest = _adopt(folder, tokenizer=tokenizer)
  assert tfrecords.read_manifest(str(folder)) == manifest
  assert manifest.tokenizer.kind == "wordpiece"
  assert manifest.tokenizer.vocab_size == 11
  assert (folder / "vocab.txt").read_bytes() == path.read_bytes()
  assert not (folder / tfrecords.TOKENIZER_FILE).exists()
  assert "A:[CLS]天{[MASK]:地}玄[SEP]" in _inspect(folder).replace(" ", "")


def test_adopted_records_are_read_and_trained_on(folder):
  manifest = _adopt(folder)
  (batch,) = reader.read_dataset(str(folder), "heldout", 1, training=False)
  for name, values in _features(20).items():
    assert batch[name][0].numpy().tolist() == list(values)
  config = toy_models.config(manifest.tokenizer.vocab_size, 13)
  task = task_lib.PretrainingTask(config, str(folder))
  model = task.build_model()
  for dataset in (task.train_dataset(5, 0).take(2), task.eval_dataset(5)):
    for batch in dataset:
      losses, _ = task.forward(model, batch, False, None)
      assert set(losses) == {"masked_lm", "sentence_order"}
      assert all(np.isfinite(loss) for loss in losses.values())


def test_records_without_order_are_not_trained_for_it(folder):
  for index in "01":
    path = folder / f"pretrain.tfrecord-{index}"
    write_as_the_original(path, range(2), next_sentence_labels=[0])
  assert _adopt(folder, "0", "1").settings["sentence_pair"] == "none"


def test_existing_files_are_not_replaced(folder):
  _adopt(folder)
  with pytest.raises(FileExistsError, match="has a dataset.json already"):
    _adopt(folder)
  (folder / tfrecords.MANIFEST_FILE).unlink()
  other = folder / tfrecords.TOKENIZER_FILE
  other.write_bytes(other.read_bytes() + b"\xa2\x06\x01x")
  with pytest.raises(FileExistsError, match="exists already, but it is not"):
    _adopt(folder)


@pytest.mark.parametrize(
  ("index", "changes", "message"),
  [
    (2, {"segment_ids": [0] * _S}, "-2, record 0 .* segment_ids 0 at pos"),
    (2, {"masked_lm_ids": [1] * 4}, "-2, record 0 .* does not fit the schema"),
    (9, _UNMASKED, "heldout files have nothing to predict"),
  ],
)
def test_bad_records_leave_nothing_behind(folder, index, changes, message):
  before = sorted(folder.iterdir())
  path = folder / f"pretrain.tfrecord-{index}"
  write_as_the_original(path, [0], **changes)
  with pytest.raises(ValueError, match=message):
    _adopt(folder)
  assert sorted(folder.iterdir()) == before


def test_unmasked_records_and_files_of_two_folders_are_refused(folder):
  with pytest.raises(ValueError, match="are in different folders"):
    _adopt(folder, heldout=["9/../../other/x"])
  schema = tfrecords.unmasked_schema(_S)
  path = str(folder / "pretrain.tfrecord-0")
  with tfrecords.ShardWriter(path, schema) as shard:
    features = _features(0, **_UNMASKED)
    shard.write({f.name: features[f.name] for f in schema})
  with pytest.raises(ValueError, match="unmasked records, .*masking=dynamic"):
    _adopt(folder)
