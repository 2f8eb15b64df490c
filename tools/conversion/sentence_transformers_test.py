"""Tests of conversions to and from sentence-transformers, with the library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import yaml

import official_albert as albert
from official_albert import checkpoints, files, runs
from official_albert.config import Pooling
from official_albert.tools.conversion import conversion
from official_albert.tools.testing import toy_runs

_TEXTS = [
  "The DAY at Sea was sunny",
  "cold and dull",
  "Awful, and so bad that nobody would ever look at such a day at sea again.",
]
# Reads {"base": a folder of transformers, "new": {a folder to write: pooling,
# normalize, length}, "texts": ...} and folders; writes the vectors of each.
_PEER = """
import json, sys
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
asked, vectors = json.loads(sys.argv[1]), {}
for folder, (pooling, normalize, length) in asked["new"].items():
  encoder = modules.Transformer(asked["base"], max_seq_length=length)
  pooling = modules.Pooling(encoder.get_embedding_dimension(), pooling)
  parts = [encoder, pooling, *[modules.Normalize()] * normalize]
  SentenceTransformer(modules=parts, device="cpu").save(folder)
for folder in [*asked["new"], *asked["old"]]:
  model = SentenceTransformer(folder, device="cpu")
  found = model.encode(asked["texts"])
  cosines = model.similarity(found, found).tolist()
  vectors[folder] = (found.tolist(), cosines)
print(json.dumps(vectors))
"""
_CASES = {
  "mean": ("mean", False, None),
  "mean_1": ("mean", True, 8),
  "cls": ("cls", False, 8),
  "cls_1": ("cls", True, None),
  "max": ("max", False, 20),
  "max_1": ("max", True, 7),
}


def _ask(python, base, new, old):
  """Returns what sentence-transformers gives for each folder."""
  asked = {"base": base, "new": new, "old": old, "texts": _TEXTS}
  done = subprocess.run(
    [python, "-c", _PEER, json.dumps(asked)], capture_output=True, text=True
  )
  assert not done.returncode, done.stderr[-2000:]
  return json.loads(done.stdout.splitlines()[-1])


def _write_run(folder, pooling, normalize, length=24):
  settings = {"pooling": pooling, "normalize": normalize}
  toy_runs.write_finetuned(
    folder, "text_embedding", max_seq_length=length, **settings
  )


def test_a_run_becomes_a_folder_and_returns(tmp_path):
  run, hf, own = (str(tmp_path / x) for x in ("run", "hf", "own"))
  _write_run(run, "max", False, 9)
  model = albert.load(run)
  conversion.convert("hf", run, hf)
  report = conversion.convert("official_albert", hf, own)
  assert report["head"] == "embedding" and not report["missing"]
  for folder in (hf, own):
    found = albert.load(folder)
    assert found.pooling == Pooling("max", False)
    np.testing.assert_array_equal(found.embed(_TEXTS), model.embed(_TEXTS))
  with open(os.path.join(hf, "README.md")) as file:
    _, metadata, text = file.read().split("---\n", 2)
  metadata = yaml.safe_load(metadata)
  assert metadata["library_name"] == "sentence-transformers"
  assert metadata["pipeline_tag"] == "sentence-similarity"
  assert f'SentenceTransformer("{os.path.basename(hf)}")' in text
  with open(os.path.join(hf, "config.json")) as file:
    assert json.load(file)["architectures"] == ["AlbertModel"]
  report = conversion.convert("tf1", run, str(tmp_path / "tf1"))
  assert any("cannot hold the pooling: Pooling" in x for x in report["notes"])


def test_a_pooling_that_they_lack(tmp_path):
  run = str(tmp_path / "run")
  _write_run(run, "pooler", True)
  with pytest.raises(ValueError, match="no pooling 'pooler': --head=none"):
    conversion.convert("hf", run, str(tmp_path / "hf"))
  assert not (tmp_path / "hf").exists()
  conversion.convert("hf", run, str(tmp_path / "hf"), head="none")
  with checkpoints.open(str(tmp_path / "hf")) as checkpoint:
    assert checkpoint.head == "none"


@pytest.mark.heavy
def test_vectors_are_those_of_sentence_transformers(tmp_path, peer_python):
  """Of folders that it writes, that we write, and of their old spelling."""
  python = peer_python("sentence_transformers")
  run, base = str(tmp_path / "run"), str(tmp_path / "base")
  toy_runs.write_pretrained(run)
  conversion.convert("hf", run, base, head="none")
  new = {str(tmp_path / name): case for name, case in _CASES.items()}
  own_runs = {}
  for pooling, normalize, length in _CASES.values():
    folder = str(tmp_path / f"own_{pooling}_{normalize}")
    own = own_runs[folder] = f"{folder}_run"
    _write_run(own, pooling, normalize, length or 24)
    asked = python if folder.endswith("max_True") else ""
    report = conversion.convert("hf", own, folder, hf_python=asked)
  assert "sequence_output of both models for a batch" in report["proofs"]
  # The tokenizer keeps upper case, but their encoder lower-cases all texts.
  own = shutil.copytree(own, str(tmp_path / "cased_run"))
  record = runs.read_run(own)
  record["data"]["tokenizer"]["lower_case"] = False
  files.write_json(os.path.join(own, runs.RECORD_FILE), record)
  cased = str(tmp_path / "cased")
  conversion.convert("hf", own, cased)
  plain = albert.load(cased).embed(_TEXTS)
  changed = {"do_lower_case": True, "max_seq_length": 9}
  files.write_json(os.path.join(cased, "sentence_bert_config.json"), changed)
  assert np.abs(plain - albert.load(cased).embed(_TEXTS)).max() > 0.01
  found = _ask(python, base, new, [*own_runs, cased])
  assert len(found) == 13
  for folder, (vectors, cosines) in found.items():
    paths = {folder, own_runs.get(folder, folder)}
    for one in map(albert.load, paths):
      ours = one.embed(_TEXTS)
      np.testing.assert_allclose(ours, vectors, rtol=0, atol=1e-5)
      np.testing.assert_allclose(
        one.similarity(_TEXTS, ours), cosines, rtol=0, atol=1e-5
      )
    assert np.abs(np.subtract(*vectors[:2])).max() > 0.01
