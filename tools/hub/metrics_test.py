"""Tests of what is said of a checkpoint: its own numbers, or none."""

from __future__ import annotations

import json
import os

import pytest

from official_albert import AlbertConfig, training
from tools import finetuning
from tools.hub import metrics as hub_metrics

_CONFIG = AlbertConfig(vocab_size=97)


@pytest.fixture
def folder(tmp_path):
  return str(tmp_path / "run")


def _pretrained(folder, lines, best=None):
  training.write_run(folder, _CONFIG, {}, {"max_seq_length": 64})
  with open(os.path.join(folder, "metrics.jsonl"), "w") as file:
    file.write("\n".join(lines))
  if best:
    os.makedirs(os.path.join(folder, "best"))
    with open(os.path.join(folder, "best", "best.json"), "w") as file:
      json.dump(best, file)


def _eval(step, loss, **more):
  record = {"kind": "eval", "step": step, "unix_time_seconds": 1.0, **more}
  return json.dumps({**record, "loss": loss})


def test_of_the_published_step_and_no_other(folder):
  train = json.dumps({"kind": "train", "step": 300, "loss": 9.0})
  lines = [_eval(200, 5.0), "{cut", train, _eval(300, 4.0), _eval(300, 3.5)]
  _pretrained(folder, lines)
  measured = hub_metrics.read(folder, f"{folder}/model.ckpt-300", False)
  assert measured.values == {"loss": 3.5}  # The last start's.
  assert measured.file == "metrics.jsonl"
  assert measured.what == "held-out data of pretraining, after 300 steps"
  assert hub_metrics.read(folder, f"{folder}/model.ckpt-250", False) is None


def test_of_the_best(folder):
  best = {"step": 1200, "values": {"loss": 2.5, "accuracy": 0.25}}
  _pretrained(folder, [_eval(1300, 4.0)], best)
  measured = hub_metrics.read(folder, "best/model.ckpt-1200", True)
  assert measured.values == {"loss": 2.5, "accuracy": 0.25}
  assert measured.what.endswith("after 1,200 steps")
  latest = hub_metrics.read(folder, f"{folder}/model.ckpt-1300", False)
  assert latest.values == {"loss": 4.0}


def test_of_a_task(folder):
  training.write_run(folder, _CONFIG, {}, {"task": "mnli"})
  assert hub_metrics.read(folder, folder, True) is None
  finetuning.trained_run.write_results(
    folder,
    {
      "dev_matched": {"accuracy": 0.75, "total": 97},
      "dev": {"f1": 0.5, "best_f1_thresh": -1.5, "report": "text"},
    },
  )
  measured = hub_metrics.read(folder, folder, False)
  assert measured.values == {"dev_matched accuracy": 0.75, "dev f1": 0.5}
  assert measured.what.startswith("mnli, with the head")
  os.makedirs(os.path.join(folder, "best"))
  with open(os.path.join(folder, "best", "best.json"), "w") as file:
    json.dump({"step": 3}, file)
  # The results are those of the best, not of the latest.
  assert hub_metrics.read(folder, folder, False) is None
  assert hub_metrics.read(folder, folder, True).values


def test_a_converted_checkpoint_was_not_measured(folder):
  training.write_run(folder, _CONFIG, {}, {"head": "none"})
  assert hub_metrics.read(folder, folder, False) is None


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
