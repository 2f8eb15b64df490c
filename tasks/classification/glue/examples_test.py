"""Tests of reading GLUE, on files of a few rows."""

from __future__ import annotations

import pytest

from tasks import common
from tasks.classification.glue import benchmark, examples

Example = common.TextExample

_TASKS = benchmark.GLUE_TASKS
_MNLI_HEAD = (
  "index promptID pairID genre Sentence1_binary_parse Sentence2_binary_parse "
  "Sentence1_parse Sentence2_parse sentence1 sentence2"
).split()
_MNLI_CELLS = [
  "7",
  "p",
  "q",
  "fiction",
  "(x",
  "(y",
  "ROOT",
  "ROOT",
  "A b .",
  "B",
]
_STSB_HEAD = (
  "index genre filename year old_index source1 source2 sentence1 sentence2"
).split()


def write(root, name, *rows, end="\n"):
  path = root / name
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "".join("\t".join(row) + end for row in rows)
  path.write_bytes(text.encode("utf-8"))
  return str(path)


def read(root, name, split):
  return examples.read_split(str(root), _TASKS[name], split)


@pytest.mark.parametrize(
  "name, split, file, rows, expected",
  [
    pytest.param(
      "cola",
      "train",
      "CoLA/train.tsv",
      [["gj04", "1", "", 'He said "hi.'], ["b99", "0", "*", "Said he hi."]],
      [
        Example("0", 'He said "hi.', None, "1"),
        Example("1", "Said he hi.", None, "0"),
      ],
      id="cola",
    ),
    pytest.param(
      "cola",
      "test",
      "CoLA/test.tsv",
      [["index", "sentence"], ["5", "Bill left."]],
      [Example("5", "Bill left.")],
      id="cola_test",
    ),
    pytest.param(
      "sst2",
      "dev",
      "SST-2/dev.tsv",
      [["sentence", "label"], ["a gem . ", "1"], ["a bore . ", "0"]],
      [
        Example("0", "a gem . ", None, "1"),
        Example("1", "a bore . ", None, "0"),
      ],
      id="sst2",
    ),
    pytest.param(
      "sst2",
      "test",
      "SST-2/test.tsv",
      [["index", "sentence"], ["3", "a mess ."]],
      [Example("3", "a mess .")],
      id="sst2_test",
    ),
    pytest.param(
      "mrpc",
      "train",
      "MRPC/train.tsv",
      [
        ["\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        ["1", "702876", "702977", '" A "', '" B'],
      ],
      [Example("0", '" A "', '" B', "1")],
      id="mrpc",
    ),
    pytest.param(
      "mrpc",
      "test",
      "MRPC/test.tsv",
      [
        ["index", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        ["11", "702876", "702977", "A", "B"],
      ],
      [Example("11", "A", "B")],
      id="mrpc_test",
    ),
    pytest.param(
      "stsb",
      "dev",
      "STS-B/dev.tsv",
      [
        [*_STSB_HEAD, "score"],
        ["9", "news", "f", "2012", "1", "none", "none", "A", "B", "2.600"],
      ],
      [Example("9", "A", "B", "2.600")],
      id="stsb",
    ),
    pytest.param(
      "stsb",
      "test",
      "STS-B/test.tsv",
      [_STSB_HEAD, ["9", "n", "f", "2012", "1", "none", "none", "A", "B"]],
      [Example("9", "A", "B")],
      id="stsb_test",
    ),
    pytest.param(
      "qqp",
      "test",
      "QQP/test.tsv",
      [["id", "question1", "question2"], ["390964", "A?", ""]],
      [Example("390964", "A?", "")],
      id="qqp_test",
    ),
    pytest.param(
      "mnli",
      "train",
      "MNLI/train.tsv",
      [
        [*_MNLI_HEAD, "label1", "gold_label"],
        [*_MNLI_CELLS, "entailment", "neutral"],
      ],
      [Example("7", "A b .", "B", "neutral")],
      id="mnli",
    ),
    pytest.param(
      "mnli",
      "dev_mismatched",
      "MNLI/dev_mismatched.tsv",
      [
        [*_MNLI_HEAD, *(f"label{n}" for n in range(1, 6)), "gold_label"],
        [*_MNLI_CELLS, *["entailment"] * 5, "contradiction"],
      ],
      [Example("7", "A b .", "B", "contradiction")],
      id="mnli_dev",
    ),
    pytest.param(
      "mnli",
      "test_matched",
      "MNLI/test_matched.tsv",
      [_MNLI_HEAD, _MNLI_CELLS],
      [Example("7", "A b .", "B")],
      id="mnli_test",
    ),
    pytest.param(
      "mnli",
      "ax",
      "diagnostic/diagnostic.tsv",
      [["index", "sentence1", "sentence2"], ["0", "A", "B"]],
      [Example("0", "A", "B")],
      id="ax",
    ),
    pytest.param(
      "qnli",
      "train",
      "QNLI/train.tsv",
      [
        ["index", "question", "sentence", "label"],
        ["4", "A?", "B", "entailment"],
      ],
      [Example("4", "A?", "B", "entailment")],
      id="qnli",
    ),
    pytest.param(
      "rte",
      "dev",
      "RTE/dev.tsv",
      [
        ["index", "sentence1", "sentence2", "label"],
        ["6", "A", "B", "not_entailment"],
      ],
      [Example("6", "A", "B", "not_entailment")],
      id="rte",
    ),
    pytest.param(
      "wnli",
      "train",
      "WNLI/train.tsv",
      [["index", "sentence1", "sentence2", "label"], ["2", "A", "B", "0"]],
      [Example("2", "A", "B", "0")],
      id="wnli",
    ),
  ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_columns(tmp_path, name, split, file, rows, expected, end):
  path = write(tmp_path, file, *rows, end=end)
  assert read(tmp_path, name, split) == examples.Split(path, expected)
  # The task's own folder is accepted too.
  assert read(tmp_path / file.split("/")[0], name, split).examples == expected


_QQP = [
  ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
  ["133273", "213221", "213222", "How is a", "Why is a?", "1"],
  ["402555", "536040", "536041", "How do I"],
  ["cut here?", "What next?", "0"],
  ["360472", "364011", "490273", "What?", "", "0"],
]


def test_qqp_skips_short_rows(tmp_path):
  write(tmp_path, "QQP/train.tsv", *_QQP)
  split = read(tmp_path, "qqp", "train")
  assert split.skipped_lines == (3, 4)
  assert split.examples == [
    Example("133273", "How is a", "Why is a?", "1"),
    Example("360472", "What?", "", "0"),
  ]


def test_qqp_refuses_short_rows_of_the_test_file(tmp_path):
  write(tmp_path, "QQP/test.tsv", ["id", "question1", "question2"], ["0", "A?"])
  with pytest.raises(ValueError, match="test.tsv, line 2 has 2 columns, qqp n"):
    read(tmp_path, "qqp", "test")


@pytest.mark.parametrize(
  "folder, name",
  [("STS-B", "stsb"), ("STSB", "stsb"), ("sts_b", "stsb"), ("cola", "cola")],
)
def test_names_of_folders(tmp_path, folder, name):
  rows = {
    "stsb": [_STSB_HEAD, ["9", "n", "f", "y", "1", "-", "-", "A", "B"]],
    "cola": [["index", "sentence"], ["9", "A"]],
  }[name]
  path = write(tmp_path, f"{folder}/test.tsv", *rows)
  assert read(tmp_path, name, "test").path == path


def test_location_of_the_diagnostics(tmp_path):
  rows = [["index", "sentence1", "sentence2"], ["0", "A", "B"]]
  path = write(tmp_path, "AX/diagnostic.tsv", *rows)
  (tmp_path / "MNLI").mkdir()
  assert read(tmp_path, "mnli", "ax").path == path
  assert read(tmp_path / "MNLI", "mnli", "ax").path == path


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
  with pytest.raises(
    FileNotFoundError, match="AX/diagnostic.tsv or diagnostic"
  ):
    read(tmp_path, "mnli", "ax")
  with pytest.raises(
    ValueError, match="mnli has no split 'dev'; choose one of train, "
  ):
    read(tmp_path, "mnli", "dev")


_RTE = ["index", "sentence1", "sentence2", "label"]


@pytest.mark.parametrize(
  "name, split, rows, problem",
  [
    pytest.param(
      "rte",
      "train",
      [_RTE, ["0", "A", "B", "entailment"], ["1", "A", "entailment"]],
      "train.tsv, line 3 has 3 columns, rte needs 4, separated by tabs.",
      id="short_row",
    ),
    pytest.param(
      "rte",
      "train",
      [_RTE, ["0", "A", "B", "Entailment"]],
      "train.tsv, line 2: unknown label 'Entailment'; those of rte are "
      "entailment, not_entailment.",
      id="unknown_label",
    ),
    pytest.param(
      "rte",
      "dev",
      [
        ["index", "premise", "hypothesis", "label"],
        ["0", "A", "B", "entailment"],
      ],
      "dev.tsv, line 1: the header of rte has no column 'sentence1', "
      "'sentence2', it has 'index', 'premise', 'hypothesis', 'label'; take the "
      "official file.",
      id="other_header",
    ),
    pytest.param(
      "rte", "dev", [_RTE], "has a header, but no examples", id="header"
    ),
    pytest.param("rte", "dev", [], "dev.tsv is empty", id="empty"),
    pytest.param(
      "cola",
      "train",
      [["gj04", "1", "A sentence."]],
      "train.tsv, line 1 has 3 columns, cola needs 4",
      id="cola_short_row",
    ),
    pytest.param(
      "cola",
      "dev",
      [["source", "label", "mark", "sentence"]],
      "dev.tsv, line 1: unknown label 'label'; those of cola are 0, 1.",
      id="cola_with_header",
    ),
    *(
      pytest.param(
        "stsb",
        "dev",
        [
          [*_STSB_HEAD, "score"],
          ["9", "n", "f", "2012", "1", "none", "none", "A", "B", score],
        ],
        "dev.tsv, line 2: the score of stsb must be a number from 0 to 5, got "
        f"{score!r}.",
        id=f"score_{score}",
      )
      for score in ("high", "nan", "5.1", "-1")
    ),
  ],
)
def test_bad_files(tmp_path, name, split, rows, problem):
  write(tmp_path, f"{split}.tsv", *rows)
  with pytest.raises(ValueError) as error:
    read(tmp_path, name, split)
  assert problem in str(error.value)
  assert str(tmp_path) in str(error.value)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
