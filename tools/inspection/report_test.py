"""Tests of names, sentences, and the numbers of a configuration."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert import modeling
from tools.inspection import model_size
from tools.inspection import report as inspection

_BASE = modeling.AlbertConfig.from_preset("albert_base_v2")


def test_figures_use_the_given_sizes():
  found = inspection.figures("name", _BASE, 5, 3, 128, 20)
  assert json.loads(json.dumps(found)) == found
  assert found["model"] == "name"
  assert modeling.AlbertConfig.from_dict(found["config"]) == _BASE
  assert found["parameters"]["encoder"] == 11_683_584
  assert found["flops_per_token"]["max_predictions_per_seq"] == 20
  memory = found["memory"]
  for key, recompute in (("training", False), ("training_recomputed", True)):
    for precision in ("float32", "mixed_bfloat16"):
      setting = model_size.Setting(5, 128, 20, precision, recompute)
      expected = model_size.training_bytes(_BASE, setting)
      assert memory[key][precision] == expected
  setting = model_size.Setting(3, 128)
  assert memory["inference"]["float32"] == (
    model_size.inference_bytes(_BASE, setting)
  )


@pytest.mark.parametrize(
  "positions, predictions", [(3, 1), (128, 19), (512, 76)]
)
def test_default_sizes(positions, predictions):
  config = dataclasses.replace(_BASE, max_position_embeddings=positions)
  found = inspection.figures("name", config)
  assert found["memory"]["max_seq_length"] == positions
  flops = found["flops_per_token"]
  assert flops["max_seq_length"] == positions
  assert flops["max_predictions_per_seq"] == predictions


def _cells(text, first):
  (line,) = [x for x in text.splitlines() if x.startswith(first)]
  return line[len(first) :].split()


def test_described_figures():
  values = inspection.figures("a model", _BASE, 8, 2)
  text = inspection.describe(values)
  assert text.startswith(
    "== a model ==\n\n12 layers of 1 group, sharing all; V 30,000, E 128, "
    "H 768, I 3,072, 12 heads\n"
  )
  assert _cells(text, "word embeddings") == ["3,840,000", "32.5%"]
  assert _cells(text, "encoder") == ["11,683,584", "98.9%"]
  assert _cells(text, "with the heads of") == [
    "pretraining",
    "11,813,810",
    "100.0%",
  ]
  assert _cells(text, "forward, encoder") == ["188.9"]
  assert "training, MiB, batch 8 x 512 " in text
  assert "inference, MiB, batch 2 x 512 " in text
  moments = values["memory"]["training"]["float32"]["moments"] / 2**20
  assert _cells(text, "m and v") == [f"{moments:,.0f}"] * 2
  assert values["memory"]["note"] in text
  assert "degrees" not in text
  assert max(map(len, text.splitlines())) <= 100


def test_described_findings():
  config = modeling.AlbertConfig(
    num_hidden_groups=3, num_hidden_layers=6, sharing="ffn"
  )
  values = inspection.figures("x", config)
  numbers = (2, 1.25, 0.5, 0.125, 0.0625, 0.75)
  keys = ("distance", "entropy", "cls_share", "sep_share", "self_share")
  values.update(
    layers=[{"layer": 1, "l2_distance": 12.3456, "degrees": 78.905}],
    attention=[{"layer": 1, "heads": [dict(zip(("head", *keys), numbers))]}],
    sentences={"count": 1, "tokens": 1234, "cut": 0},
  )
  text = inspection.describe(values)
  assert "6 layers of 3 groups, sharing ffn; V 30,000" in text
  assert "\nmeans over 1,234 tokens of 1 sentence\n" in text
  assert (
    "\n\nlayer: output against input      L2  degrees\n"
    "1                            12.346    78.91\n\n"
    "attention        distance   nats  [CLS]  [SEP]  itself\n"
    "layer 1, head 2     1.250  0.500  0.125  0.062   0.750"
  ) in text
  values["sentences"] = {"count": 3, "tokens": 9, "cut": 2}
  text = inspection.describe(values)
  assert "9 tokens of 3 sentences, 2 of which were truncated\n" in text


def test_names_are_short_and_unique():
  names = inspection.names_of
  assert names(["x/a/", "x/b.tar.gz", "a/best"]) == ["a", "b.tar.gz", "a/best"]
  assert names(["x/run/model.ckpt-200"]) == ["run/model.ckpt-200"]
  assert names(["x/a", "y/a", "y/b"]) == ["x/a", "y/a", "b"]


def test_texts_precede_files(tmp_path):
  lines = tmp_path / "a.txt"
  lines.write_text("one\n\n two \nthree\n")
  documents = tmp_path / "b.jsonl"
  documents.write_text(json.dumps({"text": "four\nfive"}) + "\n")
  read = inspection.read_sentences(["zero"], f"{lines},{documents}")
  assert read == ["zero", "one", "two", "three", "four", "five"]
  with pytest.raises(OSError, match="no input file matches"):
    inspection.read_sentences([], f"{tmp_path}/none-*.txt")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
