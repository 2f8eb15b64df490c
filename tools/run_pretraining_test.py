"""Tests of tools.run_pretraining: killed runs, the record, refusals.

All runs are in processes of their own, as a user would run them.
"""

from __future__ import annotations

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

from official_albert import AlbertConfig, training
from official_albert import checkpoints as checkpoints_lib
from official_albert.testing import toy_job, toy_task, toy_vocabulary
from tasks.pretraining import data
from tools import conversion, train_vocabulary
from tools.testing import many_commands, toy_data

_ROOT = pathlib.Path(__file__).parents[1]
_SIZES = {
  "embedding_size": 6,
  "hidden_size": 10,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 14,
  "max_position_embeddings": 24,
  "hidden_dropout_prob": 0.2,
  "attention_probs_dropout_prob": 0.1,
}
_CONFIG = "--albert_config_file=FOLDER/albert_config.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with records, and a configuration that fits them."""
  path = tmp_path_factory.mktemp("pretraining")
  rng, words = np.random.default_rng(0), toy_data.GOOD + toy_data.BAD
  documents = [
    "\n".join(toy_data.sentence(rng, words) for _ in range(rng.integers(4, 9)))
    for _ in range(40)
  ]
  (path / "corpus.txt").write_text("\n\n".join(documents) + "\n")
  lines = iter("\n".join(documents).split("\n"))
  model = train_vocabulary.train(lines, 45, 1.0, 10000, 1)
  train_vocabulary.write(model, str(path / "tokenizer"))
  examples = data.ExampleSettings(max_seq_length=24, max_predictions_per_seq=4)
  manifest = data.build_dataset(
    data.BuildSettings(
      input_files=str(path / "corpus.txt"),
      output_dir=str(path / "records"),
      spm_model_file=str(path / "tokenizer.model"),
      examples=examples,
      dupe_factor=2,
      heldout_share=0.2,
      num_shards=3,
    )
  )
  config = {**_SIZES, "vocab_size": manifest.tokenizer.vocab_size}
  (path / "albert_config.json").write_text(json.dumps(config))
  return path


def flags_of(folder, model_dir, *arguments):
  return [
    f"--input_dir={folder}/records",
    f"--model_dir={model_dir}",
    "--train_batch_size=8",
    "--eval_batch_size=16",
    "--learning_rate=0.01",
    "--num_train_steps=60",
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


def stopped(step, number, code, *args):
  """Signals a run that has saved a step; returns its output and errors."""
  process = subprocess.Popen(
    command(*args),
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # A process in the background ignores Ctrl-C by default.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )
  while not (args[1] / f"model.ckpt-{step}.index").exists():
    assert process.poll() is None, "finished before it could be stopped"
    time.sleep(0.01)
  process.send_signal(number)
  out, err = process.communicate()
  assert process.returncode == code
  return out, err


def assert_same_weights(one, other):
  np.testing.assert_equal(toy_task.saved(one), toy_task.saved(other))


_TWO_DEVICES = (_CONFIG, "--distribution=mirrored", "--num_devices=2")


@pytest.mark.parametrize(
  "arguments",
  [
    # A small configuration with dropout.
    (_CONFIG,),
    pytest.param(_TWO_DEVICES, marks=pytest.mark.heavy),
    # The scale of the loss is part of what is resumed.
    pytest.param(
      (*_TWO_DEVICES, "--precision=mixed_float16", "--recompute_activations"),
      marks=pytest.mark.heavy,
    ),
    pytest.param(
      (
        *(_CONFIG, "--xla", "--recompute_activations"),
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
  assert (done.returncode, done.stderr) == (0, "")
  assert "weights initialized from scratch" in done.stdout
  assert "step 60/60" in done.stdout and "tokens/s" in done.stdout
  stopped(8, signal.SIGKILL, -9, folder, killed, *arguments)
  out, err = stopped(24, signal.SIGINT, 130, folder, killed, *arguments)
  assert err == "stopping after this step; press Ctrl-C again to stop at once\n"
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
    training.read_metrics(str(path), "train")[-1]["loss"]
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
  )
  results = many_commands.run(
    "run_pretraining",
    [flags_of(folder, tmp_path / "run", *arguments) for arguments, _ in cases],
  )
  for (code, _, err), (_, message) in zip(results, cases):
    assert code == 1 and message in err
    assert err.startswith("run_pretraining: error: ") and err.count("\n") == 1
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
  assert "a checkpoint of Hugging Face, " in done.stderr
  assert "32 variables matched, 0 missing, 0 unexpected" in done.stdout
  record = training.read_run(str(tmp_path / "run"))
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
    *("--precision=float32", "--profile_steps=1,3"),
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
  metrics = training.read_metrics(str(model_dir), "train")
  assert [record["step"] for record in metrics] == [1, 2, 3, 4, 5]
  assert done.stdout.endswith(f"curves in {model_dir / 'curves.png'}\n")
  assert (model_dir / "curves.png").read_bytes().startswith(b"\x89PNG")
  report = json.loads((model_dir / "report.json").read_text())
  assert (report["last_step"], report["restarts"]) == (5, 0)
  (tmp_path / "empty").mkdir()
  (tmp_path / "empty" / training.METRICS_FILE).touch()
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
    return [(p.returncode, *out) for p, out in zip(processes, outputs)]


@pytest.mark.heavy
def test_three_workers_killed_and_resumed(folder, tmp_path):
  sizes = (_CONFIG, "--train_batch_size=12", "--eval_batch_size=12")
  arguments = (*sizes, "--distribution=multi_worker", "--num_devices=1")
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  found = run_workers(3, folder, whole, *arguments)
  assert [(code, err) for code, _, err in found] == [(0, "")] * 3
  assert "step 60/60" in found[0][1] and found[1][1] == found[2][1] == ""
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
    training.read_metrics(str(path), "eval")[0]["loss"]
    for path in (whole, tmp_path / "one")
  ]
  np.testing.assert_allclose(first[0], first[1], rtol=1e-5)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
