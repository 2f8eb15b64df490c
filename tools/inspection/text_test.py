"""The words and numbers that a person reads."""

from __future__ import annotations

import pytest

from official_albert import modeling
from tools.inspection import summary as inspection
from tools.inspection import text as inspection_text


def _values():
  config = modeling.AlbertConfig.from_preset("albert_base_v2")
  return inspection.figures("a model", config, inspection.Load(8, 2))


def _cells(text, first):
  (line,) = [x for x in text.splitlines() if x.startswith(first)]
  return line[len(first) :].split()


def test_figures():
  values = _values()
  text = inspection_text.describe(values)
  assert text.startswith(
    "== a model ==\n\n12 layers of 1 group, sharing all; V 30,000, E 128, "
    "H 768, I 3,072, 12 heads\n"
  )
  assert _cells(text, "word embeddings") == ["3,840,000", "32.5%"]
  assert _cells(text, "encoder") == ["11,683,584", "98.9%"]
  assert _cells(text, "with the heads") == (
    "of pretraining 11,813,810 100.0%".split()
  )
  assert _cells(text, "forward, encoder")[0] == "188.9"
  assert "training, MiB, batch 8 x 512 " in text
  assert "inference, MiB, batch 2 x 512 " in text
  moments = values["memory"]["training"]["float32"]["moments"] / 2**20
  assert _cells(text, "m and v") == [f"{moments:,.0f}"] * 2
  assert values["memory"]["note"] in text
  assert "degrees" not in text
  assert max(map(len, text.splitlines())) <= 100


def test_findings_of_sentences():
  values = _values()
  head = dict(
    head=2,
    distance=1.25,
    entropy=0.5,
    cls_share=0.125,
    sep_share=0.0625,
    self_share=0.75,
  )
  values.update(
    layers=[{"layer": 1, "l2_distance": 12.3456, "degrees": 78.905}],
    attention=[{"layer": 1, "heads": [head]}],
    sentences={"count": 1, "tokens": 1234, "cut": 0},
  )
  text = inspection_text.describe(values)
  assert "\nmeans over 1,234 tokens of 1 sentence\n" in text
  assert (
    "\n\nlayer: output against input      L2  degrees\n"
    "1                            12.346    78.91\n\n"
    "attention        distance   nats  [CLS]  [SEP]  itself\n"
    "layer 1, head 2     1.250  0.500  0.125  0.062   0.750"
  ) in text
  values["sentences"] = {"count": 3, "tokens": 9, "cut": 2}
  text = inspection_text.describe(values)
  assert "9 tokens of 3 sentences, 2 of which were truncated\n" in text


def test_groups_and_sharing_are_shown():
  config = modeling.AlbertConfig(
    num_hidden_groups=3, num_hidden_layers=6, sharing="ffn"
  )
  text = inspection_text.describe(
    inspection.figures("x", config, inspection.Load())
  )
  assert "6 layers of 3 groups, sharing ffn; V 30,000" in text


def test_a_table_is_aligned():
  assert inspection_text.table(["a", "b"], [["ccc", "1"], ["d", "22"]]) == (
    "a     b\nccc   1\nd    22"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
