"""Tests of report.py: what is read of finished runs, verdicts and reports."""

from __future__ import annotations

import json
import re

import pytest

from official_albert.tools.experiments import report, tables

_CONFIG = tables.SCALES["tiny"].config({"depth": 6})


def _train(step, speed=4.0):
  return {
    **{"kind": "train", "step": step, "unix_time_seconds": step},
    "tokens_per_second": 64 * speed,
  }


def _eval(step, loss):
  return {
    **{"kind": "eval", "step": step, "masked_lm_loss": loss},
    "masked_lm_accuracy": 0.25,
  }


_START = {"kind": "start", "step": 0, "unix_time_seconds": 0}
_RUN = [
  *(_eval(0, 9.0), _START, _train(10), _train(20), _eval(20, 7.0)),
  *(_train(30, 1.0), _train(40), _eval(40, 5.0)),
]


@pytest.mark.parametrize(
  "records",
  # The second one was killed before its first evaluation.
  [_RUN, [*_RUN[:4], _START, _train(30, 9.0), *_RUN[4:]]],
)
def test_numbers_of_a_run(tmp_path, records):
  lines = "".join(json.dumps(record) + "\n" for record in records)
  (tmp_path / "metrics.jsonl").write_text('{"kind": "tra\n' + lines)
  found = report.read_pretraining(str(tmp_path), _CONFIG)
  assert (found["steps"], found["MLM loss"], found["MLM"]) == (40, 5.0, 25.0)
  assert found["parameters"] == _CONFIG.parameter_count()
  assert [tuple(point.values()) for point in found["curve"]] == [
    *((0, 9.0), (20, 7.0), (40, 5.0))
  ]
  # The median, without the first line after each start.
  assert report.read_speed(str(tmp_path)) == {"tokens/s": 64 * 4.0}


@pytest.mark.parametrize(
  "task, metrics, value",
  [
    ("MNLI", {"accuracy": 0.25}, 25.0),
    ("SQuAD1.1", {"exact_match": 50.0, "f1": 60.0}, 55.0),
    ("SQuAD2.0", {"exact": 4, "f1": 5, "best_exact": 60, "best_f1": 70}, 65.0),
  ],
)
def test_results_of_tasks_are_percent(tmp_path, task, metrics, value):
  text = json.dumps({"dev_matched": metrics, "other": {}})
  (tmp_path / "eval_results.json").write_text(text)
  assert report.read_finetuning(str(tmp_path), task) == {task: value}


@pytest.mark.parametrize(
  "pair, statistics", [("NSP", {"label_1_share": 0.375}), ("SOP", {})]
)
def test_sentence_objectives_have_a_chance(tmp_path, pair, statistics):
  """Records of --masking=dynamic have no order until they are read."""
  manifest = {
    "settings": {"masking": "dynamic"},
    "splits": {"train": {"statistics": statistics}},
  }
  (tmp_path / "dataset.json").write_text(json.dumps(manifest))
  metrics = {"sentence_order_accuracy": 0.75, "masked_lm_loss": 5.0}
  path = tmp_path / "metrics.json"
  path.write_text(json.dumps({**metrics, "masked_lm_accuracy": 0.125}))
  found = report.read_pair(str(path), str(tmp_path), pair)
  more = {"MLM": 12.5, "MLM loss": 5.0} if pair == "SOP" else {}
  chance = 62.5 if pair == "NSP" else 50.0
  assert found == {pair: 75.0, f"{pair} chance": chance, **more}


def test_layers(tmp_path):
  layers = [{"degrees": degrees} for degrees in (30.0, 21.0, 25.0)]
  path = tmp_path / "inspection.json"
  path.write_text(json.dumps({"models": [{"layers": layers}]}))
  angles = {"first layer": 30.0, "last layer": 25.0, "largest jump": 9.0}
  assert report.read_layers(str(path)) == angles


def _report(name, tasks=("MNLI",), **values):
  """A report of a table; `values` by label, with _ for spaces."""
  table = tables.TABLES[name]
  found = {
    (label, seed): {k: v[seed] for k, v in numbers.items() if seed < len(v)}
    for label, numbers in values.items()
    for seed in range(3)
  }
  found = {
    (label, seed): found.get((label.replace(" ", "_"), seed), {})
    for seed in range(3)
    for label in table.rows
  }
  rows = report.collect(table, found)
  return report.Report(table, tasks, rows, "the notes")


def test_rows_are_compared_by_speed():
  speeds = {"BERT-large": [5.0] * 3, "ALBERT-base": [30.0] * 3}
  made = _report("2", **{k: {"tokens/s": v} for k, v in speeds.items()})
  # Speeds are measured once for all seeds.
  assert made.rows["ALBERT-base"]["speed"] == [6.0]


@pytest.mark.parametrize(
  "paper, here, there, expected",
  [
    (1, (5, 6), (3, 4), "shown: higher"),
    (-1, (5, 6), (3, 4), "contradicted: higher"),
    (-1, (3, 4), (5, 6), "shown: lower"),
    (1, (3, 4), (5, 6), "contradicted: lower"),
    (1, (4, 6), (3, 5), "not resolved"),
    # Ranges that touch are not apart.
    (1, (4, 6), (3, 4), "not resolved"),
    (0, (4, 6), (3, 5), "no different"),
    (0, (5, 6), (3, 4), "higher, paper no different"),
    # One seed has no range.
    (1, (5,), (3, 4), "not resolved, one seed"),
    (1, (3,), (3,), "not resolved, one seed"),
    (None, (5, 6), (3, 4), "higher"),
    (None, (5, 6), (3,), "higher, one seed"),
    (None, (4, 6), (3, 5), "no different"),
    (1, (), (3,), ""),
    (None, (3,), (), ""),
  ],
)
def test_verdicts_in_words(paper, here, there, expected):
  assert report.verdict(paper, here, there) == expected


