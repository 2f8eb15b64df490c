"""Trains on Parquet and folders of datasets; invalid and shared rows."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import ipc, parquet

import official_albert
from official_albert.tasks import common
from official_albert.tools.testing import many_commands, toy_data, toy_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """An encoder; rows as Parquet, and in a folder of datasets with classes."""
  path = tmp_path_factory.mktemp("tables")
  toy_runs.write_pretrained(str(path / "encoder"))
  for split, count in (("train", 40), ("dev", 9)):
    toy_data.write_table(str(path / f"{split}.tsv"), count)
    rows = common.read_table(str(path / f"{split}.tsv"), ["review", "mood"])
    cells = [record.cells for record in rows]
    table = pyarrow.Table.from_pylist(cells)
    parquet.write_table(table, path / f"{split}.parquet", row_group_size=7)
    classes = [["bad", "good"].index(row["mood"]) for row in cells]
    about = {"features": {"mood": {"names": ["bad", "good"]}}}
    about["features"]["mood"]["_type"] = "ClassLabel"
    columns = {"review": table["review"], "mood": classes}
    table = pyarrow.table(
      columns, metadata={"huggingface": json.dumps({"info": about})}
    )
    (path / "saved" / split).mkdir(parents=True)
    with ipc.new_stream(
      str(path / "saved" / split / "a.arrow"), table.schema
    ) as (writer):
      writer.write_table(table)
    state = {"_data_files": [{"filename": "a.arrow"}]}
    (path / "saved" / split / "state.json").write_text(json.dumps(state))
  return path


def _line(folder, name, train, dev, *more):
  return [
    *("--task=text_classification", f"--init_checkpoint={folder}/encoder"),
    *(f"--train_file={train}", f"--dev_file={dev}", "--text_column=review"),
    *("--label_column=mood", "--max_seq_length=24", "--num_train_steps=3"),
    *("--train_batch_size=4", "--nolength_bucketing", "--nodo_predict"),
    *(f"--output_dir={folder}/{name}", f"--cache_dir={folder}/records", *more),
  ]


def test_tables_of_all_kinds_train_the_same_model(folder):
  kinds = ("{}.tsv", "{}.parquet", "saved/{}")
  lines = [
    _line(
      folder,
      f"run{i}",
      *(f"{folder}/{kind.format(s)}" for s in ("train", "dev")),
    )
    for i, kind in enumerate(kinds)
  ]
  results = many_commands.run("run_finetuning", lines)
  # The same examples have the same records.
  assert [x.out.count("train records to") for x in results] == [1, 0, 0]
  assert not any("warning: left out" in x.out for x in results)
  found = [
    (folder / f"run{i}" / "predictions/dev.probabilities.tsv").read_bytes()
    for i in range(len(kinds))
  ]
  assert found[0] == found[1] == found[2]
  run = f"--model_dir={folder}/run0"
  answers = many_commands.run(
    "predict",
    [[run, f"--input_file={folder}/{kind.format('dev')}"] for kind in kinds],
  )
  assert answers[0].out == answers[1].out == answers[2].out
  assert answers[0].out.count("\n") == 9


def test_invalid_and_shared_rows(folder):
  train = (folder / "train.tsv").read_text().splitlines()
  dev = (folder / "dev.tsv").read_text().splitlines()
  bad = [*train[:5], "good\t", "bad", *train[5:], "\tx", "bad\tcaf\xe9"]
  (folder / "bad.tsv").write_bytes(("\n".join(bad) + "\n").encode("latin-1"))
  again = [*dev, train[7].replace("\t", "\t ").upper().replace("BAD", "bad")]
  (folder / "again.tsv").write_text("\n".join(again).replace("GOOD", "good"))
  line = _line(folder, "left", f"{folder}/bad.tsv", f"{folder}/again.tsv")
  many_commands.check_refusals(
    "run_finetuning", [(line, "bad.tsv, line 6: 'review' is empty")]
  )
  (left,) = many_commands.run("run_finetuning", [[*line, "--skip_invalid"]])
  assert "left out 1 rows, because 'review' is empty" in left.out
  assert "1 of the 10 dev rows are also training rows" in left.out
  assert f"{folder}/again.tsv, line 11, which is {folder}/bad.tsv" in left.out
  assert left.out.count("also training rows") == 1
  data = json.loads((folder / "left" / "run.json").read_text())["data"]
  assert data["left_out"]["train"] == {
    "'review' is empty": 1,
    "has another number of columns than the header": 1,
    "'mood' is empty": 1,
    "is not UTF-8": 1,
  }


_TEXTS = ["the sea", "a warm old sea " * 9, "Größe 東京 \u200b x"]
_OTHERS = _TEXTS[::-1]
_LABELS = ("O", "B-a", "I-a")
# What is in the file of predictions, and what `load` answers.
_TASKS = {
  "text_classification": lambda x: x.classify(_TEXTS),
  "text_multi_label": lambda x: x.classify(_TEXTS),
  "text_pair_regression": lambda x: x.score(_TEXTS, _OTHERS),
  "token_classification": lambda x: x.tag(_TEXTS),
  "text_embedding": lambda x: x.similarity(_TEXTS, _OTHERS).diagonal(),
}


@pytest.mark.parametrize("task", _TASKS)
def test_a_test_file_alone_is_predicted_as_by_load(tmp_path, task):
  labels = (
    None if task in ("text_pair_regression", "text_embedding") else _LABELS
  )
  toy_runs.write_finetuned(str(tmp_path / "run"), task, labels, 19)
  lines = [
    json.dumps({"text": x, "text_b": y}) for x, y in zip(_TEXTS, _OTHERS)
  ]
  (tmp_path / "new.jsonl").write_text("\n".join(lines))
  line = [
    *(f"--task={task}", f"--output_dir={tmp_path}/run", "--nodo_train"),
    f"--test_file={tmp_path}/new.jsonl",
  ]
  (done,) = many_commands.run("run_finetuning", [line])
  (path,) = (tmp_path / "run/predictions").iterdir()
  assert path.name.startswith("test.") and f"wrote {path}" in done.out
  # Pairs of a text and one that belongs to it can be scored.
  is_scored = "| test" in done.out or "test: mrr" in done.out
  assert is_scored == (task == "text_embedding")
  answers = _TASKS[task](official_albert.load(tmp_path / "run"))
  if task == "token_classification":
    rows = [json.loads(x)["prediction"] for x in path.read_text().splitlines()]
    spans = [[(x.start, x.end, x.label) for x in row] for row in answers]
    assert [
      [(x["start"], x["end"], x["label"]) for x in r] for r in rows
    ] == spans
    assert any(spans)
    return
  _, *rows = (cells for _, cells in common.read_tsv(str(path)))
  if labels:
    chosen = [x.label if task[5] == "c" else ",".join(x.label) for x in answers]
    assert [row[1] for row in rows] == chosen
    answers = [[*x.probabilities.values()] for x in answers]
  found = np.array([row[2 if labels else 1 :] for row in rows], float)
  np.testing.assert_allclose(found.squeeze(), answers, rtol=1e-4, atol=1e-6)
