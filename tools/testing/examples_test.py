"""Runs the examples in docstrings: what they show is what users see.

Examples run in a folder with toy models, made once:

    quickstart/run          a pretraining run, with its tokenizer
    quickstart/records/64   the records that it could be pretrained on
    stars                   a classifier of the labels neg and pos
    stars_export            its export
    squad, race, stsb       runs of these tasks
    albert_toy              a checkpoint of google-research/albert
    albert_toy_hf           the same for Hugging Face

An example imports what it needs, and prints only what is equal on every machine
and in both lanes: shapes, names and ids, but no computed numbers.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pathlib
import re
import tarfile

import pytest
import tensorflow as tf

import official_albert
from official_albert import checkpoints
from official_albert.tools.testing import toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROMPT = ">>> "
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _modules() -> list[str]:
  """Returns the modules of the library that have examples."""
  folders = ("official_albert", "tfrecords", "tools/prediction")
  paths = [path for x in folders for path in (_ROOT / x).rglob("*.py")]
  return [
    ".".join(path.relative_to(_ROOT).with_suffix("").parts)
    for path in sorted(paths)
    if not path.name.endswith("_test.py") and _PROMPT in path.read_text("utf-8")
  ]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> pathlib.Path:
  """Makes the folder that the examples run in."""
  folder = tmp_path_factory.mktemp("examples")
  quickstart = folder / "quickstart"
  toy_runs.write_pretrained(str(quickstart / "run"))
  toy_runs.write_tokenizer(str(quickstart))
  toy_data.write_corpus(str(quickstart / "corpus.txt"))
  toy_runs.write_records(str(quickstart), "records/64", 64, 0.1)
  toy_runs.write_finetuned(
    str(folder / "stars"), "text_classification", ("neg", "pos")
  )
  toy_runs.write_export(str(folder / "stars_export"), str(folder / "stars"))
  toy_runs.write_finetuned(str(folder / "squad"), "squad_v1", doc_stride=5)
  toy_runs.write_finetuned(str(folder / "race"), "race", max_qa_length=9)
  toy_runs.write_finetuned(str(folder / "stsb"), "stsb")
  checkpoint = checkpoints.read_checkpoint(str(quickstart / "run"))
  for name, kind in (("albert_toy", "tf1"), ("albert_toy_hf", "hf")):
    (folder / name).mkdir()
    checkpoints.WRITERS[kind](checkpoint, str(folder / name))
  return folder


@pytest.mark.parametrize("name", _modules())
def test_examples_show_what_happens(name, models, monkeypatch):
  monkeypatch.chdir(models)
  module = importlib.import_module(name)
  # Without common names, so that each example can be copied on its own.
  tests = doctest.DocTestFinder().find(module, globs={})
  runner = doctest.DocTestRunner(optionflags=_OPTIONS)
  reports: list[str] = []
  for test in tests:
    runner.run(test, out=reports.append)
  assert not runner.failures, "".join(reports)
  # doctest skips what it does not know, such as decorated functions.
  assert runner.tries == inspect.getsource(module).count(_PROMPT)


@pytest.mark.parametrize("name", sorted(official_albert.__all__))
def test_public_names_have_an_example(name):
  assert _PROMPT in getattr(official_albert, name).__doc__


def test_the_python_of_the_documents(models, monkeypatch):
  monkeypatch.chdir(models)
  with tarfile.open("albert_base_v2.tar.gz", "w:gz") as archive:
    archive.add("albert_toy", "albert_base_v2")
  blocks = []
  for name, count in (("README.md", 1), ("docs/python.md", 3)):
    text = (_ROOT / name).read_text("utf-8")
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(found) == count, name
    blocks += found
  ids = tf.ones([3, 5], tf.int32)
  names = {"tf": tf, "ids": ids, "mask": ids, "segments": ids - 1}
  names.update(question="Who?", context="The old tree.")
  names.update(texts=["Lovely.", "Dull."] * 9, labels=["pos", "neg"] * 9)
  # The toy has fewer positions than real models.
  code = "\n".join(blocks).replace('"pos"])', '"pos"], max_seq_length=16)')
  exec(code.replace("Input([128]", "Input([16]"), names)
  assert names["batch"]["input_ids"].shape[0] == 1
  assert names["model"].load_report
  for name in ("stars.keras", "best.keras"):
    assert tf.keras.models.load_model(name).count_params() > 1000
