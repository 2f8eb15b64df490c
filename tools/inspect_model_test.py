"""Runs the tool as its users do."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tools.testing import toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def _run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "tools.inspect_model", *map(str, arguments)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def test_a_shared_and_an_unshared_run_beside_a_preset(tmp_path):
  for name, sharing in (("shared", "all"), ("unshared", "none")):
    toy_runs.write_pretrained(
      str(tmp_path / name), num_hidden_layers=3, sharing=sharing
    )
  sentences = tmp_path / "sentences.txt"
  sentences.write_text("the day was by a tree\n\nan old house at sea\n")
  done = _run(
    f"--model={tmp_path}/shared",
    f"--model={tmp_path}/unshared",
    "--preset=albert_tiny",
    f"--input_files={sentences}",
    "--text=a tall tree",
    "--max_seq_length=33",
    f"--output_dir={tmp_path}/out",
  )
  assert done.returncode == 0, done.stderr
  assert done.stderr == ""
  folder = tmp_path / "out"
  assert sorted(os.listdir(folder)) == [
    "attention.png",
    "attention_2.png",
    "inspection.json",
    "layer_similarity.png",
  ]
  for path in folder.glob("*.png"):
    assert path.read_bytes().startswith(b"\x89PNG")
  models = json.loads((folder / "inspection.json").read_text())["models"]
  assert [m["model"] for m in models] == ["shared", "unshared", "albert_tiny"]
  shared, unshared, tiny = models
  assert unshared["parameters"]["ffn"] == 3 * shared["parameters"]["ffn"]
  assert shared["flops_per_token"] == unshared["flops_per_token"]
  assert shared["sentences"]["count"] == 3
  assert [x["layer"] for x in unshared["layers"]] == [1, 2, 3]
  assert len(shared["attention"][2]["heads"]) == 2
  assert tiny["layers"] == [] and tiny["sentences"] is None
  assert "== shared ==" in done.stdout and "== unshared ==" in done.stdout
  line = f"\n1  {shared['layers'][0]['l2_distance']:>37.3f}"
  assert line.split() == done.stdout[done.stdout.index("\n1 ") :].split()[:2]
  invalid = _run("--preset=albert_tiny", "--batch_size=0")
  assert invalid.returncode == 2 and "not a positive" in invalid.stderr
  again = _run("--preset=albert_tiny", f"--output_dir={folder}")
  assert again.returncode == 1
  assert again.stderr.startswith(
    f"inspect_model: error: --output_dir {folder} exists and is not empty"
  )


def test_a_preset_needs_no_tensorflow():
  program = (
    "import sys\n"
    "from tools import inspect_model\n"
    "inspect_model.flags.FLAGS(['x', '--preset=albert_xxlarge_v2'])\n"
    "inspect_model.main([])\n"
    "assert 'tensorflow' not in sys.modules\n"
    "assert 'matplotlib' not in sys.modules\n"
  )
  done = subprocess.run(
    [sys.executable, "-c", program],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert "222,595,584" in done.stdout
  assert done.stdout.rstrip().endswith(
    "No sentences: layers and attention need --model, and --text or "
    "--input_files."
  )


@pytest.mark.parametrize(
  "arguments, message",
  [
    ([], "nothing to inspect: set --model"),
    (["--preset=albert_bose_v2"], "unknown preset 'albert_bose_v2'"),
    (["--preset=albert_tiny", "--text=a"], "sentences need a model"),
    (["--preset=albert_tiny", "--max_seq_length=513"], "only 512 position"),
    (["--preset=albert_tiny", "--num_hidden_layers=-1"], "at least 1, got -1"),
    (["--preset=bert_base", "--num_hidden_layers=3"], "cannot have 3"),
    (["--model=a", "--model=a"], "names the same path twice"),
    (
      ["--model=a", "--model=b", "--albert_config_file=c"],
      "--albert_config_file belongs to one --model",
    ),
    (["--model=none", "--text= "], "--text is empty"),
  ],
)
def test_bad_input_is_one_sentence(arguments, message):
  done = _run(*arguments)
  assert done.returncode == 1
  assert done.stdout == ""
  (line,) = done.stderr.splitlines()
  assert line.startswith("inspect_model: error: ")
  assert message in line


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
