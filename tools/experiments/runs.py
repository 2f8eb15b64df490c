"""Runs the commands of each row of a table, and reads their numbers.

The name of a folder has a hash of the flags of its command, so tables share
models, and other settings have other folders. A command is left out if its
result is there; else it starts or resumes by its own means. One that trains is
always given: if it has ended, it says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shlex
import subprocess
from typing import Any, Mapping

from official_albert import files, machine, run_logs, tfrecords
from official_albert.tools.cli import child_programs
from official_albert.tools.experiments import tables

_Flags = Mapping[str, Any]
_EVALUATIONS = 8  # Of a training.
_WARMUP_SHARE = 0.1  # Fraction of the steps with a rising rate.


def _read(path: str) -> dict[str, Any]:
  return files.read_json(path, dict[str, Any], "remove it to run it again")


@dataclasses.dataclass
class Runner:
  """Runs rows, or only prints their commands."""

  steps: int  # Of a whole training.
  training: _Flags
  finetuning: _Flags
  # --input_files of the programs that read text; the latter is for table 7.
  input_files: str
  additional_files: str
  task_dirs: Mapping[str, str]  # --data_dir of the tasks to fine-tune on.
  output_dir: str
  dry_run: bool

  def __post_init__(self):
    self._given: set[str] = set()

  def steps_of(self, table: tables.Table) -> int:
    """Returns the updates of the models of a table."""
    return math.ceil(self.steps * tables.STEP_SHARES.get(table.name, 1.0))

  def _name(self, start: str, flags: _Flags) -> str:
    """Returns the path of a result of these flags."""
    # A run may go on with other devices.
    lasting = {k: v for k, v in flags.items() if k not in tables.DEVICE_FLAGS}
    text = json.dumps(lasting, sort_keys=True).replace(self.output_dir, "")
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return os.path.join(self.output_dir, f"{start}-{digest}")

  def _run(self, program: str, flags: _Flags, result: str = "") -> None:
    """Runs a command unless it has run or its `result` exists."""
    given = [f"--{name}={value}" for name, value in flags.items()]
    line = child_programs.command(f"official_albert.tools.{program}", *given)
    text = shlex.join(["python", *line[1:]])
    if text in self._given:
      return
    self._given.add(text)
    if self.dry_run:
      print(text)
    elif not result or not files.exists(result):
      print(f"$ {text}", flush=True)
      code = subprocess.run(line, env=machine.training_environment()).returncode
      if code:
        raise ValueError(
          f"a command ends with {code}: {text}; what is wrong is above, and "
          "the same command of this program goes on."
        )

  def _records(self, pair: str, has_more: bool = False) -> str:
    """Makes the records of a second objective; returns their folder."""
    size = tables.MODEL["vocab_size"]
    flags = {"input_files": self.input_files, "vocab_size": size}
    folder = self._name("data/vocabulary", flags)
    vocabulary = os.path.join(folder, tfrecords.TOKENIZER_FILE)
    self._run("train_vocabulary", {**flags, "output_dir": folder}, vocabulary)
    # Last, as it has no part in what is held out.
    text = f"{self.input_files},{self.additional_files}"
    flags = {
      "input_files": text if has_more else self.input_files,
      "spm_model_file": vocabulary,
      "sentence_pair": pair,
      **tables.DATA,
    }
    folder = self._name(f"data/{pair}{'-more' * has_more}", flags)
    manifest = os.path.join(folder, tfrecords.MANIFEST_FILE)
    flags |= {"output_dir": folder, "num_workers": machine.cpu_count()}
    self._run("create_pretraining_data", flags, manifest)
    return folder

  def _pretrain(
    self, row: tables.Row, steps: int, seed: int, before: str
  ) -> str:
    """Trains a model; returns its folder."""
    config = tables.config(row)
    pair = row.flags.get("sentence_pair", "sop")
    every = math.ceil(steps / _EVALUATIONS)
    flags = {
      "input_dir": self._records(pair),
      "num_train_steps": steps,
      "num_warmup_steps": int(steps * _WARMUP_SHARE),
      "random_seed": seed,
      "eval_steps": every,
      "save_checkpoints_steps": every,
      "keep_checkpoint_max": 1,
      **self.training,
    }
    if "more_data" in row.flags:
      # All models are compared on the same held-out text.
      flags["eval_input_dir"] = flags["input_dir"]
      flags["input_dir"] = self._records(pair, has_more=True)
    if "continued" in row.flags:
      flags["init_checkpoint"] = before
      flags.pop("init_neighbor_attention", None)
    sizes = f"H{config.hidden_size}-L{config.num_hidden_layers}"
    folder = self._name(f"models/{sizes}", {**flags, **config.to_dict()})
    config_file = f"{folder}.albert_config.json"
    if not self.dry_run:
      files.make_folder(os.path.dirname(folder))
      config.to_json_file(config_file)
    flags |= {"model_dir": folder, "albert_config_file": config_file}
    self._run("run_pretraining", flags)
    return folder

  def _evaluate(self, model: str, pair: str) -> dict[str, float]:
    """Returns the accuracy of a sentence objective, and masked-LM metrics."""
    metrics_file = f"{model}.{pair}.json"
    flags = {
      "mode": "evaluate",
      "input_dir": self._records(pair),
      "model_dir": model,
      "metrics_file": metrics_file,
      "eval_batch_size": 64,
    }
    shared = {*flags, "precision", *tables.DEVICE_FLAGS}
    flags |= {k: x for k, x in self.training.items() if k in shared}
    self._run("run_pretraining", flags, metrics_file)
    return {} if self.dry_run else _read(metrics_file)

  def _finetune(self, model: str, steps: int, task: str, seed: int) -> float:
    """Returns the result of a task in percent.

    That of SQuAD is the mean of F1 and exact match, as in the paper's average.
    """
    flags = {
      # The weights that the held-out numbers of the model belong to.
      "init_checkpoint": os.path.join(model, f"model.ckpt-{steps}"),
      "random_seed": seed,
      "task": tables.TASKS[task],
      "data_dir": self.task_dirs[task],
      "cache_dir": os.path.join(self.output_dir, "data/task_records"),
      "do_predict": False,
      **self.finetuning,
      **tables.TASK_FLAGS.get(task, {}),
    }
    folder = self._name(f"{model}-{tables.TASKS[task]}", flags)
    results = os.path.join(folder, "eval_results.json")
    self._run("run_finetuning", {**flags, "output_dir": folder}, results)
    if self.dry_run:
      return math.nan
    first = next(iter(_read(results).values()))
    if not task.startswith("SQuAD"):
      return 100 * first["accuracy"]
    # The paper's numbers of SQuAD 2.0 are those of the best thresholds.
    f1 = first.get("best_f1", first["f1"])
    names = ("best_exact", "exact", "exact_match")
    return (f1 + next(first[name] for name in names if name in first)) / 2

  def run(
    self, table: tables.Table, row: tables.Row, seed: int, before: str
  ) -> tuple[str, dict[str, Any]]:
    """Runs a row with a seed; `before` is the model of the row before.

    Returns:
      The folder of the model, and its numbers by column, with `parameters` and
      the `curve` of the held-out loss, a pair of step and loss for each
      evaluation.
    """
    steps = self.steps_of(table)
    model = self._pretrain(row, steps, seed, before)
    values: dict[str, Any] = {}
    metrics: Mapping[str, float] = {}
    if not self.dry_run:
      evaluations = run_logs.read_metrics(model, "eval")
      metrics = evaluations[-1]
      curve = [(x["step"], x["masked_lm_loss"]) for x in evaluations]
      size = tables.config(row).parameter_count()
      values |= {"parameters": size, "curve": curve}
    for pair in (tables.NSP, tables.SOP):
      if pair in table.columns:  # The last one is the same text for all rows.
        metrics = self._evaluate(model, pair.lower())
        if metrics:
          values[pair] = 100 * metrics["sentence_order_accuracy"]
    if metrics:
      values[tables.LOSS] = metrics["masked_lm_loss"]
      values[tables.ACCURACY] = 100 * metrics["masked_lm_accuracy"]
    if tables.SCORES in table.columns:
      for task in self.task_dirs:
        values[task] = self._finetune(model, steps, task, seed)
    return model, values
