"""Tests of tools.run_pretraining: a killed run, evaluation, refusals."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from official_albert import AlbertConfig, run_logs
from official_albert.testing import toy_task, toy_vocabulary
from official_albert.tools.conversion import conversion
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CONFIG = "--albert_config_file=FOLDER/albert_config.json"
_PHASES = (
  _CONFIG,
  "--input_dir=FOLDER/records,FOLDER/long",
  "--phase_steps=13,9",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Records of 24 and 31 tokens and without held-out text; a configuration."""
  path = tmp_path_factory.mktemp("pretraining")
  toy_data.write_corpus(str(path / "corpus.txt"))
  vocabulary = toy_runs.write_tokenizer(str(path))
  for name, length, share in (
    ("records", 24, 0.2),
    ("long", 31, 0.2),
    ("bare", 24, 0.0),
  ):
    toy_runs.write_records(str(path), name, length, share)
  config = toy_runs.config(
    vocabulary.vocab_size,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
  )
  config.to_json_file(str(path / "albert_config.json"))
  return path


def flags_of(folder, model_dir, *arguments):
  in_phases = any("--phase_steps" in argument for argument in arguments)
  return [
    f"--input_dir={folder}/records",
    f"--model_dir={model_dir}",
    "--train_batch_size=8",
    "--eval_batch_size=16",
    "--learning_rate=0.01",
    *([] if in_phases else ["--num_train_steps=40"]),
    "--num_warmup_steps=5",
    "--steps_per_loop=4",
    "--eval_steps=20",
    "--save_checkpoints_steps=8",
    *(x.replace("FOLDER", str(folder)) for x in arguments),
  ]


def run(*args):
  (result,) = many_commands.run("run_pretraining", [flags_of(*args)])
  return result


def kill_at(step, *args):
  """Kills a run that has saved a step."""
  process = subprocess.Popen(
    [sys.executable, "-m", "tools.run_pretraining", *flags_of(*args)],
    cwd=_ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  while not (args[1] / f"model.ckpt-{step}.index").exists():
    assert process.poll() is None, process.communicate()[1]
    time.sleep(0.002)
  process.kill()
  err = process.communicate()[1]
  assert process.returncode == -signal.SIGKILL, err


@pytest.mark.parametrize(
  "arguments",
  [
    # A small configuration with dropout.
    (
      *(*_PHASES, "--phase_steps=20,20", "--shift_positions"),
      *("--init_neighbor_attention", "--init_word_vectors"),
    ),
    # The scale of the loss is part of what is resumed.
    pytest.param(
      (
        *(_CONFIG, "--distribution=mirrored", "--num_devices=2"),
        *("--precision=mixed_float16", "--recompute_activations"),
        "--adapter_rank=2",
      ),
      marks=pytest.mark.heavy,
    ),
  ],
)
def test_killed_and_resumed_equals_uninterrupted(folder, tmp_path, arguments):
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  done = run(folder, whole, *arguments)
  warned = "--precision=mixed_float16" in arguments
  assert done.err.count("mixed_float16 is for GPUs") == warned
  assert done.err.count("\n") == warned
  assert "initializing the weights from scratch ..." in done.out
  assert "step 40/40" in done.out and "tokens/s" in done.out
  # As if it had been killed while it wrote its first checkpoint.
  killed.mkdir()
  for name in ("run.json", "albert_config.json", "tokenizer.model"):
    shutil.copy(whole / name, killed)
  (killed / "model.ckpt-8.index").touch()
  (killed / "model.ckpt-8_temp").mkdir()
  kill_at(24, folder, killed, *arguments)
  resumed = run(folder, killed, *arguments)
  # From 16, if TensorFlow had not finished the checkpoint of step 24.
  assert int(re.search(r"resumed from .*ckpt-(\d+)", resumed.out)[1]) >= 16
  expected, got = (toy_task.saved(path) for path in (whole, killed))
  np.testing.assert_equal(got, expected)
  assert any("OPTIMIZER_SLOT" in name for name in got)
  # The logs report the same for the last steps.
  losses = [
    run_logs.read_metrics(str(path), "train")[-1]["loss"]
    for path in (whole, killed)
  ]
  assert losses[0] == losses[1]
  record = json.loads((whole / "run.json").read_text())
  assert record["settings"]["num_train_steps"] == 40
  tokenizer = folder / "records" / "tokenizer.model"
  assert (whole / "tokenizer.model").read_bytes() == tokenizer.read_bytes()


def test_refusals_are_one_sentence(folder, tmp_path):
  config = json.loads((folder / "albert_config.json").read_text())
  for name, change in (
    ("77", {"vocab_size": 77}),
    ("groups", {"num_hidden_groups": 2}),
  ):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({**config, **change}))
  tf1 = tmp_path / "tf1"
  model = AlbertConfig.from_dict(config)
  conversion.write_random(model, str(tf1))
  pieces = toy_vocabulary.numbers(model.vocab_size)
  (tf1 / "30k-clean.model").write_bytes(pieces)
  cases = (
    # A start with another tokenizer than that of the data.
    ((f"--init_checkpoint={tf1}",), "has another tokenizer than the data"),
    ((_CONFIG, "--preset=albert_tiny"), "either --albert_config_file or"),
    ((), "either --albert_config_file or --preset"),
    ((_CONFIG, "--init_checkpoint=none"), "no checkpoint at none"),
    ((_CONFIG, "--input_dir=nowhere"), "nowhere"),
    # Before the data is read.
    (("--input_dir=nowhere", f"--model_dir={__file__}"), "_test.py is a file"),
    ((_CONFIG, "--tpu=local"), "cannot be used with the distribution one_devi"),
    ((_CONFIG, "--num_hidden_layers=-1"), "num_hidden_layers is -1, but"),
    ((_CONFIG, "--distribution=multi_worker"), "TF_CONFIG is not set"),
    ((f"--albert_config_file={tmp_path}/77.json",), "vocab_size 77"),
    ((*_PHASES, "--input_dir=FOLDER/records,FOLDER/bare"), "no held-out"),
    ((_CONFIG, "--mode=evaluate"), "no checkpoint at"),
    ((_CONFIG, "--metrics_file=a.json"), "--metrics_file is for --mode=eval"),
    (("--mode=evaluate", "--metrics_file=no/a.json"), "there is no folder no"),
    ((f"--init_checkpoint={tf1}", "--mode=evaluate"), "has another tokenizer"),
    ((_CONFIG, "--random_depths=2,x"), "random_depths must be integers"),
    (
      (f"--albert_config_file={tmp_path}/groups.json", "--random_depths=2,1"),
      "2 groups and",
    ),
    (("--masked_lm_prob=nan",), "--masked_lm_prob is 'nan', but"),
    (("--masked_lm_prob=0.3,2",), "a share from 0 to 1, or one"),
    (("--train_batch_size=12x",), "train_batch_size must be integers"),
    (("--train_batch_size=8,6,7",), "3 values for 1 phases"),
    (("--phase_steps=3", "--num_train_steps=7"), "phases have 3 steps toget"),
    (
      ("--precision=mixed_float16", "--distribution=tpu"),
      "TPUs multiply in bfloat16, not in float16",
    ),
    (("--input_dir=a,b", "--preset=albert_tiny"), "names 2 folders ('a,b')"),
    (("--recipe=bas_gpu",), "recipe is 'bas_gpu', but must be one of base_"),
    # Wrong flags, and google-research/albert's names of them.
    (("--output_dir", __file__), "_test.py is a file: name a folder"),
    (("--model_dir=",), "--model_dir=: the path is empty", 2),
    (("--iterations_per_loop", "x"), "--steps_per_loop=x: invalid literal", 2),
    (("--nouse_tpu",), "docs/migration.md lists the flags of google-resea", 2),
    (("--input_dir=gs://b/x,s3://b/x",), "copy the files", 2),
    (
      ("--clip_norm=0",),
      "clip_norm is 0.0, but must be more than 0; --help",
      2,
    ),
    (("--optimizer=Adam",), "=Adam: value should be one of <lamb|adamw|m", 2),
    (
      ("-nocompile_chains", "--mode", "train", "more"),
      "unexpected argument 'more': ",
      2,
    ),
  )
  many_commands.check_refusals(
    "run_pretraining",
    [
      (flags_of(folder, tmp_path / "run", *arguments), *named)
      for arguments, *named in cases
    ],
  )
  assert not (tmp_path / "run").exists()


