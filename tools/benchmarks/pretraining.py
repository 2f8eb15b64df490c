"""Pretrains Hugging Face's model for the minutes of a run of tools.run_portion.

Batches, masks, phases, warm-up and held-out records are those of the run, and
so are the settings that --peer_flags does not change. A phase has the share of
the minutes that it has of the run's operations.
"""

from __future__ import annotations

import datetime
import json
import os
from typing import Any

import tensorflow as tf

from official_albert import files, machine, runs
from official_albert.config import AlbertConfig
from official_albert.tasks.pretraining import phases as phases_lib
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.benchmarks import turns
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.experiments import tables

_SETTINGS = "optimizer learning_rate weight_decay beta_1 beta_2 clip_norm"
_KINDS = ("adamw", "muon")


def run(benchmark: str, options: turns.Options) -> None:
  """Trains and evaluates each system, and appends a line for it to the log."""
  tf.config.set_visible_devices([], "GPU")  # It is for the other.
  folder, given = options.portion_dir, tables.parse_flags(options.peer_flags)
  if not files.exists(f"{folder}/records/report"):
    raise ValueError(
      f"--portion_dir={folder} is not the --output_dir of tools.run_portion."
    )
  systems = options.systems or turns.DEFAULTS[benchmark]
  record: Any = runs.read_run(f"{folder}/run")
  config: Any = AlbertConfig.from_json_file(f"{folder}/run/albert_config.json")
  settings, phases = record["settings"], record["settings"]["phases"]
  tried = {**{name: settings[name] for name in _SETTINGS.split()}, **given}
  numbers = [x for x in tried.values() if isinstance(x, float)]
  if (len(tried), len(numbers)) != (6, 5) or tried["optimizer"] not in _KINDS:
    raise ValueError(
      f"--peer_flags={options.peer_flags!r}: it may change {_SETTINGS}, each "
      f"by a number with a point, and the optimizer is {' or '.join(_KINDS)}."
    )
  shares, layers = settings["masked_lm_prob"], settings["phase_layers"] or "0"
  data = [os.path.basename(x["input_dir"]) for x in record["data"]["phases"]]
  tasks = phases_lib.make_tasks(
    *(config, [f"{folder}/records/{x}" for x in data], settings["seed"]),
    mask_shares=shares if isinstance(shares, list) else [shares],
    layers=[int(x) for x in layers.split(",")],
  )
  report = task_lib.PretrainingTask(
    config, tasks[-1].input_dir, eval_input_dir=f"{folder}/records/report"
  )
  batches = [
    x["train_batch_size"] or settings["train_batch_size"] for x in phases
  ]
  operations = [
    x["steps"] * batch * task.flops_per_example
    for x, batch, task in zip(phases, batches, tasks)
  ]
  seconds = [60 * options.minutes * x / sum(operations) for x in operations]
  for system in systems:
    found = _train(
      system,
      [
        *(x.train_dataset(y, 0) for x, y in zip(tasks, batches)),
        *(
          x.eval_dataset(settings["eval_batch_size"])
          for x in (tasks[-1], report)
        ),
      ],
      config=config.to_dict(),
      threads=machine.cpu_count(),
      phases=[
        [x.num_layers or config.num_hidden_layers, y]
        for x, y in zip(tasks, seconds)
      ],
      warmup=settings["num_warmup_steps"] / settings["num_train_steps"],
      **{name: settings[name] for name in ("precision", "seed")},
      **tried,
    )
    tokens = [
      x * y * z.tokens_per_example
      for x, y, z in zip(found["phase_steps"], batches, tasks)
    ]
    now = datetime.datetime.now(datetime.timezone.utc)
    line = {
      "date": now.isoformat(timespec="seconds"),
      "machine": machine.describe_machine(),
      "system": system,
      "settings": tried,
      "tokens": sum(tokens),
      **found,
    }
    print(json.dumps(line), flush=True)
    path = options.log_file or f"{folder}/log.jsonl"
    with open(path, "a", encoding="utf-8") as file:
      file.write(f"{json.dumps(line)}\n")


def _train(system: str, datasets: list[Any], **request: Any) -> dict[str, Any]:
  """Returns the answer of a program, which asks for the batches of datasets."""
  sources = [x.as_numpy_iterator() for x in datasets]
  with turns.SYSTEMS[system].start(request) as process:
    stdin: Any = process.stdin
    for answer in map(json.loads, process.stdout or ()):
      if isinstance(answer, dict):
        return answer
      protocol.send(stdin, next(sources[answer], {}))
      stdin.flush()
  raise ValueError(f"{system} has failed: see its output above.")
