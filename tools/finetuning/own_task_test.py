"""Runs the task of docs/own_task.md that a user's file registers."""

from __future__ import annotations

import json
import re

import pytest

from official_albert.tasks import registry
from official_albert.tools.testing import many_commands, toy_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """The file of the page, an encoder, and reviews in folders."""
  path = tmp_path_factory.mktemp("own")
  page = (many_commands.ROOT / "docs/own_task.md").read_text("utf-8")
  (code,) = re.findall(r"```python\n(\"\"\"imdb.*?)```", page, re.DOTALL)
  (path / "imdb.py").write_text(code)
  toy_runs.write_pretrained(str(path / "encoder"))
  for split, count in (("train", 12), ("test", 5)):
    for label, word in (("neg", "rain"), ("pos", "sea")):
      (path / "data" / split / label).mkdir(parents=True)
      for number in range(count):
        file = path / "data" / split / label / f"{number}_1.txt"
        file.write_text(f"a {word} " * (number + 1))
  return path


def test_a_task_of_a_file_is_trained_predicted_and_exported(folder):
  module = f"--task_module={folder}/imdb.py"
  line = [
    *("--task=imdb", module, f"--data_dir={folder}/data", "--seeds=2"),
    *(f"--init_checkpoint={folder}/encoder", f"--output_dir={folder}/run"),
    *("--num_train_steps=4", "--max_seq_length=24", "--train_batch_size=4"),
    "--nolength_bucketing",
  ]
  (trained,) = many_commands.run("run_finetuning", [line])
  # The second seed uses the graphs and the records of the first.
  assert trained.out.count("tracing and compiling") == 1
  assert len(re.findall(r"wrote \d+ train records", trained.out)) == 1
  summary = json.loads((folder / "run/summary.json").read_text())
  assert summary["task"] == "imdb" and summary["best_metric"] == "accuracy"
  assert list(summary["seeds"]) == ["12345", "12346"]
  for seed, results in summary["seeds"].items():
    model_dir = folder / "run" / f"seed_{seed}"
    assert results == json.loads((model_dir / "eval_results.json").read_text())
    record = json.loads((model_dir / "run.json").read_text())
    assert record["settings"]["seed"] == int(seed)
  run = f"--model_dir={folder}/run"
  (answered,) = many_commands.run("predict", [[module, run, "--text=a sea"]])
  assert json.loads(answered.out)["prediction"] in ("neg", "pos")
  export = f"--export_dir={folder}/1"
  many_commands.run("export_saved_model", [[module, run, export]])
  assert (folder / "1" / "saved_model.pb").exists()


def test_a_task_without_its_module_is_refused(folder):
  data = [f"--data_dir={folder}/data", "--output_dir=x"]
  register = (
    "from official_albert.tasks import registry\n"
    "registry.register('x', object, {}, {})"
  )
  for name, text in (
    ("syntax", "def f(:"),
    ("nothing", "x = 1"),
    ("head", register.format("'spans'", "('text',)")),
    ("roles", register.format("'regression'", "('txt',)")),
  ):
    (folder / f"{name}.py").write_text(text)
  many_commands.check_refusals(
    "run_finetuning",
    (
      (["--task=imdb", *data], "--task must be one of glue, cola", 2),
      (["--task=x", "--task_module=none.py", *data], "none.py is no file of"),
      *(
        (["--task=x", f"--task_module={folder}/{name}.py", *data], message)
        for name, message in (
          ("syntax", "syntax.py is not run: invalid syntax"),
          ("nothing", "it must call tasks.registry.register"),
          ("head", "the head or role spans, which must"),
          ("roles", "the head or role txt, which must"),
        )
      ),
    ),
  )


def test_names_of_our_tasks_are_taken():
  with pytest.raises(ValueError, match="the task mrpc exists"):
    registry.register("mrpc", object)
