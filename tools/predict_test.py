"""Tests of tools.predict with runs, exports and other checkpoints."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from official_albert import AlbertConfig, runs
from official_albert.tasks import common
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_EXPORT = "--model_dir=FOLDER/classify"
_COLUMNS = "--columns=text=review,id=key"
_CONTEXT = "äbc\tdef ghi"
_LABELS = ("bad", "good", "so so")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with models and forms of input."""
  path = tmp_path_factory.mktemp("predict")
  three, answers = str(path / "three"), str(path / "answers")
  toy_runs.write_finetuned(three, "text_classification", _LABELS)
  toy_runs.write_finetuned(answers, "squad_v1", doc_stride=5)
  toy_runs.write_export(str(path / "classify"), three, "text")
  toy_runs.write_export(str(path / "answer"), answers, "text")
  toy_runs.write_pretrained(str(path / "encoder"))
  toy_runs.write_finetuned(
    str(path / "run"),
    "text_classification",
    ["bad", "good"],
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
  (path / "c.txt").write_text("".join(f"{text}\n" for text in texts))
  question = {"question": "q", "context": _CONTEXT}
  (path / "squad.jsonl").write_text(json.dumps(question) + "\n")
  (path / "masks.txt").write_text("the [MASK] tree\na [MASK] [MASK]\n")
  (path / "bad.tsv").write_text("key\treview\n1\ta\n2\tb\tc\n")
  return path


def predict(folder, *cases):
  return many_commands.run(
    "predict",
    [[x.replace("FOLDER", str(folder)) for x in case] for case in cases],
  )


def test_forms_of_input_and_output(folder):
  small = "--eval_batch_size=3"
  results = predict(
    folder,
    [
      _EXPORT,
      "--input_file=FOLDER/a.tsv",
      "--output_file=FOLDER/a.out",
      _COLUMNS,
    ],
    [
      *(_EXPORT, "--input_file=FOLDER/b.jsonl"),
      *("--output_file=FOLDER/b.out.jsonl", _COLUMNS, small),
    ],
    [_EXPORT, "--input_file=FOLDER/c.txt", "--output_file=-", small],
    ["--model_dir=FOLDER/answer", "--input_file=FOLDER/squad.jsonl"],
  )
  for result in results:
    assert result.code == 0, result.err
  assert results[0].out == (
    f"wrote {folder}/a.out (50 examples), predicted with {folder}/classify\n"
  )
  header, *lines = (folder / "a.out").read_text().splitlines()
  assert header == "id\tprediction\tbad\tgood\tso so"
  assert [line.split("\t")[0] for line in lines] == [f"k{i}" for i in range(50)]
  table = np.array([line.split("\t")[2:] for line in lines], np.float64)
  np.testing.assert_allclose(table.sum(1), 1, atol=1e-6)
  rows = (folder / "b.out.jsonl").read_text().splitlines()
  for line, values, row in zip(lines, table, map(json.loads, rows)):
    assert [row["id"], row["prediction"]] == line.split("\t")[:2]
    assert list(row["probabilities"]) == list(_LABELS)
    found = list(row["probabilities"].values())
    np.testing.assert_allclose(found, values, atol=1e-6)
  # Rows are numbered and have their text at the end; standard output has the
  # predictions only.
  rows = [*map(json.loads, results[2].out.splitlines())]
  assert [row["id"] for row in rows] == [str(i) for i in range(50)]
  texts = (folder / "c.txt").read_text().splitlines()
  assert [row["input_text"] for row in rows] == texts
  assert "wrote standard output (50 examples)" in results[2].err
  answer = json.loads(results[3].out)
  begin, end = answer["start"], answer["end"]
  assert answer["prediction"] == _CONTEXT[begin:end] != ""
  assert answer["n_best"][1]["text"] in _CONTEXT


def test_texts_of_the_command_line(folder):
  texts = ["--text=the old tree", "--text="]
  shown, table, answer, refused = predict(
    folder,
    ["--model_dir=FOLDER/run", *texts],
    ["--model_dir=FOLDER/own", *texts, "--output_file=FOLDER/two.tsv"],
    ["--model_dir=FOLDER/answers", "--question=q", f"--context={_CONTEXT}"],
    ["--model_dir=FOLDER/encoder", "--text=a [MASK]", "--text=a tree"],
  )
  for result in (shown, table, answer):
    assert result.code == 0, result.err
  first, second = map(json.loads, shown.out.splitlines())
  # The id is a number, although the training data had ids.
  assert (first["id"], first["input_text"]) == ("0", "the old tree")
  assert (second["id"], second["input_text"]) == ("1", "")
  assert "wrote standard output (2 examples), predicted with" in shown.err
  found = common.read_probabilities(f"{folder}/two.tsv")
  assert (found.ids, found.labels) == (("0", "1"), ("bad", "good"))
  numbers = list(first["probabilities"].values())
  np.testing.assert_allclose(found.values[0], numbers, atol=1e-6)
  answer = json.loads(answer.out)
  assert answer["prediction"] == _CONTEXT[answer["start"] : answer["end"]]
  assert answer["input_question"] == "q" and "input_context" not in answer
  assert refused.code == 1 and len(refused.out.splitlines()) == 2
  assert '"error": "every text must have a [MASK]' in refused.out


def test_an_export_reads_the_columns_of_the_training_data(folder):
  lines = [
    [f"--model_dir=FOLDER/{name}", "--input_file=FOLDER/a.tsv", *more]
    for name, more in (("own", []), ("run", []), ("own", ["--columns=id="]))
  ]
  own, same, numbered = (
    [*map(json.loads, result.out.splitlines())]
    for result in predict(folder, *lines)
  )
  for rows in (own, same):
    assert [row["id"] for row in rows] == [f"k{i}" for i in range(50)]
    assert list(rows[0]) == ["id", "prediction", "probabilities"]
  text = (folder / "c.txt").read_text().splitlines()[0]
  assert (numbered[0]["id"], numbered[0]["input_text"]) == ("0", text)


def test_refused_rows_have_empty_answers(folder):
  (folder / "some.txt").write_text("a tree\nthe [MASK] tree\n\n")
  line = ["--model_dir=FOLDER/encoder", "--input_file=FOLDER/some.txt"]
  (result,) = predict(folder, [*line, "--output_file=FOLDER/some.jsonl"])
  assert result.code == 1 and result.err.count("\n") == 1
  assert result.out.startswith(f"wrote {folder}/some.jsonl (3 examples)")
  assert result.err.startswith("predict: error: 2 of 3 rows have no answer, ")
  assert f"{folder}/some.txt, line 1: every text must have a" in result.err
  rows = (folder / "some.jsonl").read_text().splitlines()
  first, second, third = map(json.loads, rows)
  assert first["prediction"] is third["prediction"] is None
  assert first["error"].startswith("every text must have a [MASK] within its")
  assert first["input_text"] == "a tree" and "error" not in second


_RUN, _ENCODER = "--model_dir=FOLDER/run", "--model_dir=FOLDER/encoder"
_TABLE, _MASKS = "--input_file=FOLDER/a.tsv", "--input_file=FOLDER/masks.txt"
_BAD = (_EXPORT, "--input_file=FOLDER/bad.tsv")
_REFUSALS = [
  (_BAD, "no column 'text'"),
  ((*_BAD, "--columns=text=review"), "bad.tsv, line 3 has 3 columns, the hea"),
  (
    (_EXPORT, _TABLE, "--precision=bfloat16"),
    "classify is an export, which has a fixed dtype: leave it out",
  ),
  (("--model_dir=FOLDER/none", _TABLE), "/none: "),
  (  # Refused before the model is opened.
    ("--model_dir=FOLDER/none", _TABLE, "--output_file=FOLDER"),
    " is a folder: name a file",
  ),
  (("--model_dir=FOLDER/cola", _TABLE), "cola holds no checkpoint."),
  (
    (_RUN, _TABLE, "--signature=fill_mask"),
    "has no signature 'fill_mask': it has classify.",
  ),
  (
    (_RUN, _TABLE, "--null_score_diff_threshold=1"),
    "models of SQuAD 2.0, but FOLDER/run/model.ckpt-1 is of text_classific",
  ),
  ((_RUN, _TABLE, "--checkpoint=newest"), "no checkpoint at newest: newest.in"),
  (
    (_ENCODER, "--input_file=FOLDER/texts.txt"),
    "texts.txt, line 1: every text must have a [MASK] wit",
  ),
  (
    (_ENCODER, _MASKS, "--signature=sentence_order"),
    "text_a, text_b are needed",
  ),
  ((_RUN,), "give either --input_file, or texts such as --text"),
  ((_RUN, _TABLE, "--text=a"), "give either --input_file, or texts such as"),
  ((_RUN, "--text=a", "--columns=text=review"), "--columns is for tables"),
  *(
    ((_RUN, "--text=a", f"--output_file=FOLDER/a{ending}"), "name in .tsv for")
    for ending in (".csv", ".JSON", ".tsv.gz")
  ),
  (
    (_RUN, "--text_a=a", "--text_b=b"),
    "the model takes --text, but the command line has --text_a and --text_b (",
  ),
  (
    (_ENCODER, "--text=no mask"),
    "--text 'no mask': every text must have a [MASK] wit",
  ),
]


def test_refusals_are_one_sentence(folder):
  data = {"task": "cola", "max_seq_length": 9, "settings": {"labels": ["0"]}}
  config = AlbertConfig.from_preset("albert_tiny")
  runs.write_run(str(folder / "cola"), config, {}, data)
  shutil.copy(folder / "encoder" / "tokenizer.model", folder / "cola")
  (folder / "texts.txt").write_text("no mask\n")
  output = "--output_file=FOLDER/never.tsv"
  cases = [
    (
      [x.replace("FOLDER", str(folder)) for x in (output, *line)],
      named.replace("FOLDER", str(folder)),
    )
    for line, named in _REFUSALS
  ]
  many_commands.check_refusals("predict", cases)
  assert not (folder / "never.tsv").exists()
