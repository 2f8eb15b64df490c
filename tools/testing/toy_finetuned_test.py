"""A made-up run is read like a real one."""

from __future__ import annotations

import pytest

from official_albert import training
from tools import finetuning
from tools.testing import toy_finetuned


@pytest.mark.parametrize(
  "task, labels", [("sst2", ("0", "1")), ("squad_v2", None), ("race", None)]
)
def test_it_reads_like_a_run(tmp_path, task, labels):
  folder = str(tmp_path / "run")
  model = toy_finetuned.write(
    folder, task, labels, threshold=-1.5, max_qa_length=9
  )
  run = finetuning.trained_run.read(folder)
  assert (run.task, run.labels, run.max_seq_length) == (task, labels, 24)
  assert run.null_score_diff_threshold == -1.5
  assert run.settings["max_qa_length"] == 9
  path = finetuning.run.find_weights(folder)
  assert not training.warm_start(model, path).missing
  encoder = toy_finetuned.read_encoder(folder)
  assert encoder.config == model.config
  assert encoder.tokenizer.vocab_size == model.config.vocab_size
  assert all(variable.numpy().any() for variable in model.trainable_variables)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
