"""Tests of tools.run_pretraining in phases and in its evaluation modes."""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.

from official_albert import training
from tasks.pretraining import data
from tools import train_vocabulary

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = {
  "embedding_size": 6,
  "hidden_size": 10,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 14,
  "max_position_embeddings": 27,
  "hidden_dropout_prob": 0.2,
  "attention_probs_dropout_prob": 0.1,
}
_WORDS = (
  "cliff meadow harbour cloud amber lantern copper valley orchard willow "
  "thunder basket candle anchor feather pebble saddle kettle"
).split()
_PHASES = ("--phase_steps=13,9", "--train_batch_size=8,6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Records of 15 and 27 tokens, and records without held-out text."""
  path = tmp_path_factory.mktemp("modes")
  rng = np.random.default_rng(1)
  documents = [
    "\n".join(
      " ".join(rng.choice(_WORDS, rng.integers(4, 9))) + "." for _ in range(6)
    )
    for _ in range(40)
  ]
  (path / "corpus.txt").write_text("\n\n".join(documents) + "\n")
  model = train_vocabulary.train(
    iter("\n".join(documents).split("\n")), 45, 1.0, 10000, 1
  )
  train_vocabulary.write(model, str(path / "tokenizer"))
  for name, length, share in (
    ("short", 15, 0.2),
    ("long", 27, 0.2),
    ("bare", 15, 0.0),
  ):
    manifest = data.build_dataset(
      data.BuildSettings(
        input_files=str(path / "corpus.txt"),
        output_dir=str(path / name),
        spm_model_file=str(path / "tokenizer.model"),
        examples=data.ExampleSettings(
          max_seq_length=length, max_predictions_per_seq=4
        ),
        dupe_factor=2,
        heldout_share=share,
        num_shards=2,
      )
    )
  config = dict(CONFIG, vocab_size=manifest.tokenizer.vocab_size)
  (path / "albert_config.json").write_text(json.dumps(config))
  return path


def command(folder, model_dir, *arguments):
  return [
    sys.executable,
    "-m",
    "tools.run_pretraining",
    f"--input_dir={folder}/short,{folder}/long",
    f"--albert_config_file={folder}/albert_config.json",
    f"--model_dir={model_dir}",
    "--eval_batch_size=16",
    "--learning_rate=0.01",
    "--num_warmup_steps=3",
    "--steps_per_loop=2",
    "--eval_steps=4",
    "--save_checkpoints_steps=4",
    "--keep_checkpoint_max=20",
    *(argument.replace("FOLDER", str(folder)) for argument in arguments),
  ]


def run(*args):
  return subprocess.run(
    command(*args), cwd=ROOT, capture_output=True, text=True
  )


def weights(path):
  reader = tf.train.load_checkpoint(str(path))
  names = reader.get_variable_to_shape_map()
  return {
    name: reader.get_tensor(name)
    for name in names
    if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and "save_counter" not in name
  }


def assert_same(a, b):
  a, b = weights(a), weights(b)
  assert a.keys() == b.keys()
  for name, value in a.items():
    np.testing.assert_array_equal(value, b[name], err_msg=name)


def kill_at(folder, model_dir, checkpoint, *arguments):
  """Kills a run as soon as it has a checkpoint."""
  process = subprocess.Popen(
    command(folder, model_dir, *arguments),
    cwd=ROOT,
    stdout=subprocess.DEVNULL,
  )
  while not (model_dir / f"{checkpoint}.index").exists():
    assert process.poll() is None, "finished before it could be killed"
    time.sleep(0.002)
  process.send_signal(signal.SIGKILL)
  process.wait()


@pytest.mark.heavy
def test_phases_killed_and_resumed_equal_uninterrupted(folder, tmp_path):
  """Kills in the first phase, right at the border, and in the second."""
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  exported = f"--export_dir={tmp_path}/export"
  (tmp_path / "export").mkdir()  # An empty folder is accepted.
  result = run(folder, whole, *_PHASES, exported)
  assert result.returncode == 0, result.stderr
  assert result.stderr == ""
  assert "phase 2 of 2: to step 22, batch 6, 27 tokens" in result.stdout
  assert (tmp_path / "export" / "saved_model.pb").exists()
  for step in (4, 13, 16):
    kill_at(folder, killed, f"model.ckpt-{step}", *_PHASES)
  result = run(folder, killed, *_PHASES)
  assert result.returncode == 0, result.stderr
  assert "resumed from" in result.stdout
  for name in ("model.ckpt-12", "model.ckpt-13", "model.ckpt-22"):
    assert_same(whole / name, killed / name)
  twins = [
    {
      (r["step"], r["phase"]): r["loss"]
      for r in training.read_metrics(str(f), "eval")
    }
    for f in (whole, killed)
  ]
  # Right at the border, both phases' data were evaluated.
  assert list(twins[0]) == [
    *((step, 1) for step in (0, 4, 8, 12, 13)),
    *((step, 2) for step in (13, 16, 20, 22)),
  ]
  assert twins[0].items() <= twins[1].items()
  best = [training.read_best(str(f)) for f in (whole, killed)]
  assert best[0] == best[1] and best[0]["phase"] == 2
  assert_same(*(f / "best" / best[0]["checkpoint"] for f in (whole, killed)))

  record = json.loads((killed / "run.json").read_text())
  assert [p["steps"] for p in record["settings"]["phases"]] == [13, 9]
  lengths = [p["max_seq_length"] for p in record["data"]["phases"]]
  assert lengths == [15, 27] and record["data"]["max_seq_length"] == 27

  # The export is of the best checkpoint, and takes the longer texts.
  assert f"exported {whole}/best/{best[0]['checkpoint']}" in "".join(
    run(folder, whole, *_PHASES, f"{exported}2").stdout
  )
  fill = [
    tf.saved_model.load(f"{tmp_path}/export{n}").signatures["serving_default"](
      text=tf.constant(["[MASK] " * 40])
    )
    for n in ("", "2")
  ]
  assert fill[0]["tokens"].shape[1] == 25
  np.testing.assert_array_equal(
    fill[0]["probabilities"], fill[1]["probabilities"]
  )
  # A border that was passed cannot be moved.
  moved = run(folder, killed, "--phase_steps=12,10", _PHASES[1])
  assert moved.returncode == 1
  assert "is at step 22 and has ended phases at the steps [13]" in moved.stderr


@pytest.mark.heavy
def test_a_second_process_evaluates(folder, tmp_path):
  """Evaluates while the trainer removes checkpoints, until both end."""
  evaluated, alone = tmp_path / "evaluated", tmp_path / "alone"
  assert run(folder, alone, *_PHASES).returncode == 0
  evaluator = subprocess.Popen(
    command(folder, evaluated, "--mode=evaluate_continuously", "--timeout=240"),
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  trainer = run(
    folder,
    evaluated,
    *_PHASES,
    "--eval_steps=0",
    "--keep_checkpoint_max=2",
  )
  assert trainer.returncode == 0, trainer.stderr
  out, errors = evaluator.communicate(timeout=300)
  assert evaluator.returncode == 0, errors
  assert errors == ""
  assert "step 22 was the run's last" in out
  own = training.read_metrics(str(evaluated / "evaluator"), "eval")
  expected = {
    (r["step"], r["phase"]): r["masked_lm_loss"]
    for r in training.read_metrics(str(alone), "eval")
  }
  assert (own[-1]["step"], own[-1]["phase"]) == (22, 2)
  for r in own:  # The speed of both decides which steps are evaluated.
    assert r["masked_lm_loss"] == expected[r["step"], r["phase"]]
  best = training.read_best(str(evaluated))
  last_phase = [r for r in own if r["phase"] == 2]
  assert best["values"]["loss"] == min(r["loss"] for r in last_phase)
  once = run(folder, evaluated, "--mode=evaluate")
  assert once.returncode == 0, once.stderr
  assert f"model.ckpt-22 on the held-out data of {folder}/long" in once.stdout
  assert f"masked_lm_loss {expected[22, 2]:.6g}" in once.stdout
  again = run(folder, evaluated, "--mode=evaluate_continuously")
  assert again.returncode == 0 and "the run's last" in again.stdout


def test_waiting_for_a_run_ends(folder, tmp_path):
  result = run(
    folder,
    tmp_path / "run",
    "--mode=evaluate_continuously",
    "--timeout=0.5",
  )
  assert result.returncode == 124
  assert "no run began in" in result.stdout
  assert result.stderr == ""
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
  "arguments, message",
  [
    ([*_PHASES, "--num_train_steps=60"], "--phase_steps are 22 steps together"),
    ([*_PHASES, "--input_dir=FOLDER/short,FOLDER/bare"], "no held-out"),
    (
      [*_PHASES, "--export_dir=FOLDER"],
      "exists and is not empty: choose",
    ),
    (["--mode=evaluate"], "is not the folder of a run"),
  ],
)
def test_refusals_are_one_sentence(folder, tmp_path, arguments, message):
  result = run(folder, tmp_path / "run", *arguments)
  assert result.returncode != 0
  assert message in result.stderr
  assert "Traceback" not in result.stderr
  assert not list(tmp_path.glob("run/model.ckpt*"))


@pytest.mark.heavy
def test_evaluation_on_other_text(folder, tmp_path):
  """Data without a held-out split needs a folder to evaluate on."""
  model_dir, other = tmp_path / "run", tmp_path / "other"
  shutil.copytree(folder / "short", other)
  arguments = [
    "--input_dir=FOLDER/bare",
    f"--eval_input_dir={other}",
    "--num_train_steps=4",
    "--train_batch_size=8",
  ]
  result = run(folder, model_dir, *arguments)
  assert result.returncode == 0, result.stderr
  record = json.loads((model_dir / "run.json").read_text())
  assert record["data"]["eval"]["input_dir"] == str(other)
  expected = training.read_metrics(str(model_dir), "eval")[-1]["loss"]
  for argument in ("", "FOLDER/long"):
    extra = [f"--eval_input_dir={argument}"] if argument else []
    once = run(folder, model_dir, *arguments, *extra, "--mode=evaluate")
    assert once.returncode == 0, once.stderr
    assert (f"  loss {expected:.6g}\n" in once.stdout) is not bool(extra)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
