"""The evaluating process, with a trainer that works while it sleeps.

Two real processes are in tools/testing/run_modes_test.py.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil

import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution
from official_albert.testing import toy_task
from official_albert.training import (
  checkpoint_manager,
  continuous_evaluation,
  reporting,
  run_record,
)
from official_albert.training.train_config import Phase

PHASES = (Phase(4), Phase(3, 10, 5))


def config(folder, **changes):
  values = dict(
    num_train_steps=7,
    phases=PHASES,
    save_checkpoints_steps=2,
    keep_checkpoint_max=9,
  )
  return toy_task.config(folder, **{**values, **changes})


def record(folder, **changes):
  """Writes what tools.run_pretraining writes before it trains."""
  cfg = config(folder, **changes)
  run_record.write_run(
    str(folder),
    AlbertConfig.from_preset("albert_tiny"),
    dataclasses.asdict(cfg),
    {},
  )
  return cfg


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A run that was evaluated by its trainer, with checkpoints 2, 4, 6, 7."""
  folder = tmp_path_factory.mktemp("trained")
  tasks = [toy_task.ToyTask(seed=seed) for seed in (0, 1)]
  toy_task.run(tasks, record(folder, eval_steps=2))
  return folder


@pytest.fixture
def trainer(trained, tmp_path, monkeypatch):
  """A run whose trainer does the next of `.todo` whenever the other sleeps."""

  class Trainer:
    folder = tmp_path
    todo: list = []
    seconds = 0.0

    def save(self, *steps):
      for step in steps:
        for path in trained.glob(f"model.ckpt-{step}.*"):
          shutil.copy(path, tmp_path)

    def saves(self, *steps):
      self.todo = [lambda step=step: self.save(step) for step in steps]

    def sleep(self, seconds):
      self.seconds += seconds
      if self.todo:
        self.todo.pop(0)()

  trainer = Trainer()
  record(tmp_path, eval_steps=0)
  clock = continuous_evaluation.time
  monkeypatch.setattr(clock, "sleep", trainer.sleep)
  monkeypatch.setattr(clock, "monotonic", lambda: trainer.seconds)
  return trainer


def make_evaluator(phases=2):
  return continuous_evaluation.Evaluator(
    [toy_task.ToyTask(seed=seed) for seed in range(phases)],
    distribution.make_strategy("one_device"),
    10,
  )


def run(folder, timeout=40.0, evaluator=None):
  """Evaluates continuously; returns the log and the loss by step and phase."""
  stream = io.StringIO()
  own = folder / continuous_evaluation.EVALUATION_FOLDER
  with reporting.Reporter(str(own), stream) as report:
    try:
      continuous_evaluation.evaluate_continuously(
        evaluator or make_evaluator(), str(folder), report, timeout
      )
    except SystemExit as ended:
      stream.write(f"exit code {ended.code}\n")
  return stream.getvalue(), losses(own)


def losses(folder):
  return {
    (r["step"], r.get("phase", 1)): r["loss"]
    for r in reporting.read_metrics(str(folder), "eval")
    if r["step"]
  }


def read_best(folder):
  return checkpoint_manager.read_best(str(folder))


def test_it_measures_what_the_trainer_would(trainer, trained):
  trainer.saves(2, 4, 6, 7)
  log, measured = run(trainer.folder)
  assert measured == losses(trained) and len(measured) == 5
  assert log.endswith("step 7 was the run's last.\n")
  names = os.listdir(trainer.folder / "evaluator")
  assert sorted(names) == ["eval", "metrics.jsonl"]
  assert not (trainer.folder / "metrics.jsonl").exists()
  assert read_best(trainer.folder) == read_best(trained)
  assert read_best(trained)["phase"] == 2
  # Started again, it has nothing to do.
  log, again = run(trainer.folder)
  assert log == "step 7 was the run's last.\n" and again == measured


def test_a_depth_schedule_is_evaluated_at_full_depth(trainer):
  """There is one held-out set, and any checkpoint may be the best."""
  phases = (Phase(4, num_layers=2), Phase(3, num_layers=5, same_data=True))
  record(trainer.folder, eval_steps=0, phases=phases)
  recorded = continuous_evaluation.read_train_config(str(trainer.folder))
  assert recorded.phases == () and recorded.num_train_steps == 7
  trainer.saves(2, 4, 7)
  _, measured = run(trainer.folder, evaluator=make_evaluator(1))
  assert list(measured) == [(2, 1), (4, 1), (7, 1)]
  best = read_best(trainer.folder)
  assert best["values"]["loss"] == min(measured.values())


def test_a_trainer_that_evaluates_keeps_the_best_itself(trainer):
  record(trainer.folder, eval_steps=3)
  trainer.saves(7)
  run(trainer.folder)
  assert read_best(trainer.folder) is None


