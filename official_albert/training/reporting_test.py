"""What a run prints, logs, draws and sums up."""

from __future__ import annotations

import io
import json

import pytest
import tensorflow as tf

from official_albert import distribution, run_logs
from official_albert.testing import fake_gcs, toy_task
from official_albert.train_config import Phase
from official_albert.training import reporting


def scalars(folder):
  """Returns [(step, tag, value), ...] of all event files in a folder."""
  return [
    (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
    for path in sorted(folder.glob("events*"))
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]


def test_numbers_reach_terminal_tensorboard_and_file(tmp_path):
  stream, task = io.StringIO(), toy_task.ToyTask()
  task.tokens_per_example, task.flops_per_example = 8, 1e9
  phases = (Phase(30), Phase(10, 8))
  cfg = toy_task.config(
    tmp_path, train_batch_size=4, num_train_steps=40, phases=phases
  )
  plan = reporting.Plan([task, task], cfg)
  with reporting.Reporter(str(tmp_path), stream) as report:
    values = {"loss": 2.5, "a_loss": 2.0, "a_accuracy": 0.25, "x_norm": 3.0}
    values["learning_rate"] = 1e-3
    report.training(10, 40, values, {}, *plan.speeds(10, 10, 2.0))
    speeds, left = plan.speeds(40, 10, 2.0)  # Of the second phase.
    silent = {"n/a": 1.0, "n": 2.0}
    report.training(40, 40, {"loss": 1.5}, silent, speeds, left)
    report.evaluation(20, {"loss": 1.75}, phase=2)
    report.finish("loss", None)
  assert stream.getvalue().splitlines()[:3] == [
    # To go: 20 more of 4 sequences, and 10 of 8.
    "step 10/40  loss 2.5  a 2 (25.0% right)  x norm 3  learning rate 1.00e-03"
    "  20.0 sequences/s  160 tokens/s  20 GFLOP/s  8s left",
    "step 40/40  loss 1.5  40.0 sequences/s  320 tokens/s  40 GFLOP/s  0s left",
    "step 20 held-out (phase 2)  loss 1.75",
  ]
  train = run_logs.read_metrics(str(tmp_path), "train")
  assert [r["step"] for r in train] == [10, 40]
  assert train[1]["loss"] == 1.5 and train[0]["tokens_per_second"] == 160
  assert train[1]["n"] == 2 and "n/a" not in train[1]
  assert scalars(tmp_path / "eval") == [(20, "loss", 1.75)]
  assert (40, "n/a", 1.0) in scalars(tmp_path / "train")


def test_reports_of_training_reach_a_bucket_once_a_minute(
  tmp_path, monkeypatch
):
  def logged():
    [events] = (tmp_path / "train").glob("events*")
    lines = (tmp_path / run_logs.METRICS_FILE).read_text().splitlines()
    return len(lines), events.stat().st_size

  clock = iter([1.0, 60.9, 61.0, 62.0])
  monkeypatch.setattr(reporting.time, "monotonic", lambda: next(clock))
  plan = reporting.Plan([toy_task.ToyTask()], toy_task.config(tmp_path))
  with reporting.Reporter(str(tmp_path), io.StringIO()) as report:
    monkeypatch.setattr(reporting.files, "is_remote", lambda path: True)
    values = {f"{i}_loss": 1.0 for i in range(20)}
    seen = []
    for step in (1, 2, 3, 4):
      report.training(step, 6, values, {}, *plan.speeds(step, 1, 1.0))
      seen.append(logged())
    report.flush()
    seen.append(logged())
  # The second report is not there yet.
  assert [lines for lines, _ in seen] == [1, 1, 3, 3, 4]
  sizes = [size for _, size in seen]
  assert sizes[0] == sizes[1] < sizes[2] == sizes[3] < sizes[4]


def _report(folder):
  with reporting.Reporter(folder, io.StringIO()) as report:
    report.evaluation(20, {"loss": 1.75})


def test_a_new_run_in_a_bucket_does_not_ask_for_the_bucket(tmp_path):
  with fake_gcs.FakeGcs() as gcs, gcs.client() as client:
    client(_report, "gs://bucket/runs/first")
    assert "bucket" not in {request.kind for request in gcs.requests}
    gcs.download("gs://bucket/runs/first", tmp_path)
    client(_report, "gs://bucket/runs/first")  # Continues the log.
    gcs.download("gs://bucket/runs/first", tmp_path / "again")
  lines = (tmp_path / "again" / run_logs.METRICS_FILE).read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [20, 20]
  assert scalars(tmp_path / "eval") == [(20, "loss", 1.75)]
  assert toy_task.logged(tmp_path, "step", "eval") == [20]


def test_resumed_and_cut_files_can_be_read(tmp_path):
  lines = [
    {"kind": "train", "step": 10, "loss": 3.0},
    {"kind": "train", "step": 20, "loss": 2.0},
    {"kind": "eval", "step": 20, "loss": 9.0},
    {"kind": "train", "step": 20, "loss": 2.5},
  ]
  foreign = [[1], {}, {"kind": "train"}, {"kind": "train", "step": [1]}]
  text = "".join(f"{json.dumps(x)}\n" for x in lines + foreign)
  text += "\udcff\n" + "[" * 10**5 + '\n{"kind": "tr'
  path = tmp_path / run_logs.METRICS_FILE
  path.write_text(text, errors="surrogateescape")
  train = run_logs.read_metrics(str(tmp_path), "train")
  assert [(r["step"], r["loss"]) for r in train] == [(10, 3.0), (20, 2.5)]
  with reporting.Reporter(str(tmp_path), io.StringIO()) as report:
    report.evaluation(30, {"loss": 1.0})
  assert toy_task.logged(tmp_path, "step") == [10, 20]
  assert toy_task.logged(tmp_path, "step", "eval") == [20, 30]


def test_one_process_at_a_time_writes_to_a_folder(tmp_path):
  refused = pytest.raises(OSError, match=f"another .* writes to {tmp_path}:")
  with reporting.Reporter(str(tmp_path), io.StringIO()), refused:
    reporting.Reporter(str(tmp_path), io.StringIO())
  reporting.Reporter(str(tmp_path), io.StringIO()).__exit__()


def test_workers_other_than_the_chief_are_silent(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(distribution, "is_chief", lambda strategy: False)
  folder = tmp_path / "run"
  with reporting.open_report(str(folder), tf.distribute.get_strategy()) as log:
    log.note("text")
    log.evaluation(3, {"loss": 1.0})
  assert capsys.readouterr() == ("", "") and not folder.exists()


# The plan.


def describe(**changes):
  tasks = [toy_task.ToyTask()] * max(1, len(changes.get("phases", ())))
  plan = reporting.Plan(tasks, toy_task.config("unused", **changes))
  return plan.describe(1234567, tf.distribute.OneDeviceStrategy("/cpu:0"))


def test_the_plan_of_a_run():
  phases = (Phase(4), Phase(2, train_batch_size=6))
  # 4 * 12 + 2 * 6 sequences of 3 tokens and 60 operations.
  assert describe(phases=phases)[1] == (
    "4 steps of 12 sequences, then 2 steps of 6 sequences: 180 tokens, "
    "3.6e+03 operations"
  )
  lines = [
    "toy: 1,234,567 parameters, float32, 1 x CPU",
    # 6 * 12 sequences of 3 tokens and 60 operations.
    "6 steps of 12 sequences: 216 tokens, 4.32e+03 operations",
    "lamb, learning rate 0 to 0.01 in 2 steps, then to 0 (original)",
  ]
  assert describe() == lines
