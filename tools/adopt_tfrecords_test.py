"""Records as the original writes them: read, adopted, trained on.

And the other way: a parser as the original declares its own reads ours. The
declarations are those of google-research/albert create_pretraining_data.py
(write_instance_to_example_files) and run_pretraining.py (input_fn_builder).
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfrecords
from official_albert import modeling, tokenization
from official_albert.testing import toy_vocabulary
from tasks import pretraining
from tools import adopt_tfrecords
from tools import records as records_lib

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_WORDS = "tea rain stone river cloud amber slowly under every green".split()
_S, _P = 11, 3


@pytest.fixture(scope="module")
def model():
  file = toy_vocabulary.train(
    [" ".join(_WORDS) + " and more text"] * 9,
    50,
    user_defined_symbols=[f"▁{word}" for word in _WORDS],
  )
  return file


def _features(number, label=None):
  """[CLS] 5 [MASK] 7 [SEP] 8 9 10 [SEP] _ _ : 6 was masked, 9 is kept."""
  return {
    "input_ids": [2, 5, 4, 7, 3, 8, 9, 10, 3, 0, 0],
    "input_mask": [1] * 9 + [0] * 2,
    "segment_ids": [0] * 5 + [1] * 4 + [0] * 2,
    "token_boundary": [1] * 9 + [0] * 2,
    "masked_lm_positions": [2, 6, 0],
    "masked_lm_ids": [6 + number % 3, 9, 0],
    "masked_lm_weights": [1.0, 1.0, 0.0],
    "next_sentence_labels": [number % 2 if label is None else label],
  }


def _write_as_the_original(path, numbers, **changes):
  """Integers as int64 lists, the weights as floats, an Example a record."""
  with tf.io.TFRecordWriter(str(path)) as file:
    for number in numbers:
      features = {}
      for name, values in {**_features(number), **changes}.items():
        if name == "masked_lm_weights":
          features[name] = tf.train.Feature(
            float_list=tf.train.FloatList(value=values)
          )
        else:
          features[name] = tf.train.Feature(
            int64_list=tf.train.Int64List(value=values)
          )
      example = tf.train.Example(features=tf.train.Features(feature=features))
      file.write(example.SerializeToString())


@pytest.fixture
def folder(tmp_path, model):
  """Three files to train on, one to evaluate on; the model elsewhere."""
  (tmp_path / "30k-clean.model").write_bytes(model)
  old = tmp_path / "old"
  old.mkdir()
  for index, numbers in enumerate((range(4), range(4, 6), range(6, 7))):
    _write_as_the_original(old / f"pretrain.tfrecord-{index}", numbers)
  _write_as_the_original(old / "pretrain.tfrecord-9", range(20, 22))
  return old


def _run(program, *arguments):
  return subprocess.run(
    [sys.executable, "-m", f"tools.{program}", *map(str, arguments)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def _adopt(folder, train="012", heldout="9", tokenizer=None):
  tokenizer = tokenizer or tokenization.SentencePieceTokenizer(
    str(folder.parent / "30k-clean.model")
  )

  class Line:
    def show(self, *unused):
      pass

  return adopt_tfrecords.adopt(
    [f"{folder}/pretrain.tfrecord-{i}" for i in train],
    [f"{folder}/pretrain.tfrecord-{i}" for i in heldout],
    tokenizer,
    lambda name, split: records_lib.checked_records.survey(
      name, split, tokenizer, Line()
    ),
  )


def test_original_records_are_inspected_adopted_and_checked(folder):
  model = f"--spm_model_file={folder.parent}/30k-clean.model"
  done = _run("inspect_tfrecords", f"--input_files={folder}/*", model)
  assert done.returncode == 0, done.stderr
  assert "A: [CLS] tea {[MASK]:rain} stone [SEP]" in done.stdout
  assert "9 records checked" in done.stdout

  done = _run(
    "adopt_tfrecords",
    f"--input_files={folder}/*",
    f"--heldout_files={folder}/*-9",
    model,
  )
  assert done.returncode == 0, done.stderr
  manifest = tfrecords.read_manifest(str(folder))
  assert (manifest.max_seq_length, manifest.max_predictions_per_seq) == (11, 3)
  assert manifest.features == tfrecords.pretraining_schema(_S, _P)
  assert [s.records for s in manifest.splits["train"].shards] == [4, 2, 1]
  assert manifest.splits["heldout"].records == 2
  statistics = manifest.splits["train"].statistics
  assert statistics["label_1_share"] == 3 / 7
  assert statistics["mask_token_share"] == statistics["kept_share"] == 0.5

  done = _run("inspect_tfrecords", f"--input_dir={folder}")
  assert done.returncode == 0, done.stderr


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
  done = _run("inspect_tfrecords", f"--input_dir={folder}")
  assert done.returncode == 0, done.stderr
  assert "A:[CLS]天{[MASK]:地}玄[SEP]" in done.stdout.replace(" ", "")
  (folder / tfrecords.MANIFEST_FILE).unlink()
  (folder / "vocab.txt").write_text("\n".join([*special, "天"]), "utf-8")
  with pytest.raises(FileExistsError, match="vocab.txt is there already, but"):
    _adopt(folder, tokenizer=tokenizer)


def test_adopted_records_are_trained_on(folder):
  _adopt(folder)
  config = modeling.AlbertConfig(
    vocab_size=tfrecords.read_manifest(str(folder)).tokenizer.vocab_size,
    embedding_size=3,
    hidden_size=4,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=5,
    max_position_embeddings=13,
  )
  task = pretraining.PretrainingTask(config, str(folder))
  model = task.build_model()
  for dataset in (task.train_dataset(5, 0).take(2), task.eval_dataset(5)):
    for batch in dataset:
      losses, _ = task.forward(model, batch, False, None)
      assert set(losses) == {"masked_lm", "sentence_order"}
      assert all(np.isfinite(loss) for loss in losses.values())


def test_our_reader_reads_records_of_the_original(folder):
  _adopt(folder)
  (batch,) = tfrecords.read_dataset(
    str(folder), "heldout", 2, shuffle=False, repeat=False
  )
  for row, number in enumerate((20, 21)):
    for name, values in _features(number).items():
      assert batch[name][row].numpy().tolist() == values


def test_a_parser_of_the_original_reads_ours(tmp_path):
  path = str(tmp_path / "a")
  with tfrecords.ShardWriter(
    path, tfrecords.pretraining_schema(_S, _P)
  ) as shard:
    for number in range(3):
      features = _features(number)
      weights = np.float32(features["masked_lm_weights"])
      shard.write({**features, "masked_lm_weights": weights})
  spec = {
    "input_ids": tf.io.FixedLenFeature([_S], tf.int64),
    "input_mask": tf.io.FixedLenFeature([_S], tf.int64),
    "segment_ids": tf.io.FixedLenFeature([_S], tf.int64),
    "token_boundary": tf.io.FixedLenFeature([_S], tf.int64),
    "masked_lm_positions": tf.io.FixedLenFeature([_P], tf.int64),
    "masked_lm_ids": tf.io.FixedLenFeature([_P], tf.int64),
    "masked_lm_weights": tf.io.FixedLenFeature([_P], tf.float32),
    "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
  }
  records = list(tf.data.TFRecordDataset(path))
  assert len(records) == 3
  for number, record in enumerate(records):
    parsed = tf.io.parse_single_example(record, spec)
    for name, values in _features(number).items():
      assert parsed[name].numpy().tolist() == values
    # No feature that the original does not write.
    example = tf.train.Example.FromString(record.numpy())
    assert set(example.features.feature) == set(spec)


def test_records_without_order_are_not_trained_for_it(folder):
  for index in "01":
    _write_as_the_original(
      folder / f"pretrain.tfrecord-{index}", range(2), next_sentence_labels=[0]
    )
  manifest = _adopt(folder, "0", "1")
  assert manifest.settings["sentence_pair"] == "none"
  assert "sentence_pair" not in _adopt_again(folder).settings


def _adopt_again(folder):
  (folder / tfrecords.MANIFEST_FILE).unlink()
  return _adopt(folder)


def test_existing_files_are_not_replaced(folder):
  _adopt(folder)
  with pytest.raises(FileExistsError, match="has a dataset.json already"):
    _adopt(folder)
  (folder / tfrecords.MANIFEST_FILE).unlink()
  other = folder / tfrecords.TOKENIZER_FILE
  other.write_bytes(other.read_bytes() + b"\xa2\x06\x01x")
  with pytest.raises(FileExistsError, match="is there already, but it is not"):
    _adopt(folder)


def test_bad_records_leave_nothing_behind(folder):
  before = sorted(folder.iterdir())
  _write_as_the_original(
    folder / "pretrain.tfrecord-2", [0], segment_ids=[0] * _S
  )
  with pytest.raises(ValueError, match="-2, record 0 .* segment_ids 0 at pos"):
    _adopt(folder)
  _write_as_the_original(
    folder / "pretrain.tfrecord-2", [0], masked_lm_ids=[1] * 4
  )
  with pytest.raises(ValueError, match="-2, record 0 .* has 4 values of int64"):
    _adopt(folder)
  assert sorted(folder.iterdir()) == before


def test_records_with_nothing_to_predict(folder):
  nothing = dict(
    masked_lm_positions=[0] * 3,
    masked_lm_ids=[0] * 3,
    masked_lm_weights=[0.0] * 3,
    input_ids=[2, 5, 6, 7, 3, 8, 9, 10, 3, 0, 0],
  )
  _write_as_the_original(folder / "pretrain.tfrecord-9", [0], **nothing)
  with pytest.raises(ValueError, match="heldout files have nothing to predict"):
    _adopt(folder)
  schema = tuple(
    feature
    for feature in tfrecords.pretraining_schema(_S, _P)
    if not feature.name.startswith("masked_lm_")
  )
  path = str(folder / "pretrain.tfrecord-0")
  with tfrecords.ShardWriter(path, schema) as shard:
    shard.write({f.name: {**_features(0), **nothing}[f.name] for f in schema})
  assert records_lib.record_survey.infer_schema(path) == schema
  with pytest.raises(ValueError, match="unmasked records, .*masking=dynamic"):
    _adopt(folder)


def test_files_of_two_folders(folder):
  other = folder.parent / "other"
  other.mkdir()
  with pytest.raises(ValueError, match="are in different folders"):
    _adopt(folder, heldout=["9/../../other/x"])


def test_no_file_to_train_on_and_no_tokenizer(folder):
  done = _run(
    "adopt_tfrecords",
    f"--input_files={folder}/*",
    f"--heldout_files={folder}/*",
    f"--spm_model_file={folder.parent}/30k-clean.model",
  )
  assert done.returncode == 1
  assert "all of --input_files are in --heldout_files" in done.stderr
  done = _run(
    "adopt_tfrecords",
    f"--input_files={folder}/*",
    f"--heldout_files={folder}/*-9",
  )
  assert done.returncode == 1
  assert "give either spm_model_file" in done.stderr


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
