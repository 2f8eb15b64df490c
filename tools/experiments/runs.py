"""Runs the commands of each row of a table; reports their numbers.

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
import statistics
from typing import Any, Mapping, Sequence

from official_albert import files, machine, run_logs, tfrecords
from official_albert.tools.cli import command_line, printing
from official_albert.tools.experiments import tables

_Flags = Mapping[str, Any]
_Numbers = Mapping[str, Mapping[str, Sequence[float]]]
_EVALUATIONS = 8  # Of a training.


@dataclasses.dataclass
class Runner:
  """Runs rows, or only prints their commands."""

  scale: tables.Scale
  steps: int  # Of a whole training.
  training: _Flags
  finetuning: _Flags  # Besides the settings of the scale.
  # --input_files of the programs that read text; the latter is for table 7.
  input_files: str
  additional_files: str
  task_dirs: Mapping[str, str]  # --data_dir of the tasks to fine-tune on.
  output_dir: str
  dry_run: bool
  _given: set[str] = dataclasses.field(default_factory=set)  # Commands.
  _model: str = ""  # The latest one.
  # The best one of each model, by the flags of its row.
  _rates: dict[str, float] = dataclasses.field(default_factory=dict)

  def steps_of(self, table: tables.Table) -> int:
    """Returns the updates of the models of a table."""
    return math.ceil(self.steps * self.scale.step_shares.get(table.name, 1.0))

  def _name(self, start: str, flags: _Flags) -> str:
    """Returns the path of a result of these flags."""
    text = json.dumps(flags, sort_keys=True).replace(self.output_dir, "")
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return os.path.join(self.output_dir, f"{start}-{digest}")

  def _run(self, program: str, flags: _Flags, result: str = "") -> dict:
    """Runs a command unless it has run or its `result` exists.

    Returns what the result holds, if it is JSON.
    """
    given = [f"--{name}={value}" for name, value in flags.items()]
    line = command_line.command(program, *given)
    text = shlex.join(["python", *line[1:]])
    if self.dry_run:
      if text not in self._given:
        print(text)
    elif text not in self._given and not (result and files.exists(result)):
      print(f"$ {text}", flush=True)
      command_line.run_program(program, *given)
    self._given.add(text)
    if self.dry_run or not result.endswith(".json"):
      return {}
    return files.read_json(result, dict[str, Any], "remove it to run it again")

  def _records(self, pair: str, has_more: bool = False) -> str:
    """Makes the records of a second objective; returns their folder."""
    size = self.scale.model["vocab_size"]
    flags = {"input_files": self.input_files, "vocab_size": size}
    folder = self._name("data/vocabulary", flags)
    vocabulary = os.path.join(folder, "tokenizer.model")
    self._run("train_vocabulary", {**flags, "output_dir": folder}, vocabulary)
    # Last, as it has no part in what is held out.
    text = f"{self.input_files},{self.additional_files}"
    flags = {
      "input_files": text if has_more else self.input_files,
      "spm_model_file": vocabulary,
      "sentence_pair": pair,
      **self.scale.data,
    }
    folder = self._name(f"data/{pair}{'-more' * has_more}", flags)
    manifest = os.path.join(folder, tfrecords.MANIFEST_FILE)
    flags |= {"output_dir": folder, "num_workers": machine.cpu_count()}
    self._run("create_pretraining_data", flags, manifest)
    return folder

  def _pretrain(
    self, row: tables.Row, steps: int, seed: int, given: _Flags
  ) -> str:
    """Trains a model; returns its folder."""
    config = self.scale.config(row)
    pair = row.flags.get("sentence_pair", "sop")
    every = math.ceil(steps / _EVALUATIONS)
    flags = {
      "input_dir": self._records(pair),
      "num_train_steps": steps,
      "num_warmup_steps": steps // 10,
      "random_seed": seed,
      "eval_steps": every,
      "save_checkpoints_steps": every,
      **self.training,
      **given,
    }
    if "more_data" in row.flags:
      # All models are compared on the same held-out text.
      flags["eval_input_dir"] = flags["input_dir"]
      flags["input_dir"] = self._records(pair, has_more=True)
    if "continued" in row.flags:
      flags["init_checkpoint"] = self._model
    sizes = f"H{config.hidden_size}-L{config.num_hidden_layers}"
    folder = self._name(f"models/{sizes}", {**flags, **config.to_dict()})
    config_file = f"{folder}.albert_config.json"
    if not self.dry_run:
      files.make_folder(os.path.dirname(folder))
      config.to_json_file(config_file)
    flags |= {"model_dir": folder, "albert_config_file": config_file}
    self._run("run_pretraining", flags)
    self._model = folder
    return folder

  def _evaluate(self, model: str, pair: str) -> dict[str, float]:
    """Returns the accuracy of a sentence objective, and masked-LM metrics."""
    results = f"{model}.{pair}.json"
    flags = {
      "mode": "evaluate",
      "input_dir": self._records(pair),
      "model_dir": model,
      "metrics_file": results,
    }
    shared = {"eval_batch_size", "precision", "distribution", "tpu"}
    flags |= {k: x for k, x in self.training.items() if k in shared}
    return self._run("run_pretraining", flags, results)

  def _finetune(self, model: str, steps: int, task: str, seed: int) -> float:
    """Returns the result of a task in percent, from a checkpoint of a model.

    That of SQuAD is the mean of F1 and exact match, as in the paper's average.
    """
    name, _, own_flags = tables.TASKS[task]
    flags = {
      "random_seed": seed,
      "task": name,
      "data_dir": self.task_dirs[task],
      "cache_dir": os.path.join(self.output_dir, "data/task_records"),
      "do_predict": False,
      **self.scale.finetuning,
      **tables.parse_flags(own_flags),
      **self.finetuning,
      "init_checkpoint": os.path.join(model, f"model.ckpt-{steps}"),
    }
    folder = self._name(f"{model}-{name}", flags)
    flags["output_dir"] = folder
    results = os.path.join(folder, "eval_results.json")
    for first in self._run("run_finetuning", flags, results).values():
      if not task.startswith("SQuAD"):
        return 100 * first["accuracy"]
      # The paper's numbers of SQuAD 2.0 are those of the best thresholds.
      exact = first.get("best_exact", first.get("exact_match"))
      return (first.get("best_f1", first["f1"]) + exact) / 2
    return math.nan  # Of a dry run.

  def run(
    self, table: tables.Table, row: tables.Row, seed: int
  ) -> dict[str, float]:
    """Runs a row; returns its numbers by column.

    The rate of a model is the one that is best with the first seed: on average
    over the tasks, or in masked LM if there is none.
    """
    rates = self.scale.learning_rates
    if not rates:
      return self._run_at(table, row, seed, {})
    columns = [*self.task_dirs] or [tables.ACCURACY]
    key = f"{self.steps_of(table)} {sorted(row.flags.items())}"
    if key not in self._rates:
      goodness = {}
      for rate in rates:
        found = self._run_at(table, row, seed, {"learning_rate": rate})
        goodness[rate] = statistics.mean(found.get(x, 0.0) for x in columns)
      self._rates[key] = max(goodness, key=lambda x: goodness[x])
    rate = self._rates[key]
    values = self._run_at(table, row, seed, {"learning_rate": rate})
    return {**values, "learning rate": rate}

  def _run_at(
    self, table: tables.Table, row: tables.Row, seed: int, given: _Flags
  ) -> dict[str, float]:
    """Returns the numbers of a row with more flags of its training."""
    steps = self.steps_of(table)
    model = self._pretrain(row, steps, seed, given)
    values = {tables.SIZE: self.scale.config(row).parameter_count() / 1e6}
    metrics = {} if self.dry_run else run_logs.read_metrics(model, "eval")[-1]
    for pair in (tables.NSP, tables.SOP):
      if pair in table.columns:  # The last one is the same text for all rows.
        metrics = self._evaluate(model, pair.lower())
        if metrics:
          values[pair] = 100 * metrics["sentence_order_accuracy"]
    if metrics:
      values[tables.LOSS] = metrics["masked_lm_loss"]
      values[tables.ACCURACY] = 100 * metrics["masked_lm_accuracy"]
    for task in self.task_dirs:
      # From the weights that the held-out numbers of the model belong to.
      values[task] = self._finetune(model, steps, task, seed)
    return values


def write_report(
  table: tables.Table,
  tasks: Sequence[str],
  rows: _Numbers,
  notes: str,
  output_dir: str,
) -> str:
  """Writes table_NAME.md and .json; returns the Markdown.

  `rows` are by label, then by column: a number for each seed.
  """
  paper = {
    label: {name: [x] for name, x in row.paper.items()}
    for label, row in table.rows.items()
  }
  parts = {x: [x] for x in (*table.columns, *tasks)}
  if len(tasks) > 1:  # One task is its own average.
    parts["Avg"] = list(tasks)
  columns: dict[str, list[list[float]]] = {}
  for title, names in parts.items():
    columns[title] = _averages(rows, names)
    columns[f"{title}, paper"] = _averages(paper, names)
  columns = {title: x for title, x in columns.items() if any(x)}
  cells = []
  for title, values in columns.items():
    form = ".3f" if title in (tables.SIZE, tables.LOSS) else ".1f"
    cells.append([printing.spread(x, form, statistics.mean) for x in values])
  body = printing.table(["", *columns], zip(table.rows, *cells))
  text = f"## {table.name}: {table.title}\n\n{body}\n\n({notes})\n"
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", text)
  files.write_json(f"{path}.json", {"notes": notes, "rows": rows})
  return text


def _averages(rows: _Numbers, names: Sequence[str]) -> list[list[float]]:
  """Returns the average of columns for each row: of each seed that has all."""
  return [
    [statistics.mean(x) for x in zip(*(row.get(n, []) for n in names))]
    for row in rows.values()
  ]
