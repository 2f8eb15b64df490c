"""Tests of scores, and of the files for gluebenchmark.com and their zip."""

from __future__ import annotations

import hashlib
import os
import pathlib
import zipfile

import numpy as np
import pytest

from tasks.classification.glue import benchmark, submission

_TASKS = benchmark.GLUE_TASKS


def write(folder, name, split="test", guids=("0", "4"), predictions=None):
  task = _TASKS[name]
  if predictions is None:
    predictions = task.labels[:2] if task.labels else (2.5, 1.0)
  return submission.write_predictions(
    str(folder), task, split, guids, predictions
  )


def test_every_test_split_has_a_file():
  splits = {(t.name, s) for t in _TASKS.values() for s in t.test_splits}
  assert set(submission.SUBMISSION_FILES) == splits
  names = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI".split()
  assert sorted(submission.SUBMISSION_FILES.values()) == [
    f"{n}.tsv" for n in names
  ]


@pytest.mark.parametrize(
  "name, split, file, expected",
  [
    ("cola", "test", "CoLA.tsv", "0\t0\n4\t1\n"),
    ("mnli", "ax", "AX.tsv", "0\tcontradiction\n4\tentailment\n"),
    ("mnli", "test_matched", "MNLI-m.tsv", "0\tcontradiction\n4\tentailment\n"),
    ("rte", "test", "RTE.tsv", "0\tentailment\n4\tnot_entailment\n"),
    ("stsb", "test", "STS-B.tsv", "0\t2.500\n4\t1.000\n"),
  ],
)
def test_rows(tmp_path, name, split, file, expected):
  path = write(tmp_path / "new", name, split)
  assert path == str(tmp_path / "new" / file)
  assert (
    pathlib.Path(path).read_bytes() == f"index\tprediction\n{expected}".encode()
  )
  assert os.listdir(tmp_path / "new") == [file]


def test_scores_are_clipped_to_the_scale(tmp_path):
  values = np.array([-0.7, 5.25, 4.9996, 0.12345, -0.0], np.float32)
  for written in (values, list(map(str, values))):
    path = write(tmp_path, "stsb", guids=list("abcde"), predictions=written)
    rows = pathlib.Path(path).read_text().splitlines()[1:]
    cells = [row.split("\t")[1] for row in rows]
    assert cells == ["0.000", "5.000", "5.000", "0.123", "0.000"]


def test_zip_of_the_tasks_so_far(tmp_path):
  with pytest.raises(ValueError, match="row 3: 'neutral' is not a label of r"):
    write(tmp_path, "rte", "test", ["3"], ["neutral"])
  with pytest.raises(ValueError, match="has none of GLUE's files .CoLA.tsv, "):
    submission.write_zip(str(tmp_path))
  write(tmp_path, "wnli")
  write(tmp_path, "cola")
  result = submission.write_zip(str(tmp_path))
  assert result.files == ("CoLA.tsv", "WNLI.tsv") and len(result.missing) == 9
  assert "2 of 11 files; the site also needs SST-2.tsv, M" in result.describe()
  for name, split in submission.SUBMISSION_FILES:
    write(tmp_path, name, split)
  (tmp_path / "notes.txt").write_text("not for the site")
  result = submission.write_zip(str(tmp_path))
  assert result.missing == ()
  assert result.describe() == (
    f"{result.path}: 11 of 11 files, ready for gluebenchmark.com."
  )
  with zipfile.ZipFile(result.path) as archive:
    assert archive.testzip() is None
    assert archive.namelist() == list(submission.SUBMISSION_FILES.values())
    for name in archive.namelist():
      assert archive.read(name) == (tmp_path / name).read_bytes()


def test_zip_is_reproducible(tmp_path):
  digests = set()
  for number, folder in enumerate("ab"):
    path = write(tmp_path / folder, "rte")
    os.utime(path, (1e9 * number, 1e9 * number))
    os.chmod(path, (0o600, 0o644)[number])
    archive = pathlib.Path(submission.write_zip(str(tmp_path / folder)).path)
    digests.add(hashlib.sha256(archive.read_bytes()).hexdigest())
  # The same on other days and machines.
  assert digests == {
    "eb82e99153b6c5ea7cef0f645add758e41f4c72bc2d192f20888d361eb2b47ae"
  }


_LABELS = np.array([1, 1, 1, 0, 0, 0, 0])
_PREDICTIONS = np.array([1, 1, 0, 1, 0, 0, 0])


def test_metrics_in_the_official_order():
  result = submission.evaluate_glue(_TASKS["mrpc"], _PREDICTIONS, _LABELS)
  assert list(result) == ["accuracy", "f1"]
  assert result == pytest.approx({"accuracy": 5 / 7, "f1": 2 / 3})
  result = submission.evaluate_glue(
    _TASKS["stsb"], [1.5, 2.0, 9.0], [0.0, 1.0, 1.5]
  )
  assert list(result) == ["pearson", "spearman"]
  assert result["spearman"] == pytest.approx(1.0)
  # By hand, from the centered values.
  assert result["pearson"] == pytest.approx(
    (8 / 3 * 5 / 6 + 13 / 6 * -1 / 6 + 29 / 6 * 2 / 3)
    / np.sqrt(
      ((8 / 3) ** 2 + (13 / 6) ** 2 + (29 / 6) ** 2)
      * ((5 / 6) ** 2 + (1 / 6) ** 2 + (2 / 3) ** 2)
    )
  )


def test_scores_are_means_of_metrics_and_splits():
  results = {"dev": {"accuracy": 0.9, "f1": 0.8, "loss": 7.0}}
  score = submission.task_score(_TASKS["qqp"], results)
  assert score == pytest.approx(0.85)
  results = {
    "dev_matched": {"accuracy": 0.8},
    "dev_mismatched": {"accuracy": 0.7},
  }
  score = submission.task_score(_TASKS["mnli"], results)
  assert score == pytest.approx(0.75)
  scores = {name: 0.1 * n for n, name in enumerate(_TASKS)}
  assert submission.glue_average({**scores, "ax": 9.0}) == pytest.approx(0.4)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
