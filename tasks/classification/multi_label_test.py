"""Several labels of a text: tables, losses, thresholds and metrics."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official_albert import labels as labels_lib
from official_albert.tasks import common, registry
from official_albert.tasks.classification import multi_label, task_test

_LABELS = ("cold", "wet", "windy")
_ROWS = [("w7", "wet,cold"), ("w8 w9", ""), ("w5", "windy"), ("w6", "cold")]
_GOLD = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]


def _write(folder, kind):
  """Writes the rows in one of three forms; returns the flags."""
  if kind == "columns":
    lines = [f"text,{','.join(_LABELS)}"]
    lines += [f"{t},{','.join(map(str, r))}" for (t, _), r in zip(_ROWS, _GOLD)]
  elif kind == "lists":
    rows = ({"text": t, "label": x.split(",") if x else []} for t, x in _ROWS)
    lines = [json.dumps(row) for row in rows]
  else:
    lines = ["text,label", *(f"{t},{x.replace(',', ' | ')}" for t, x in _ROWS)]
  path = folder / f"{kind}.{'jsonl' if kind == 'lists' else 'csv'}"
  path.write_text("\n".join(lines) + "\n")
  columns = {"label_column": ",".join(_LABELS)} if kind == "columns" else {}
  files = {f"{split}_file": str(path) for split in ("train", "dev", "test")}
  return {**files, **columns, "label_separator": "|"}


def _task(folder, kind="cells", **changes):
  options = task_test.options(folder, **{**_write(folder, kind), **changes})
  return registry.make_task("text_multi_label", options)


@pytest.mark.parametrize("kind", ["columns", "lists", "cells"])
def test_the_forms_of_a_table_are_the_same(kind, tmp_path):
  task = _task(tmp_path, kind)
  assert task.labels == _LABELS
  np.testing.assert_array_equal(task.gold("train"), _GOLD)
  config = task_test._CONFIG
  task = task.with_records(["train", "dev"], config)
  assert task.describe()["settings"]["label_separator"] == "|"
  (batch,) = task.dataset("dev", 4)
  np.testing.assert_array_equal(batch["label_ids"], _GOLD)
  assert batch["label_ids"].dtype == tf.float32


def test_losses_and_predictions_by_hand(tmp_path):
  task = _task(tmp_path)
  logits = np.array(
    [[2, -1, 0.5], [0, 3, -2], [1, 1, 1], [-4, 0, 2]], "float32"
  )
  batch = {
    "label_ids": tf.constant(_GOLD, tf.float32),
    "example_weight": tf.constant([1.0, 1.0, 0.0, 1.0]),
    "example_id": tf.range(4),
  }
  outputs = {"logits": tf.constant(logits)}
  chances = 1 / (1 + np.exp(-logits))
  right = np.where(np.array(_GOLD) > 0, chances, 1 - chances)
  totals, _ = task.losses(None, outputs, batch, True)
  expected = -np.log(right).mean(axis=1)[[0, 1, 3]].sum()
  np.testing.assert_allclose(totals["text_multi_label"], expected, rtol=1e-6)
  values = task.predictions(None, outputs, batch)["values"]
  np.testing.assert_allclose(values, chances, rtol=1e-6)


@pytest.mark.parametrize(
  "size, expected", [(128, 0.3), (288, 0.2), (768, 0.88 * 0.02)]
)
def test_the_head_of_small_models_has_larger_weights(size, expected, tmp_path):
  names = [f"label {number}" for number in range(97)]
  task = _task(tmp_path, labels=[*_LABELS, *names])
  config = dataclasses.replace(
    task_test._CONFIG,
    hidden_size=size,
    num_attention_heads=4,
    initializer_range=0.02,
  )
  task = task.with_records(["dev"], config)
  models = []
  for seed in (3, 3, 4):
    tf.keras.utils.set_random_seed(seed)
    models.append(task.build_model().classifier)
  weights = [head.output_weights.numpy() for head in models]
  np.testing.assert_allclose(weights[0].std(), expected, rtol=0.03)
  np.testing.assert_array_equal(weights[0], weights[1])
  assert np.abs(np.corrcoef(weights[0].ravel(), weights[2].ravel())[0, 1]) < 0.1
  assert not models[0].output_bias.numpy().any()


def _f1(gold, decided):
  hits = (gold & decided).sum()
  return 2 * hits / max(1, gold.sum() + decided.sum())


def test_thresholds_have_the_highest_f1():
  rng = np.random.default_rng(3)
  gold = rng.random([40, 5]) < [0.5, 0.1, 0.9, 0.3, 0.0]
  values = rng.random([40, 5]) + 0.4 * gold
  values = np.float32(np.ceil(6 * values) / 9)  # Many are equal.
  found = labels_lib.best_thresholds(values, gold.astype(np.float32))
  for label, threshold in enumerate(found):
    column, right = values[:, label], gold[:, label]
    best = max(_f1(right, column >= x) for x in column)
    assert _f1(right, column >= threshold) == best
  assert found[4] == 0.5
  # The middle of two neighbors is one of them, which is not always the higher.
  numbers = [np.float32(0.75)]
  for _ in range(2):
    numbers.append(np.nextafter(numbers[-1], np.float32(1)))
    pair = np.array(numbers[-2:])[:, None]
    (threshold,) = labels_lib.best_thresholds(pair, np.array([[0], [1]]))
    assert threshold == numbers[-1]


def test_metrics_by_hand(tmp_path):
  task, gold = _task(tmp_path), np.array(_GOLD, np.float32)
  values = np.float32(
    [[0.9, 0.2, 0], [0.1, 0.3, 0], [0.2, 0.1, 0.4], [0.3, 0, 0]]
  )
  # Of wet, the row without it comes first: its precision is 1/2.
  expected = {"mean_average_precision": (1 + 0.5 + 1) / 3}
  # At 0.5, one label of four is found, of cold; the thresholds find all.
  halves = {**expected, "micro_f1": 2 / 5, "macro_f1": (2 / 3) / 3}
  found = multi_label.scores(values, gold, np.full(3, 0.5))
  assert found == pytest.approx(halves)
  assert task.metrics("test", values) == pytest.approx(halves)
  found = task.metrics("dev", values)
  wet = found.pop("wet threshold")
  assert found.pop("cold threshold") == pytest.approx(0.25)
  assert found.pop("windy threshold") == pytest.approx(0.2) and 0.1 < wet < 0.2
  expected |= {"micro_f1": 8 / 9, "macro_f1": (1 + 2 / 3 + 1) / 3}
  assert found == pytest.approx(expected)
  # They apply to the other splits, and to tables.
  assert task.metrics("test", values) == pytest.approx(expected)
  table = common.ProbabilityTable(("a", "b", "c", "d"), _LABELS, values)
  (path,) = task.write_answers("test", table, str(tmp_path))
  cells = [row[1] for _, row in common.read_tsv(path)]
  assert cells == ["prediction", "cold,wet", "wet", "windy", "cold"]
  # A constant has the share of each label as its precision.
  constant = task.majority("dev")
  assert constant["mean_average_precision"] == pytest.approx((0.5 + 0.5) / 3)


@pytest.mark.parametrize(
  "row, columns, named",
  [
    ({"label": ["cold", "cold"]}, ["label"], "'label' has a label twice"),
    ({"label": "['cold', 'wet']"}, ["label"], "'label' is a list in one"),
    ({"label": '{"cold","wet"}'}, ["label"], "'label' is a list in one"),
    ({"label": "{cold|wet}"}, ["label"], "'label' is a list in one"),
    ({"label": "cold|"}, ["label"], r"'label\[\]' is empty"),
    ({"label": [["cold"]]}, ["label"], r"'label\[\]' must be text"),
    ({"label": "cold||wet"}, ["label"], r"'label\[\]' is empty"),
    ({"cold": "1", "wet": "-1"}, ["cold", "wet"], "'wet' is not 0 or 1, but"),
  ],
)
def test_wrong_cells_are_refused(row, columns, named):
  record = common.Record("a.csv, line 3", row)
  with pytest.raises(ValueError, match=f"^a.csv, line 3: {named}"):
    multi_label.read_labels(record, columns, "|")


def test_names_may_be_in_brackets():
  for cell in ("(sad)|(fun, too)", "[sad]|[fun]", "{x}", ":)|:("):
    record = common.Record("a.csv, line 3", {"label": cell})
    found = multi_label.read_labels(record, ["label"], "|")
    assert found == (*cell.split("|"),)


@pytest.mark.parametrize(
  "changes, named",
  [
    ({"label_separator": ""}, "--label_separator is empty"),
    ({"label_column": "cold,wet"}, "there is no column 'cold'"),
    ({"label_column": "label,label"}, "column .label. is given twice"),
  ],
)
def test_wrong_flags_are_refused(changes, named, tmp_path):
  with pytest.raises(ValueError, match=named):
    _task(tmp_path, **changes).check(["train"])


def test_unknown_labels_of_dev_are_refused(tmp_path):
  task = _task(tmp_path, labels=("cold", "wet"))
  with pytest.raises(ValueError, match="line 4: unknown label 'windy'"):
    task.examples("dev")


def _table(folder, name, labels):
  rows = ({"text": f"w{i + 5}", "label": x} for i, x in enumerate(labels))
  (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
  return str(folder / name)


def test_labels_of_test_data_may_be_placeholders(tmp_path):
  path = _table(tmp_path, "test.jsonl", ["", None, []])
  task = _task(tmp_path, test_file=path)
  assert not task.is_labeled("test")
  assert [x.guid for x in task.examples("test")] == ["0", "1", "2"]
  task = _task(tmp_path, test_file=_table(tmp_path, "one.jsonl", ["", "cold"]))
  assert task.is_labeled("test")


def test_test_data_has_all_columns_of_labels_or_none(tmp_path):
  path = tmp_path / "test.csv"
  for columns in ("cold,windy", "wet"):
    path.write_text(f"text,{columns}\nw5,1{',0' * columns.count(',')}\n")
    lacking = "'wet'" if "cold" in columns else "'cold', 'windy'"
    with pytest.raises(ValueError, match=f"test.csv has .* not {lacking}: giv"):
      _task(tmp_path, "columns", test_file=str(path)).examples("test")
  path.write_text("text\nw5\n")
  task = _task(tmp_path, "columns", test_file=str(path))
  assert task.examples("test")[0].label is None


def test_data_without_a_label(tmp_path):
  notes, path = [], _table(tmp_path, "dev.jsonl", [[], ["wet"], "wet| cold"])
  _task(tmp_path, dev_file=path, note=notes.append).check(
    ["train", "dev", "test"]
  )
  assert [x for x in notes if "no row" in x] == ["no row of dev has 'windy'"]
  path = _table(tmp_path, "none.jsonl", ["", ""])
  with pytest.raises(ValueError, match="none.jsonl: no row of dev has a label"):
    _task(tmp_path, dev_file=path).check(["dev"])
  path = _table(tmp_path, "ones.jsonl", [[1, 0], [0, 1]])
  with pytest.raises(ValueError, match="every row of train has all labels"):
    _task(tmp_path, train_file=path).check(["train"])
  path = _table(tmp_path, "numbers.jsonl", [3, [1, 3], 2])
  assert _task(tmp_path, train_file=path).labels == ("1", "2", "3")


def test_the_separator_may_be_wrong(tmp_path):
  path = _table(tmp_path, "train.jsonl", ["a;b", "a", "b"])
  with pytest.raises(ValueError, match="'a;b' is .* --label_separator is '|'"):
    _task(tmp_path, train_file=path)
  notes, path = [], _table(tmp_path, "train.jsonl", ["a;b", "c"])
  _task(tmp_path, train_file=path, note=notes.append).check(["train"])
  assert "--label_separator '|' what joins them?" in notes[-1]
  path = tmp_path / "columns.csv"  # These need none.
  path.write_text("text,cold,wet\nw5,1,0\nw6,0,1\n")
  names = {"train_file": str(path), "label_column": "cold,wet"}
  names |= {"dev_file": str(path), "test_file": "", "note": notes.append}
  _task(tmp_path, **names).check(["train"])
  assert len(notes) == 1


def test_thresholds_are_not_among_the_metrics_of_training(tmp_path):
  task = _task(tmp_path).with_records(["dev"], task_test._CONFIG)
  values = np.float32(np.random.default_rng(5).random([4, 3]))
  found = task.score({"values": values})
  assert {*found} == {"mean_average_precision", "micro_f1", "macro_f1"}
  assert "cold threshold" in task.metrics("dev", values)
