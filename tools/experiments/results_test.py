"""Tests of results.py: what is read of finished runs, and the verdicts."""

from __future__ import annotations

import json
import math

import pytest

from official_albert.tools.experiments import results, scales, tables
from official_albert.tools.experiments.results import Cell, RowResults
from official_albert.tools.experiments.tables import Row

_CONFIG = scales.SCALES["tiny"].config({"num_hidden_layers": 6})


def _train(step: int, speed: float, depth: int = 6) -> dict:
  """A log line; an operation is one for each layer and sequence."""
  return {
    "kind": "train",
    "step": step,
    "loss": 5.0,
    "unix_time_seconds": 1000.0 * step,
    "sequences_per_second": speed,
    "tokens_per_second": 64 * speed,
    "model_flops_per_second": speed * depth,
  }


def _eval(step: int, loss: float, depth: int = 6) -> dict:
  return {
    "kind": "eval",
    "step": step,
    "phase": 1 if depth == 3 else 2,
    "depth": depth,
    "loss": loss + 1,
    "masked_lm_loss": loss,
    "masked_lm_accuracy": 0.25,
    "sentence_order_accuracy": 0.75,
  }


_START = {"kind": "start", "step": 0}
_UNINTERRUPTED = [
  *(_eval(0, 9.0, 3), _START),
  # The first line of each depth is of a loop that compiles.
  *(_train(10, 1.0, 3), _train(20, 8.0, 3), _eval(20, 6.0, 3), _eval(20, 7.0)),
  *(_train(30, 1.0), _train(40, 4.0), _eval(40, 5.0)),
]


def _read(folder, records, before="") -> dict:
  lines = "".join(json.dumps(record) + "\n" for record in records)
  (folder / "metrics.jsonl").write_text(before + lines)
  return results.read_pretraining(str(folder), _CONFIG, batch_size=2)


def test_numbers_of_a_finished_run(tmp_path):
  found = _read(tmp_path, _UNINTERRUPTED)
  assert found["steps"] == 40
  assert found["parameters"] == _CONFIG.parameter_count()
  assert (found["masked_lm_loss"], found["masked_lm_accuracy"]) == (5.0, 25.0)
  # 20 updates of 2 sequences at 8 a second, then 20 at 4 a second.
  assert [tuple(point.values()) for point in found["curve"]] == [
    (0, 3, 9.0, 0.0, 0.0),
    (20, 3, 6.0, 5.0, 120.0),
    (20, 6, 7.0, 5.0, 20 * 2 * 3.0),
    (40, 6, 5.0, 5.0 + 10.0, 20 * 2 * 3.0 + 20 * 2 * 6.0),
  ]


def test_a_killed_run_reads_like_an_uninterrupted_one(tmp_path):
  """Killed at the switch of the depth, and in the middle of a line."""
  uninterrupted = _read(tmp_path, _UNINTERRUPTED)
  records = [
    *_UNINTERRUPTED[:6],
    *(_train(30, 1.0), _eval(20, 6.0, 3), _eval(20, 7.0), _START),
    *(_train(30, 0.5), _train(40, 4.0), _eval(40, 5.0)),
  ]
  assert _read(tmp_path, records, before='{"kind": "tra\n') == uninterrupted


def test_times_use_the_median_speed(tmp_path):
  slow = [_train(10 * i, speed) for i, speed in enumerate((1, 4, 4, 0.1, 4), 1)]
  found = _read(tmp_path, [_START, *slow, _eval(50, 5.0)])
  assert found["curve"][-1]["seconds"] == 50 * 2 / 4
  # A single line counts, although it includes compilation.
  found = _read(tmp_path, [_START, _train(10, 4.0), _eval(10, 5.0)])
  assert found["curve"][-1]["seconds"] == 5.0


def test_speed_excludes_the_loop_that_compiles(tmp_path):
  lines = [_train(step, step / 10) for step in (10, 70, 90, 80)]
  _read(tmp_path, [_START, *lines, _eval(90, 5.0)])
  assert results.read_speed(str(tmp_path)) == {"tokens_per_second": 64 * 8.0}


_SQUAD_2 = {"exact": 40.0, "f1": 50.0, "best_exact": 60.0, "best_f1": 70.0}


@pytest.mark.parametrize(
  "task, metrics, values",
  [
    ("MNLI", {"accuracy": 0.25}, [25.0]),
    ("SQuAD1.1", {"exact_match": 50.0, "f1": 60.0}, [55.0, 60.0, 50.0]),
    ("SQuAD2.0", _SQUAD_2, [65, 70, 60]),
  ],
)
def test_results_of_tasks_are_percent(tmp_path, task, metrics, values):
  text = json.dumps({"dev_matched": metrics, "other": {}})
  (tmp_path / "eval_results.json").write_text(text)
  names = [task, f"{task} F1", f"{task} EM"]
  found = results.read_finetuning(str(tmp_path), task)
  assert found == dict(zip(names, values))
  # Of the most frequent answer.
  text = json.dumps({"majority": {"dev_matched": metrics, "other": {}}})
  (tmp_path / "summary.json").write_text(text)
  again = results.read_finetuning(str(tmp_path), task)
  assert again == {**found, f"{task} chance": values[0]}


