"""Tests that a silent reporter can stand for a real one."""

from __future__ import annotations

import pytest

from official_albert import distribution
from official_albert.testing import toy_task
from official_albert.training import loop as training_lib
from official_albert.training import reporting, silent_reporting


def test_a_run_with_it_leaves_only_checkpoints(tmp_path, capsys):
  strategy = distribution.make_strategy("one_device")
  with silent_reporting.SilentReporter() as report:
    values = training_lib.train(
      [toy_task.ToyTask()], toy_task.config(tmp_path), strategy, report
    )
  assert values["loss"] > 0
  assert capsys.readouterr() == ("", "")
  names = {path.name.split("-")[0] for path in tmp_path.iterdir()}
  assert names == {"checkpoint", "model.ckpt"}


def test_it_has_what_a_reporter_has_and_no_more():
  report = silent_reporting.SilentReporter()
  for name, value in vars(reporting.Reporter).items():
    if callable(value):
      assert callable(getattr(report, name)), name
  with pytest.raises(AttributeError, match="shout"):
    report.shout("text")


def test_one_worker_reports(tmp_path):
  strategy = distribution.make_strategy("one_device")
  report = silent_reporting.make_reporter(strategy, str(tmp_path))
  with report:
    assert isinstance(report, reporting.Reporter)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
