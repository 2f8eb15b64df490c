"""tools.predict with exports and with checkpoints of other formats."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from official_albert import checkpoints
from tasks import common
from tools.testing import many_commands, toy_data, toy_finetuned
from tools.testing import prediction_toy_models as toys

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("predict")
  for kind in ("classify", "answer"):
    toys.write(str(path / kind), kind)
  toys.write(str(path / "bare"), ids_only=True)
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
  question = {"question": "q", "context": "äbc\tdef"}
  (path / "squad.jsonl").write_text(json.dumps(question) + "\n")
  (path / "bad.tsv").write_text("key\treview\n1\ta\n2\tb\tc\n")
  return path


def predict(folder, *cases):
  return many_commands.run(
    "predict",
    [
      [argument.replace("FOLDER", str(folder)) for argument in case]
      for case in cases
    ],
  )


def test_forms_of_input_and_output(folder):
  columns = "--columns=text=review,id=key"
  model = "--saved_model_dir=FOLDER/classify"
  small = "--eval_batch_size=3"
  results = predict(
    folder,
    [model, "--input_file=FOLDER/a.tsv", "--output_file=FOLDER/a.out", columns],
    [
      "--saved_model_dir=FOLDER/bare",
      "--input_file=FOLDER/b.jsonl",
      "--output_file=FOLDER/new/b.jsonl",
      columns,
      small,
    ],
    [model, "--input_file=FOLDER/c.txt", "--output_file=-", small],
    [
      "--saved_model_dir=FOLDER/answer",
      "--input_file=FOLDER/squad.jsonl",
      "--output_file=-",
      "--output_format=jsonl",
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
  for line, row in zip(lines, map(json.loads, rows)):
    assert [row["id"], row["prediction"]] == line.split("\t")[:2]
    assert list(row["probabilities"]) == list(toys.LABELS)
    # Made of ids that were cut there as they are in the graph.
    np.testing.assert_allclose(
      list(row["probabilities"].values()),
      np.float64(line.split("\t")[2:]),
      atol=1e-6,
    )
  # Numbers for ids; only what was asked for on standard output.
  printed = results[2].out.splitlines()
  assert [line.split("\t", 1)[0] for line in printed[1:]] == [
    str(i) for i in range(50)
  ]
  assert printed[0] == header and "wrote standard output (50 examples)" in (
    results[2].err
  )
  answer = json.loads(results[3].out)
  assert answer["prediction"] == "c\td" and answer["start"] == 2
  assert answer["n_best"][1]["text"] == "bc"


def test_a_pipe(folder):
  done = subprocess.run(
    [
      sys.executable,
      "-m",
      "tools.predict",
      f"--saved_model_dir={folder}/classify",
      # The same pipe by a path: it must not be read beforehand.
      "--input_file=/dev/stdin",
      "--input_format=tsv",
      "--columns=text=review",
      "--output_file=-",
    ],
    cwd=_ROOT,
    input=(folder / "a.tsv").read_text(),
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert len(done.stdout.splitlines()) == 51
  assert done.stderr.startswith("wrote standard output (50 examples)")


def test_refusals_are_one_sentence(folder):
  model = "--saved_model_dir=FOLDER/classify"
  output = "--output_file=FOLDER/never.tsv"
  cases = (
    ([model, "--input_file=FOLDER/bad.tsv", output], "no column 'text'"),
    (
      [model, "--input_file=FOLDER/bad.tsv", output],
      "'review'; FOLDER/classify is an export of text_classification, which "
      "takes text.",
    ),
    (
      [model, "--input_file=FOLDER/bad.tsv", output, "--columns=text=review"],
      "bad.tsv, line 3 has 3 columns, the header has 2.",
    ),
    ([model, "--input_file=-", output], "give --input_format"),
    ([model, "--input_file=FOLDER/no.tsv", output], "no.tsv: No such file"),
    (["--input_file=FOLDER/a.tsv", output], "either --model_dir or --saved"),
    (
      [model, "--model_dir=x", "--input_file=FOLDER/a.tsv", output],
      "either --model_dir or --saved",
    ),
    (
      [model, "--input_file=FOLDER/a.tsv", output, "--eval_batch_size=0"],
      "no column 'text'",
    ),
    (
      ["--saved_model_dir=FOLDER", "--input_file=FOLDER/a.tsv", output],
      "is not the folder of a SavedModel",
    ),
    (
      [model, "--input_file=FOLDER/a.tsv", output, "--precision=auto"],
      "classify is an export, which has a fixed --precision: leave it out",
    ),
    (
      [model, "--input_file=FOLDER/a.tsv", output, "--top_k=3"],
      "classify is an export, which has a fixed --top_k: leave it out",
    ),
  )
  results = predict(folder, *[case for case, _ in cases])
  for result, (_, message) in zip(results, cases):
    assert result.code == 1
    message = message.replace("FOLDER", str(folder))
    assert result.err.count("\n") == 1 and message in result.err
  assert not (folder / "never.tsv").exists()


def test_a_classifier_of_another_format(tmp_path):
  run, hf = str(tmp_path / "run"), tmp_path / "hf"
  toy_finetuned.write(run, "text_classification", ["x", "y", "z"])
  hf.mkdir()
  read = checkpoints.read_checkpoint(run)
  checkpoints.WRITERS["hf"](read, str(hf))
  read.task = ""  # As an older version, which did not carry it.
  (tmp_path / "own").mkdir()
  checkpoints.WRITERS["official_albert"](read, str(tmp_path / "own"))
  (tmp_path / "textless").mkdir()
  checkpoints.WRITERS["hf"](read, str(tmp_path / "textless"))
  (tmp_path / "textless" / "spiece.model").unlink()
  (tmp_path / "tf1").mkdir()
  checkpoints.WRITERS["tf1"](read, str(tmp_path / "tf1"))
  (tmp_path / "new.txt").write_text("the old tree\na cold day\n")

  def line(model_dir, *more):
    output = tmp_path / f"{model_dir}.tsv"
    return [
      f"--model_dir={tmp_path / model_dir}",
      f"--input_file={tmp_path / 'new.txt'}",
      f"--output_file={output}",
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
      line("hf"),
      line("run", "--task=text_pair_classification"),
      line("hf", "--task=text_regression"),
      line("textless", task),
    ],
  )
  for result in good:
    assert result.code == 0, result.err
  assert good[1].out.endswith(f"predicted with {hf}\n")
  tokenized = "tokenized with spiece.model by the rules of this package"
  assert [tokenized in result.err for result in good] == [0, 1, 0, 0]
  said = {
    name: common.read_probabilities(str(tmp_path / f"{name}.tsv"))
    for name in ("run", "hf", "own", "tf1")
  }
  assert said["hf"].labels == ("x", "y", "z")
  # TF1 does not name its classes.
  assert said["tf1"].labels == ("LABEL_0", "LABEL_1", "LABEL_2")
  for name in ("hf", "own"):
    assert said[name].predictions == said["run"].predictions
  for name in ("hf", "own", "tf1"):
    np.testing.assert_allclose(said[name].values, said["run"].values, atol=1e-6)
  for result, message in (
    (
      unnamed,
      "does not name its task: give --task, such as --task=te",
    ),
    (other, "is a run of text_classification, not of text_pair_classification"),
    (
      wrong,
      "has the head classification, but --task=text_regression needs reg",
    ),
    # Not in the temporary copy, where nobody can look.
    (textless, f"no tokenizer in {tmp_path / 'textless'}: give --spm_model"),
  ):
    assert result.code == 1 and message in result.err


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
