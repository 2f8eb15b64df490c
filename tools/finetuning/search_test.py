"""Tests of the search for settings, also when it is killed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import types

import pytest
import tensorflow as tf

from official_albert import runs as runs_lib
from official_albert.tools.finetuning import search
from official_albert.tools.testing import many_commands, toy_data, toy_runs
from official_albert.training import Divergence

optuna = pytest.importorskip("optuna")
_RATE = 1e-3
_DIVERGED = Divergence("not finite")
_FULL = tf.errors.ResourceExhaustedError(None, None, "no memory\nleft")


class Killed(BaseException):
  pass


def find(
  folder,
  trials=14,
  fails=types.MappingProxyType({}),
  killed=None,
  highest=True,
  **changes,
):
  """Searches the best rate, which is 2e-3 with 5 epochs; returns the runs."""
  runs = []

  def run(path, values):
    runs.append((os.path.basename(path), dict(values)))
    os.makedirs(path, exist_ok=True)
    if runs[-1][0] == f"trial_{killed}":
      raise Killed
    if error := fails.get(runs[-1][0]):
      raise error
    rate = values.get("learning_rate", 2e-3)
    loss = math.log(rate / 2e-3) ** 2 + abs(values["num_train_epochs"] - 5)
    return -loss if highest else loss

  given, flags = changes.pop("given", ()), changes.pop("flags", ["--task=x"])
  best, values = "", {}
  with contextlib.suppress(Killed):
    best, values = search.find_best(
      str(folder), trials, flags, given, _RATE, highest, 3, run
    )
  return runs, os.path.basename(best), values


def read(folder):
  return json.loads((folder / "summary.json").read_text())["trials"]


@pytest.mark.parametrize("highest", [True, False])
def test_the_best_run_is_kept(tmp_path, highest, capsys):
  fails = {"trial_2": _DIVERGED, "trial_3": _FULL}
  runs, best, values = find(tmp_path, fails=fails, highest=highest)
  assert [name for name, _ in runs] == [f"trial_{i}" for i in range(14)]
  assert dict(runs)[best] == values
  found = read(tmp_path)
  goodness = [x["value"] for x in found]
  assert goodness[2:4] == [None, None]
  finite = [x for x in goodness if x is not None]
  assert goodness.index((max if highest else min)(finite)) == int(best[6:])
  assert [x.name for x in tmp_path.iterdir() if x.is_dir()] == [best]
  assert runs_lib.run_folder(str(tmp_path)) == str(tmp_path / best)
  for name, values in runs:
    assert _RATE / 10 <= values["learning_rate"] <= _RATE * 4, name
    assert values["train_batch_size"] in (8, 16, 32, 64)
    assert 1 <= values["num_train_epochs"] <= 8
  out = capsys.readouterr().out
  assert f"{tmp_path}/trial_2 has failed: not finite" in out
  assert f"{tmp_path}/trial_3 has failed: no memory left" in out
  assert len({values["learning_rate"] for _, values in runs}) == 14


def test_a_killed_search_continues_as_if_it_was_not(tmp_path):
  whole, *kept = find(tmp_path / "whole")
  before, *_ = find(tmp_path / "killed", killed=11)
  assert before == whole[:12]
  # The folder of the killed run is there, with those of the best.
  assert (tmp_path / "killed" / "trial_11").exists()
  values = [x["value"] for x in read(tmp_path / "killed")]
  best = f"trial_{values.index(max(values))}"  # So far.
  assert len(values) == 11
  assert (
    runs_lib.run_folder(f"{tmp_path}/killed") == f"{tmp_path}/killed/{best}"
  )
  after, *found = find(tmp_path / "killed")
  assert after == whole[11:] and found == kept
  # It is finished, or goes on.
  assert find(tmp_path / "killed")[0] == []
  more, *_ = find(tmp_path / "killed", trials=15)
  assert [name for name, _ in more] == ["trial_14"]


def test_what_is_given_is_not_searched(tmp_path):
  runs, *_ = find(tmp_path, 2, given=["learning_rate"])
  assert all(x.keys() == set(search.SEARCHED[1:]) for _, x in runs)
  with pytest.raises(ValueError, match="all of them are given"):
    find(tmp_path, given=search.SEARCHED)


def test_refusals(tmp_path, monkeypatch):
  find(tmp_path, 1)
  with pytest.raises(ValueError, match="has a search with --task=x"):
    find(tmp_path, 2, flags=["--task=x", "--max_seq_length=9"])
  with pytest.raises(ValueError, match="all 2 trials have failed"):
    find(tmp_path / "new", 2, fails={"trial_0": _FULL, "trial_1": _FULL})
  assert runs_lib.run_folder(f"{tmp_path}/new") == f"{tmp_path}/new"
  monkeypatch.setitem(sys.modules, "optuna", None)
  with pytest.raises(ValueError, match="pip install optuna"):
    find(tmp_path)


def test_runs_are_trained_and_the_best_one_predicts(tmp_path):
  toy_runs.write_pretrained(str(tmp_path / "encoder"))
  for split, count in (("train", 24), ("dev", 8), ("test", 5)):
    toy_data.write_table(str(tmp_path / f"{split}.tsv"), count)
  line = [
    *("--task=text_classification", f"--init_checkpoint={tmp_path}/encoder"),
    *(f"--{x}_file={tmp_path}/{x}.tsv" for x in ("train", "dev", "test")),
    *("--text_column=review", "--label_column=mood", "--max_seq_length=24"),
    *("--nolength_bucketing", "--num_train_steps=3", "--train_batch_size=4"),
    *(f"--output_dir={tmp_path}/out", "--search_trials=2"),
  ]
  many_commands.check_refusals(
    "run_finetuning",
    [
      ([*line, "--seeds=2"], "--search_trials makes, trains"),
      ([*line, "--nodo_eval"], "--search_trials makes, trains"),
      ([*line, "--label_column=x"], "train.tsv, line 1: there is no column"),
      ([*line, "--num_train_epochs=1"], "exclude each other"),
      ([*line, "--learning_rate=1e-3"], "all of them are given"),
    ],
  )
  assert not (tmp_path / "out" / "search.journal").exists()
  (result,) = many_commands.run("run_finetuning", [line])
  found = read(tmp_path / "out")
  best = str(tmp_path / "out" / max(found, key=lambda x: x["value"])["folder"])
  assert result.out.rstrip().endswith(f"the best run is {best}")
  runs = [x for x in (tmp_path / "out").iterdir() if x.name[:5] == "trial"]
  assert [str(x) for x in runs] == [best]
  names = {path.name for path in (runs[0] / "predictions").iterdir()}
  assert names == {"dev.probabilities.tsv", "test.probabilities.tsv"}
  record = json.loads((runs[0] / "run.json").read_text())
  rates = {f"{tmp_path}/out/{x['folder']}": x["learning_rate"] for x in found}
  assert record["settings"]["learning_rate"] == pytest.approx(rates[best])
  assert result.out.count("train records to") == 1
  # Programs find the best run in the folder of the search.
  shutil.move(tmp_path / "out", tmp_path / "moved")
  folder = f"--input_file={tmp_path}/test.tsv"
  answers = many_commands.run(
    "predict",
    [
      [f"--model_dir={tmp_path}/moved", folder],
      [f"--model_dir={tmp_path}/moved/{os.path.basename(best)}", folder],
    ],
  )
  assert answers[0].out == answers[1].out and answers[0].out.count("\n") == 5
