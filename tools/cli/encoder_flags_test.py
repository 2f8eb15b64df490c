"""Which files make an encoder; each case with its flags, in one process."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

from official_albert import checkpoints
from tools.testing import toy_encoder

ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = """
import json, sys
from absl import flags
from absl.testing import flagsaver
from tools.cli import encoder_flags as finetuning_encoder
said = []
for run_dir, line in json.loads(sys.argv[1]):
  saved = flagsaver.save_flag_values()
  flags.FLAGS(["program", *line])
  try:
    found = finetuning_encoder.find(run_dir)
    said.append([
      found.checkpoint,
      found.config.hidden_size,
      found.tokenizer.model_file,
      found.tokenizer.lower_case,
    ])
  except (ValueError, OSError) as error:
    said.append(str(error))
  flagsaver.restore_flag_values(saved)
print(json.dumps(said))
"""


def find(*cases):
  done = subprocess.run(
    [sys.executable, "-c", _PROGRAM, json.dumps(cases)],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return pathlib.Path(
    toy_encoder.write(str(tmp_path_factory.mktemp("encoder") / "run"))
  )


def test_files_lie_beside_the_checkpoint(folder):
  (folder / "best").mkdir()
  for parent in (folder, folder / "best"):
    (parent / "model.ckpt-1.index").touch()
  model = str(folder / "tokenizer.model")
  paths = [folder, folder / "model.ckpt-1", folder / "best" / "model.ckpt-1"]
  found = find(
    *[("", [f"--init_checkpoint={path}"]) for path in paths],
    # A fine-tuned run has all itself.
    (str(folder), []),
  )
  assert found[:3] == [[str(path), 24, model, True] for path in paths]
  assert found[3] == ["", 24, model, True]


def test_other_formats_and_several_seeds(folder, tmp_path):
  checkpoint = checkpoints.read_checkpoint(str(folder))
  for kind in ("hf", "tf1"):
    (tmp_path / kind).mkdir()
    checkpoints.WRITERS[kind](checkpoint, str(tmp_path / kind))
  with tarfile.open(tmp_path / "tf1.tar.gz", "w:gz") as file:
    file.add(tmp_path / "tf1", "albert_tiny")
  seeds = tmp_path / "seeds"
  shutil.copytree(folder, seeds / "seed_6")
  summary = {"seeds": {"5": {}, "6": {}}, "best_seed": 6}
  (seeds / "summary.json").write_text(json.dumps(summary))
  names = ("hf", "tf1.tar.gz", "tf1", "seeds")
  found = find(*[("", [f"--init_checkpoint={tmp_path / n}"]) for n in names])
  for checkpoint, hidden_size, model, lower_case in found:
    assert (hidden_size, lower_case) == (24, True)
    assert pathlib.Path(model).name == "tokenizer.model"
    assert pathlib.Path(model).parent == pathlib.Path(checkpoint)
  # What had to be converted was a copy, which is gone with the process.
  assert [pathlib.Path(row[0]).exists() for row in found] == [False] * 2 + [
    True
  ] * 2
  assert found[2][0] == str(tmp_path / "tf1")
  assert found[3][0] == str(seeds / "seed_6")


def test_flags_win_over_what_lies_there(folder, tmp_path):
  config = json.loads((folder / "albert_config.json").read_text())
  config["hidden_size"] = 26
  (tmp_path / "other.json").write_text(json.dumps(config))
  shutil.copy(folder / "tokenizer.model", tmp_path / "mine.model")
  (found,) = find(
    (
      "",
      [
        f"--init_checkpoint={folder}",
        f"--albert_config_file={tmp_path}/other.json",
        f"--spm_model_file={tmp_path}/mine.model",
        "--nodo_lower_case",
      ],
    )
  )
  assert found[1:] == [26, str(tmp_path / "mine.model"), False]


def test_case_is_that_of_the_run(folder, tmp_path):
  cased, bare = tmp_path / "cased", tmp_path / "bare"
  for path in (cased, bare):
    shutil.copytree(folder, path)
  record = json.loads((cased / "run.json").read_text())
  record["data"]["tokenizer"]["lower_case"] = False
  (cased / "run.json").write_text(json.dumps(record))
  (bare / "run.json").unlink()
  found = find(
    ("", [f"--init_checkpoint={cased}"]),
    ("", [f"--init_checkpoint={cased}", "--do_lower_case"]),
    ("", [f"--init_checkpoint={bare}"]),
  )
  assert [row[3] for row in found] == [False, True, True]


def test_wordpiece(folder, tmp_path):
  shutil.copy(folder / "albert_config.json", tmp_path)
  (tmp_path / "vocab.txt").write_text(
    "\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] a b".split())
  )
  (found,) = find((str(tmp_path), []))
  assert found[2] == str(tmp_path / "vocab.txt")
  # As in Google's archives.
  (tmp_path / "vocab.txt").rename(tmp_path / "vocab_chinese.txt")
  (tmp_path / "model.ckpt-best.index").touch()
  (found,) = find(("", [f"--init_checkpoint={tmp_path}/model.ckpt-best"]))
  assert found[2] == str(tmp_path / "vocab_chinese.txt")


def test_refusals(folder, tmp_path):
  other, lone, pieces = (tmp_path / name for name in ("a", "b", "c"))
  shutil.copytree(folder, other)
  record = json.loads((other / "run.json").read_text())
  record["data"]["tokenizer"]["sha256"] = "0" * 64
  (other / "run.json").write_text(json.dumps(record))
  for path in (lone, pieces):
    path.mkdir()
  shutil.copy(folder / "albert_config.json", lone)
  shutil.copy(folder / "albert_config.json", pieces)
  for name in ("x.model", "y.model"):  # Which of them is meant?
    shutil.copy(folder / "tokenizer.model", pieces / name)
  found = find(
    ("", []),
    ("", [f"--init_checkpoint={tmp_path}/none/model.ckpt-1"]),
    ("", [f"--init_checkpoint={folder}/model.ckpt-99"]),
    ("", [f"--init_checkpoint={tmp_path}"]),
    ("", [f"--init_checkpoint={lone}"]),
    ("", [f"--init_checkpoint={pieces}"]),
    ("", [f"--init_checkpoint={other}"]),
  )
  for said, message in zip(
    found,
    (
      "no albert_config.json without --init_checkpoint: give --albert_config_f",
      "none/model.ckpt-1 does not exist, nor does its folder",
      f"{folder}/model.ckpt-99 does not exist",
      f"no albert_config.json in {tmp_path}: give --albert_config_file",
      f"no tokenizer in {lone}: give --spm_model_file, or --vocab_file",
      f"no tokenizer in {pieces}: give",
      f"{other}/tokenizer.model is not the tokenizer that the model in {other}",
    ),
  ):
    assert message in said


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
