"""Tests of this project's own program: its batch, losses and updates."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from tasks import pretraining
from tools.benchmarks.peers import official_albert_step as peer_official_albert
from tools.benchmarks.peers import process as peer_process
from tools.testing import toy_peer


@pytest.mark.heavy
def test_it_trains_and_multiplies():
  with peer_process.PeerProcess(
    sys.executable,
    "tools.benchmarks.peers.official_albert_step",
    toy_peer.WORKLOAD,
  ) as process:
    timed = process.run(30)
    assert process.ready.losses[0] == pytest.approx(
      toy_peer.PRETRAINING_ENTROPY, abs=0.2
    )
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert process.product_flops(3) > 1e6
    ready = process.ready
  assert 0 < ready.trace_seconds < ready.build_seconds
  assert ready.about == "run_pretraining's step, adamw"


def test_an_unknown_variant_is_refused():
  with pytest.raises(ValueError, match="unknown variant 'sgd'; there is lamb"):
    peer_official_albert.build(
      dataclasses.replace(toy_peer.WORKLOAD, variant="sgd")
    )


def test_batch():
  batch = peer_official_albert.random_batch(3, 13, 2, 97, seed=1)
  shapes = {name: tuple(x.shape) for name, x in batch.items()}
  assert shapes == {
    "input_ids": (3, 13),
    "input_mask": (3, 13),
    "segment_ids": (3, 13),
    "masked_lm_positions": (3, 2),
    "masked_lm_ids": (3, 2),
    "masked_lm_weights": (3, 2),
    "next_sentence_labels": (3, 1),
  }
  assert np.min(batch["input_ids"]) >= 5 and np.max(batch["input_ids"]) < 97
  assert np.max(batch["masked_lm_positions"]) < 13
  assert np.all(batch["input_mask"]) and np.all(batch["masked_lm_weights"])


def test_losses():
  config = modeling.AlbertConfig(
    vocab_size=97,
    embedding_size=5,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
  )
  model = pretraining.AlbertForPretraining(config)
  batch = peer_official_albert.random_batch(3, 13, 2, 97, seed=1)
  task = peer_official_albert.MeasuredTask()
  totals, metrics = task.forward(model, batch, True, tf.constant([1, 2]))
  weights = task.loss_weights(batch)
  assert metrics == {}
  losses = {name: float(totals[name] / weights[name]) for name in totals}
  # A model that knows nothing yet guesses: ln 97, ln 2.
  assert losses["masked_lm"] == pytest.approx(np.log(97), abs=0.2)
  assert losses["sentence_order"] == pytest.approx(np.log(2), abs=0.1)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
