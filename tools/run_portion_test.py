"""Tests of run_portion.py: divided texts, packed runs, a run in portions."""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from official_albert.testing import toy_models, toy_task, toy_vocabulary
from official_albert.tools import run_portion
from official_albert.tools.testing import many_commands, toy_data


@pytest.fixture
def this(tmp_path, own_flags):
  """A run of the default recipe in a folder."""
  own_flags(run_portion)
  toy_data.write_corpus(str(tmp_path / "corpus.txt"), 300)
  (tmp_path / "any.model").write_bytes(b"any")
  values = {
    "input_files": str(tmp_path / "corpus.txt"),
    "spm_model_file": str(tmp_path / "any.model"),
    "output_dir": str(tmp_path / "out"),
    "part_megabytes": 1,
    "pretraining_flags": "--phase_steps=7,5,3 --train_batch_size=8,8,4",
  }
  with flagsaver.as_parsed(**{k: str(x) for k, x in values.items()}):
    flags.FLAGS.mark_as_parsed()
    (tmp_path / "out").mkdir()
    yield run_portion.Run()


def test_each_document_is_trained_on_or_reported(this, tmp_path, monkeypatch):
  monkeypatch.setattr(run_portion, "_REPORT_SHARE", 0.3)
  run_portion.write_texts(this.text)
  whole, train, report = (
    path.read_text().strip().split("\n\n")
    for path in (
      tmp_path / "corpus.txt",
      *(pathlib.Path(this.text) / f"{x}.txt" for x in ("train", "report")),
    )
  )
  assert sorted(train + report) == sorted(x.strip() for x in whole)
  assert 0.2 < len(report) / len(whole) < 0.4 and not {*train} & {*report}
  # A text is on the same side wherever it stands.
  run_portion.write_texts(this.text)
  (tmp_path / "any.model").write_bytes(b"other")
  with pytest.raises(ValueError, match="text was made from other"):
    run_portion.write_texts(this.text)
  (tmp_path / "corpus.txt").write_text("\n\n".join(whole[::-1]) + "\n")
  run_portion.write_texts(f"{this.text}-2")
  again = pathlib.Path(f"{this.text}-2", "report.txt").read_text()
  assert {*again.strip().split("\n\n")} == {*report}


def test_a_run_is_carried_in_parts(this):
  run, carry = pathlib.Path(this.run), pathlib.Path(this.carry)
  (run / "best").mkdir(parents=True)
  content = np.random.default_rng(3).bytes(5 << 19)
  for name in ("model.ckpt-4", "model.ckpt-44"):
    (run / f"{name}.index").write_bytes(b"index")
    (run / f"{name}.data-00000-of-00001").write_bytes(content)
  for name in ("checkpoint", "metrics.jsonl", "best/best.json"):
    (run / name).write_text(name)
  this.pack(str(run / "model.ckpt-4"))
  names = [f"000000004.tar.gz.00{i}.of-003" for i in (1, 2, 3)]
  assert sorted(x.name for x in carry.iterdir()) == names
  shutil.rmtree(run)
  this.unpack()
  found = {str(x.relative_to(run)) for x in run.rglob("*") if x.is_file()}
  assert found == {
    *("checkpoint", "metrics.jsonl", "best/best.json"),
    *("model.ckpt-4.index", "model.ckpt-4.data-00000-of-00001"),
  }
  assert (run / "model.ckpt-4.data-00000-of-00001").read_bytes() == content
  # A run is not replaced, nor is newer work lost, and a part that lacks or is
  # damaged is found.
  (carry / names[1]).write_bytes(b"x")
  this.unpack()
  for part in run.glob("model.ckpt-4.*"):
    part.rename(run / part.name.replace("-4.", "-3."))
  with pytest.raises(ValueError, match="step 4, but .* only 3"):
    this.unpack()
  shutil.rmtree(run)
  with pytest.raises(ValueError, match="run.tar.gz"):
    this.unpack()
  (carry / names[0]).unlink()
  with pytest.raises(ValueError, match="has 2 of 3 parts"):
    this.unpack()
  assert not run.exists()


def test_steps_fit_the_minutes(this, monkeypatch):
  def log(*unused):
    speeds = {1: 800, 2: 400, 3: 100}  # The first loop of a phase is slow.
    return [
      {
        "step": 60 * (phase - 1) + step,
        "sequences_per_second": 1 if step == 10 else speed,
      }
      for phase, speed in speeds.items()
      for step in range(10, 61, 10)
    ]

  monkeypatch.setattr(
    run_portion.command_line, "run_step", lambda *unused, **more: 0
  )
  monkeypatch.setattr(run_portion.run_logs, "read_metrics", log)
  seconds = 7 * 8 / 800 + 5 * 8 / 400 + 3 * 4 / 100
  assert this.measure() == pytest.approx(seconds / 60)
  with flagsaver.as_parsed(training_minutes=str(seconds / 6)):
    this.set_steps()
  assert this.steps == [70, 50, 30]
  # 60 updates of the second phase have 480 sequences of 64 tokens.
  this.steps = [60, 60, 60]
  tokens, minutes = this.cost()
  assert tokens == 60 * (8 * 64 + 8 * 64 + 4 * 128)
  slow = 80 + 80 + 40
  fast = 50 * (8 / 800 + 8 / 400 + 4 / 100)
  assert minutes == pytest.approx((slow + fast) / 60)