def _point(seconds: float, loss: float, depth: int = 4) -> dict:
  flops = 10 * seconds * depth
  return dict(seconds=seconds, loss=loss, depth=depth, flops=flops)


@pytest.mark.parametrize(
  "loss, seconds", [(8.0, 10.0), (7.0, 20.0), (6.25, 35.0), (5.0, math.inf)]
)
def test_a_loss_is_reached_on_the_line_between_evaluations(loss, seconds):
  curve = [_point(0, 9.0), _point(20, 7.0), _point(40, 6.0), _point(60, 6.5)]
  assert results.cost_to_reach(curve, loss, "seconds") == seconds
  assert results.cost_to_reach(curve, loss, "flops") == 40 * seconds


def test_only_losses_at_full_depth_count():
  shallow = [_point(0, 9.0, 3), _point(10, 6.0, 3)]
  curve = [*shallow, _point(10, 8.0), _point(20, 5.0)]
  assert results.cost_to_reach(curve, 6.5, "seconds") == 15.0
  # The first evaluation at full depth may be good enough.
  assert results.cost_to_reach(curve, 8.5, "seconds") == 10.0


def _table(*rows: Row, **options) -> tables.Table:
  return tables.Table("t", "title", "source", "question?", rows, **options)


def test_rows_have_the_numbers_of_their_seeds():
  columns = ("MLM loss", "MLM", "NSP", tables.SCORES)
  table = _table(Row("a"), Row("b"), columns=columns)
  curve = [_point(0, 8.0), _point(10, 5.0)]
  cells = [
    Cell("a", 1, ("models/a1", "tasks/a1-mnli", "evaluations/a1-nsp")),
    Cell("a", 2, ("models/a2", "tasks/a2-mnli", "evaluations/a2-nsp")),
    Cell("b", 1, ("models/b1", "tasks/b1-mnli", "evaluations/b1-nsp")),
  ]
  intrinsic = {"masked_lm_loss": 5.0, "masked_lm_accuracy": 20.0}
  squad = {"SQuAD1.1": 5.0, "SQuAD1.1 F1": 6, "SQuAD1.1 EM": 4}
  found = {
    "models/a1": {"parameters": 77, **intrinsic, "curve": curve},
    "models/a2": {"parameters": 77, "masked_lm_loss": 7.0},
    "tasks/a1-mnli": {"MNLI": 40.0, **squad},
    "evaluations/a1-nsp": {"nsp_accuracy": 60.0},
  }
  a, b = results.collect(table, cells, found, ("MNLI",))
  assert a.parameters == 77
  assert a.values == {
    "MLM loss": [5.0, 7.0],
    "MLM": [20.0],
    "NSP": [60.0],
    "MNLI": [40.0],
    "Avg": [40.0],
  }
  assert a.number("MLM loss") == results.Number(6.0, 5.0, 7.0, 2)
  assert a.curves == [curve]
  assert (b.parameters, b.values, b.number("MLM")) == (None, {}, None)
  a, _ = results.collect(table, cells, found, ("SQuAD1.1",))
  assert {a.values[f"SQuAD1.1{m}"][0] for m in ("", " F1", " EM")} == {4, 5, 6}
  # An average needs all tasks.
  a, _ = results.collect(table, cells, found, ("MNLI", "RACE"))
  assert "Avg" not in a.values
  assert table.titles(("MNLI", "RACE"))[3:] == ["MNLI", "RACE", "Avg"]
  # One task is its own average.
  assert table.titles(("MNLI",))[3:] == ["MNLI"]


def test_times_are_shares_of_the_row_compared_with():
  rows = Row("constant"), Row("schedule", compared_with="constant")
  table = _table(*rows, columns=(tables.SAME_LOSS, tables.SAME_LOSS_FLOPS))
  cells = [Cell("constant", 1, ("c",)), Cell("schedule", 1, ("s",))]
  shallow = [_point(0, 9.0, 2), _point(5, 4.0, 2)]
  deep = [_point(5, 7.0), _point(10, 5.0), _point(20, 4.0)]
  found = {
    "c": {"curve": [_point(0, 9.0), _point(40, 5.0)]},
    "s": {"curve": [*shallow, *deep]},
  }
  constant, schedule = results.collect(table, cells, found, ())
  assert constant.values[tables.SAME_LOSS] == [1.0]
  assert schedule.values[tables.SAME_LOSS] == [0.25]
  assert schedule.values[tables.SAME_LOSS_FLOPS] == [400 / 1600]


