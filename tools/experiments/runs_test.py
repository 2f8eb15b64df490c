"""Tests of runs.py: the commands of rows, and how they run and end."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from official_albert import files
from official_albert.tools.experiments import report, runs, tables


def _commands(capsys, name, tasks=("MNLI",), scale="tiny", seeds=(3, 5)):
  """Returns the commands of a table; each is its program and a set of flags."""
  made = runs.Commands("/out", "dry", None)
  dirs = {task: f"/{name}" for task, name in tables.TASKS.items()}
  experiment = runs.Experiment(
    *(tables.TABLES[name], tables.SCALES[scale], made, "/text/*", "/more/*"),
    *(dirs, list(tasks) * ("scores" in tables.TABLES[name].columns)),
  )
  assert experiment.run(seeds, 1) == {
    (label, seed): {}
    for seed, label in itertools.product(seeds, experiment.table.rows)
  }
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == len({*lines}) == len(made.missing)
  found = [shlex.split(line) for line in lines]
  return [
    (module.rpartition(".")[2], {*given}) for _, _, module, *given in found
  ]


def _folders(found, program, flag="--model_dir="):
  return [
    x for name, given in found if name == program for x in given if flag in x
  ]


@pytest.mark.parametrize("name", tables.TABLES)
def test_each_command_follows_those_that_it_needs(name, capsys):
  made = {"/text", "/more", *(f"/{task}" for task in tables.TASKS.values())}
  for _, flags in _commands(capsys, name, list(tables.TASKS)):
    values = dict(flag[2:].split("=", 1) for flag in flags if "=" in flag)
    for flag, value in values.items():
      if flag in ("input_dir", "eval_input_dir", "init_checkpoint", "model"):
        folder, name = os.path.split(value)
        assert (folder if ".ckpt-" in name else value) in made
    for flag in ("model_dir", "output_dir"):
      made.add(values.get(flag))


def test_pretraining_commands(capsys):
  found = _commands(capsys, "11")
  first, second, *_ = (x for name, x in found if name == "run_pretraining")
  [folder] = _folders([("", first)], "")
  assert folder.startswith("--model_dir=/out/models/H128-L1-E64-all-sop-")
  assert folder.endswith("/seed_3")
  path = folder.partition("=")[2]
  assert {
    *("--input_dir=/out/data/records-sop", f"--init_checkpoint={path}"),
    # A quarter of the steps, as the models are deep.
    *("--num_train_steps=400", "--num_warmup_steps=40", "--random_seed=3"),
    *("--eval_steps=50", "--bias_correction=True"),
  } <= second
  # It has the weights of the other model.
  neighbors = "--init_neighbor_attention=True"
  assert neighbors in first and neighbors not in second
  # All rows of a seed come before the next seed.
  seeds = [x[-1] for x in _folders(found, "run_pretraining")]
  assert seeds == ["3"] * 6 + ["5"] * 6


def test_tables_share_models(capsys):
  pretrained = _folders(_commands(capsys, "4", seeds=[3]), "run_pretraining")
  found = _commands(capsys, "7", seeds=[3])
  plain, more = (x for name, x in found if name == "run_pretraining")
  [folder] = _folders([("", plain)], "")
  assert folder in pretrained
  assert {
    "--input_dir=/out/data/records-sop-more",
    "--eval_input_dir=/out/data/records-sop",
  } <= more
  texts = _folders(found, "create_pretraining_data", "--input_files=")
  assert texts == ["--input_files=/text/*", "--input_files=/text/*,/more/*"]
  tuned = next(x for name, x in found if name == "run_finetuning")
  path = folder.partition("=")[2]
  assert {
    *("--task=mnli", "--data_dir=/mnli", "--random_seed=3", "--eval_steps=0"),
    f"--init_checkpoint={path}/model.ckpt-1600",
    f"--output_dir={path}-mnli",
  } <= tuned


def test_equal_time_follows_from_measured_speeds(monkeypatch, tmp_path):
  speeds = {"H256": 10.0, "H128": 70.0}
  monkeypatch.setattr(
    report,
    "read_speed",
    lambda folder: {
      tables.TOKENS: next(
        x for name, x in speeds.items() if f"/{name}-" in folder
      )
    },
  )
  monkeypatch.setattr(report, "read_pretraining", lambda *unused: {})
  made, flags_of = runs.Commands(str(tmp_path), "run", None), {}
  monkeypatch.setattr(
    made,
    "run",
    lambda key, tool, flags, *rest: bool(flags_of.update({key: flags})) or True,
  )
  runs.Experiment(
    tables.TABLES["6"], tables.SCALES["tiny"], made, "", "", {}, []
  ).run([3], 1)
  steps = {
    key[:11]: flags["num_train_steps"]
    for key, flags in flags_of.items()
    if key.startswith("models/")
  }
  assert steps == {"models/H256": 800, "models/H128": 5600}
  assert {key.split("/")[0] for key in flags_of} == {"data", "speed", "models"}


@pytest.fixture
def echo(monkeypatch):
  """Makes each program one that runs --code."""

  def command(module, *arguments):
    code = next(x.partition("=")[2] for x in arguments if "--code=" in x)
    return [sys.executable, "-c", code]

  monkeypatch.setattr(runs.child_programs, "command", command)


def test_finished_commands_are_not_run_again(tmp_path, echo, capsys):
  def run(key, code, result="", mode="run"):
    with files.lock(str(tmp_path / "lock"), "busy") as held:
      made = runs.Commands(str(tmp_path), mode, held)
      return made.run(key, "tool", {"code": code}, result), made

  count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
  assert run("m/a", count)[0] and run("m/a", count)[0]
  assert (tmp_path / "count").read_text() == "x"
  assert count in (tmp_path / "done/m/a.txt").read_text().replace(
    "'\"'\"'", "'"
  )
  assert capsys.readouterr().out.splitlines() == [
    "m/a ...",
    "m/a: done (0:00:00)",
  ]
  # Or if the file exists that it writes last.
  assert run("b", count, result="count")[0]
  # One that failed is tried again, as its command may have been at fault.
  done, made = run("c", "raise SystemExit('why')")
  assert (
    not done and "exit code 1, see the log in logs/c.log" in made.failed["c"]
  )
  assert "why" in (tmp_path / "logs/c.log").read_text()
  assert not made.run("c", "tool", {"code": count})  # Not by another row.
  assert not run("c", count, mode="report")[0] and run("c", count)[0]


_ENDLESS = """
import sys
from official_albert import files
from official_albert.tools.cli import command_line
from official_albert.tools.experiments import report, runs, tables
code = (
  "import os, time; open({pid!r}, 'w').write(str(os.getpid())); time.sleep(99)"
)
runs.child_programs.command = lambda *unused: [sys.executable, "-c", code]
held = files.lock({folder!r} + "/lock", "busy")
commands = runs.Commands({folder!r}, "run", held)
made = runs.Experiment(
  tables.TABLES["3"], tables.SCALES["tiny"], commands, "", "", {{}}, [])
