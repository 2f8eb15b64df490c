"""Predictions for one's own table, and what has none."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from official_albert import AlbertConfig, training
from tasks import common
from tools.testing import many_commands, toy_data, toy_encoder

# A run has to be trained first.
pytestmark = pytest.mark.heavy


def train(folder, output_dir, *more):
  return [
    "--task=text_classification",
    f"--init_checkpoint={folder}/encoder",
    f"--output_dir={output_dir}",
    f"--train_file={folder}/train.tsv",
    f"--dev_file={folder}/dev.tsv",
    f"--test_file={folder}/new.tsv",
    "--text_column=review",
    "--label_column=mood",
    "--max_seq_length=24",
    "--train_batch_size=8",
    "--learning_rate=0.003",
    "--num_train_steps=8",
    "--eval_steps=4",
    *more,
  ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Two seeds of a run on tables of the folder."""
  path = tmp_path_factory.mktemp("predict")
  toy_encoder.write(str(path / "encoder"))
  toy_data.write_table(str(path / "train.tsv"), 24)
  toy_data.write_table(str(path / "dev.tsv"), 7)
  toy_data.write_table(str(path / "new.tsv"), 5, "")
  (result,) = many_commands.run(
    "run_finetuning", [train(path, path / "run", "--seeds=2")]
  )
  assert (result.code, result.err) == (0, "")
  return path


def predict(folder, *cases):
  """Each case: run, table and output, in the folder."""
  return many_commands.run(
    "predict",
    [
      [
        f"--model_dir={folder}/{model_dir}",
        f"--input_file={folder}/{table}",
        f"--output_file={folder}/{output}",
      ]
      for model_dir, table, output in cases
    ],
  )


def test_new_texts_with_one_run_or_the_best(folder):
  # Other forms of a table, with a column more and rows in another order.
  rows = (folder / "new.tsv").read_text().splitlines()[1:]
  lines = [json.dumps({"review": row, "n": 3}) for row in rows[::-1]]
  (folder / "new.jsonl").write_text("\n".join(lines) + "\n")
  results = predict(
    folder,
    ("run/seed_12346", "new.tsv", "one.tsv"),
    ("run", "new.jsonl", "out/best.tsv"),
  )
  for result in results:
    assert (result.code, result.err) == (0, "")
  best = json.loads((folder / "run" / "summary.json").read_text())["best_seed"]
  assert f"with {folder}/run/seed_{best}/best/model.ckpt-" in results[1].out
  assert f"wrote {folder}/one.tsv (5 examples)" in results[0].out
  for output, seed, step in (("one.tsv", 12346, 1), ("out/best.tsv", best, -1)):
    said = common.read_probabilities(str(folder / output))
    made = common.read_probabilities(
      str(folder / "run" / f"seed_{seed}/predictions/test.probabilities.tsv")
    )
    assert said.labels == ("bad", "good") and said.ids == tuple("01234")
    # Rows of a batch change places, and a batch its length.
    np.testing.assert_allclose(
      said.values[::step], made.values, rtol=0, atol=1e-6
    )
  # Records are made elsewhere, and removed.
  assert sorted(os.listdir(folder / "run" / "records")) == [
    name
    for name in sorted(os.listdir(folder / "run" / "records"))
    if name.startswith("text_classification-")
  ]


def test_refusals_are_one_sentence(folder):
  (folder / "empty.tsv").write_text("")
  (folder / "titles.tsv").write_text("title\nx\n")
  training.write_run(
    str(folder / "cola"),
    AlbertConfig.from_preset("albert_tiny"),
    {},
    {"task": "cola", "max_seq_length": 9, "settings": {"labels": ["0", "1"]}},
  )
  bare = folder / "bare"
  shutil.copytree(folder / "run" / "seed_12345", bare)
  shutil.rmtree(bare / "best")
  for path in bare.glob("model.ckpt*"):
    path.unlink()
  shutil.copy(folder / "encoder" / "tokenizer.model", folder / "cola")
  cases = (
    ("run", "empty.tsv", "empty.tsv is empty"),
    ("run", "titles.tsv", "titles.tsv, line 1: there is no column 'review'"),
    ("run", "none.tsv", "none.tsv: No such file or directory"),
    ("encoder", "new.tsv", "new.tsv, line 1: there is no column 'text'"),
    (
      "encoder",
      "new.tsv",
      "encoder is a pretraining run (--signature=fill_mask), which takes text.",
    ),
    ("none", "new.tsv", "is not the folder of a run"),
    ("cola", "new.tsv", "cola has no fine-tuned checkpoint: train first"),
    ("bare", "new.tsv", "has no fine-tuned checkpoint: train first"),
  )
  results = predict(folder, *[(a, b, "bad.tsv") for a, b, _ in cases])
  for result, (*_, message) in zip(results, cases):
    assert result.code == 1
    assert result.err.count("\n") == 1 and message in result.err
  assert not (folder / "bad.tsv").exists()


def test_flags_of_other_runs_are_refused(folder):
  (folder / "texts.txt").write_text("no mask\n")
  run, encoder = f"{folder}/run/seed_12345", f"{folder}/encoder"
  cases = (
    (run, "--signature=fill_mask", "is a run of text_classification, and --si"),
    (run, "--top_k=3", "--top_k is for runs of tools.run_pretraining: leave"),
    (run, "--null_score_diff_threshold=1", "is for runs of squad_v2: leave it"),
    (encoder, "--null_score_diff_threshold=1", "is a pretraining run, and --n"),
    (run, "--checkpoint=newest", "no checkpoint at newest: newest.index does"),
    (encoder, "--signature=classify", "or name a run of tools.run_finetuning"),
    (encoder, "--top_k=3", "texts.txt, line 1: "),
    (encoder, "--top_k=3", "every text must have a [MASK] within its first"),
    (encoder, "--top_k=3", "encoder is a pretraining run (--signature=fill_m"),
  )
  results = many_commands.run(
    "predict",
    [
      [
        f"--model_dir={model_dir}",
        f"--input_file={folder}/texts.txt",
        f"--output_file={folder}/refused.tsv",
        flag,
      ]
      for model_dir, flag, _ in cases
    ],
  )
  for result, (*_, message) in zip(results, cases):
    assert result.code == 1
    assert result.err.count("\n") == 1 and message in result.err
  assert not (folder / "refused.tsv").exists()


def test_a_pretraining_run(folder):
  (folder / "masks.txt").write_text("the [MASK] tree\na [MASK] [MASK]\n")
  common = [f"--model_dir={folder}/encoder", f"--input_file={folder}/masks.txt"]
  masks, vectors, order = many_commands.run(
    "predict",
    [
      [*common, "--output_file=-", "--output_format=jsonl", "--top_k=3"],
      [*common, "--output_file=-", "--signature=encode"],
      [*common, "--output_file=-", "--signature=sentence_order"],
    ],
  )
  rows = [json.loads(line) for line in masks.out.splitlines()]
  assert [len(row["masks"]) for row in rows] == [1, 2]
  assert len(rows[1]["masks"][1]["tokens"]) == 3
  assert rows[1]["prediction"][0] == rows[1]["masks"][0]["tokens"][0]
  header, *lines = vectors.out.splitlines()
  assert header == "id\tembedding" and len(lines[1].split()) == 1 + 24
  assert order.code == 1 and "text_a, text_b are needed" in order.err


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
