"""Tests of the program that answers from a SavedModel."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import tensorflow as tf

from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import request as peer_request
from tools.benchmarks.peers import (
  serving_official_albert as peer_serving_official_albert,
)
from tools.testing import toy_peer

_WORKLOAD = dataclasses.replace(toy_peer.WORKLOAD, warmup_steps=2)


def _save(folder: str) -> None:
  """A "model" whose pooled output is known: the ids, and 100 a segment."""
  spec = tf.TensorSpec([None, None], tf.int32)

  @tf.function(input_signature=[spec, spec, spec])
  def ids(input_ids, input_mask, segment_ids):
    values = input_ids * input_mask + 100 * segment_ids
    return {"pooled_output": tf.cast(values, tf.float32)}

  tf.saved_model.save(tf.Module(), folder, signatures={"ids": ids})


def test_it_answers(tmp_path):
  _save(str(tmp_path))
  workload = dataclasses.replace(_WORKLOAD, model_dir=str(tmp_path))
  features = peer_request.features(workload)
  expected = features["input_ids"] + 100 * features["segment_ids"]
  with peer_process.PeerProcess(
    sys.executable, peer_serving_official_albert.__name__, workload
  ) as process:
    assert len(process.ready.losses) == 2
    assert process.ready.losses[0] == pytest.approx(np.mean(expected), rel=1e-6)
    assert len(process.run(3).seconds) == 3


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