def test_tasks_and_held_out_text_are_judged_separately():
  # The paper has E 768 above E 128 in MNLI, and E 64 below.
  made = _report(
    "3",
    **{
      "not-shared,_E_128": {"MNLI": [50.0, 52.0], "MLM": [10.0, 11.0]},
      "not-shared,_E_768": {"MNLI": [55.0, 56.0], "MLM": [12.0, 13.0]},
      "not-shared,_E_64": {"MLM": [12.0, 13.5]},
    },
  )
  judged = made.verdicts()
  both = {"tasks": "shown: higher", "MLM": "shown: higher"}
  assert judged["not-shared, E 768"] == both
  assert judged["not-shared, E 64"] == {"MLM": "contradicted: higher"}
  assert judged["not-shared, E 256"] == {}
  # Directions without numbers; of figure 2, only the jumps.
  made = _report(
    "figure_2",
    (),
    **{
      "shared_(ALBERT)": {"largest jump": [1.0, 2.0], "MLM": [5.0, 6.0]},
      "not_shared_(BERT)": {"largest jump": [3.0, 4.0], "MLM": [3.0, 4.0]},
    },
  )
  assert made.verdicts() == {
    "not shared (BERT)": {"largest jump": "shown: higher"}
  }


@pytest.mark.parametrize(
  "label, here, there, words",
  [
    ("NSP", [49.0, 52.5], [70.0, 71.0], "shown: lower"),
    ("NSP", [70.0, 71.0], [49.0, 52.5], "contradicted: higher"),
    # One seed of the better row is at chance.
    ("NSP", [50.0, 50.5], [52.0, 60.0], None),
    ("NSP", [49.0, 60.0], [50.0, 51.0], None),
    # It has no head that was trained.
    ("none", [49.0, 52.5], [70.0, 71.0], None),
  ],
)
def test_sentence_objectives_that_nobody_learned_are_not_judged(
  label, here, there, words
):
  rows = {
    name: {"SOP": values, "SOP chance": [52.0] * 3}
    for name, values in ((label, here), ("SOP", there))
  }
  assert _report("5", **rows).verdicts()[label].get("SOP") == words


def test_reports_are_written_with_the_papers_numbers(tmp_path):
  point = {"step": 0, "loss": 8.0}
  curve = [[point, {**point, "step": 5, "loss": 5.0}]] * 2
  values = {"parameters": [1_234_000] * 2, "curve": curve, "MLM": [20.0, 22.0]}
  first = _report(
    "7",
    ("MNLI", "SQuAD1.1"),
    no_additional_data={
      **{**values, "MLM loss": [5.0, 5.5]},
      **{"MNLI": [40.0, 41.0], "SQuAD1.1": [20.0, 22.0]},
    },
    with_additional_data={
      **{**values, "MLM": [23.0, 24.0], "MLM loss": [4.5, 4.0]},
      **{"MNLI": [45.0, 43.0], "SQuAD1.1": [20.0, 22.0]},
    },
  )
  second = _report("8", with_dropout={"MLM": [7.0]})
  report.write([first], str(tmp_path))
  report.write([first, second], str(tmp_path))
  lines = re.sub(" +", " ", (tmp_path / "table_7.md").read_text()).splitlines()
  assert lines[0] == "## Table 7: More data" and lines[-1] == "(the notes)"
  assert lines[2] == (
    "| | parameters | paper's | MLM loss | MLM | MNLI | paper | SQuAD1.1 "
    "| paper | Avg | paper | by tasks | by MLM |"
  )
  assert lines[5] == (
    "| with additional data | 1.23M | 12M | 4.250 (4.000 to 4.500) "
    "| 23.5 (23.0 to 24.0) | 44.0 (43.0 to 45.0) | 82.4 | 21.0 (20.0 to 22.0) "
    "| 85.2 (88.8/81.7) | 32.5 (32.5 to 32.5) | 83.8 "
    "| higher, paper no different | shown: higher |"
  )
  found = json.loads((tmp_path / "table_7.json").read_text())
  assert found["rows"]["with additional data"]["MNLI"] == [45.0, 43.0]
  assert (tmp_path / "table_7.png").read_bytes().startswith(b"\x89PNG")
  text = re.sub(" +", " ", (tmp_path / "results.md").read_text())
  assert text.startswith("Of 1 directions of the paper, 1 are shown, 0 contra")
  assert "| 7: More data | 0 / 0 / 0 | 1 / 0 / 0 |" in text
  assert "## Table 8" in text and report.score([second]) == ""


def test_a_picture_shows_each_number_beside_the_papers(monkeypatch):
  figures = []
  monkeypatch.setattr(
    report.printing, "save_figure", lambda figure, path: figures.append(figure)
  )
  point = {"step": 0, "loss": 8.0}
  curve = [point, {**point, "step": 5, "loss": 5.0}]
  _report(
    "7",
    no_additional_data={"MNLI": [40.0, 41.0], "curve": [curve]},
    with_additional_data={"MNLI": [45.0]},
  ).draw("")
  scores, paper, curves = figures[0].axes
  titles = [axis.get_title() for axis in figures[0].axes]
  assert titles == ["MNLI", "MNLI, paper", "held-out MLM loss by updates"]
  assert [[*line.get_xdata()] for line in scores.lines] == [
    [40.0, 41.0],
    [45.0],
  ]
  assert [[*line.get_xdata()] for line in paper.lines] == [[81.6], [82.4]]
  assert [*curves.lines[0].get_xdata()] == [5]
  _report("8").draw("")
  assert len(figures) == 1
