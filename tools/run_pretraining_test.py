"""Tests of the program: a killed run, its record, its refusals.

Everything runs in processes of its own, as a user would run it.
"""

from __future__ import annotations

import json
import os
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

from official_albert import AlbertConfig, training
from official_albert import checkpoints as checkpoints_lib
from official_albert.testing import toy_job, toy_vocabulary
from tasks.pretraining import data
from tools import conversion, train_vocabulary
from tools.testing import many_commands

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = {
  "vocab_size": 150,
  "embedding_size": 6,
  "hidden_size": 10,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 14,
  "max_position_embeddings": 24,
  "hidden_dropout_prob": 0.2,
  "attention_probs_dropout_prob": 0.1,
}
_CONFIG = "--albert_config_file=albert_config.json"  # In the data's folder.
_WORDS = (
  "river boat wind hill rain stone bridge field horse road light water tree "
  "house bread wheel morning winter garden letter"
).split()


def write_corpus(path):
  rng = np.random.default_rng(0)
  documents = []
  for _ in range(40):
    lines = [
      " ".join(rng.choice(_WORDS, rng.integers(4, 9))) + "."
      for _ in range(rng.integers(4, 9))
    ]
    documents.append("\n".join(lines))
  path.write_text("\n\n".join(documents) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder with records, and a configuration that fits them."""
  path = tmp_path_factory.mktemp("pretraining")
  write_corpus(path / "corpus.txt")
  model = train_vocabulary.train(
    iter((path / "corpus.txt").read_text().split("\n")), 45, 1.0, 10000, 1
  )
  train_vocabulary.write(model, str(path / "tokenizer"))
  manifest = data.build_dataset(
    data.BuildSettings(
      input_files=str(path / "corpus.txt"),
      output_dir=str(path / "records"),
      spm_model_file=str(path / "tokenizer.model"),
      examples=data.ExampleSettings(
        max_seq_length=24, max_predictions_per_seq=4
      ),
      dupe_factor=2,
      heldout_share=0.2,
      num_shards=3,
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
    f"--input_dir={folder / 'records'}",
    f"--model_dir={model_dir}",
    "--train_batch_size=8",
    "--eval_batch_size=16",
    "--learning_rate=0.01",
    "--num_train_steps=60",
    "--num_warmup_steps=5",
    "--steps_per_loop=4",
    "--eval_steps=30",
    "--save_checkpoints_steps=8",
    *(x.replace("=albert_c", f"={folder}/albert_c") for x in arguments),
  ]


def interruptible():
  """In a new process, which ignores Ctrl-C if the tests' own does."""
  signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(*args):
  return subprocess.run(
    command(*args), cwd=ROOT, capture_output=True, text=True
  )


def weights(model_dir):
  path = tf.train.latest_checkpoint(str(model_dir))
  reader = tf.train.load_checkpoint(path)
  names = reader.get_variable_to_shape_map()
  return {
    name: reader.get_tensor(name)
    for name in names
    if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and "save_counter" not in name
  }


@pytest.mark.parametrize(
  "arguments",
  [
    # A small configuration with dropout.
    [_CONFIG],
    pytest.param(
      [_CONFIG, "--distribution=mirrored", "--num_devices=2"],
      marks=pytest.mark.heavy,
    ),
    # The scale of the loss is part of what is resumed.
    pytest.param(
      [
        _CONFIG,
        "--distribution=mirrored",
        "--num_devices=2",
        "--precision=mixed_float16",
        "--recompute_activations",
      ],
      marks=pytest.mark.heavy,
    ),
    pytest.param(
      [
        _CONFIG,
        "--xla",
        "--recompute_activations",
        "--gradient_accumulation_steps=2",
      ],
      marks=pytest.mark.heavy,
    ),
    # Products large enough to be cut up among threads, and bfloat16.
    pytest.param(
      [
        "--preset=albert_tiny",
        "--precision=mixed_bfloat16",
        "--train_batch_size=64",
        "--gradient_accumulation_steps=2",
      ],
      marks=pytest.mark.heavy,
    ),
  ],
)
def test_killed_and_resumed_equals_uninterrupted(folder, tmp_path, arguments):
  whole = run(folder, tmp_path / "whole", *arguments)
  assert whole.returncode == 0, whole.stderr
  assert whole.stderr == ""
  assert "weights initialized from scratch" in whole.stdout
  assert "step 60/60" in whole.stdout and "tokens/s" in whole.stdout

  killed = tmp_path / "killed"
  for step, number, code in ((8, signal.SIGKILL, -9), (24, signal.SIGINT, 130)):
    process = subprocess.Popen(
      command(folder, killed, *arguments),
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      preexec_fn=interruptible,
    )
    while not (killed / f"model.ckpt-{step}.index").exists():
      assert process.poll() is None, "finished before it could be stopped"
      time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == code
  assert err == "stopping after this step; press Ctrl-C again to stop at once\n"
  message = r"stopped by Ctrl-C: step (\d+) is saved; the same command resumes"
  saved = int(re.search(message, out)[1])
  assert saved >= 24
  assert (killed / f"model.ckpt-{saved}.index").exists()
  resumed = run(folder, killed, *arguments)
  assert resumed.returncode == 0, resumed.stderr
  assert "resumed from" in resumed.stdout
  assert f"model.ckpt-{saved}" in resumed.stdout
  expected, got = weights(tmp_path / "whole"), weights(killed)
  assert expected.keys() == got.keys()
  assert any("OPTIMIZER_SLOT" in name for name in got)
  for name, value in expected.items():
    np.testing.assert_array_equal(value, got[name], err_msg=name)
  # The logs of both say the same of the last steps.
  last = [
    training.read_metrics(str(folder), "train")[-1]
    for folder in (tmp_path / "whole", killed)
  ]
  assert last[0]["loss"] == last[1]["loss"]

  record = json.loads((killed / "run.json").read_text())
  assert record["settings"]["num_train_steps"] == 60
  assert (killed / "tokenizer.model").read_bytes() == (
    folder / "records" / "tokenizer.model"
  ).read_bytes()
  assert (killed / "albert_config.json").exists()


@pytest.mark.heavy
def test_where_the_inner_loop_ends_changes_no_bit(folder, tmp_path):
  """SIGTERM may end it anywhere, and the flag may change at a resume."""
  ends = []
  for steps in (24, 7):
    model_dir = tmp_path / str(steps)
    arguments = [_CONFIG, "--num_train_steps=24", f"--steps_per_loop={steps}"]
    arguments += ["--save_checkpoints_steps=24", "--eval_steps=0"]
    ended = run(folder, model_dir, *arguments)
    assert ended.returncode == 0, ended.stderr
    ends.append(weights(model_dir))
  for name, value in ends[0].items():
    np.testing.assert_array_equal(value, ends[1][name], err_msg=name)


@pytest.mark.parametrize(
  "arguments, message",
  [
    ([_CONFIG, "--preset=albert_tiny"], "either --albert_config_file or"),
    ([], "either --albert_config_file or --preset"),
    (
      [_CONFIG, "--gradient_accumulation_steps=3"],
      "cannot be cut into 3 equal",
    ),
    ([_CONFIG, "--init_checkpoint=none"], "no checkpoint at none"),
    ([_CONFIG, "--num_warmup_steps=61"], "num_warmup_steps 61"),
    ([_CONFIG, "--input_dir=nowhere"], "nowhere"),
    ([_CONFIG, "--metrics_file=a.json"], "--metrics_file is for --mode=eval"),
    # Before the data is looked for.
    (
      ["--input_dir=nowhere", f"--model_dir={__file__}"],
      "_test.py is a file: name a folder.",
    ),
    ([_CONFIG, "--profile_steps=9"], "must be two steps FROM,TO"),
    ([_CONFIG, "--profile_steps=9,61"], "0 <= FROM < TO <= 60"),
    (
      [_CONFIG, "--tpu=local"],
      "cannot be used with the distribution one_device",
    ),
    ([_CONFIG, "--distribution=tpu"], "needs local, a TPU's name or grpc"),
    (
      [_CONFIG, "--distribution=tpu", "--tpu=local", "--num_devices=8"],
      "num_devices 8 cannot be used with the distribution tpu",
    ),
    ([_CONFIG, "--distribution=tpu", "--tpu=local"], "has no TPU runtime"),
    ([_CONFIG, "--distribution=multi_worker"], "TF_CONFIG is not set"),
  ],
)
def test_refusals_are_one_sentence(folder, tmp_path, arguments, message):
  result = run(folder, tmp_path / "run", *arguments)
  assert result.returncode == 1
  assert result.stderr.startswith("run_pretraining: error: ")
  assert len(result.stderr.splitlines()) == 1
  assert message in result.stderr
  checkpoints = list((tmp_path / "run").glob("model.ckpt*"))
  assert not checkpoints


def _start_from_hugging_face(folder, tmp_path):
  """Its folder, the flags to start from it, and what it holds."""
  tf1, hf = tmp_path / "tf1", tmp_path / "hf"
  config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
  conversion.random_checkpoint.write(config, str(tf1))
  shutil.copy(folder / "tokenizer.model", tf1)
  checkpoint = checkpoints_lib.read_checkpoint(str(tf1))
  hf.mkdir()
  checkpoints_lib.WRITERS["hf"](checkpoint, str(hf))
  arguments = [
    f"--init_checkpoint={hf}",
    *("--num_train_steps=1", "--num_warmup_steps=0", "--learning_rate=1e-30"),
    *("--eval_steps=0", "--steps_per_loop=1"),
  ]
  return hf, arguments, checkpoint


@pytest.mark.heavy
def test_starts_from_a_folder_of_hugging_face(folder, tmp_path):
  hf, arguments, checkpoint = _start_from_hugging_face(folder, tmp_path)
  done = run(folder, tmp_path / "run", *arguments)
  assert done.returncode == 0, done.stderr
  assert "a checkpoint of Hugging Face, read as" in done.stderr
  assert "32 variables matched, 0 missing, 0 unexpected" in done.stdout
  record = training.read_run(str(tmp_path / "run"))
  assert record["settings"]["init_checkpoint"] == str(hf)
  again = checkpoints_lib.read_checkpoint(str(tmp_path / "run"))
  assert again.config == checkpoint.config
  for name in ("bert/pooler/dense/kernel", "cls/predictions/output_bias"):
    np.testing.assert_array_equal(again.tensors[name], checkpoint.tensors[name])
  # A resumed run needs it no more.
  shutil.rmtree(hf)
  done = run(folder, tmp_path / "run", _CONFIG, *arguments)
  assert done.returncode == 0, done.stderr
  assert "resumed from" in done.stdout


def test_a_start_with_another_tokenizer_than_the_datas(folder, tmp_path):
  hf, arguments, checkpoint = _start_from_hugging_face(folder, tmp_path)
  pieces = toy_vocabulary.numbers(checkpoint.config.vocab_size)
  (hf / "spiece.model").write_bytes(pieces)
  done = run(folder, tmp_path / "other", *arguments)
  assert done.returncode == 1
  assert "has another tokenizer than the data, so the same" in done.stderr


def test_recipe_learning_rate_schedule_profile_and_report(folder, tmp_path):
  """One run with what is said and written besides the numbers."""
  model_dir = tmp_path / "run"
  arguments = [
    sys.executable,
    *("-m", "tools.run_pretraining", "--recipe=base_cpu"),
    f"--input_dir={folder / 'records'}",
    f"--model_dir={model_dir}",
    f"--albert_config_file={folder / 'albert_config.json'}",
    *("--num_train_steps=5", "--num_warmup_steps=1", "--eval_steps=2"),
    *("--precision=float32", "--profile_steps=1,3"),
  ]
  result = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
  assert result.returncode == 0, result.stderr
  assert result.stderr == ""
  assert "recipe base_cpu (not yet run): --preset=albert_base_v2" in (
    result.stdout
  )
  assert "changed by hand: --num_train_steps, --num_warmup_steps" in (
    result.stdout
  )
  assert "is for sequences of 128 tokens, the data has 24." in result.stdout
  rate = 0.00176 * (32 / 4096) ** 0.5
  assert f"learning rate {rate:.4g} = 0.00176 * sqrt(32 / 4096)" in (
    result.stdout
  )
  settings = json.loads((model_dir / "run.json").read_text())["settings"]
  assert settings["recipe"] == "base_cpu"
  assert settings["learning_rate"] == rate
  assert settings["train_batch_size"] == 32
  assert list(model_dir.glob("schedule/events*"))
  assert len(list(model_dir.glob("profile/plugins/profile/*/*.xplane.pb"))) == 1
  train = training.read_metrics(str(model_dir), "train")
  assert [record["step"] for record in train] == [1, 2, 3, 4, 5]
  assert result.stdout.endswith(f"curves in {model_dir / 'curves.png'}\n")
  assert (model_dir / "curves.png").read_bytes().startswith(b"\x89PNG")
  report = json.loads((model_dir / "report.json").read_text())
  assert (report["last_step"], report["restarts"]) == (5, 0)
  assert "5 steps of 32 sequences: 3840 tokens, " in result.stdout


def test_changed_settings_are_refused_or_wanted(folder, tmp_path):
  """And run.json is written by starts that train, and by no others."""
  model_dir = tmp_path / "run"

  def line(*arguments):
    return command(folder, model_dir, _CONFIG, *arguments)[3:]

  lines = {
    "first": ["--num_train_steps=6"],
    "same": ["--num_train_steps=6"],
    "rate": ["--num_train_steps=6", "--learning_rate=0.02"],
    "rate_wanted": [
      "--num_train_steps=6",
      "--learning_rate=0.02",
      "--allow_changed_settings",
    ],
    "longer": ["--num_train_steps=9"],
    "longer_wanted": ["--num_train_steps=9", "--allow_changed_settings"],
  }
  names, results, records = list(lines), {}, []
  for part in (names[:1], names[1:-1], names[-1:]):
    wanted = [line(*lines[name]) for name in part]
    done = many_commands.run("run_pretraining", wanted)
    results.update(zip(part, done))
    records.append((model_dir / "run.json").read_bytes())
  codes = {name: result.code for name, result in results.items()}
  assert codes == {**dict.fromkeys(lines, 0), "rate": 1, "rate_wanted": 1,
                   "longer": 1}  # fmt: skip
  assert "the run is finished: step 6 was its last" in results["same"].out
  assert "warning" not in results["same"].out
  assert records[0] == records[1]
  for name in ("rate", "rate_wanted"):
    assert results[name].err == (
      f"run_pretraining: error: the run in {model_dir} is finished at step 6, "
      "with nothing left to train, but settings differ from its own "
      "(learning_rate was 0.01 at the last start and is now 0.02): give the "
      "old values, or choose another folder to train a new run.\n"
    )
  assert results["longer"].err == (
    f"run_pretraining: error: {model_dir} holds a run at step 6 with other "
    "settings (num_train_steps was 6 at the last start and is now 9): give "
    "the old values, another folder, or --allow_changed_settings to go on "
    "with the new ones.\n"
  )
  assert (
    "warning: num_train_steps was 6 at the last start and is now 9; the "
    "resumed run is not the same run."
  ) in results["longer_wanted"].out
  assert json.loads(records[2])["settings"]["num_train_steps"] == 9


def run_workers(count, *args, kill_at=None):
  """Exit codes, output and errors of each worker of a job.

  With `kill_at`, the last one is killed once that step is saved.
  """
  with toy_job.started(count, command(*args), cwd=ROOT) as processes:
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
  """One of three is lost; afterwards nothing can be seen of it."""
  arguments = [
    _CONFIG,
    "--train_batch_size=12",
    "--eval_batch_size=12",
    "--distribution=multi_worker",
    "--num_devices=1",
  ]
  whole = run_workers(3, folder, tmp_path / "whole", *arguments)
  assert [code for code, _, _ in whole] == [0, 0, 0], whole
  assert [error for _, _, error in whole] == ["", "", ""]
  assert "step 60/60" in whole[0][1]
  assert whole[1][1] == whole[2][1] == ""

  killed = tmp_path / "killed"
  lost = run_workers(3, folder, killed, *arguments, kill_at=16)
  assert [code for code, _, _ in lost] == [1, 1, -9]
  for _, _, error in lost[:2]:
    assert error.startswith("run_pretraining: error: a worker of this job was")
    assert len(error.splitlines()) == 1
  resumed = run_workers(3, folder, killed, *arguments)
  assert [code for code, _, _ in resumed] == [0, 0, 0], resumed
  assert "resumed from" in resumed[0][1]
  expected, got = weights(tmp_path / "whole"), weights(killed)
  assert expected.keys() == got.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(value, got[name], err_msg=name)
  # What the chief refuses ends the others, too.
  refused = run_workers(3, folder, killed, *arguments, "--learning_rate=0.02")
  assert [code for code, _, _ in refused] == [1, 1, 1]
  assert "is finished at step 60" in refused[0][2]
  for _, _, error in refused[1:]:
    assert "a worker of this job was lost" in error

  # The same job on one device, but for other dropout masks: the same data.
  one = run(folder, tmp_path / "one", *arguments[:3])
  assert one.returncode == 0, one.stderr
  first = [
    training.read_metrics(str(tmp_path / name), "eval")[0]["loss"]
    for name in ("whole", "one")
  ]
  np.testing.assert_allclose(first[0], first[1], rtol=1e-5)


def test_model_of_another_size_is_refused(folder, tmp_path):
  config = json.loads((folder / "albert_config.json").read_text())
  path = tmp_path / "other.json"
  path.write_text(json.dumps(dict(config, vocab_size=77)))
  result = run(folder, tmp_path / "run", f"--albert_config_file={path}")
  assert result.returncode == 1
  assert "vocab_size 77" in result.stderr
  assert not os.path.exists(tmp_path / "run")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
