"""Tests of GLUE's tasks, files, scores and submission."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks import common
from official_albert.tasks.classification import glue

Example = common.TextExample
_TASKS = glue.GLUE_TASKS
_MNLI = (
  "index|promptID|pairID|genre|Sentence1_binary_parse|Sentence2_binary_parse|"
  "Sentence1_parse|Sentence2_parse|sentence1|sentence2"
)
_MNLI_ROW = "7|p|q|fiction|(x|(y|ROOT|ROOT|A b .|B"
_STSB = (
  "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
)
_STSB_ROW = "9|news|f|2012|1|none|none|A|B"
_AX = "index|sentence1|sentence2"
_PAIR = f"{_AX}|label"


def write(root, name, *rows, end="\n"):
  """Writes rows, whose cells are separated by |, and returns the path."""
  path = root / name
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "".join(row.replace("|", "\t") + end for row in rows)
  path.write_bytes(text.encode("utf-8"))
  return str(path)


def read(root, name, split, **kwargs):
  return glue.read_split(str(root), _TASKS[name], split, **kwargs)


_FOLDERS = {task.folder: name for name, task in _TASKS.items()}


@pytest.mark.parametrize(
  "file, rows, expected",
  [
    # CoLA's files with labels have no header.
    ("CoLA/train", ['gj04|1||"hi.'], [("0", '"hi.', None, "1")]),
    ("CoLA/test", ["index|sentence", "5|A."], [("5", "A.")]),
    (
      "SST-2/dev",
      ["sentence|label", "a gem . |1", "a bore . |0"],
      [("0", "a gem . ", None, "1"), ("1", "a bore . ", None, "0")],
    ),
    (
      "MRPC/train",
      ["\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String", '1|70|71|" A "|" B'],
      [("0", '" A "', '" B', "1")],
    ),
    (
      "MRPC/test",
      ["index|#1 ID|#2 ID|#1 String|#2 String", "11|70|71|A|B"],
      [("11", "A", "B")],
    ),
    (
      "STS-B/dev",
      [f"{_STSB}|score", f"{_STSB_ROW}|2.600"],
      [("9", "A", "B", "2.600")],
    ),
    ("QQP/test", ["id|question1|question2", "39|A?|"], [("39", "A?", "")]),
    (
      "MNLI/train",
      [f"{_MNLI}|label1|gold_label", f"{_MNLI_ROW}|entailment|neutral"],
      [("7", "A b .", "B", "neutral")],
    ),
    (
      "MNLI/dev_mismatched",
      [f"{_MNLI}|label1|label2|gold_label", f"{_MNLI_ROW}|x|y|contradiction"],
      [("7", "A b .", "B", "contradiction")],
    ),
    ("MNLI/test_matched", [_MNLI, _MNLI_ROW], [("7", "A b .", "B")]),
    ("diagnostic/diagnostic", [_AX, "0|A|B"], [("0", "A", "B")]),
    ("AX/diagnostic", [_AX, "0|A|B"], [("0", "A", "B")]),
    (
      "QNLI/train",
      ["index|question|sentence|label", "4|A?|B|entailment"],
      [("4", "A?", "B", "entailment")],
    ),
    ("WNLI/dev", [_PAIR, "4|A|B|1"], [("4", "A", "B", "1")]),
  ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_columns(tmp_path, file, rows, expected, end):
  write(tmp_path, f"{file}.tsv", *rows, end=end)
  folder, split = file.split("/")
  name = _FOLDERS.get(folder, "mnli")
  split = "ax" if split == "diagnostic" else split
  expected = [Example(*values) for values in expected]
  assert read(tmp_path, name, split) == expected
  # The task's own folder is accepted too.
  assert read(tmp_path / folder, name, split) == expected


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
  notes = []
  assert read(tmp_path, "qqp", "train", note=notes.append) == [
    Example("133273", "How is a", "Why is a?", "1"),
    Example("360472", "What?", "", "0"),
  ]
  (note,) = notes
  assert note == "train of qqp: skipped 2 malformed rows, the first in line 3"
  write(tmp_path, "QQP/test.tsv", "id|question1|question2", "0|A?")
  with pytest.raises(ValueError, match="test.tsv, line 2 has 2 columns, qqp n"):
    read(tmp_path, "qqp", "test")


def test_rows_that_are_quoted_as_in_csv_are_noted(tmp_path):
  """As pandas writes them; a text that is a quotation is not."""
  header = "Quality|#1 ID|#2 ID|#1 String|#2 String"
  rows = [header, '1|1|2|"Yes."|No "x"', '0|1|2|He.|"The ""x""."']
  write(tmp_path, "MRPC/dev.tsv", *rows)
  notes = []
  found = read(tmp_path, "mrpc", "dev", note=notes.append)
  assert found[1].text_b == '"The ""x""."'
  assert "dev of mrpc: 1 rows are quoted" in notes[0] and "line 3" in notes[0]
  quoted = '7|1|2|"A ""b""?"|C?|0'
  write(
    tmp_path,
    "QQP/dev.tsv",
    "id|qid1|qid2|question1|question2|is_duplicate",
    quoted,
  )
  assert len(read(tmp_path, "qqp", "dev", note=notes.append)) == len(notes) == 1


_WIDE = f"index,{'x,' * 999}label"


@pytest.mark.parametrize(
  "name, rows, problem",
  [
    ("rte", [_PAIR, "0|A|B|entailment", "1|A|entailment"], ", line 3 has 3 c"),
    ("rte", ["index|premise|hypothesis|label"], ", line 1: the header of rte"),
    ("rte", [_WIDE], ", line 1: the header of rte has no column 'sentence1', "),
    ("rte", [_PAIR], " has a header, but no examples"),
    ("cola", ["source|label|mark|sentence"], ", line 1: unknown label 'label'"),
    ("cola", [f"a|{'b' * 999}||d"], f", line 1: unknown label '{'b' * 76}...,"),
    (
      "stsb",
      [f"{_STSB}|score", f"{_STSB_ROW}|5.1"],
      ", line 2: unknown label ",
    ),
  ],
)
def test_bad_files(tmp_path, name, rows, problem):
  path = write(tmp_path, "dev.tsv", *rows)
  with pytest.raises(ValueError) as error:
    read(tmp_path, name, "dev")
  assert str(error.value).startswith(f"{path}{problem}")


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


def test_recipes_have_the_epochs_of_table_14():
  for name, (count, epochs) in _EXAMPLES_AND_EPOCHS.items():
    recipe = _TASKS[name].recipe
    seen = recipe.train_batch_size * recipe.num_train_steps
    assert seen / count == pytest.approx(epochs, abs=0.06), name
  for recipe in (task.recipe for task in _TASKS.values()):
    assert recipe.classifier_dropout == 0.1
    assert recipe.max_seq_length == 512


@pytest.mark.parametrize(
  "name, split, file, values, expected",
  [
    ("cola", "test", "CoLA.tsv", (0, 1), "0\t0\n4\t1\n"),
    ("mnli", "ax", "AX.tsv", (0, 1), "0\tcontradiction\n4\tentailment\n"),
    ("mnli", "test_matched", "MNLI-m.tsv", (2,), "0\tneutral\n"),
    ("rte", "test", "RTE.tsv", (1,), "0\tnot_entailment\n"),
    # Clipped to the scale.
    ("stsb", "test", "STS-B.tsv", (-0.7, 5.25), "0\t0.000\n4\t5.000\n"),
    ("stsb", "test", "STS-B.tsv", (0.12345, -0.0), "0\t0.123\n4\t0.000\n"),
  ],
)
def test_official_files(tmp_path, name, split, file, values, expected):
  task = _TASKS[name]
  if task.labels:
    values = np.eye(len(task.labels))[[*values]]
  table = common.ProbabilityTable(
    ("0", "4")[: len(values)], task.labels or (), np.array(values)
  )
  path = glue.write_predictions(str(tmp_path), task, split, table)
  assert path == str(tmp_path / file)
  text = (tmp_path / file).read_bytes()
  assert text == f"index\tprediction\n{expected}".encode()