command_line.run(lambda argv: made.run([1], 1))
"""


def _is_running(pid: int) -> bool:
  try:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
      return file.read().rpartition(") ")[2][0] != "Z"
  except FileNotFoundError:
    return False


@pytest.mark.parametrize(
  "number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_commands_end_with_the_program(tmp_path, number, code):
  pid_file = tmp_path / "pid"
  text = _ENDLESS.format(pid=str(pid_file), folder=str(tmp_path))
  process = subprocess.Popen(
    [sys.executable, "-c", text],
    # Tests that are run in the background ignore Ctrl-C from their start.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )
  while not (pid_file.exists() and pid_file.read_text()):
    time.sleep(0.05)
  process.send_signal(number)
  assert process.wait(20) == code
  pid, deadline = int(pid_file.read_text()), time.monotonic() + 20
  while _is_running(pid) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not _is_running(pid)
  # It does not count as finished.
  assert not (tmp_path / "done").exists()
  files.lock(str(tmp_path / "lock"), "busy").close()


@pytest.mark.skipif(
  len(os.sched_getaffinity(0)) < 2, reason="two rows need two cores"
)
def test_rows_run_at_once_on_their_share_of_the_cores(monkeypatch, tmp_path):
  table = tables.TABLES["13"]
  made, cores = runs.Commands(str(tmp_path), "run", None), {}

  def run(key, *unused):
    cores[key] = os.sched_getaffinity(0)
    if key.startswith("models/"):  # Waits for the other row.
      while len([x for x in cores if x.startswith("models/")]) < 2:
        time.sleep(0.01)
    return True

  monkeypatch.setattr(made, "run", run)
  monkeypatch.setattr(report, "read_pretraining", lambda *unused: {})
  scale = tables.SCALES["tiny"]
  runs.Experiment(table, scale, made, "", "", {}, []).run([1], 2)
  every = os.sched_getaffinity(0)
  assert cores["data/records-sop"] == every
  one, other = (x for key, x in cores.items() if key.startswith("models/"))
  assert one | other == every and not one & other


def test_a_report_reads_what_is_finished(monkeypatch, tmp_path):
  made = runs.Commands(str(tmp_path), "report", None)
  experiment = runs.Experiment(
    *(tables.TABLES["2"], tables.SCALES["tiny"], made, "", "", {}, [])
  )
  monkeypatch.setattr(report, "read_pretraining", lambda *unused: {"MLM": 7.0})
  row = experiment.table.first
  done = tmp_path / "done" / f"{experiment._name(row)}/seed_3.txt"
  done.parent.mkdir(parents=True)
  done.touch()
  # Another table has trained the model; its speed has not been measured.
  found = experiment.run([3], 1)
  assert found.pop((row.label, 3)) == {"MLM": 7.0}
  assert not any(found.values()) and not made.failed
  assert len(made.missing) == 2 + 7 + 6
