"""Tests of tools.predict with runs, exports and other checkpoints."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from official_albert import AlbertConfig, checkpoints, runs
from official_albert.tasks import common
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_EXPORT = "--saved_model_dir=FOLDER/classify"
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
  toy_runs.write_export(str(path / "bare"), three, "ids")
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
      *("--saved_model_dir=FOLDER/bare", "--input_file=FOLDER/b.jsonl"),
      *("--output_file=FOLDER/new/b.jsonl", _COLUMNS, small),
    ],
    [_EXPORT, "--input_file=FOLDER/c.txt", "--output_file=-", small],
    [
      *("--saved_model_dir=FOLDER/answer", "--input_file=FOLDER/squad.jsonl"),
      *("--output_file=-", "--output_format=jsonl"),
    ],
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
  rows = (folder / "new" / "b.jsonl").read_text().splitlines()
  for line, values, row in zip(lines, table, map(json.loads, rows)):
    assert [row["id"], row["prediction"]] == line.split("\t")[:2]
    assert list(row["probabilities"]) == list(_LABELS)
    # The ids are truncated here as they are in the graph.
    found = list(row["probabilities"].values())
    np.testing.assert_allclose(found, values, atol=1e-6)
  # Rows are numbered and have their text at the end; standard output has the
  # predictions only.
  printed = results[2].out.splitlines()
  cells = [line.split("\t") for line in printed[1:]]
  assert printed[0] == f"{header}\tinput_text"
  assert [row[0] for row in cells] == [str(i) for i in range(50)]
  texts = (folder / "c.txt").read_text().splitlines()
  assert [row[-1] for row in cells] == texts
  assert "wrote standard output (50 examples)" in results[2].err
  answer = json.loads(results[3].out)
  begin, end = answer["start"], answer["end"]
  assert answer["prediction"] == _CONTEXT[begin:end] != ""
  assert answer["n_best"][1]["text"] in _CONTEXT


def test_help_lists_no_flags_of_training():
  (shown,) = many_commands.run("predict", [["--help"]])
  listed = {*re.findall(r"^  --(?:\[no])?(\w+):", shown.out, re.MULTILINE)}
  assert {"text", "precision", "eval_batch_size"} <= listed
  assert not {"learning_rate", "distribution", "init_checkpoint"} & listed


def test_a_pipe(folder):
  done = many_commands.start(
    *("-m", "tools.predict", "--input_file=-", "--input_format=tsv"),
    *(f"--saved_model_dir={folder}/classify", "--columns=text=review"),
    input=(folder / "a.tsv").read_text(),
  )
  assert done.code == 0, done.err
  assert len(done.out.splitlines()) == 51
  assert done.err.startswith("wrote standard output (50 examples)")


def test_texts_of_the_command_line(folder):
  texts = ["--text=the old tree", "--text="]
  shown, table, answer, lines, refused = predict(
    folder,
    ["--model_dir=FOLDER/run", *texts],
    ["--saved_model_dir=FOLDER/own", *texts, "--output_file=FOLDER/two.tsv"],
    [
      *("--model_dir=FOLDER/answers", "--question=q", f"--context={_CONTEXT}"),
      "--output_format=jsonl",
    ],
    ["--saved_model_dir=FOLDER/own", "--input_file=FOLDER/c.txt"],
    ["--model_dir=FOLDER/encoder", "--text=a [MASK]", "--text=a tree"],
  )
  for result in (shown, table, answer, lines):
    assert result.code == 0, result.err
  first, second = shown.out.removesuffix("\n\n").split("\n\n")
  assert first.startswith("text        the old tree\nprediction  ")
  assert second.startswith("text        \nprediction  ")
  columns = [line.split(maxsplit=1)[0] for line in first.splitlines()]
  assert columns == ["text", "prediction", "bad", "good"]
  assert "wrote standard output (2 examples), predicted with" in shown.err
  found = common.read_probabilities(f"{folder}/two.tsv")
  assert (found.ids, found.labels) == (("0", "1"), ("bad", "good"))
  numbers = [float(x.split()[-1]) for x in first.splitlines()[2:]]
  np.testing.assert_allclose(found.values[0], numbers, atol=1e-6)
  answer = json.loads(answer.out)
  assert answer["prediction"] == _CONTEXT[answer["start"] : answer["end"]]
  assert answer["input_question"] == "q" and "input_context" not in answer
  # Plain lines need no id, although the training data had one.
  assert len(lines.out.splitlines()) == 51
  assert refused.code == 1 and len(refused.out.split("\n\n")) == 3
  assert "error       every text must have a [MASK]" in refused.out


def test_an_export_reads_the_columns_of_the_training_data(folder):
  line = ["--saved_model_dir=FOLDER/own", "--input_file=FOLDER/a.tsv"]
  run = ["--model_dir=FOLDER/run", "--input_file=FOLDER/a.tsv"]
  own, same, numbered = predict(folder, line, run, [*line, "--columns=id="])
  ids = [[x.split("\t")[0] for x in y.out.splitlines()] for y in (own, same)]
  assert ids == [["id", *(f"k{i}" for i in range(50))]] * 2
  assert own.out.splitlines()[0] == "id\tprediction\tbad\tgood"
  text = (folder / "c.txt").read_text().splitlines()[0]
  assert numbered.out.splitlines()[1].startswith("0\t")
  assert numbered.out.splitlines()[1].endswith(f"\t{text}")


def test_refused_rows_have_empty_answers(folder):
  (folder / "some.txt").write_text("a tree\nthe [MASK] tree\n\n")
  line = ["--model_dir=FOLDER/encoder", "--input_file=FOLDER/some.txt"]
  results = predict(
    folder,
    [*line, "--output_file=FOLDER/some.tsv", "--top_k=2"],
    [*line, "--output_file=FOLDER/some.jsonl", "--top_k=2"],
  )
  for result, name in zip(results, ("some.tsv", "some.jsonl")):
    assert result.code == 1
    assert result.out.startswith(f"wrote {folder / name} (3 examples)")
    assert result.err.count("\n") == 1
    assert result.err.startswith(
      "predict: error: 2 of 3 rows have no answer, so their predictions are "
      f"empty; the first is {folder}/some.txt, line 1: every text must have a "
    )
  header, *rows = (folder / "some.tsv").read_text().splitlines()
  assert header == (
    "id\tprediction\tprobability\tprediction_2\tprobability_2\tinput_text"
  )
  assert rows[0] == "0\t\t\t\t\ta tree" and rows[2] == "2\t\t\t\t\t"
  assert "" not in rows[1].split("\t")
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
  ((_TABLE,), "either --model_dir or --saved"),
  (("--saved_model_dir=FOLDER", _TABLE), "is not the folder of a SavedModel"),
  (
    (_EXPORT, _TABLE, "--precision=bfloat16"),
    "classify is an export, which has a fixed --precision: leave it out",
  ),
  *(
    ((_EXPORT, _TABLE, f"--{flag}"), f"fixed --{flag.split('=')[0]}: leave it")
    for flag in (
      *("num_hidden_layers=3", "albert_config_file=a", "spm_model_file=b"),
      *("vocab_file=c", "do_lower_case=false"),
    )
  ),
  (("--model_dir=FOLDER/none", _TABLE), "no checkpoint at FOLDER/none: "),
  (  # Refused before the model is opened.
    ("--model_dir=FOLDER/none", _TABLE, "--output_file=FOLDER"),
    "FOLDER is a folder: name a file",
  ),
  (("--model_dir=FOLDER/cola", _TABLE), "cola holds no checkpoint."),
  (
    (_RUN, _TABLE, "--signature=fill_mask"),
    "is a run of text_classification, and --signature is for runs of tools.",
  ),
  ((_RUN, _TABLE, "--null_score_diff_threshold=1"), "for runs of squad_v2: le"),
  (
    (_ENCODER, _MASKS, "--null_score_diff_threshold=1"),
    "is a pretraining run, and --null_score_diff_threshold is for",
  ),
  ((_RUN, _TABLE, "--checkpoint=newest"), "no checkpoint at newest: newest.in"),
  ((_ENCODER, _MASKS, "--signature=classify"), "it has encode, encode_pair, f"),
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
  ((_RUN, "--text=a", "--columns=id=key"), "and --columns is for files: leav"),
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
  results = predict(folder, *[[output, *case] for case, _ in _REFUSALS])
  for result, (case, message) in zip(results, _REFUSALS):
    assert result.code == 1 and result.err.count("\n") == 1, case
    assert message.replace("FOLDER", str(folder)) in result.err
  assert not (folder / "never.tsv").exists()


def test_a_pretraining_run(folder):
  masks, vectors = predict(
    folder,
    *[
      [
        *("--model_dir=FOLDER/encoder", "--input_file=FOLDER/masks.txt"),
        *("--output_file=-", *more),
      ]
      for more in (
        ["--output_format=jsonl", "--top_k=3"],
        ["--signature=encode"],
      )
    ],
  )
  rows = [json.loads(line) for line in masks.out.splitlines()]
  assert [len(row["masks"]) for row in rows] == [1, 2]
  assert len(rows[1]["masks"][1]["tokens"]) == 3
  assert rows[1]["prediction"][0] == rows[1]["masks"][0]["tokens"][0]
  header, *lines = vectors.out.splitlines()
  assert header == "id\tembedding\tinput_text"
  assert len(lines[1].split("\t")[1].split()) == 24


def test_a_classifier_of_another_format(tmp_path):
  toy_runs.write_finetuned(
    str(tmp_path / "run"), "text_classification", ["x", "y", "z"]
  )
  read = checkpoints.read_checkpoint(str(tmp_path / "run"))
  read.task = ""  # As in checkpoints of other programs.
  for name, kind in (
    ("hf", "hf"),
    ("own", "official_albert"),
    ("textless", "hf"),
    ("fast", "hf"),
    ("tf1", "tf1"),
  ):
    (tmp_path / name).mkdir()
    checkpoints.WRITERS[kind](read, str(tmp_path / name))
  for name in ("textless", "fast"):
    (tmp_path / name / "spiece.model").unlink()
  (tmp_path / "textless" / "tokenizer.json").unlink()
  (tmp_path / "new.txt").write_text("the old tree\na cold day\n")

  def line(model_dir, *more):
    return [
      f"--model_dir={tmp_path / model_dir}",
      f"--input_file={tmp_path / 'new.txt'}",
      f"--output_file={tmp_path / model_dir}.tsv",
      *more,
    ]

  task = "--task=text_classification"
  *good, unnamed, other, wrong, textless = many_commands.run(
    "predict",
    [
      line("run"),
      line("hf", task),
      line("own", task),
      line("tf1", task),
      line("fast", task),
      line("hf"),
      line("run", "--task=text_pair_classification"),
      line("hf", "--task=text_regression"),
      line("textless", task),
    ],
  )
  for result in good:
    assert result.code == 0, result.err
  assert good[1].out.endswith(f"predicted with {tmp_path / 'hf'}\n")
  tokenized = "tokenized with spiece.model by the rules of this package"
  assert [tokenized in result.err for result in good] == [0, 1, 0, 0, 1]
  run, hf, own, tf1, fast = (
    common.read_probabilities(str(tmp_path / f"{name}.tsv"))
    for name in ("run", "hf", "own", "tf1", "fast")
  )
  assert hf.labels == ("x", "y", "z")
  # TF1 does not name its classes.
  assert tf1.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
  assert hf.predictions == own.predictions == run.predictions
  for found in (hf, own, tf1, fast):
    np.testing.assert_allclose(found.values, run.values, atol=1e-6)
  for result, message in (
    (unnamed, "does not name its task: give --task, such as --task=text_clas"),
    (other, "is of --task=text_classification, not of text_pair_classificati"),
    (wrong, "head classification, but --task=text_regression needs regressio"),
    # The message does not name the temporary copy.
    (textless, f"no tokenizer in {tmp_path / 'textless'}: give --spm_model"),
  ):
    assert result.code == 1 and message in result.err


@pytest.mark.heavy
def test_a_trained_run_predicts_what_its_training_predicted(tmp_path):
  """One seed, and the best of two."""
  toy_runs.write_pretrained(str(tmp_path / "encoder"))
  for name, count, label in (
    ("train", 24, "mood"),
    ("dev", 7, "mood"),
    ("test", 5, ""),
  ):
    toy_data.write_table(str(tmp_path / f"{name}.tsv"), count, label)
  run = tmp_path / "run"
  (trained,) = many_commands.run(
    "run_finetuning",
    [
      [
        *("--task=text_classification", f"--output_dir={run}", "--seeds=2"),
        f"--init_checkpoint={tmp_path}/encoder",
        *(f"--{x}_file={tmp_path}/{x}.tsv" for x in ("train", "dev", "test")),
        *("--text_column=review", "--label_column=mood"),
        *("--max_seq_length=24", "--train_batch_size=8", "--eval_steps=4"),
        *("--learning_rate=0.003", "--num_train_steps=8"),
      ]
    ],
  )
  assert (trained.code, trained.err) == (0, "")
  # As JSON lines, with another field and in another order.
  rows = (tmp_path / "test.tsv").read_text().splitlines()[:0:-1]
  lines = [json.dumps({"review": row, "n": 3}) for row in rows]
  (tmp_path / "test.jsonl").write_text("\n".join(lines) + "\n")
  best = json.loads((run / "summary.json").read_text())["best_seed"]
  cases = (
    ("run/seed_12346", "test.tsv", 12346, 1),
    ("run", "test.jsonl", best, -1),
  )
  results = predict(
    tmp_path,
    *[
      [
        *(f"--model_dir=FOLDER/{name}", f"--input_file=FOLDER/{file}"),
        f"--output_file=FOLDER/out/{file}.tsv",
      ]
      for name, file, *_ in cases
    ],
  )
  for (code, out, err), (_, file, seed, step) in zip(results, cases):
    assert (code, err) == (0, "")
    path = f"{tmp_path}/out/{file}.tsv"
    assert f"wrote {path} (5 examples)" in out
    assert f"with {run}/seed_{seed}/best/model.ckpt-" in out
    found = common.read_probabilities(path)
    made = common.read_probabilities(
      f"{run}/seed_{seed}/predictions/test.probabilities.tsv"
    )
    assert found.labels == ("bad", "good") and found.ids == tuple("01234")
    # Rows of a batch change places, and a batch its length.
    values = found.values[::step]
    np.testing.assert_allclose(values, made.values, rtol=0, atol=1e-6)
