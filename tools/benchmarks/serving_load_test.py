"""Tests of percentiles and tables of clients, and of a real model."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from tools.benchmarks import serving_load
from tools.testing import toy_peer


def test_rows_have_rates_and_percentiles():
  times = [float(x) for x in range(200, 0, -1)]
  cells = serving_load.row(2, True, times, 4.0)
  assert cells == ("2", "yes", "50.0", "101", "191", "199")
  assert serving_load.row(1, False, [7.0], 0.5)[1:] == ("no", "2.0", *"777")


def test_raw_text_is_compared_within_a_round():
  ids, text = [10.0, 20.0, 10.0], [11.0, 21.0, 10.2]
  assert serving_load.compare_text(ids, text, 67) == (
    "A raw text of 67 tokens takes 11.0 ms, the same request as ids 10.0 ms: "
    "+5.0% in the median round."
  )


def _save(folder: str) -> None:
  """Saves a model with the signatures that are measured: a word is a token."""
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
def test_a_model_is_measured(tmp_path):
  _save(str(tmp_path))
  workload = dataclasses.replace(toy_peer.WORKLOAD, model_dir=str(tmp_path))
  _, _, *rows, _, last = serving_load.measure(workload, 1.0).splitlines()
  cells = [[cell.strip() for cell in row.split("|")] for row in rows]
  assert [row[1:3] for row in cells[:3]] == [["1", "no"], ["1", "yes"]] + [
    ["2", "no"]
  ]
  assert len(cells) == 10 and all(float(row[3]) > 20 for row in cells)
  assert last.startswith(
    f"A raw text of {workload.max_seq_length} tokens takes"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
