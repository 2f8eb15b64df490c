"""Runs the tool as its users do."""

from __future__ import annotations

import json
import os
import re

from official_albert.tools.testing import many_commands, toy_runs

_TINY = "--preset=albert_tiny"


def test_a_shared_and_an_unshared_run_beside_a_preset(tmp_path):
  for name, sharing in (("shared", "all"), ("unshared", "none")):
    toy_runs.write_pretrained(
      str(tmp_path / name), num_hidden_layers=3, sharing=sharing
    )
  sentences = tmp_path / "sentences.txt"
  sentences.write_text("the day was by a tree\n\nan old house at sea\n")
  folder = tmp_path / "out"
  line = [
    *(f"--model={tmp_path}/shared", f"--model={tmp_path}/unshared", _TINY),
    *(f"--input_files={sentences}", "--text=a tall tree"),
    *("--max_seq_length=33", f"--output_dir={folder}"),
  ]
  (done,) = many_commands.run("inspect_model", [line])
  assert done.err == ""
  assert sorted(os.listdir(folder)) == ["layer_similarity.png", "layers.json"]
  layers = json.loads((folder / "layers.json").read_text())
  assert [*layers] == [f"{tmp_path}/{x}" for x in ("shared", "unshared")]
  picture = (folder / "layer_similarity.png").read_bytes()
  assert picture.startswith(b"\x89PNG")
  shared, unshared, tiny = done.out.split("\n== ")[1:]
  for name, text in (("shared", shared), ("unshared", unshared)):
    assert text.startswith(f"{tmp_path}/{name} ==\n")
    rows = re.findall(r"^\| +(\d) +\| +[\d.]+ +\| +[\d.]+ +\|$", text, re.M)
    assert rows == ["1", "2", "3"]
    first, *_ = layers[f"{tmp_path}/{name}"]
    assert f"{first[0]:.3f}" in text and f"{first[1]:.2f}" in text
  assert tiny.startswith("albert_tiny ==") and "degrees" not in tiny
  assert "33 tokens per sequence" in tiny
  named = f"--output_dir {folder} exists and is not empty"
  many_commands.check_refusals("inspect_model", [(line, named)])


_REFUSALS = [
  ([], "nothing to inspect: set --model"),
  ([_TINY, "--max_seq_length=9999"], "max_seq_length 9999 exceeds the model"),
  ([_TINY, "--text=a tree"], "layers need sentences and weights"),
  ([_TINY, "--output_dir=none"], "layers need sentences and weights"),
  (["--model=none", "--output_dir=none"], "layers need sentences and weights"),
  (["--model=none", "--input_files=none-*.txt"], "no input file matches"),
  (["--model=none", f"--input_files={__file__}:2"], "leave out its weight"),
]


def test_bad_input_is_one_sentence():
  results = many_commands.check_refusals("inspect_model", _REFUSALS)
  assert not any(result.out for result in results)