def test_summaries_of_layers_and_speeds():
  table = _table(Row("a"), columns=(tables.JUMP,))
  layers = [{"degrees": degrees} for degrees in (30.0, 21.0, 25.0)]
  cells = [Cell("a", 1, ("models/a", "layers/a"))]
  [row] = results.collect(table, cells, {"layers/a": {"layers": layers}}, ())
  assert row.values == {
    "first layer": [30.0],
    "last layer": [25.0],
    "largest jump": [9.0],
  }
  # Speeds are measured once for all seeds.
  labels = ("b", "BERT-large")
  table = _table(*map(Row, labels), columns=("speed",))
  cells = [Cell(label, seed, (label,)) for label in labels for seed in (1, 2)]
  speeds = {"b": 30.0, "BERT-large": 5.0}
  found = {label: {"tokens_per_second": speeds[label]} for label in labels}
  b, reference = results.collect(table, cells, found, ())
  assert (b.values["speed"], reference.values["speed"]) == ([6.0], [1.0])


_PAPER = (
  Row("a", paper={"MNLI": 80.0, "RACE": 60.0}),
  Row("b", compared_with="a", paper={"MNLI": 81.0, "RACE": 50.0}),
  Row("c", compared_with="a", paper_says=1),
  Row("d", compared_with="a", paper={"MNLI": 80.0, "RACE": 60.15}),
)


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
  ours, others = (
    RowResults(Row("a"), values={"x": list(v)}).number("x")
    for v in (here, there)
  )
  assert results.verdict(paper, ours, others) == expected


def _verdicts(table, *values) -> dict:
  rows = [
    RowResults(row, values=value)
    for row, value in zip(table.rows, values, strict=True)
  ]
  return results.verdicts(table, rows, ("MNLI",))


def test_tasks_and_held_out_text_are_judged_separately():
  assert _verdicts(
    _table(*_PAPER),
    {"Avg": [50.0, 52.0], "MLM": [10.0, 11.0]},
    {"Avg": [55.0, 56.0], "MLM": [12.0, 13.0]},
    {"MLM": [9.0, 10.5]},
    {},
  ) == {
    "b": {"tasks": "shown: higher", "MLM": "contradicted: higher"},
    "c": {"MLM": "not resolved"},
    "d": {},
  }


def test_held_out_numbers_of_the_paper_take_precedence():
  # Worse on the task, better on held-out text.
  paper = {"MLM": 54.9, "NSP": 52.0, "MNLI": 81.5}
  table = _table(
    Row("a", paper={"MLM": 54.0, "NSP": 79.0, "MNLI": 82.0}),
    Row("b", compared_with="a", paper=paper),
    columns=("MLM", "NSP", tables.SCORES),
  )
  values = (
    {"MLM": [20.0, 20.5], "NSP": [70.0, 71.0]},
    {"MLM": [21.0, 22.0], "NSP": [65.0, 66.0]},
  )
  assert _verdicts(table, *values)["b"] == {
    "MLM": "shown: higher",
    "NSP": "shown: lower",
  }


@pytest.mark.parametrize(
  "pair, here, there, judged",
  [
    ("nsp", [49.0, 52.5], [70.0, 71.0], True),
    ("nsp", [70.0, 71.0], [49.0, 52.5], True),
    # One seed of the better row is at chance.
    ("nsp", [50.0, 50.5], [52.0, 60.0], False),
    ("nsp", [49.0, 60.0], [50.0, 51.0], False),
    # It has no head that was trained.
    ("none", [49.0, 52.5], [70.0, 71.0], False),
  ],
)
def test_sentence_objectives_that_nobody_learned_are_not_judged(
  pair, here, there, judged
):
  table = _table(
    Row("sop", paper={"SOP": 86.5}),
    Row("b", compared_with="sop", paper={"SOP": 52.0}, sentence_pair=pair),
    columns=("SOP",),
  )
  values = ({"SOP": v, "SOP chance": [52.0, 52.0]} for v in (there, here))
  assert ("SOP" in _verdicts(table, *values)["b"]) == judged


def test_without_tasks_one_column_is_judged():
  for column, base in (("MLM", "MLM"), (tables.JUMP, "largest jump")):
    table = _table(*_PAPER, columns=("MLM", column))
    judged = _verdicts(table, *({column: [i, i + 0.5]} for i in range(4)))
    # By the average over all its tasks the paper finds b worse.
    assert judged["b"] == {base: "contradicted: higher"}
    assert judged["c"] == {base: "shown: higher"}