def test_it_ends_when_no_checkpoint_comes(trainer):
  trainer.todo = [lambda: None, lambda: trainer.save(2)]
  log, measured = run(trainer.folder, timeout=100.0)
  assert set(measured) == {(2, 1)}
  assert "no new checkpoint" in log and "for 1m40s: ended by --timeout" in log
  assert log.endswith(f"exit code {continuous_evaluation.TIMEOUT_EXIT_CODE}\n")
  # The time starts anew with each checkpoint: two sleeps before it.
  assert trainer.seconds == 100 + 2 * 5
  # A later start continues from there.
  trainer.saves(7)
  _, measured = run(trainer.folder)
  assert set(measured) == {(2, 1), (7, 2)}


def test_a_checkpoint_that_the_run_removes_is_skipped(trainer):
  trainer.save(2, 6, 7)
  evaluator = make_evaluator()
  read = evaluator.read

  def vanish(path):
    if path.endswith("-6"):
      for part in trainer.folder.glob("model.ckpt-6.*"):
        part.unlink()
    read(path)

  evaluator.read = vanish
  log, measured = run(trainer.folder, evaluator=evaluator)
  assert set(measured) == {(2, 1), (7, 2)}
  assert "step 6 is skipped: the run has removed its checkpoint" in log


@pytest.mark.parametrize(
  "part, share",
  [
    ("index", 0.0),
    ("index", 0.5),
    # The weights are at its beginning, and the rest is not read.
    ("data-00000-of-00001", 0.02),
  ],
)
def test_a_half_written_checkpoint_is_tried_again(
  trainer, trained, part, share
):
  def begin():
    trainer.save(6)
    path = trainer.folder / f"model.ckpt-6.{part}"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])

  # Completed in place, as by a copy over a network.
  trainer.todo = [begin, lambda: None, lambda: trainer.save(6, 7)]
  log, measured = run(trainer.folder)
  assert log.count("model.ckpt-6 cannot be read") == 1
  assert measured[6, 2] == losses(trained)[6, 2]
  assert (7, 2) in measured


def test_a_step_that_is_saved_again_is_evaluated_again(trainer, trained):
  """After a rollback it has other weights."""

  def replace():
    for path in trained.glob("model.ckpt-4.*"):
      copy = trainer.folder / path.name.replace("-4.", "-2.")
      shutil.copy(path, copy)
      os.utime(copy, (1e9, 1e9))  # TensorFlow knows whole seconds.

  trainer.todo = [lambda: trainer.save(2), replace, lambda: trainer.save(7)]
  _, measured = run(trainer.folder)
  assert measured[2, 1] == losses(trained)[4, 1]


def test_an_evaluation_of_only_one_phase_is_completed(trainer, trained):
  """The process was killed between the two of a border."""
  trainer.save(4, 7)
  run(trainer.folder)
  path = trainer.folder / "evaluator" / "metrics.jsonl"
  lines = path.read_text().splitlines()
  assert [json.loads(line)["phase"] for line in lines] == [1, 2, 2]
  path.write_text(lines[0] + "\n" + lines[1][:30])
  _, measured = run(trainer.folder)
  again = path.read_text().splitlines()
  assert len(again) == 4 and json.loads(again[2])["step"] == 4
  assert measured[4, 2] == losses(trained)[4, 2]


def test_another_model_is_an_error(trainer):
  model = tf.keras.Sequential([tf.keras.layers.Dense(3)])
  model.build([None, 2])
  other = checkpoint_manager.CheckpointManager(
    str(trainer.folder), 1, model=model
  )
  other.save(2)
  with pytest.raises(ValueError, match="holds no variable of this model"):
    run(trainer.folder)


def test_waiting_for_the_run_to_begin(trainer, tmp_path):
  folder, notes = tmp_path / "later", []
  trainer.todo = [lambda: None, lambda: record(folder)]
  cfg = continuous_evaluation.wait_for_run(str(folder), 20.0, notes.append)
  assert cfg == config(folder)
  with pytest.raises(continuous_evaluation.TimedOut) as ended:
    continuous_evaluation.wait_for_run(str(tmp_path / "no"), 20.0, notes.append)
  assert ended.value.code == 124 and notes == [str(ended.value)]
  assert "no run began in" in notes[0] and "for 20s" in notes[0]


def test_batches_that_devices_cannot_share_are_refused():
  class Strategy:
    num_replicas_in_sync = 3

  with pytest.raises(ValueError, match="eval_batch_size 10 cannot be cut"):
    continuous_evaluation.Evaluator([toy_task.ToyTask()], Strategy(), 10)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
