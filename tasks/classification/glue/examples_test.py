"""Tests of GLUE's tasks and recipes, and of files of a few rows."""

from __future__ import annotations

import pytest

from tasks import common
from tasks.classification.glue import benchmark, examples

Example = common.TextExample
_TASKS = benchmark.GLUE_TASKS
_MNLI = (
  "index|promptID|pairID|genre|Sentence1_binary_parse|Sentence2_binary_parse|"
  "Sentence1_parse|Sentence2_parse|sentence1|sentence2"
)
_MNLI_ROW = "7|p|q|fiction|(x|(y|ROOT|ROOT|A b .|B"
_STSB = (
  "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
)
_STSB_ROW = "9|news|f|2012|1|none|none|A|B"
_PAIR = "index|sentence1|sentence2|label"


def write(root, name, *rows, end="\n"):
  """Writes rows, whose cells are separated by |, and returns the path."""
  path = root / name
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "".join(row.replace("|", "\t") + end for row in rows)
  path.write_bytes(text.encode("utf-8"))
  return str(path)


def read(root, name, split):
  return examples.read_split(str(root), _TASKS[name], split)


@pytest.mark.parametrize(
  "name, file, rows, expected",
  [
    # CoLA's files with labels have no header.
    (
      "cola",
      "CoLA/train.tsv",
      ['gj04|1||He said "hi.', "b99|0|*|Said he hi."],
      [("0", 'He said "hi.', None, "1"), ("1", "Said he hi.", None, "0")],
    ),
    ("cola", "CoLA/test.tsv", ["index|sentence", "5|A."], [("5", "A.")]),
    (
      "sst2",
      "SST-2/dev.tsv",
      ["sentence|label", "a gem . |1", "a bore . |0"],
      [("0", "a gem . ", None, "1"), ("1", "a bore . ", None, "0")],
    ),
    ("sst2", "SST-2/test.tsv", ["index|sentence", "3|A."], [("3", "A.")]),
    (
      "mrpc",
      "MRPC/train.tsv",
      ["\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String", '1|70|71|" A "|" B'],
      [("0", '" A "', '" B', "1")],
    ),
    (
      "mrpc",
      "MRPC/test.tsv",
      ["index|#1 ID|#2 ID|#1 String|#2 String", "11|70|71|A|B"],
      [("11", "A", "B")],
    ),
    (
      "stsb",
      "STS-B/dev.tsv",
      [f"{_STSB}|score", f"{_STSB_ROW}|2.600"],
      [("9", "A", "B", "2.600")],
    ),
    ("stsb", "STS-B/test.tsv", [_STSB, _STSB_ROW], [("9", "A", "B")]),
    (
      "qqp",
      "QQP/test.tsv",
      ["id|question1|question2", "39|A?|"],
      [("39", "A?", "")],
    ),
    (
      "mnli",
      "MNLI/train.tsv",
      [f"{_MNLI}|label1|gold_label", f"{_MNLI_ROW}|entailment|neutral"],
      [("7", "A b .", "B", "neutral")],
    ),
    (
      "mnli",
      "MNLI/dev_mismatched.tsv",
      [
        f"{_MNLI}|label1|label2|label3|label4|label5|gold_label",
        f"{_MNLI_ROW}|{'entailment|' * 5}contradiction",
      ],
      [("7", "A b .", "B", "contradiction")],
    ),
    (
      "mnli",
      "MNLI/test_matched.tsv",
      [_MNLI, _MNLI_ROW],
      [("7", "A b .", "B")],
    ),
    (
      "mnli",
      "diagnostic/diagnostic.tsv",
      ["index|sentence1|sentence2", "0|A|B"],
      [("0", "A", "B")],
    ),
    (
      "qnli",
      "QNLI/train.tsv",
      ["index|question|sentence|label", "4|A?|B|entailment"],
      [("4", "A?", "B", "entailment")],
    ),
    (
      "rte",
      "RTE/dev.tsv",
      [_PAIR, "6|A|B|not_entailment"],
      [("6", "A", "B", "not_entailment")],
    ),
    ("wnli", "WNLI/train.tsv", [_PAIR, "2|A|B|0"], [("2", "A", "B", "0")]),
  ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_columns(tmp_path, name, file, rows, expected, end):
  path = write(tmp_path, file, *rows, end=end)
  folder, split = file.removesuffix(".tsv").split("/")
  split = "ax" if split == "diagnostic" else split
  expected = [Example(*values) for values in expected]
  assert read(tmp_path, name, split) == examples.Split(path, expected)
  # The task's own folder is accepted too.
  assert read(tmp_path / folder, name, split).examples == expected


def test_short_rows_of_qqp(tmp_path):
  write(
    tmp_path,
    "QQP/train.tsv",
    "id|qid1|qid2|question1|question2|is_duplicate",
    "133273|213221|213222|How is a|Why is a?|1",
    "402555|536040|536041|How do I",
    "cut here?|What next?|0",
    "360472|364011|490273|What?||0",
  )
  split = read(tmp_path, "qqp", "train")
  assert split.skipped_lines == (3, 4)
  assert split.examples == [
    Example("133273", "How is a", "Why is a?", "1"),
    Example("360472", "What?", "", "0"),
  ]
  write(tmp_path, "QQP/test.tsv", "id|question1|question2", "0|A?")
  with pytest.raises(ValueError, match="test.tsv, line 2 has 2 columns, qqp n"):
    read(tmp_path, "qqp", "test")


def test_names_of_folders(tmp_path):
  rows = ["index|sentence1|sentence2", "0|A|B"]
  path = write(tmp_path, "AX/diagnostic.tsv", *rows)
  (tmp_path / "MNLI").mkdir()
  for root in (tmp_path, tmp_path / "MNLI"):
    assert read(root, "mnli", "ax").path == path
  for folder in ("STS-B", "STSB", "sts_b"):
    root = tmp_path / f"as {folder}"
    path = write(root, f"{folder}/test.tsv", _STSB, _STSB_ROW)
    assert read(root, "stsb", "test").path == path


def test_missing_files(tmp_path):
  with pytest.raises(FileNotFoundError, match="folder .*absent does not exist"):
    read(tmp_path / "absent", "rte", "dev")
  (tmp_path / "RTE").mkdir()
  with pytest.raises(FileNotFoundError) as error:
    read(tmp_path, "rte", "dev")
  assert str(error.value) == (
    f"rte needs RTE/dev.tsv in {tmp_path}, or dev.tsv if that is the task's "
    "own folder; neither exists."
  )
  with pytest.raises(FileNotFoundError, match="AX/diagnostic.tsv or diagnosti"):
    read(tmp_path, "mnli", "ax")


@pytest.mark.parametrize(
  "name, rows, problem",
  [
    (
      "rte",
      [_PAIR, "0|A|B|entailment", "1|A|entailment"],
      ", line 3 has 3 columns, rte needs 4, separated by tabs.",
    ),
    (
      "rte",
      [_PAIR, "0|A|B|Entailment"],
      ", line 2: unknown label 'Entailment'; those of rte are entailment, "
      "not_entailment.",
    ),
    (
      "rte",
      ["index|premise|hypothesis|label", "0|A|B|entailment"],
      ", line 1: the header of rte has no column 'sentence1', 'sentence2', it "
      "has 'index', 'premise', 'hypothesis', 'label'; take the official file.",
    ),
    ("rte", [_PAIR], " has a header, but no examples"),
    ("rte", [], " is empty"),
    ("cola", ["gj04|1|A sentence."], ", line 1 has 3 columns, cola needs 4"),
    (
      "cola",
      ["source|label|mark|sentence"],
      ", line 1: unknown label 'label'; those of cola are 0, 1.",
    ),
    *(
      (
        "stsb",
        [f"{_STSB}|score", f"{_STSB_ROW}|{score}"],
        f", line 2: the score of stsb must be a number from 0 to 5, got "
        f"{score!r}.",
      )
      for score in ("high", "nan", "5.1", "-1")
    ),
  ],
)
def test_bad_files(tmp_path, name, rows, problem):
  path = write(tmp_path, "dev.tsv", *rows)
  with pytest.raises(ValueError) as error:
    read(tmp_path, name, "dev")
  assert str(error.value).startswith(f"{path}{problem}")


def test_nine_tasks():
  assert list(benchmark.GLUE_TASKS) == (
    "cola sst2 mrpc stsb qqp mnli qnli rte wnli".split()
  )
  for name, task in benchmark.GLUE_TASKS.items():
    assert task.name == name
    assert task.main_metric in task.metrics
    assert all(hasattr(common, metric) for metric in task.metrics)
    assert task.is_regression == (name == "stsb")
  assert {t.name: t.main_metric for t in benchmark.GLUE_TASKS.values()} == {
    **dict.fromkeys(benchmark.GLUE_TASKS, "accuracy"),
    "cola": "matthews",
    "stsb": "pearson",
  }


def test_labels_are_in_the_order_of_the_original_head():
  labels = {task.folder: task.labels for task in benchmark.GLUE_TASKS.values()}
  assert labels == {
    **dict.fromkeys(["CoLA", "SST-2", "MRPC", "QQP", "WNLI"], ("0", "1")),
    **dict.fromkeys(["QNLI", "RTE"], ("entailment", "not_entailment")),
    "MNLI": ("contradiction", "entailment", "neutral"),
    "STS-B": None,
  }
  assert benchmark.GLUE_TASKS["rte"].splits == ("train", "dev", "test")
  assert benchmark.GLUE_TASKS["mnli"].splits == (
    "train",
    "dev_matched",
    "dev_mismatched",
    "test_matched",
    "test_mismatched",
    "ax",
  )


# Official training examples, and the epochs that Table 14 implies.
_EXAMPLES_AND_EPOCHS = {
  "cola": (8_551, 10.0),
  "sst2": (67_349, 9.9),
  "mrpc": (3_668, 7.0),
  "stsb": (5_749, 10.0),
  "qqp": (363_846, 4.9),
  "mnli": (392_702, 3.3),
  "qnli": (104_743, 10.1),
  "rte": (2_490, 10.3),
  "wnli": (635, 50.4),
}


def test_table_14():
  for name, (count, epochs) in _EXAMPLES_AND_EPOCHS.items():
    recipe = benchmark.GLUE_RECIPES[name]
    seen = recipe.train_batch_size * recipe.num_train_steps
    assert seen / count == pytest.approx(epochs, abs=0.06), name
  table = {
    name: (r.learning_rate, r.num_warmup_steps, r.albert_dropout)
    for name, r in benchmark.GLUE_RECIPES.items()
  }
  assert table == {
    "cola": (1e-5, 320, 0.0),
    "stsb": (2e-5, 214, 0.0),
    "sst2": (1e-5, 1256, 0.0),
    "mnli": (3e-5, 1000, 0.0),
    "qnli": (1e-5, 1986, 0.0),
    "qqp": (5e-5, 1000, 0.1),
    "rte": (3e-5, 200, 0.1),
    "mrpc": (2e-5, 200, 0.0),
    "wnli": (2e-5, 250, 0.1),
  }
  for recipe in benchmark.GLUE_RECIPES.values():
    assert recipe.classifier_dropout == 0.1
    assert recipe.max_seq_length == 512


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