def test_recipe_learning_rate_schedule_and_report(folder, tmp_path):
  model_dir = tmp_path / "run"
  arguments = [
    "--recipe=base_cpu",
    *(f"--input_dir={folder}/records", f"--model_dir={model_dir}"),
    f"--albert_config_file={folder}/albert_config.json",
    *("--num_train_steps=5", "--num_warmup_steps=1", "--eval_steps=2"),
    *("--precision=float32", "--shift_positions"),
  ]
  (done,) = many_commands.run("run_pretraining", [arguments])
  assert done.err == ""
  rate = 0.00176 * (32 / 4096) ** 0.5
  for line in (
    "recipe base_cpu (not yet run): --preset=albert_base_v2",
    "\n  for two CPU cores",
    "changed by hand: --num_train_steps, --num_warmup_steps",
    "is for sequences of 128 tokens, the data has 24.",
    f"learning rate {rate:.4g} = 0.00176 * sqrt(32 / 4096)",
    "5 steps of 32 sequences: 3840 tokens, ",
    "warning: --shift_positions has no effect",
  ):
    assert line in done.out
  settings = json.loads((model_dir / "run.json").read_text())["settings"]
  assert settings["recipe"] == "base_cpu"
  assert settings["learning_rate"] == rate
  assert settings["train_batch_size"] == 32
  metrics = run_logs.read_metrics(str(model_dir), "train")
  assert [record["step"] for record in metrics] == [2, 4, 5]
  assert done.out.endswith(f"curves in {model_dir / 'curves.png'}\n")
  assert (model_dir / "curves.png").read_bytes().startswith(b"\x89PNG")
  report = json.loads((model_dir / "report.json").read_text())
  assert report["last_step"] == 5


@pytest.mark.heavy
def test_evaluation_on_other_text(folder, tmp_path):
  """Data without a held-out split needs a folder to evaluate on."""
  model_dir, other = tmp_path / "run", tmp_path / "other"
  shutil.copytree(folder / "records", other)
  arguments = [
    *(_CONFIG, "--input_dir=FOLDER/bare", f"--eval_input_dir={other}"),
    *("--num_train_steps=4", "--num_warmup_steps=3", "--eval_steps=4"),
  ]
  run(folder, model_dir, *arguments)
  record = json.loads((model_dir / "run.json").read_text())
  assert record["data"]["eval"]["input_dir"] == str(other)
  expected = run_logs.read_metrics(str(model_dir), "eval")[-1]["loss"]
  for argument in ("", "FOLDER/long"):
    extra = [f"--eval_input_dir={argument}"] if argument else []
    once = run(folder, model_dir, *arguments, *extra, "--mode=evaluate")
    assert (f"  loss {expected:.6g}\n" in once.out) is not bool(extra)
