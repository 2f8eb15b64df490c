"""A toy corpus, and datasets built from it."""

from __future__ import annotations

import gzip
import hashlib
import pathlib
import types

import numpy as np
import pytest

from official_albert.tasks.pretraining import data, record_rules
from official_albert.tasks.pretraining.data import build_worker, documents
from official_albert.testing import toy_models, toy_vocabulary

WORDS = (
  "the cat sat on a mat and dogs ran under old trees while birds sang, "
  "rivers flowed. nobody came home before dark; all was well"
).split()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
  """A folder with a tokenizer and 37 documents of 2 to 19 sentences.

  One more document has no token.
  """
  folder = tmp_path_factory.mktemp("corpus")
  rng = np.random.default_rng(0)
  texts = [
    "\n".join(
      " ".join(rng.choice(WORDS, size=rng.integers(2, 9))).capitalize()
      for _ in range(rng.integers(2, 20))
    )
    for _ in range(37)
  ]
  texts.insert(5, "\u200b")
  (folder / "a.txt").write_text("\n\n".join(texts[:17]))
  content = gzip.compress("\n\n".join(texts[17:]).encode())
  (folder / "b.txt.gz").write_bytes(content)
  lines = "\n".join(texts).lower().splitlines()
  (folder / "toy.model").write_bytes(toy_vocabulary.train(lines, 60))
  return folder


@pytest.fixture(scope="session")
def make_settings(corpus):
  """Returns a function from (output_dir, changes) to settings."""

  def make(output_dir, **changes):
    defaults = {
      "input_files": f"{corpus}/a.txt,{corpus}/b.txt.gz",
      "output_dir": str(output_dir),
      "spm_model_file": f"{corpus}/toy.model",
      "examples": data.ExampleSettings(
        max_seq_length=29, max_predictions_per_seq=5
      ),
      "dupe_factor": 3,
      "heldout_share": 0.2,
      "num_shards": 5,
      "num_heldout_shards": 2,
      "num_workers": 1,
    }
    return data.BuildSettings(**{**defaults, **changes})

  return make


@pytest.fixture(scope="session")
def built(make_settings, tmp_path_factory):
  """The folder and the manifest of a build in large pieces."""
  folder = tmp_path_factory.mktemp("built") / "data"
  return folder, data.build_dataset(make_settings(folder))


@pytest.fixture(scope="session")
def whole(built, hash_files):
  """The hash of each file of an undisturbed build in large pieces."""
  return hash_files(built[0])


@pytest.fixture
def small_pieces(monkeypatch):
  """Cuts the work of a build into many pieces."""
  monkeypatch.setattr(documents, "BLOCK_BYTES", 600)
  monkeypatch.setattr(build_worker, "_BATCH", 9)


@pytest.fixture(scope="session")
def unmasked(corpus, make_settings, tmp_path_factory):
  """A folder for dynamic masking, and a model that fits it."""
  folder = str(tmp_path_factory.mktemp("unmasked") / "data")
  settings = make_settings(
    folder,
    input_files=f"{corpus}/a.txt",
    examples=data.ExampleSettings(
      max_seq_length=29, max_predictions_per_seq=4, masking="dynamic"
    ),
    dupe_factor=1,
    num_shards=2,
  )
  manifest = data.build_dataset(settings)
  return folder, toy_models.config(manifest.tokenizer.vocab_size, 29)


@pytest.fixture(scope="session")
def hash_files():
  """Returns a function from a folder to the hash of each file in it."""
  return lambda folder: {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in pathlib.Path(folder).iterdir()
    if path.is_file()
  }


@pytest.fixture(scope="session")
def toy_tokenizer():
  """97 pieces: those below 5 are special, every third one continues a word."""
  return types.SimpleNamespace(
    vocab_size=97,
    word_start_table=np.arange(97) % 3 != 0,
    special_ids=frozenset(range(5)),
    **{"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "mask_id": 4},
  )


@pytest.fixture(scope="session")
def split_examples(toy_tokenizer):
  """Returns a function that checks the features of N masked examples.

  It yields A, B and the positions to predict of each example, without masks and
  padding.
  """

  def split(features, settings):
    features = {name: np.asarray(value) for name, value in features.items()}
    is_compat = settings.masking == "compat"
    whole_words = settings.do_whole_word_mask and not is_compat
    problem = record_rules.find_problem(features, toy_tokenizer, whole_words)
    assert problem is None
    restored = record_rules.put_labels_back(features)
    for row, ids in enumerate(restored.tolist()):
      f = {name: value[row] for name, value in features.items()}
      length = f["input_mask"].sum()
      middle = length - f["segment_ids"].sum()
      positions = f["masked_lm_positions"][f["masked_lm_weights"] > 0]
      assert len(positions) <= settings.num_to_predict(length)
      shown = {*f["input_ids"][positions].tolist()}
      assert not shown & {0, 1, 2, 3} or is_compat
      yield ids[1 : middle - 1], ids[middle : length - 1], positions.tolist()

  return split
