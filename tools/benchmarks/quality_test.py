"""Tests of the comparison with a toy recipe; systems_test.py has the peer."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from official_albert import AlbertConfig, tfrecords
from official_albert.tasks import pretraining
from official_albert.testing import toy_vocabulary
from official_albert.tools.benchmarks import quality, quality_report
from official_albert.tools.benchmarks.peers import huggingface_pretraining
from official_albert.tools.testing import toy_data

_QUICKSTART = pretraining.get_recipe("quickstart")
TOY = dataclasses.replace(
  _QUICKSTART,
  name="toy",
  settings={
    **_QUICKSTART.settings,
    "train_batch_size": 3,
    "precision": "float32",
  },
  data={
    "max_seq_length": 14,
    "max_predictions_per_seq": 5,
    "masking": "dynamic",
    "heldout_share": 0.2,
    "dupe_factor": 1,
    "num_shards": 1,
  },
)


def make_text(folder) -> tuple[str, str]:
  """Returns a corpus and the model of its vocabulary."""
  corpus, vocabulary = folder / "corpus.txt", folder / "toy.model"
  toy_data.write_corpus(str(corpus))
  lines = corpus.read_text().splitlines()
  vocabulary.write_bytes(toy_vocabulary.train(lines, 45))
  return str(corpus), str(vocabulary)


def use_toy(monkeypatch) -> None:
  """Makes the recipe known, and the measurements of speed short."""
  monkeypatch.setitem(pretraining.RECIPES, "toy", TOY)
  monkeypatch.setattr(quality, "_SPEED_STEPS", 6)
  monkeypatch.setattr(quality, "_STEPS_PER_PART", 2)


def compare(text, folder, rates=(), minutes=1e-6, repeats=1):
  quality.run(
    *(
      *text,
      ["toy"],
      rates,
      minutes,
      repeats,
      "~/.cache/official_albert/peers",
    ),
    str(folder),
  )


@pytest.mark.heavy
def test_a_recipe_is_trained_evaluated_and_not_run_again(
  tmp_path, monkeypatch, capsys
):
  use_toy(monkeypatch)
  text, folder = make_text(tmp_path), tmp_path / "out"
  compare(text, folder)
  out = capsys.readouterr().out
  assert "6 jobs, 0 already finished" in out
  assert (folder / "quality.md").read_text() in out
  assert (folder / "quality.png").read_bytes().startswith(b"\x89PNG")
  [run] = json.loads((folder / "quality.json").read_text())["runs"]["toy"]
  curve = run["curve"]
  # The fewest updates, one for each of ten evaluations.
  assert [point["step"] for point in curve] == [*range(11)]
  assert curve[0]["minutes"] == 0 < run["minutes"]
  assert run["minutes"] == pytest.approx(10 * run["seconds_per_step"] / 60)
  config = AlbertConfig.from_json_file(
    str(next(folder.glob("models/toy/*/albert_config.json")))
  )
  # 30% of 14 tokens are 4.
  flops = 10 * 3 * config.pretraining_flops(14, 4)
  assert run["operations"] == pytest.approx(flops)
  assert run["masked_lm_loss"] == curve[-1]["masked_lm_loss"]
  assert run["masked_lm_loss"] == pytest.approx(math.log(45), abs=1.5)
  assert run["token_masked_lm_loss"] != run["masked_lm_loss"]
  # All records hold out the same documents.
  heldout = [
    tfrecords.read_manifest(str(folder / "data" / name)).split("heldout")
    for name in ("toy", "heldout", "heldout_token_masks")
  ]
  assert len({split.statistics["text_tokens"] for split in heldout}) == 1
  assert len({split.records for split in heldout}) == 1

  # As after a kill: what is finished is kept, the rest runs.
  (record,) = folder.glob("done/models__toy__seed_*[0-9].json")
  before = record.read_text()
  (folder / "quality.md").unlink()
  (folder / "done" / "data__heldout.json").unlink()
  compare(text, folder)
  assert "6 jobs, 5 already finished" in capsys.readouterr().out
  assert record.read_text() == before and (folder / "quality.md").exists()
  # Refused before Hugging Face is installed.
  monkeypatch.setattr(quality.comparison, "make_environment", None)
  with pytest.raises(ValueError, match="made with minutes 1e-06, not 0.5: set"):
    compare(text, folder, ["0.001"], minutes=0.5)


def test_wrong_settings_are_refused(tmp_path, monkeypatch):
  use_toy(monkeypatch)
  text, folder = make_text(tmp_path), tmp_path / "out"
  for minutes in (0, math.nan, math.inf):
    with pytest.raises(ValueError, match="--minutes is .*; must be a number"):
      compare(text, folder, minutes=minutes)
  with pytest.raises(ValueError, match="recipes toy and quickstart differ in"):
    quality.run(*text, ["toy", "quickstart"], [], 1.0, 1, "", str(folder))
  with pytest.raises(
    ValueError, match="--learning_rates must be numbers: .*'x"
  ):
    compare(text, folder, ["1e-3", "x"])
  with pytest.raises(ValueError, match="quality needs --output_dir"):
    compare(text, "")
  assert not folder.exists()


def test_pairs_are_swapped_once_and_lose_no_token():
  # [CLS] A [SEP] B [SEP], with two and with no token of padding.
  records = {
    "input_ids": np.array(
      [[2, 11, 12, 3, 13, 3, 0, 0]] * 99 + [[2, 5, 3, 6, 7, 8, 9, 3]]
    ),
    "input_mask": np.array([[1] * 6 + [0] * 2] * 99 + [[1] * 8]),
    "segment_ids": np.array([[0] * 4 + [1] * 2 + [0] * 2] * 99 + [[0] * 8]),
  }
  records["segment_ids"][99, 3:] = 1
  pairs = huggingface_pretraining.Pairs(records, seed=3)
  expected = (
    ([2, 11, 12, 3, 13, 3], [0, 0, 0, 0, 1, 1], [1, 0, 0, 1, 0, 1]),
    ([2, 13, 3, 11, 12, 3], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 0, 1]),
  )
  count = 0
  for i in range(99):
    pair = pairs[i]
    count += pair["sentence_order_label"]
    assert pair == pairs[i]
    assert tuple(pair.values())[:3] == expected[pair["sentence_order_label"]]
  assert len(pairs) == 100 and 30 < count < 70
  assert sorted(pairs[99]["input_ids"]) == [2, 3, 3, 5, 6, 7, 8, 9]


def _run(*losses, minutes=6.0, order=0.5, step=40):
  curve = [
    dict(
      step=step * i // 2,
      minutes=minutes * i / 2,
      masked_lm_loss=loss,
      masked_lm_accuracy=0.125,
      sentence_order_loss=0.75,
      sentence_order_accuracy=order,
      operations=7e12 * i,
    )
    for i, loss in enumerate(losses)
  ]
  return {**curve[-1], "curve": curve, "token_masked_lm_loss": losses[-1] - 1}


def test_table():
  runs = {
    "ours": [_run(9.0, 5.0, 3.0, step=80), _run(9.0, 7.0, 5.0, step=80)],
    "other": [_run(9.0, 8.5, 8.0)],
    quality_report.PEER: [_run(9.0, 7.0, 5.5), _run(9.0, 7.0, 4.5)],
  }
  head, _, *rows = quality_report.table(runs).splitlines()
  cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  assert cells[0] == [
    *("ours", "80", "6.00", "14.0", "4.000 (3.000 to 5.000)"),
    *("0.125 (0.125 to 0.125)", "0.750 (0.750 to 0.750)"),
    *("0.500 (0.500 to 0.500)", "3.000 (2.000 to 4.000)"),
    # The mean falls from 6 to 4 in the last three minutes.
    "4.50",
  ]
  assert cells[1][-1] == "-" and cells[2][-1] == "6.00"
  assert len(head.split("|")) == 12
  assert "minutes to" not in quality_report.table({"ours": runs["ours"]})


def test_losses_are_drawn_over_minutes_and_operations(monkeypatch):
  figures = []
  monkeypatch.setattr(
    quality_report.printing,
    "save_figure",
    lambda figure, *args, **kwargs: figures.append(figure),
  )
  quality_report.draw("title", {"ours": [_run(9.0, 5.0, 3.0)]}, "")
  minutes, operations, _ = figures[0].axes
  for axis, costs in ((minutes, [0, 3, 6]), (operations, [0, 7, 14])):
    assert [*axis.lines[0].get_xdata()] == costs
    assert [*axis.lines[0].get_ydata()] == [9.0, 5.0, 3.0]


@pytest.mark.parametrize(
  "losses, warns", [([3.0, 2.0, 4.0], False), ([2.0, 3.0, math.nan], True)]
)
def test_rates_at_the_end_of_the_range_are_reported(losses, warns):
  tried = {i / 1000: _run(9.0, loss) for i, loss in enumerate(losses, 1)}
  text = quality_report.rate_table(tried)
  assert text.count("| 0.00") == 3
  assert (
    "The best learning rate is the lowest or the highest" in text
  ) == warns
