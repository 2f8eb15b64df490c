"""Tests of models of embeddings in mteb, whose tasks run unchanged."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import official_albert
from official_albert.inference.mteb_encoder import MtebEncoder
from official_albert.tools.testing import toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# The names of data sets are those of folders here.
_SCRIPT = """
import json, sys
import mteb
import sentence_transformers  # See docs/embeddings.md.
import official_albert as albert
from official_albert.inference.mteb_encoder import MtebEncoder
from mteb.models.models_protocols import EncoderProtocol
encoder = MtebEncoder(albert.load(sys.argv[1]), "me/toy")
assert isinstance(encoder, EncoderProtocol)
tasks = mteb.get_tasks(tasks=["STSBenchmark", "ImdbClassification"])
results = mteb.evaluate(encoder, tasks, cache=None)
found = {x.task_name: x.scores["test"][0]["main_score"] for x in results}
print(json.dumps([encoder.mteb_model_meta.revision, found]))
"""


def _write_lines(path, rows):
  os.makedirs(path.parent, exist_ok=True)
  path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_batches_of_texts_are_embedded(tmp_path):
  toy_runs.write_finetuned(str(tmp_path / "run"), "text_embedding")
  model = official_albert.load(tmp_path / "run")
  batches = [{"text": ["the sunny sea", "cold"]}, {"text": ["a day"]}]
  found = MtebEncoder(model, dimensions=3).encode(
    batches,
    task_metadata=None,
    hf_split="test",
    hf_subset="en",
    prompt_type="x",
  )
  texts = [text for batch in batches for text in batch["text"]]
  np.testing.assert_array_equal(found, model.embed(texts, dimensions=3))


@pytest.mark.heavy
def test_tasks_of_mteb_score_a_model(tmp_path, peer_python):
  """In an environment with mteb and this package's requirements."""
  python = peer_python("mteb")
  run = tmp_path / "run"
  toy_runs.write_finetuned(str(run), "text_embedding")
  rng = np.random.default_rng(4)
  words = toy_data.GOOD + toy_data.BAD
  pairs = [[toy_data.sentence(rng, words) for _ in "ab"] for _ in range(60)]
  scores = rng.uniform(0, 5, len(pairs))
  rows = [
    {"sentence1": a, "sentence2": b, "score": score}
    for (a, b), score in zip(pairs, scores)
  ]
  _write_lines(tmp_path / "mteb/stsbenchmark-sts/test.jsonl", rows)
  for split, count in (("train", 40), ("test", 30)):
    rows = [
      {"text": toy_data.sentence(rng, kind), "label": label}
      for _ in range(count)
      for label, kind in enumerate((toy_data.BAD, toy_data.GOOD))
    ]
    _write_lines(tmp_path / f"mteb/imdb/{split}.jsonl", rows)
  done = subprocess.run(
    [python, "-c", _SCRIPT, str(run)],
    capture_output=True,
    text=True,
    cwd=tmp_path,
    env={
      **os.environ,
      "PYTHONPATH": str(_ROOT),
      "HF_HUB_OFFLINE": "1",
      "HF_HOME": str(tmp_path / "cache"),
    },
  )
  assert not done.returncode, done.stderr[-2000:]
  revision, found = json.loads(done.stdout.splitlines()[-1])
  assert len(revision) == 16
  model = official_albert.load(run)
  cosines = [model.similarity(*pair)[0, 0] for pair in pairs]
  ranks = [np.argsort(np.argsort(x)) for x in (cosines, scores)]
  expected = np.corrcoef(*ranks)[0, 1]
  assert found["STSBenchmark"] == pytest.approx(expected, abs=1e-4)
  # The words of the two classes are different.
  assert found["ImdbClassification"] > 0.55
