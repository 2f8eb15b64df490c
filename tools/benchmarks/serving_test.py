"""Tests of the comparison of served models."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import types

import pytest
import tensorflow as tf

from tools.benchmarks import comparison, serving
from tools.benchmarks.peers import protocol
from tools.testing import toy_runs

YES = ("yes", "no")


def _result(name, rates, ratios=(), answer=0.25):
  return comparison.Result(
    name, list(rates), list(ratios), 3 * 2**29, [answer], about="as it is"
  )


def test_rows_have_milliseconds():
  own = _result(comparison.OURS, [1000.0, 2000.0, 500.0])
  assert serving.latency_row(own, 100) == (
    *("official_albert", "100.0", "50.0 to 200.0", "1", "1.50 GiB"),
    "as it is",
  )
  other = _result("hf_eager", [500.0], [2.0, 4.0, 1.5])
  assert serving.latency_row(other, 100)[1:4] == (
    *("200.0", "200.0 to 200.0", "2.00 (1.50 to 4.00)"),
  )
  failed = comparison.Result("hf_half", failure="no memory")
  assert "failed: no memory" in serving.latency_row(failed, 100)


def test_answers_must_agree():
  ours = _result(comparison.OURS, [1.0])
  near = _result("hf_eager", [1.0], answer=0.2501)
  failed = comparison.Result("hf_half", failure="no memory")
  serving.check_answers([ours, near, failed], 1e-3)
  for answer in (0.252, float("nan")):
    with pytest.raises(ValueError, match="hf_sdpa computes something else"):
      serving.check_answers(
        [ours, near, _result("hf_sdpa", [1.0], answer=answer)], 1e-3
      )


def _load_toy():
  """Returns a model with the measured signatures; a word is a token."""
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

  return types.SimpleNamespace(signatures={"ids": ids, "encode": encode})


def test_clients_and_text(monkeypatch):
  monkeypatch.setattr(serving, "_CLIENTS", (1, 3))
  monkeypatch.setattr(serving, "_CLIENTS_SECONDS", 0.1)
  model, workload = _load_toy(), protocol.Workload(3, 14, vocab_size=97)
  _, _, *rows = serving.measure_clients(model, workload).splitlines()
  cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  assert [row[:2] for row in cells] == [
    *(["1", "no"], ["1", "yes"], ["3", "no"], ["3", "yes"])
  ]
  for row in cells:
    assert float(row[2]) > 20
    assert int(row[3]) <= int(row[4]) <= int(row[5])
  text = serving.measure_text(model, 14)
  assert text.startswith("A raw text of 14 tokens takes ")


def test_answers_are_timed(monkeypatch):
  monkeypatch.setattr(serving, "_CLIENTS_SECONDS", 0.1)
  times, seconds = serving._answer(lambda: time.sleep(0.02), 2)
  assert len(times) > 3 and 20 <= min(times) <= max(times) <= 1e3 * seconds
  assert 0.1 <= seconds < sum(times) / 1e3  # Both clients at the same time.


@pytest.mark.heavy
def test_everything_without_peers(tmp_path, monkeypatch, capsys):
  # The peers' environments take minutes to create.
  monkeypatch.setattr(
    comparison, "make_environment", lambda *unused: sys.executable
  )
  monkeypatch.setattr(serving, "peers_of", lambda precision: [])
  monkeypatch.setattr(serving, "_BATCH_SIZES", (3,))
  monkeypatch.setattr(serving, "_ALL_BATCH_SIZES", (2,))
  monkeypatch.setattr(serving, "_LENGTHS", (9,))
  monkeypatch.setattr(serving, "_CLIENTS_SECONDS", 0.1)
  out = tmp_path / "out"
  out.mkdir()
  toy_runs.write_tokenizer(str(tmp_path))
  serving.run(
    *("albert_tiny", 11, "float32", 2, 2),
    *(f"{tmp_path}/tokenizer.model", str(tmp_path), str(out)),
  )
  assert sorted(os.listdir(tmp_path / "out")) == [
    "serving-float32.json",
    "serving-float32.md",
    "serving-float32.png",
  ]
  report = (tmp_path / "out" / "serving-float32.md").read_text()
  printed = capsys.readouterr().out
  assert printed.startswith("albert_tiny, 3 x 11 tokens, float32, ")
  # The program has printed the machine.
  assert report.split("\n\n", 1)[1].split() == printed.split()
  assert report.count("\n| official_albert | ") == 1
  # Five numbers of clients, each with and without batches.
  lines = report.splitlines()
  clients = [
    x for x in lines if x.endswith(" |") and x.split(" | ")[1].strip() in YES
  ]
  assert len(clients) == 10
  # The last word may have several pieces.
  tokens = int(re.search(r"A raw text of (\d+) tokens takes ", report)[1])
  assert 11 <= tokens < 30
  points = json.loads((tmp_path / "out" / "serving-float32.json").read_text())
  assert [(point["axis"], point["value"]) for point in points] == [
    ("batch size, S 11", 2),
    ("length, B 8", 9),
  ]
  assert all(rate > 0 for p in points for rate in p["tokens_per_second"])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
