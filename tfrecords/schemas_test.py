"""Tests of manifests, of the schemas, and of the bytes of records."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official_albert.tfrecords import schemas, writer


@pytest.fixture
def manifest():
  return schemas.Manifest(
    task="pretraining",
    max_seq_length=7,
    max_predictions_per_seq=2,
    features=schemas.pretraining_schema(7, 2),
    tokenizer=schemas.TokenizerInfo("ab" * 32, 97, True),
    settings={"ngram": 3, "masked_lm_prob": 0.15, "sentence_pair": "sop"},
    random_seed=5,
    splits={
      "train": schemas.Split(
        (schemas.Shard("a.tfrecord", 3, 30), schemas.Shard("b", 2, 20)),
        {"instances": 5, "padding_share": 0.25},
      )
    },
  )


@pytest.mark.parametrize(
  ("kind", "file"),
  [("sentencepiece", "tokenizer.model"), ("wordpiece", "vocab.txt")],
)
def test_written_manifest_is_read_back(tmp_path, manifest, kind, file):
  tokenizer = dataclasses.replace(manifest.tokenizer, kind=kind)
  assert tokenizer.file == file
  manifest = dataclasses.replace(manifest, tokenizer=tokenizer)
  schemas.write_manifest(str(tmp_path), manifest)
  assert schemas.read_manifest(str(tmp_path)) == manifest
  assert [p.name for p in tmp_path.iterdir()] == ["dataset.json"]
  value = json.loads((tmp_path / "dataset.json").read_text())
  assert value["format_version"] == 1
  assert value["splits"]["train"]["records"] == 5
  mask = {"name": "input_mask", "dtype": "int64", "shape": [7]}
  assert value["features"][1] == mask


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda v: v.update(format_version=2), "'format_version' is 2, but must"),
    (lambda v: v.pop("task"), "has no 'task'.*use a folder"),
    (lambda v: v["features"][2].update(shape=["7"]), "'features.2.shape.0' is"),
    (lambda v: v["features"][2].update(shape=[8]), "features are not those of"),
    (lambda v: v["features"].pop(), "features are not those of pretraining"),
    (lambda v: v["features"][2].update(shape=[-7]), "the shape is .-7"),
    (lambda v: v["features"][2].update(shape=[10**9]), "from 0 to 65,536 val"),
    (lambda v: v["features"][2].update(dtype="text"), "dtype' is 'text', but"),
    (
      lambda v: v["splits"]["train"]["shards"][1].update(file="../b"),
      "is not a shard of the folder",
    ),
    (lambda v: v["splits"].update(train=[]), "'splits.train' is .*an object"),
  ],
)
def test_wrong_manifest_is_refused(tmp_path, manifest, change, message):
  with pytest.raises(FileNotFoundError, match="dataset.json does not exist"):
    schemas.read_manifest(str(tmp_path))
  schemas.write_manifest(str(tmp_path), manifest)
  path = tmp_path / "dataset.json"
  value = json.loads(path.read_text())
  change(value)
  path.write_text(json.dumps(value))
  with pytest.raises(ValueError, match="dataset.json.*" + message):
    schemas.read_manifest(str(tmp_path))


_SCHEMA = (
  schemas.Feature("ids", "int64", (5,)),
  schemas.Feature("a_matrix", "int64", (2, 3)),
  schemas.Feature("weights", "float32", (3,)),
  schemas.Feature("nothing", "int64", (0,)),
)


def _features(ids):
  num_records = len(ids)
  rng = np.random.default_rng(3)
  return {
    "ids": np.asarray(ids),
    "a_matrix": rng.integers(0, 2, (num_records, 2, 3)).astype(np.int8),
    "weights": rng.random((num_records, 3)).astype(np.float32),
    "nothing": np.zeros((num_records, 0), np.int32),
  }


def _reference(features, row):
  """The same record by way of tf.train.Example."""
  example = tf.train.Example()
  for name, value in features.items():
    values = value[row].ravel().tolist()
    feature = example.features.feature[name]
    if value.dtype.kind == "f":
      feature.float_list.value.extend(values)
    else:
      feature.int64_list.value[:] = values
      feature.int64_list.SetInParent()
  return example.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
  "ids",
  [
    [[0, 1, 2, 3, 127]],  # One byte each.
    [[0, 127, 128, 16383, 16384], [29999, 5, 300, 0, 1]],
    [[2**21 - 1, 2**21, 2**31 - 1, 0, 2**28]],
    [[2**31, 2**62, 2**63 - 1, 0, 1]],
    [[-1, -(2**63), 5, 0, 300], [1, 2, 3, 4, 5]],
  ],
)
def test_same_bytes_as_tensorflow(ids):
  features = _features(np.array(ids, np.int64))
  records = writer.encode_examples(_SCHEMA, features)
  assert records == [_reference(features, row) for row in range(len(ids))]
  assert writer.encode_examples(_SCHEMA, _features(np.zeros((0, 5), int))) == []
  # Lengths of more than one byte.
  schema = (schemas.Feature("ids", "int64", (9001,)),)
  long = {"ids": np.random.default_rng(0).integers(0, 30000, (1, 9001))}
  assert writer.encode_examples(schema, long) == [_reference(long, 0)]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"ids": None}, "only the schema or only a record has ids"),
    ({"extra": np.zeros((2, 1))}, "only a record has extra"),
    ({"ids": np.zeros((2, 4), int)}, r"'ids' must .*\[5\] .*int64\[2, 4\]"),
    ({"ids": np.zeros((2, 5))}, r"'ids' must be int64.*not float64\[2, 5\]"),
    ({"ids": np.zeros((2, 5), np.uint64)}, "must be int64.*not uint64"),
    ({"weights": np.zeros((2, 3))}, "must be float32.*not float64"),
  ],
)
def test_record_that_does_not_fit_is_refused(change, message):
  features = {**_features(np.zeros((2, 5), np.int64)), **change}
  features = {k: v for k, v in features.items() if v is not None}
  with pytest.raises(ValueError, match=message):
    writer.encode_examples(_SCHEMA, features)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_written_records_are_read_back(tmp_path, scheme):
  path = tmp_path / "train-00000-of-00001.tfrecord"
  features = _features([[1, 2, 3, 500, 70000], [4, 5, 6, 7, 8]])
  records = writer.encode_examples(_SCHEMA, features)
  shard = writer.write_shard(f"{scheme}{path}", iter(records))
  assert shard == schemas.Shard(path.name, 2, path.stat().st_size)
  # A failed write leaves the old file.
  with pytest.raises(ZeroDivisionError):
    writer.write_shard(f"{scheme}{path}", (b"x" * (1 // x) for x in (1, 0)))
  found = [r.numpy() for r in tf.data.TFRecordDataset(str(path))]
  assert found == records
  assert [p.name for p in tmp_path.iterdir()] == [path.name]
  empty = writer.write_shard(f"{scheme}{tmp_path}/empty", [])
  assert empty == schemas.Shard("empty", 0, 0)
