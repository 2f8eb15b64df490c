"""Tests of tools.predict with runs, exports and other checkpoints."""

from __future__ import annotations

import json

import numpy as np
import pytest

from official_albert.tasks import common
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_EXPORT, _RUN = "--model_dir=FOLDER/own", "--model_dir=FOLDER/run"
_ENCODER = "--model_dir=FOLDER/encoder"
_CONTEXT = "äbc\tdef ghi"
_LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with models and forms of input."""
  path = tmp_path_factory.mktemp("predict")
  answers = str(path / "answers")
  toy_runs.write_finetuned(answers, "squad_v1", doc_stride=5)
  toy_runs.write_pretrained(str(path / "encoder"))
  toy_runs.write_finetuned(
    str(path / "run"),
    "text_classification",
    _LABELS,
    columns={"text": "review", "id": "key"},
  )
  toy_runs.write_export(str(path / "own"), str(path / "run"), "text")
  rng = np.random.default_rng(2)
  texts = [
    " ".join(toy_data.sentence(rng, toy_data.BAD) for _ in range(1 + i % 3))
    for i in range(50)
  ]
  lines = [f"k{i}\t{text}\n" for i, text in enumerate(texts)]
  (path / "a.tsv").write_text("key\treview\n" + "".join(lines))
  rows = [{"key": f"k{i}", "review": text} for i, text in enumerate(texts)]
  (path / "b.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
  question = {"question": "q", "context": _CONTEXT}
  (path / "squad.jsonl").write_text(json.dumps(question) + "\n")
  return path


def in_folder(folder, case):
  return [x.replace("FOLDER", str(folder)) for x in case]


def test_forms_of_input_and_output(folder):
  """An export reads the columns of the training data."""
  small = "--eval_batch_size=3"
  cases = (
    [_EXPORT, "--input_file=FOLDER/a.tsv", "--output_file=FOLDER/a.out"],
    [
      *(_RUN, "--input_file=FOLDER/b.jsonl", small),
      "--output_file=FOLDER/b.out.jsonl",
    ],
    [_EXPORT, "--input_file=FOLDER/a.tsv", small, "--columns=id="],
    ["--model_dir=FOLDER/answers", "--input_file=FOLDER/squad.jsonl"],
    [_RUN, "--text="],
    ["--model_dir=FOLDER/answers", "--question=q", f"--context={_CONTEXT}"],
  )
  lines = [in_folder(folder, case) for case in cases]
  done = many_commands.run("predict", lines)
  assert done[0].out == (
    f"wrote {folder}/a.out (50 examples), predicted with {folder}/own\n"
  )
  found = common.read_probabilities(f"{folder}/a.out")
  assert found.labels == _LABELS
  assert found.ids == tuple(f"k{i}" for i in range(50))
  np.testing.assert_allclose(found.values.sum(1), 1, atol=1e-6)
  rows = (folder / "b.out.jsonl").read_text().splitlines()
  for i, row in enumerate(map(json.loads, rows)):
    assert list(row) == ["id", "prediction", "probabilities"]
    values = row["probabilities"]
    assert (
      row["id"] == f"k{i}"
      and max(values, key=values.get) == (row["prediction"])
    )
    np.testing.assert_allclose([*values.values()], found.values[i], atol=1e-6)
  # Rows are numbered; standard output has the predictions only.
  rows = [*map(json.loads, done[2].out.splitlines())]
  assert [row["id"] for row in rows] == [str(i) for i in range(50)]
  assert "wrote standard output (50 examples)" in done[2].err
  answer, empty, same = (json.loads(done[i].out) for i in (3, 4, 5))
  begin, end = answer["start"], answer["end"]
  assert answer["prediction"] == _CONTEXT[begin:end] != ""
  assert answer["n_best"][1]["text"] in _CONTEXT
  assert answer == same
  # The id is a number, although the training data had ids.
  assert empty["id"] == "0"
  assert "wrote standard output (1 example), predicted with" in done[4].err


def test_refused_rows_have_empty_answers(folder):
  (folder / "some.txt").write_text("a tree\nthe [MASK] tree\n\n")
  line = [_ENCODER, "--input_file=FOLDER/some.txt"]
  line = in_folder(folder, [*line, "--output_file=FOLDER/some.jsonl"])
  named = "2 of 3 rows have no answer, "
  (result,) = many_commands.check_refusals("predict", [(line, named)])
  assert result.out.startswith(f"wrote {folder}/some.jsonl (3 examples)")
  assert f"{folder}/some.txt, line 1: every text must have a" in result.err
  rows = (folder / "some.jsonl").read_text().splitlines()
  first, second, third = map(json.loads, rows)
  assert first["prediction"] is third["prediction"] is None
  assert first["error"].startswith("every text must have a [MASK] within its")
  assert "error" not in second


_TABLE = "--input_file=FOLDER/a.tsv"
_REFUSALS = [
  (
    (_EXPORT, _TABLE, "--max_seq_length=9"),
    "own is an export, which has a fixed max_seq_length: leave it out",
  ),
  (("--model_dir=FOLDER/none", _TABLE), "/none: "),
  (  # Refused before the model is opened.
    ("--model_dir=FOLDER/none", _TABLE, "--output_file=FOLDER"),
    " is a folder: name a file",
  ),
  (
    (_RUN, _TABLE, "--top_k=3"),
    "models that fill masks, but FOLDER/run/model.ckpt-1 is of text_classific",
  ),
  ((_RUN, _TABLE, "--checkpoint=newest"), "no checkpoint at newest: no such f"),
  (
    (_ENCODER, "--input_file=FOLDER/texts.txt"),
    "texts.txt, line 1: every text must have a [MASK] wit",
  ),
  ((_RUN,), "give either --input_file, or texts such as --text"),
  ((_RUN, _TABLE, "--text=a"), "give either --input_file, or texts such as"),
  ((_RUN, "--text=a", "--columns=text=review"), "--columns is for tables"),
  *(
    ((_RUN, "--text=a", f"--output_file=FOLDER/a{ending}"), "name in .tsv for")
    for ending in (".csv", ".JSON", ".ndjson", ".tsv.gz")
  ),
  (
    (_ENCODER, "--text=no mask"),
    "--text 'no mask': every text must have a [MASK] wit",
  ),
]


def test_refusals_are_one_sentence(folder):
  (folder / "texts.txt").write_text("no mask\n")
  output = "--output_file=FOLDER/never.tsv"
  cases = [
    (in_folder(folder, (output, *line)), *in_folder(folder, [named]))
    for line, named in _REFUSALS
  ]
  many_commands.check_refusals("predict", cases)
  assert not (folder / "never.tsv").exists()
