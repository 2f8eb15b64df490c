"""Tests of the record contract and of reading and writing manifests."""

import dataclasses
import json

import pytest

from tfrecords import schemas


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


def test_written_manifest_is_read_back(tmp_path, manifest):
  schemas.write_manifest(str(tmp_path), manifest)
  assert schemas.read_manifest(str(tmp_path)) == manifest
  assert [p.name for p in tmp_path.iterdir()] == ["dataset.json"]
  value = json.loads((tmp_path / "dataset.json").read_text())
  assert value["format_version"] == 1
  assert value["splits"]["train"]["records"] == 5
  assert value["features"][1] == {
    "name": "input_mask",
    "dtype": "int64",
    "shape": [7],
  }


def test_kind_of_the_tokenizer(tmp_path, manifest):
  assert manifest.tokenizer.file == "tokenizer.model"
  other = dataclasses.replace(manifest.tokenizer, kind="wordpiece")
  assert other.file == "vocab.txt"
  schemas.write_manifest(
    str(tmp_path), dataclasses.replace(manifest, tokenizer=other)
  )
  assert schemas.read_manifest(str(tmp_path)).tokenizer == other
  # As it was written before there was a second kind.
  path = tmp_path / "dataset.json"
  value = json.loads(path.read_text())
  del value["tokenizer"]["kind"]
  path.write_text(json.dumps(value))
  assert schemas.read_manifest(str(tmp_path)) == manifest


def test_failed_write_leaves_the_old_manifest(tmp_path, manifest):
  schemas.write_manifest(str(tmp_path), manifest)
  broken = dataclasses.replace(manifest, settings={"x": float("nan")})
  with pytest.raises(ValueError, match="JSON compliant"):
    schemas.write_manifest(str(tmp_path), broken)
  assert schemas.read_manifest(str(tmp_path)) == manifest
  assert [p.name for p in tmp_path.iterdir()] == ["dataset.json"]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda v: v.update(format_version=2), "format_version 2"),
    (lambda v: v.update(colour=1), "'colour'"),
    (lambda v: v.pop("task"), "'task'"),
    (lambda v: v["tokenizer"].update(kind="bpe"), "'bpe' is not a kind of"),
    (
      lambda v: v["splits"]["train"]["shards"][1].update(records=-1),
      "is not a shard of the folder",
    ),
    (
      lambda v: v["splits"]["train"]["shards"][1].update(file="../b"),
      "is not a shard of the folder",
    ),
    (lambda v: v["splits"].update(train=[]), "not a valid manifest"),
  ],
)
def test_wrong_manifest_is_refused(tmp_path, manifest, change, message):
  schemas.write_manifest(str(tmp_path), manifest)
  path = tmp_path / "dataset.json"
  value = json.loads(path.read_text())
  change(value)
  path.write_text(json.dumps(value))
  with pytest.raises(ValueError, match="dataset.json.*" + message):
    schemas.read_manifest(str(tmp_path))


def test_missing_file_and_file_that_is_not_a_manifest(tmp_path):
  with pytest.raises(FileNotFoundError, match="dataset.json does not exist"):
    schemas.read_manifest(str(tmp_path))
  for content in (b"{", b"\xff\xfe", b"", b"[1]"):
    (tmp_path / "dataset.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a valid manifest"):
      schemas.read_manifest(str(tmp_path))


_TEXT = dict.fromkeys(["input_ids", "input_mask", "segment_ids"], "int64 7")
_BOUNDARY, _ORDER = (
  {"token_boundary": "int64 7"},
  {"next_sentence_labels": "int64 1"},
)
_ID = {"example_id": "int64"}
_MASKS = {
  "masked_lm_positions": "int64 2",
  "masked_lm_ids": "int64 2",
  "masked_lm_weights": "float32 2",
}
_SPAN = {
  "p_mask": "float32 7",
  **dict.fromkeys(
    ["start_positions", "end_positions", "is_impossible"], "int64"
  ),
}


@pytest.mark.parametrize(
  "schema, expected",
  [
    (
      schemas.pretraining_schema(7, 2),
      {**_TEXT, **_BOUNDARY, **_MASKS, **_ORDER},
    ),
    (schemas.unmasked_schema(7), {**_TEXT, **_BOUNDARY, **_ORDER}),
    (schemas.classification_schema(7), {**_TEXT, **_ID, "label_ids": "int64"}),
    (schemas.regression_schema(7), {**_TEXT, **_ID, "label_ids": "float32"}),
    (schemas.span_schema(7), {**_TEXT, **_ID, **_SPAN}),
    (
      schemas.multiple_choice_schema(7, 3),
      {**dict.fromkeys(_TEXT, "int64 3 7"), **_ID, "label_ids": "int64"},
    ),
  ],
)
def test_schemas(schema, expected):
  fields = {f.name: " ".join(map(str, (f.dtype, *f.shape))) for f in schema}
  assert fields == expected and list(fields) == list(expected)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
