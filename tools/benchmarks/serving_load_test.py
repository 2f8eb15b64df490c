"""Tests of percentiles and tables of clients, and of a real model."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from tools.benchmarks import serving_load
from tools.testing import toy_peer


def test_percentiles():
  load = serving_load.Load(2, True, [float(x) for x in range(200, 0, -1)], 4.0)
  assert [load.percentile(p) for p in (50, 95, 99)] == [101.0, 191.0, 199.0]
  assert serving_load.Load(1, False, [7.0], 1.0).percentile(99) == 7.0


def test_the_table():
  loads = serving_load.Loads(
    [serving_load.Load(2, True, [10.0, 30.0, 20.0], 0.5)],
    [10.0, 20.0, 10.0],
    [11.0, 21.0, 10.2],
    67,
  )
  lines = serving_load.table(loads).splitlines()
  cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
  assert cells == ["2", "yes", "6.0", "20", "30", "30"]
  assert lines[-1] == (
    "A raw text of 67 tokens takes 11.0 ms, the same request as ids 10.0 ms: "
    "+5.0% in the median round."
  )


def _save(folder: str) -> None:
  """A "model" with the signatures that are asked: a word is a token."""
  spec = tf.TensorSpec([None, None], tf.int32)

  @tf.function(input_signature=[spec] * 3)
  def ids(input_ids, input_mask, segment_ids):
    values = tf.cast(input_ids * input_mask + segment_ids, tf.float32)
    return {"pooled_output": values}

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
  def encode(text):
    words = tf.strings.length(tf.strings.split(text).to_tensor())
    ones = tf.ones_like(words)
    return {**ids(words, ones, ones), "input_ids": words, "input_mask": ones}

  module = tf.Module()
  module.functions = [ids, encode]
  tf.saved_model.save(module, folder, signatures={"ids": ids, "encode": encode})


@pytest.mark.heavy
def test_a_model_is_asked(tmp_path, monkeypatch):
  """With all numbers of clients: most of the time is theirs."""
  _save(str(tmp_path))
  workload = dataclasses.replace(toy_peer.WORKLOAD, model_dir=str(tmp_path))
  loads = serving_load.measure(workload, 1.0)
  assert [(x.clients, x.batched) for x in loads.loads][:3] == [
    (1, False),
    (1, True),
    (2, False),
  ]
  assert all(len(load.milliseconds) > 20 for load in loads.loads)
  assert loads.text_tokens == workload.max_seq_length
  assert len(loads.text_milliseconds) == len(loads.ids_milliseconds) == 15


def test_a_model_that_is_not_there(tmp_path):
  workload = dataclasses.replace(
    toy_peer.WORKLOAD, model_dir=str(tmp_path / "none")
  )
  with pytest.raises(ValueError, match="the clients' program failed"):
    serving_load.measure(workload, 1.0)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
