"""Tests of the measured programs; peers only if their environments exist."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from tools.benchmarks.peers import huggingface, ours, protocol
from tools.testing import toy_peer

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_HF_MODEL = _ROOT / "official_albert" / "testdata" / "hf_one_group"
_BOTH, _MLM = toy_peer.PRETRAINING_ENTROPY, toy_peer.MASKED_LM_ENTROPY


@pytest.mark.parametrize(
  "name, model_dir",
  [
    *(("huggingface", ""), ("huggingface", "folder"), ("keras_hub", "")),
    *(("model_garden", ""), ("ours", "")),
  ],
)
def test_unknown_variants_are_refused(name, model_dir):
  program = importlib.import_module(f"tools.benchmarks.peers.{name}")
  workload = dataclasses.replace(
    toy_peer.WORKLOAD, variant="weather", model_dir=model_dir
  )
  with pytest.raises(ValueError, match="unknown variant 'weather'; choose one"):
    program.build(workload)


@pytest.mark.heavy
@pytest.mark.parametrize(
  "name, variant, entropy",
  [
    *(
      pytest.param("huggingface", v, _BOTH)
      for v in huggingface.TRAINING_VARIANTS
    ),
    *(pytest.param("keras_hub", v, _MLM) for v in ("", "jit")),
    *(pytest.param("model_garden", v, _BOTH) for v in ("", "jit")),
  ],
)
@pytest.mark.parametrize("precision", protocol.PRECISIONS)
def test_peers_train(name, variant, entropy, precision):
  toy_peer.check_it_trains(name, variant, precision, entropy)


@pytest.mark.heavy
@pytest.mark.parametrize("variant", huggingface.SERVING_VARIANTS)
@pytest.mark.parametrize("precision", protocol.PRECISIONS)
def test_huggingface_serves(variant, precision):
  toy_peer.skip_without_venv("huggingface")
  workload = dataclasses.replace(
    toy_peer.WORKLOAD,
    variant=variant,
    precision=precision,
    model_dir=str(_HF_MODEL / "pretraining"),
  )
  with protocol.Peer(
    toy_peer.venv_python("huggingface"), huggingface.__name__, workload
  ) as process:
    answers = process.ready.losses
    assert len(set(answers)) == 1 and -1 < answers[0] < 1
    assert len(process.run(3).seconds) == 3


@pytest.mark.heavy
def test_our_step_trains_and_multiplies():
  with protocol.Peer(
    sys.executable, "tools.benchmarks.peers.ours", toy_peer.WORKLOAD
  ) as process:
    timed = process.run(30)
    assert process.ready.losses[0] == pytest.approx(_BOTH, abs=0.2)
    assert timed.losses[-1] < 0.7 * process.ready.losses[0]
    assert process.product_flops(3) > 1e6
    ready = process.ready
  assert 0 < ready.trace_seconds < ready.build_seconds
  assert ready.about == "run_pretraining's step, adamw"


def test_batch_and_losses():
  from tasks import pretraining

  batch = ours.random_batch(3, 13, 2, 97, seed=1)
  shapes = {name: tuple(x.shape) for name, x in batch.items()}
  assert shapes == {
    **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), (3, 13)),
    **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), (3, 2)),
    "masked_lm_weights": (3, 2),
    "next_sentence_labels": (3, 1),
  }
  assert np.min(batch["input_ids"]) >= 5 and np.max(batch["input_ids"]) < 97
  assert np.max(batch["masked_lm_positions"]) < 13
  assert np.all(batch["input_mask"]) and np.all(batch["masked_lm_weights"])
  config = modeling.AlbertConfig(
    vocab_size=97,
    embedding_size=5,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
  )
  model = pretraining.AlbertForPretraining(config)
  task = ours.MeasuredTask()
  totals, metrics = task.forward(model, batch, True, tf.constant([1, 2]))
  weights = task.loss_weights(batch)
  assert metrics == {}
  losses = {name: float(totals[name] / weights[name]) for name in totals}
  # An untrained model guesses: ln 97, ln 2.
  assert losses["masked_lm"] == pytest.approx(np.log(97), abs=0.2)
  assert losses["sentence_order"] == pytest.approx(np.log(2), abs=0.1)


def _save_model(folder: str) -> None:
  """Saves a model whose pooled output is the ids plus 100 times the segment."""
  spec = tf.TensorSpec([None, None], tf.int32)

  @tf.function(input_signature=[spec, spec, spec])
  def ids(input_ids, input_mask, segment_ids):
    values = input_ids * input_mask + 100 * segment_ids
    return {"pooled_output": tf.cast(values, tf.float32)}

  tf.saved_model.save(tf.Module(), folder, signatures={"ids": ids})


def test_our_export_serves(tmp_path):
  _save_model(str(tmp_path))
  workload = dataclasses.replace(
    toy_peer.WORKLOAD, warmup_steps=2, model_dir=str(tmp_path)
  )
  features = protocol.request(workload)
  expected = features["input_ids"] + 100 * features["segment_ids"]
  with protocol.Peer(
    sys.executable, "tools.benchmarks.peers.ours", workload
  ) as process:
    assert len(process.ready.losses) == 2
    assert process.ready.losses[0] == pytest.approx(np.mean(expected), rel=1e-6)
    assert len(process.run(3).seconds) == 3


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
