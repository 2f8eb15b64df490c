"""Runs the tool as its users do."""

from __future__ import annotations

import json
import os

from official_albert.tools.testing import many_commands, toy_runs


def _run(*lines):
  return many_commands.run("inspect_model", lines)


def test_a_shared_and_an_unshared_run_beside_a_preset(tmp_path):
  for name, sharing in (("shared", "all"), ("unshared", "none")):
    toy_runs.write_pretrained(
      str(tmp_path / name), num_hidden_layers=3, sharing=sharing
    )
  sentences = tmp_path / "sentences.txt"
  sentences.write_text("the day was by a tree\n\nan old house at sea\n")
  folder = tmp_path / "out"
  done, again = _run(
    [
      f"--model={tmp_path}/shared",
      f"--model={tmp_path}/unshared",
      "--preset=albert_tiny",
      f"--input_files={sentences}",
      "--text=a tall tree",
      "--max_seq_length=33",
      f"--output_dir={folder}",
    ],
    ["--preset=albert_tiny", f"--output_dir={folder}"],
  )
  assert (done.code, done.err) == (0, "")
  assert sorted(os.listdir(folder)) == [
    "inspection.json",
    "layer_similarity.png",
  ]
  for path in folder.glob("*.png"):
    assert path.read_bytes().startswith(b"\x89PNG")
  models = json.loads((folder / "inspection.json").read_text())["models"]
  names = [f"{tmp_path}/shared", f"{tmp_path}/unshared", "albert_tiny"]
  assert [m["model"] for m in models] == names
  shared, unshared, tiny = models
  assert unshared["parameters"]["ffn"] == 3 * shared["parameters"]["ffn"]
  assert shared["flops_per_token"] == unshared["flops_per_token"]
  assert shared["sentences"]["count"] == 3
  assert [x["layer"] for x in unshared["layers"]] == [1, 2, 3]
  assert tiny["layers"] == [] and tiny["sentences"] is None
  assert f"== {tmp_path}/shared ==" in done.out
  assert f" 1 {shared['layers'][0]['l2_distance']:14.3f} " in done.out
  # The sentences of --text come before those of files.
  assert shared["sentences"]["tokens"] == unshared["sentences"]["tokens"] > 12
  assert again.code == 1
  assert again.err.startswith(
    f"inspect_model: error: --output_dir {folder} exists and is not empty"
  )


_TINY = "--preset=albert_tiny"
_REFUSALS = [
  ([], "nothing to inspect: set --model"),
  ([_TINY, "--text=a"], "sentences need a model"),
  (
    ["--model=a", "--model=b", "--albert_config_file=c"],
    "--albert_config_file belongs to one --model",
  ),
  (["--model=none", "--text= "], "--text is empty"),
  (["--model=none", "--input_files=none-*.txt"], "no input file matches"),
]


def test_bad_input_is_one_sentence():
  results = many_commands.check_refusals("inspect_model", _REFUSALS)
  assert not any(result.out for result in results)
