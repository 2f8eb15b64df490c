"""Tests of tools.run_pretraining: killed runs, phases, evaluation, refusals.

All trainings run in processes of their own, as a user would run them.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.

from official_albert import AlbertConfig, run_logs, runs
from official_albert import checkpoints as checkpoints_lib
from official_albert.testing import toy_job, toy_task, toy_vocabulary
from official_albert.tools.conversion import conversion
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CONFIG = "--albert_config_file=FOLDER/albert_config.json"
_PHASES = (
  _CONFIG,
  "--input_dir=FOLDER/records,FOLDER/long",
  "--phase_steps=13,9",
  "--train_batch_size=8,6",
  *("--steps_per_loop=2", "--eval_steps=4", "--save_checkpoints_steps=4"),
  "--keep_checkpoint_max=20",
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
  config = AlbertConfig(
    **toy_runs.SIZES,
    vocab_size=vocabulary.vocab_size,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
  )
  config.to_json_file(str(path / "albert_config.json"))
  one_layer = dataclasses.replace(config, num_hidden_layers=1)
  one_layer.to_json_file(str(path / "one_layer.json"))
  return path


def flags_of(folder, model_dir, *arguments):
  in_phases = any("--phase_steps" in argument for argument in arguments)
  return [
    f"--input_dir={folder}/records",
    f"--model_dir={model_dir}",
    "--train_batch_size=8",
    "--eval_batch_size=16",
    "--learning_rate=0.01",
    *([] if in_phases else ["--num_train_steps=60"]),
    "--num_warmup_steps=5",
    "--steps_per_loop=4",
    "--eval_steps=30",
    "--save_checkpoints_steps=8",
    *(x.replace("FOLDER", str(folder)) for x in arguments),
  ]


def command(*args):
  return [sys.executable, "-m", "tools.run_pretraining", *flags_of(*args)]


def run(*args):
  return subprocess.run(
    command(*args), cwd=_ROOT, capture_output=True, text=True
  )


def stop_when(path, line, number, code):
  """Signals a command when a file exists; returns its output and errors."""
  process = subprocess.Popen(
    line,
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # A process in the background ignores Ctrl-C by default.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )
  while not path.exists():
    if process.poll() is not None:
      raise AssertionError(f"no {path}: {process.communicate()[1]}")
    time.sleep(0.002)
  process.send_signal(number)
  out, err = process.communicate()
  assert process.returncode == code, err
  return out, err


def stopped(step, number, code, *args):
  """Signals a run that has saved a step; returns its output and errors."""
  path = args[1] / f"model.ckpt-{step}.index"
  return stop_when(path, command(*args), number, code)


def assert_same_weights(one, other, step=None):
  """Compares the checkpoints of a step, or the latest ones, of two folders."""
  np.testing.assert_equal(*(toy_task.saved(x, step) for x in (one, other)))


def _without_warning(err):
  """Removes the warning of float16, which is two lines."""
  return re.sub(r".*mixed_float16 is for GPUs.*\n.*\n", "", err)


_TWO_DEVICES = (_CONFIG, "--distribution=mirrored", "--num_devices=2")


@pytest.mark.parametrize(
  "arguments",
  [
    # A small configuration with dropout.
    (_CONFIG, "--init_neighbor_attention", "--init_word_vectors"),
    pytest.param(
      (*_TWO_DEVICES, "--init_neighbor_attention"), marks=pytest.mark.heavy
    ),
    # The scale of the loss is part of what is resumed.
    pytest.param(
      (*_TWO_DEVICES, "--precision=mixed_float16", "--recompute_activations"),
      marks=pytest.mark.heavy,
    ),
    pytest.param(
      (
        # XLA compiles each layer, for minutes.
        "--albert_config_file=FOLDER/one_layer.json",
        *("--xla", "--recompute_activations"),
        "--gradient_accumulation_steps=2",
      ),
      marks=pytest.mark.heavy,
    ),
    # Products large enough to be cut up among threads, and bfloat16.
    pytest.param(
      (
        *("--preset=albert_tiny", "--precision=mixed_bfloat16"),
        *("--train_batch_size=64", "--gradient_accumulation_steps=2"),
      ),
      marks=pytest.mark.heavy,
    ),
  ],
)
def test_killed_and_resumed_equals_uninterrupted(folder, tmp_path, arguments):
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  done = run(folder, whole, *arguments)
  warned = "--precision=mixed_float16" in arguments
  assert done.stderr.count("mixed_float16 is for GPUs") == warned
  assert (done.returncode, _without_warning(done.stderr)) == (0, "")
  assert "initializing the weights from scratch ..." in done.stdout
  assert "step 60/60" in done.stdout and "tokens/s" in done.stdout
  stopped(8, signal.SIGKILL, -9, folder, killed, *arguments)
  if "--init_word_vectors" in arguments:
    # As if it had been killed while it wrote its first checkpoint.
    for path in killed.glob("model.ckpt-*.index"):
      path.write_bytes(b"")
      path.with_name(f"{path.stem}_temp").mkdir(exist_ok=True)
  out, err = stopped(24, signal.SIGINT, 130, folder, killed, *arguments)
  assert _without_warning(err) == (
    "stopping after this step; press Ctrl-C again to stop at once\n"
  )
  message = r"stopped by Ctrl-C: step (\d+) is saved; the same command resumes"
  saved = int(re.search(message, out)[1])
  assert saved >= 24
  resumed = run(folder, killed, *arguments)
  assert resumed.returncode == 0, resumed.stderr
  assert re.search(rf"resumed from .*model.ckpt-{saved}", resumed.stdout)
  assert_same_weights(whole, killed)
  assert any("OPTIMIZER_SLOT" in name for name in toy_task.saved(killed))
  # The logs report the same for the last steps.
  losses = [
    run_logs.read_metrics(str(path), "train")[-1]["loss"]
    for path in (whole, killed)
  ]
  assert losses[0] == losses[1]
  record = json.loads((killed / "run.json").read_text())
  assert record["settings"]["num_train_steps"] == 60
  tokenizer = folder / "records" / "tokenizer.model"
  assert (killed / "tokenizer.model").read_bytes() == tokenizer.read_bytes()
  assert (killed / "albert_config.json").exists()


@pytest.mark.heavy
def test_the_end_of_the_inner_loop_changes_no_bit(folder, tmp_path):
  """SIGTERM may end it anywhere, and the flag may change at a resume."""
  for steps in (24, 7):
    arguments = [_CONFIG, "--num_train_steps=24", f"--steps_per_loop={steps}"]
    arguments += ["--save_checkpoints_steps=24", "--eval_steps=0"]
    done = run(folder, tmp_path / str(steps), *arguments)
    assert done.returncode == 0, done.stderr
  assert_same_weights(tmp_path / "24", tmp_path / "7")


def test_refusals_are_one_sentence(folder, tmp_path):
  config = json.loads((folder / "albert_config.json").read_text())
  (tmp_path / "77.json").write_text(json.dumps({**config, "vocab_size": 77}))
  tf1 = tmp_path / "tf1"
  model = AlbertConfig.from_dict(config)
  conversion.write_random(model, str(tf1))
  pieces = toy_vocabulary.numbers(model.vocab_size)
  (tf1 / "30k-clean.model").write_bytes(pieces)
  cases = (
    # A start with another tokenizer than that of the data.
    (
      (f"--init_checkpoint={tf1}",),
      "has another tokenizer than the data, so the same",
    ),
    ((_CONFIG, "--preset=albert_tiny"), "either --albert_config_file or"),
    ((), "either --albert_config_file or --preset"),
    ((_CONFIG, "--init_checkpoint=none"), "no checkpoint at none"),
    (
      ("--init_word_vectors", "--init_checkpoint=none"),
      "give only one of them; with a recipe, --noinit_word_vectors.",
    ),
    ((_CONFIG, "--input_dir=nowhere"), "nowhere"),
    ((_CONFIG, "--metrics_file=a.json"), "--metrics_file is for --mode=eval"),
    # Before the data is read.
    (
      ("--input_dir=nowhere", f"--model_dir={__file__}"),
      "_test.py is a file: name a folder.",
    ),
    ((_CONFIG, "--profile_steps=9,61"), "0 <= FROM < TO <= 60"),
    ((_CONFIG, "--tpu=local"), "cannot be used with the distribution one_devi"),
    ((_CONFIG, "--num_hidden_layers=-1"), "num_hidden_layers must be at least"),
    ((_CONFIG, "--distribution=multi_worker"), "TF_CONFIG is not set"),
    ((f"--albert_config_file={tmp_path}/77.json",), "vocab_size 77"),
    ((*_PHASES, "--input_dir=FOLDER/records,FOLDER/bare"), "no held-out"),
    ((*_PHASES, "--export_dir=FOLDER"), "exists and is not empty: choose"),
    ((_CONFIG, "--mode=evaluate"), "is not the folder of a run"),
  )
  waiting = (_CONFIG, "--mode=evaluate_continuously", "--timeout=0.5")
  waited, *results = many_commands.run(
    "run_pretraining",
    [
      flags_of(folder, tmp_path / "run", *arguments)
      for arguments in (waiting, *(arguments for arguments, _ in cases))
    ],
  )
  for (code, _, err), (_, message) in zip(results, cases):
    assert code == 1 and message in err
    assert err.startswith("run_pretraining: error: ") and err.count("\n") == 1
  assert (waited.code, waited.err) == (124, "")
  assert "no run began in" in waited.out
  assert not (tmp_path / "run").exists()


@pytest.mark.heavy
def test_start_from_a_folder_of_hugging_face(folder, tmp_path):
  tf1, hf = tmp_path / "tf1", tmp_path / "hf"
  config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
  conversion.write_random(config, str(tf1))
  shutil.copy(folder / "tokenizer.model", tf1)
  checkpoint = checkpoints_lib.read_checkpoint(str(tf1))
  hf.mkdir()
  checkpoints_lib.WRITERS["hf"](checkpoint, str(hf))
  arguments = [
    f"--init_checkpoint={hf}",
    *("--num_train_steps=1", "--num_warmup_steps=0", "--learning_rate=1e-30"),
    *("--eval_steps=0", "--steps_per_loop=1"),
  ]
  done = run(folder, tmp_path / "run", *arguments)
  assert done.returncode == 0, done.stderr
  assert f"read from {hf}" in done.stdout
  assert "by the rules of this package" in done.stdout
  assert "32 variables matched, 0 missing, 0 unexpected" in done.stdout
  record = runs.read_run(str(tmp_path / "run"))
  assert record["settings"]["init_checkpoint"] == str(hf)
  again = checkpoints_lib.read_checkpoint(str(tmp_path / "run"))
  assert again.config == checkpoint.config
  for name in ("bert/pooler/dense/kernel", "cls/predictions/output_bias"):
    np.testing.assert_array_equal(again.tensors[name], checkpoint.tensors[name])
  # A resumed run does not need it.
  shutil.rmtree(hf)
  done = run(folder, tmp_path / "run", _CONFIG, *arguments)
  assert done.returncode == 0, done.stderr
  assert "resumed from" in done.stdout


def test_recipe_learning_rate_schedule_profile_and_report(folder, tmp_path):
  model_dir = tmp_path / "run"
  arguments = [
    sys.executable,
    *("-m", "tools.run_pretraining", "--recipe=base_cpu"),
    *(f"--input_dir={folder}/records", f"--model_dir={model_dir}"),
    f"--albert_config_file={folder}/albert_config.json",
    *("--num_train_steps=5", "--num_warmup_steps=1", "--eval_steps=2"),
    *("--precision=float32", "--profile_steps=2,3"),
  ]
  done = subprocess.run(arguments, cwd=_ROOT, capture_output=True, text=True)
  assert (done.returncode, done.stderr) == (0, "")
  rate = 0.00176 * (32 / 4096) ** 0.5
  for line in (
    "recipe base_cpu (not yet run): --preset=albert_base_v2",
    "changed by hand: --num_train_steps, --num_warmup_steps",
    "is for sequences of 128 tokens, the data has 24.",
    f"learning rate {rate:.4g} = 0.00176 * sqrt(32 / 4096)",
    "5 steps of 32 sequences: 3840 tokens, ",
  ):
    assert line in done.stdout
  settings = json.loads((model_dir / "run.json").read_text())["settings"]
  assert settings["recipe"] == "base_cpu"
  assert settings["learning_rate"] == rate
  assert settings["train_batch_size"] == 32
  assert len(list(model_dir.glob("profile/plugins/profile/*/*.xplane.pb"))) == 1
  metrics = run_logs.read_metrics(str(model_dir), "train")
  assert [record["step"] for record in metrics] == [2, 3, 4, 5]
  assert done.stdout.endswith(f"curves in {model_dir / 'curves.png'}\n")
  assert (model_dir / "curves.png").read_bytes().startswith(b"\x89PNG")
  report = json.loads((model_dir / "report.json").read_text())
  assert (report["last_step"], report["restarts"]) == (5, 0)
  (tmp_path / "empty").mkdir()
  (tmp_path / "empty" / run_logs.METRICS_FILE).touch()
  nothing, drawn = many_commands.run(
    "plot_curves",
    [
      [f"--model_dir={path}", f"--output_file={path}.png"]
      for path in (tmp_path / "empty", model_dir)
    ],
  )
  assert nothing.code == 1 and not (tmp_path / "empty.png").exists()
  assert "no training and held-out numbers to draw yet" in nothing.err
  assert (drawn.code, drawn.out) == (0, f"wrote {model_dir}.png\n")
  assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.heavy
def test_changed_settings_are_refused_unless_allowed(folder, tmp_path):
  """Starts that train write run.json, and no others."""
  model_dir, allow = tmp_path / "run", "--allow_changed_settings"
  changed = ["--num_train_steps=6", "--learning_rate=0.02"]
  lines = [
    *(["--num_train_steps=6"], ["--num_train_steps=6"]),
    *(changed, [*changed, allow]),
    *(["--num_train_steps=9"], ["--num_train_steps=9", allow]),
  ]
  _, same, rate, rate_allowed, longer, allowed = many_commands.run(
    "run_pretraining",
    [flags_of(folder, model_dir, _CONFIG, *line) for line in lines],
  )
  assert same.code == 0 and "warning" not in same.out
  assert "the run is finished: step 6 was its last" in same.out
  for result in (rate, rate_allowed):
    assert (result.code, result.err) == (
      1,
      f"run_pretraining: error: the run in {model_dir} is finished at step 6, "
      "with nothing left to train, but settings differ from its own "
      "(learning_rate was 0.01 at the last start and is now 0.02): give the "
      "old values, or choose another folder to train a new run.\n",
    )
  # The refused starts have not written their learning rate.
  assert (longer.code, longer.err) == (
    1,
    f"run_pretraining: error: {model_dir} holds a run at step 6 with other "
    "settings (num_train_steps was 6 at the last start and is now 9): give "
    "the old values, another folder, or --allow_changed_settings to continue "
    "with the new ones.\n",
  )
  assert allowed.code == 0, allowed.err
  assert (
    "warning: num_train_steps was 6 at the last start and is now 9; the "
    "resumed run is not the same run."
  ) in allowed.out
  settings = json.loads((model_dir / "run.json").read_text())["settings"]
  assert settings["num_train_steps"] == 9


@pytest.mark.heavy
def test_phases_killed_and_resumed_equal_uninterrupted(folder, tmp_path):
  """Kills in the first phase, right at the border, and in the second."""
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  exported = f"--export_dir={tmp_path}/export"
  (tmp_path / "export").mkdir()  # An empty folder is accepted.
  result = run(folder, whole, *_PHASES, exported)
  assert result.returncode == 0, result.stderr
  assert result.stderr == ""
  assert "phase 2 of 2: to step 22\n" in result.stdout
  assert (tmp_path / "export" / "saved_model.pb").exists()
  for step in (4, 13, 16):
    stopped(step, signal.SIGKILL, -9, folder, killed, *_PHASES)
  result = run(folder, killed, *_PHASES)
  assert result.returncode == 0, result.stderr
  assert "resumed from" in result.stdout
  for step in (12, 13, 22):
    assert_same_weights(whole, killed, step)
  twins = [
    {
      (r["step"], r["phase"]): r["loss"]
      for r in run_logs.read_metrics(str(f), "eval")
    }
    for f in (whole, killed)
  ]
  # Right at the border, both phases' data were evaluated.
  assert list(twins[0]) == [
    *((step, 1) for step in (0, 4, 8, 12, 13)),
    *((step, 2) for step in (13, 16, 20, 22)),
  ]
  assert twins[0].items() <= twins[1].items()
  best = [runs.read_best(str(f)) for f in (whole, killed)]
  assert best[0] == best[1] and best[0]["phase"] == 2
  assert_same_weights(whole / "best", killed / "best")

  record = json.loads((killed / "run.json").read_text())
  assert [p["steps"] for p in record["settings"]["phases"]] == [13, 9]
  lengths = [p["max_seq_length"] for p in record["data"]["phases"]]
  assert lengths == [24, 31] and record["data"]["max_seq_length"] == 31

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
  assert fill[0]["tokens"].shape[1] == 29
  np.testing.assert_array_equal(
    fill[0]["probabilities"], fill[1]["probabilities"]
  )
  # A border that was passed cannot be moved.
  moved = run(folder, killed, *_PHASES, "--phase_steps=12,10")
  assert moved.returncode == 1
  assert "is at step 22 and has ended phases at the steps [13]" in moved.stderr


@pytest.mark.heavy
def test_a_second_process_evaluates(folder, tmp_path):
  """Evaluates while the trainer removes checkpoints, until both end."""
  evaluated, alone = tmp_path / "evaluated", tmp_path / "alone"
  assert run(folder, alone, *_PHASES).returncode == 0
  evaluator = subprocess.Popen(
    command(
      *(folder, evaluated, *_PHASES),
      *("--mode=evaluate_continuously", "--timeout=240"),
    ),
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  trainer = run(
    folder, evaluated, *_PHASES, "--eval_steps=0", "--keep_checkpoint_max=2"
  )
  assert trainer.returncode == 0, trainer.stderr
  out, errors = evaluator.communicate(timeout=300)
  assert evaluator.returncode == 0, errors
  assert errors == ""
  assert "step 22 was the run's last" in out
  own = run_logs.read_metrics(str(evaluated / "evaluator"), "eval")
  expected = {
    (r["step"], r["phase"]): r["masked_lm_loss"]
    for r in run_logs.read_metrics(str(alone), "eval")
  }
  assert (own[-1]["step"], own[-1]["phase"]) == (22, 2)
  for r in own:  # The speed of both decides which steps are evaluated.
    assert r["masked_lm_loss"] == expected[r["step"], r["phase"]]
  best = runs.read_best(str(evaluated))
  last_phase = [r for r in own if r["phase"] == 2]
  assert best["values"]["loss"] == min(r["loss"] for r in last_phase)
  once = run(folder, evaluated, *_PHASES, "--mode=evaluate")
  assert once.returncode == 0, once.stderr
  assert f"model.ckpt-22 on the held-out data of {folder}/long" in once.stdout
  assert f"masked_lm_loss {expected[22, 2]:.6g}" in once.stdout
  again = run(folder, evaluated, *_PHASES, "--mode=evaluate_continuously")
  assert again.returncode == 0 and "the run's last" in again.stdout


@pytest.mark.heavy
def test_evaluation_on_other_text(folder, tmp_path):
  """Data without a held-out split needs a folder to evaluate on."""
  model_dir, other = tmp_path / "run", tmp_path / "other"
  shutil.copytree(folder / "records", other)
  arguments = [
    *(_CONFIG, "--input_dir=FOLDER/bare", f"--eval_input_dir={other}"),
    *("--num_train_steps=4", "--num_warmup_steps=3", "--eval_steps=4"),
  ]
  result = run(folder, model_dir, *arguments)
  assert result.returncode == 0, result.stderr
  record = json.loads((model_dir / "run.json").read_text())
  assert record["data"]["eval"]["input_dir"] == str(other)
  expected = run_logs.read_metrics(str(model_dir), "eval")[-1]["loss"]
  for argument in ("", "FOLDER/long"):
    extra = [f"--eval_input_dir={argument}"] if argument else []
    once = run(folder, model_dir, *arguments, *extra, "--mode=evaluate")
    assert once.returncode == 0, once.stderr
    assert (f"  loss {expected:.6g}\n" in once.stdout) is not bool(extra)


def run_workers(count, *args, kill_at=None):
  """Returns exit code, output and errors of each worker of a job.

  With `kill_at`, the last one is killed once that step is saved.
  """
  with toy_job.started(count, command(*args), cwd=_ROOT) as processes:
    if kill_at:
      path = args[1] / f"model.ckpt-{kill_at}.index"
      while not path.exists():
        assert all(p.poll() is None for p in processes), "ended too early"
        time.sleep(0.01)
      processes[-1].send_signal(signal.SIGKILL)
    # At once, or a full pipe would stop the one that is not read.
    with futures.ThreadPoolExecutor(count) as pool:
      outputs = list(pool.map(lambda p: p.communicate(), processes))
  return [
    (p.returncode, out, toy_job.without_notices(err))
    for p, (out, err) in zip(processes, outputs)
  ]


@pytest.mark.heavy
def test_three_workers_killed_and_resumed(folder, tmp_path):
  sizes = (_CONFIG, "--train_batch_size=12", "--eval_batch_size=12")
  arguments = (*sizes, "--distribution=multi_worker", "--num_devices=1")
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  found = run_workers(3, folder, whole, *arguments)
  assert [(code, err) for code, _, err in found] == [(0, "")] * 3
  assert "step 60/60" in found[0][1]
  assert found[1][1] == found[2][1] == "loading TensorFlow\n"
  lost = run_workers(3, folder, killed, *arguments, kill_at=16)
  assert [code for code, _, _ in lost] == [1, 1, -9]
  for _, _, error in lost[:2]:
    assert error.startswith("run_pretraining: error: a worker of this job was")
    assert error.count("\n") == 1
  resumed = run_workers(3, folder, killed, *arguments)
  assert [code for code, _, _ in resumed] == [0, 0, 0], resumed
  assert "resumed from" in resumed[0][1]
  assert_same_weights(whole, killed)
  # What the chief refuses ends the others, too.
  refused = run_workers(3, folder, killed, *arguments, "--learning_rate=0.02")
  assert [code for code, _, _ in refused] == [1, 1, 1]
  assert "is finished at step 60" in refused[0][2]
  for _, _, error in refused[1:]:
    assert "a worker of this job was lost" in error
  # On one device, the same job has other dropout masks, but the same data.
  one = run(folder, tmp_path / "one", *sizes)
  assert one.returncode == 0, one.stderr
  first = [
    run_logs.read_metrics(str(path), "eval")[0]["loss"]
    for path in (whole, tmp_path / "one")
  ]
  np.testing.assert_allclose(first[0], first[1], rtol=1e-5)
