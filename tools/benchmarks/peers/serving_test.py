"""Tests of the programs that answer, where their environments are made."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import serving as peer_serving
from tools.testing import toy_peer

_FOLDER = pathlib.Path(__file__).resolve().parents[3]
_FOLDER = _FOLDER / "official_albert" / "testdata" / "hf_one_group"


def test_an_unknown_variant_is_refused():
  workload = dataclasses.replace(toy_peer.WORKLOAD, variant="weather")
  with pytest.raises(ValueError, match="unknown variant 'weather'"):
    peer_serving.build(workload)


@toy_peer.needs_venv("huggingface")
@pytest.mark.heavy
@pytest.mark.parametrize("variant", sorted(peer_serving.VARIANTS))
@pytest.mark.parametrize("precision", peer_protocol.PRECISIONS)
def test_huggingface_answers(variant, precision):
  workload = dataclasses.replace(
    toy_peer.WORKLOAD,
    variant=variant,
    precision=precision,
    model_dir=str(_FOLDER / "pretraining"),
  )
  with peer_process.PeerProcess(
    toy_peer.venv_python("huggingface"),
    peer_serving.__name__,
    workload,
  ) as process:
    answers = process.ready.losses
    assert len(set(answers)) == 1 and -1 < answers[0] < 1
    assert len(process.run(3).seconds) == 3


_WORKLOAD = dataclasses.replace(toy_peer.WORKLOAD, warmup_steps=2)


def _save(folder: str) -> None:
  """A "model" whose pooled output is known: the ids, and 100 a segment."""
  spec = tf.TensorSpec([None, None], tf.int32)

  @tf.function(input_signature=[spec, spec, spec])
  def ids(input_ids, input_mask, segment_ids):
    values = input_ids * input_mask + 100 * segment_ids
    return {"pooled_output": tf.cast(values, tf.float32)}

  tf.saved_model.save(tf.Module(), folder, signatures={"ids": ids})


def test_an_export_answers(tmp_path):
  _save(str(tmp_path))
  workload = dataclasses.replace(_WORKLOAD, model_dir=str(tmp_path))
  features = peer_protocol.request(workload)
  expected = features["input_ids"] + 100 * features["segment_ids"]
  with peer_process.PeerProcess(
    sys.executable, peer_serving.__name__, workload
  ) as process:
    assert len(process.ready.losses) == 2
    assert process.ready.losses[0] == pytest.approx(np.mean(expected), rel=1e-6)
    assert len(process.run(3).seconds) == 3


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