def test_refusals_are_one_sentence(tmp_path):
  given = ["--spm_model_file=x", f"--input_files={tmp_path}/a.txt"]
  out = f"--output_dir={tmp_path}/out"
  cases = (
    ([*given, out], "no input file matches"),
    ([*given, "--output_dir=gs://b/x"], "--output_dir is in a bucket"),
    ([*given, out, "--recipe=x"], "--recipe=x: value should be one of", 2),
    ([*given, out, "--pretraining_flags=--phase_steps=3,4"], "has 3 phases"),
    ([*given, out, "--pretraining_flags=--phase_steps=x"], "phase_steps must"),
    ([*given, out, f"--log_file={tmp_path}/no/a.jsonl"], "there is no folder"),
    ([*given, out, "--pretraining_flags='x"], "pretraining_flags: No closing"),
    ([*given, out, "--downstream_flags=--task sst2"], "needs a --task=NAME"),
  )
  many_commands.check_refusals("run_portion", cases)
  (tmp_path / "a.txt").write_text("One.\nTwo.\n")
  cases = (([*given, out], "x: No such file"),)
  many_commands.check_refusals("run_portion", cases)
  assert not (tmp_path / "out").exists()


@pytest.mark.heavy
def test_portions_on_other_machines_end_with_the_same_bits(tmp_path):
  toy_data.write_corpus(str(tmp_path / "corpus.txt"), 900)
  lines = (tmp_path / "corpus.txt").read_text().splitlines()
  pieces = toy_vocabulary.train(lines, 45)
  (tmp_path / "tokenizer.model").write_bytes(pieces)
  config = toy_models.config(
    45, 128, hidden_dropout_prob=0.2, num_hidden_layers=3
  )
  config.to_json_file(str(tmp_path / "config.json"))
  settings = (
    f"--albert_config_file={tmp_path}/config.json --phase_steps=80,60,70 "
    "--num_warmup_steps=20 --phase_layers=1,2,3 --train_batch_size=8,8,4 "
    "--steps_per_loop=1 --eval_steps=1 --save_checkpoints_steps=30 "
    "--eval_batch_size=8 --precision=float32 --noinit_word_vectors"
  )
  glue = tmp_path / "glue"
  toy_data.write_glue(str(glue), ["mrpc"], train=40)

  def run(folder, *more):
    done = many_commands.start(
      *("-m", "tools.run_portion", f"--output_dir={folder}"),
      f"--input_files={tmp_path}/corpus.txt",
      f"--spm_model_file={tmp_path}/tokenizer.model",
      *(f"--pretraining_flags={settings}", "--part_megabytes=1", *more),
    )
    assert done.code == 0, done.err
    return json.loads((folder / "log.jsonl").read_text().splitlines()[-1])

  task = f"--task=mrpc --data_dir={glue} --num_train_steps=4 --nodo_predict"
  task += " --max_seq_length=64"
  whole = run(tmp_path / "0", f"--downstream_flags={task}")
  assert whole["step"] == 210
  assert whole["tokens"] == 140 * 8 * 64 + 70 * 4 * 128
  assert {*whole["downstream"]} == {"mrpc"}
  assert whole["report"]["masked_lm_loss"] > 0 < whole["minutes"]
  steps = []
  for portion in range(1, 20):
    folder = tmp_path / str(portion)
    folder.mkdir()
    if portion > 1:
      before = tmp_path / str(portion - 1)
      shutil.move(before / "carry", folder / "carry")
      shutil.move(before / "records", folder / "records")
      shutil.move(before / "text", folder / "text")
      shutil.rmtree(before)
    last = run(folder, "--portion_minutes=0.4")
    steps.append(last["step"])
    # The report is of the layers that the phase has trained.
    assert last["layers"] == 1 + sum(last["step"] > x for x in (80, 140))
    if last["step"] == 210:
      break
  assert len(steps) > 1 and steps == sorted(steps)
  runs = (str(tmp_path / "0" / "run"), str(folder / "run"))
  expected, got = map(toy_task.saved, runs)
  np.testing.assert_equal(got, expected)
  for name in ("report", "tokens"):
    assert last[name] == whole[name]
