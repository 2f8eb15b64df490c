"""Tests of tools.ensemble: averages on disk, and members that do not fit."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from official_albert.tasks import common
from official_albert.tools.testing import many_commands, toy_data, toy_runs

DEV, TEST = (
  f"{split}{common.PROBABILITIES_SUFFIX}" for split in ("dev", "test")
)


def write(run, values, name=DEV, labels=("no", "yes"), id_prefix="e"):
  folder = run / "predictions"
  folder.mkdir(exist_ok=True, parents=True)
  ids = tuple(f"{id_prefix}{i}" for i in range(len(values)))
  table = common.ProbabilityTable(ids, labels, np.array(values))
  common.write_probabilities(str(folder / name), table)


def test_each_split_is_averaged(tmp_path):
  for name, share in (("s1", 0.25), ("s2", 0.5), ("s3", 0.0)):
    write(tmp_path / name, [[share, 1 - share], [0.75, 0.25]])
    write(tmp_path / name, [share * 8, -1.5], TEST, labels=())
  output = tmp_path / "new" / "all"
  arguments = (f"--members={tmp_path}/s?", f"--output_dir={output}")
  first, second = many_commands.run("ensemble", [arguments] * 2)
  assert first.err == ""
  assert f"wrote {output / DEV} (2 examples)\n" in first.out
  assert sorted(os.listdir(output)) == [DEV, TEST]
  assert (output / DEV).read_text() == (
    "id\tprediction\tno\tyes\ne0\tyes\t0.25\t0.75\ne1\tno\t0.75\t0.25\n"
  )
  assert (output / TEST).read_text() == "id\tprediction\ne0\t2\ne1\t-1.5\n"
  assert second == first  # Replaces the files of the first.


def test_a_wrong_command_is_one_sentence_and_writes_nothing(tmp_path):
  a, b, c, bare = (tmp_path / name for name in ("a", "b", "c", "bare"))
  write(a, [[1, 0]])
  write(b, [[1, 0], [0, 1]])
  write(c, [[1, 0]])
  for name, labels in (("labels", ("yes", "no")), ("splits", ("no", "yes"))):
    file = TEST if name == "splits" else DEV
    write(tmp_path / name, [[1, 0]], file, labels)
  for name in ("m1", "m2"):
    write(tmp_path / name, [[0.75, 0.5], [0.25, 0.5]])
  bare.mkdir()
  toy_runs.write_finetuned(str(tmp_path / "emb"), "text_embedding")
  (tmp_path / "link").symlink_to(a)
  toy_data.write_glue(str(tmp_path / "glue"), ["rte"])
  squad = "--task=squad_v2", f"--data_dir={tmp_path}"
  task, data_dir = "--task=rte", f"--data_dir={tmp_path}/glue"
  train = tmp_path / "train.jsonl"
  train.write_text('{"text": "x", "label": ["no", "yes"]}\n')
  several = "--task=text_multi_label", f"--train_file={train}"
  output = tmp_path / "out"
  cases = (
    (f"{a},{b}", output, f"{b} and {a} cannot be averaged"),
    (f"{a},{tmp_path}/labels", output, f"labels and {a} cannot be averaged"),
    (f"{a},{tmp_path}/splits", output, f"splits and {a} cannot be averaged"),
    # Refused before the predictions are read.
    (f"{a},{b}", f"{a / 'predictions' / DEV}/out", "is a file, and so"),
    (f"{a}", output, f"--members are {a}: give two or more"),
    (f"{a},{b}/../a", output, "two or more runs, each once"),
    (f"{a},{tmp_path}/link", output, "two or more runs, each once"),
    (f"{a},{tmp_path / 'none'}", output, "--members: there is no folder '"),
    (f"{a},{b}", f"{b}/../a", "another folder as --output_dir"),
    (f"{a},{b}", f"{tmp_path}/link", "another folder as --output_dir"),
    (f"{bare},{a}", output, "bare has no predictions/*.probabilities.tsv"),
    (f"{a},{tmp_path}/emb", output, "emb, a run of text_embedding, has no"),
    (f"{a},{c}", output, "data of --task=rte", task, data_dir),
    (f"{a},{c}", output, "--task=rte needs --data_dir", task),
    (f"{a},{c}", output, "has no probabilities", *squad),
    *(
      (f"{tmp_path}/m?", output, "do not sum to 1, so a text has several", *x)
      for x in ((), several)
    ),
  )
  many_commands.check_refusals(
    "ensemble",
    [
      ([f"--members={members}", f"--output_dir={target}", *more], named)
      for members, target, named, *more in cases
    ],
  )
  assert not output.exists() and os.listdir(a) == ["predictions"]


def test_each_member_has_thresholds_of_its_own(tmp_path):
  """Both members are right by them, which no other threshold allows."""
  right = np.array([[1, 0], [0, 1], [1, 1]])
  line = [
    *(f"--members={tmp_path}/m?", f"--output_dir={tmp_path}/all"),
    "--task=text_multi_label",
  ]
  for split in ("train", "dev", "test"):
    rows = ({"text": f"{split} {i}"} for i in range(3))
    rows = ({**x, "label": y} for x, y in zip(rows, (["a"], ["b"], ["a", "b"])))
    path = tmp_path / f"{split}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    line.append(f"--{split}_file={path}")
  for name, low in (("m1", 0.125), ("m2", 0.75)):
    for file in (DEV, TEST):
      values = low + 0.125 * right
      write(tmp_path / name, values, file, ("a", "b"), "")
  (done,) = many_commands.run("ensemble", [line])
  assert done.out.count("micro_f1 1,") == 6, done.out
  results = json.loads((tmp_path / "all" / "eval_results.json").read_text())
  assert results["dev"]["a threshold"] == pytest.approx(0.5)


def test_members_and_their_average_are_measured(tmp_path):
  """RTE's dev labels alternate; each member is wrong in other rows."""
  toy_data.write_glue(str(tmp_path), ["rte"])
  right = np.eye(2)[[0, 1] * 3 + [0]]
  for name, wrong in (("m1", (0, 1, 2)), ("m2", (2, 3))):
    values = right.copy()
    values[[*wrong]] = 0.625 - 0.25 * right[[*wrong]]
    for file in (DEV, TEST):
      write(tmp_path / name, values, file, ("entailment", "not_entailment"), "")
  line = [
    *(f"--members={tmp_path}/m?", "--task=rte", f"--data_dir={tmp_path}"),
    f"--output_dir={tmp_path}/all",
  ]
  (done,) = many_commands.run("ensemble", [line])
  assert done.err == ""
  assert f"dev, {tmp_path}/m1: accuracy 0.5714\n" in done.out
  results = json.loads((tmp_path / "all" / "eval_results.json").read_text())
  assert results == {"dev": {"accuracy": pytest.approx(6 / 7)}}
  official = (tmp_path / "all" / "RTE.tsv").read_text()
  assert official.startswith("index\tprediction\n0\tent")
