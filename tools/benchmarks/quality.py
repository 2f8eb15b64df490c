"""Compares what models learn in the same minutes of training.

Recipes of this project and Hugging Face's ALBERT in PyTorch train the same
model on the same text, in batches of one size, and are evaluated on the same
held-out records. A short run measures the speed of each system first, so that
its schedule ends with the minutes. Time is updates times the median time of an
update, so start, compilation, evaluations and checkpoints do not count.

Each run is a job, whose values are in OUTPUT/done when it has finished. The
same command runs those that have not.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import subprocess
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from official_albert import (
  distribution,
  files,
  modeling,
  tfrecords,
  tokenization,
)
from official_albert import training as training_lib
from official_albert.tasks import pretraining
from official_albert.tasks.pretraining import data as data_lib
from official_albert.tools.benchmarks import comparison
from official_albert.tools.benchmarks import quality_report as report
from official_albert.tools.cli import child_programs, command_line

_PROGRAM = "official_albert.tools.benchmarks.peers.huggingface_pretraining"
_EVALUATIONS = 10
_SPEED_STEPS, _STEPS_PER_PART = 120, 10
# Hugging Face trains with the fastest of these.
_VARIANTS = {
  f"speed/{report.PEER}_{attention}_{precision}": dict(
    variant=attention, precision=precision
  )
  for attention in ("eager", "sdpa")
  for precision in ("float32", "mixed_bfloat16")
}
Values = Mapping[str, Any]


class _Job(NamedTuple):
  """One process; it follows those whose values it needs."""

  # From the values of the jobs before it to the command line.
  command: Callable[[Values], list[str]]
  read: Callable[[], dict[str, Any]]  # Its values, when it has succeeded.
  result: str = ""  # A file that exists only if the command has succeeded.


def _program(name: str, settings: Mapping[str, Any]) -> list[str]:
  """Returns the command line of a tool with flags."""
  given = [f"--{name}={value}" for name, value in settings.items()]
  return child_programs.command(f"official_albert.tools.{name}", *given)


def _read_json(path: str) -> dict[str, Any]:
  return files.read_json(path, dict[str, Any], "remove it to run the job again")


class _Plan:
  """The jobs of a comparison, by key, in their order."""

  def __init__(
    self,
    output_dir: str,
    text: Mapping[str, str],
    minutes: float,
    recipes: Sequence[pretraining.Recipe],
  ):
    """Adds the records, and the speed of each recipe.

    `text` has the flags of the records for text and vocabulary.
    """
    self._output_dir, self._text = output_dir, text
    self._minutes, self._first = minutes, recipes[0]
    self.jobs: dict[str, _Job] = {}
    self._length = self._first.data["max_seq_length"]
    tokenizer = tokenization.SentencePieceTokenizer(text["spm_model_file"])
    self._config = dataclasses.replace(
      modeling.AlbertConfig.from_preset(self._first.preset),
      vocab_size=tokenizer.vocab_size,
    )
    self._workload = comparison.workload_of(
      *(self._first.preset, self._first.batch, self._length, "float32"),
      ours_alone=True,
    )
    for recipe in recipes:
      if _kind(recipe) != _kind(self._first):
        raise ValueError(
          f"the recipes {self._first.name} and {recipe.name} differ in preset, "
          "batch or max_seq_length: compare recipes that agree in them."
        )
      self._records(recipe.name, **recipe.data)
      self.recipe_run(recipe, None)
    self._predictions = data_lib.num_to_predict(self._length)
    masks = dict(dupe_factor=1, num_shards=1)
    self._records("heldout", "heldout", **masks)
    masks.update(ngram=1, do_whole_word_mask=False)
    self._records("heldout_token_masks", "heldout", **masks)

  def _path(self, *parts: str) -> str:
    return os.path.join(self._output_dir, *parts)

  def _records(self, name: str, split: str = "", **settings: Any) -> None:
    """Adds records; a split is also written as arrays.

    The held-out documents depend on the text and `heldout_share` only.
    """
    folder = self._path("data", name)
    settings = {
      **self._text,
      "output_dir": folder,
      "num_workers": distribution.cpu_count(),
      "max_seq_length": self._length,
      **settings,
      "heldout_share": self._first.data["heldout_share"],
    }
    self.jobs[f"data/{name}"] = _Job(
      lambda values: _program("create_pretraining_data", settings),
      functools.partial(_write_arrays, folder, split) if split else dict,
      os.path.join(folder, tfrecords.MANIFEST_FILE),
    )

  def _steps(self, speed: Values) -> int:
    steps = self._minutes * 60 / speed["seconds_per_step"]
    return max(1, int(steps / _EVALUATIONS)) * _EVALUATIONS

  def recipe_run(self, recipe: pretraining.Recipe, seed: Optional[int]) -> str:
    """Adds a run of ours; without a seed, the measurement of its speed."""
    records, speed = f"data/{recipe.name}", f"speed/{recipe.name}"
    key = f"models/{recipe.name}/seed_{seed}" if seed else speed
    folder, given = self._path(key), recipe.settings

    def arguments(values: Values) -> list[str]:
      files.remove_tree(folder)  # A run that was killed starts over.
      steps = self._steps(values[speed]) if seed else _SPEED_STEPS
      settings = {
        **recipe.flags,
        "input_dir": self._path(records),
        "eval_input_dir": self._path("data", "heldout"),
        "model_dir": folder,
        "num_train_steps": steps,
        "num_warmup_steps": int(
          steps * given["num_warmup_steps"] / given["num_train_steps"]
        ),
        "random_seed": seed or recipe.seed,
        "eval_steps": steps // _EVALUATIONS if seed else 0,
        "save_checkpoints_steps": steps,
      }
      if not seed:
        settings["steps_per_loop"] = _STEPS_PER_PART
      return _program("run_pretraining", settings)

    def read() -> dict[str, Any]:
      path = os.path.join(folder, training_lib.METRICS_FILE)
      speed = training_lib.summarize_run(training_lib.read_report(path))
      rate = speed["sequences_per_second"]
      flops = speed["model_flops_per_second"] / rate
      curve = training_lib.read_metrics(folder, "eval")
      return self._values(self._first.batch / rate, flops, curve)

    self.jobs[key] = _Job(arguments, read)
    return key

  def token_masks(self, recipe: pretraining.Recipe, run: str) -> None:
    """Adds the evaluation of a run of ours on masks of single tokens."""
    metrics_file = self._path(run, "token_masks.json")
    settings = {
      "mode": "evaluate",
      "input_dir": self._path("data", "heldout_token_masks"),
      "model_dir": self._path(run),
      "metrics_file": metrics_file,
      "precision": recipe.settings.get("precision", "float32"),
    }
    self.jobs[f"{run}/token_masks"] = _Job(
      lambda values: _program("run_pretraining", settings),
      lambda: {report.TOKEN_LOSS: _read_json(metrics_file)["masked_lm_loss"]},
    )

  def peer_speeds(self, environments: str) -> None:
    """Adds what the runs of Hugging Face need; installs it."""
    if self._config.sharing != "all":
      raise ValueError(
        f"{self._first.preset} does not share all weights, but "
        f"{report.PEER}'s model does: choose other --recipes, or leave it out "
        "with --learning_rates=."
      )
    self._python = comparison.make_environment(report.PEER, environments)
    # The records of the recipe before they are masked.
    self._records(
      "unmasked", "train", **{**self._first.data, "masking": "dynamic"}
    )
    for key, variant in _VARIANTS.items():
      settings = dict(steps=_SPEED_STEPS, steps_per_part=_STEPS_PER_PART)
      self._peer(key, lambda _, x={**variant, **settings}: x)

  def peer_run(self, rate: float, seed: int) -> str:
    """Adds a run of Hugging Face."""

    def settings(values: Values) -> dict[str, Any]:
      fastest = min(_VARIANTS, key=lambda x: values[x]["seconds_per_step"])
      return {
        **_VARIANTS[fastest],
        "learning_rate": rate,
        "seed": seed,
        "steps": self._steps(values[fastest]),
        "evaluations": _EVALUATIONS,
      }

    key = f"models/{report.PEER}/{rate:g}/seed_{seed}"
    self._peer(key, settings)
    return key

  def _peer(self, key: str, settings: Callable[[Values], Values]) -> None:
    folder = self._path(key)

    def arguments(values: Values) -> list[str]:
      heldout, masks, unmasked = (
        self._path("data", name)
        for name in ("heldout", "heldout_token_masks", "unmasked")
      )
      value = {
        **dataclasses.asdict(self._workload),
        "vocab_size": self._config.vocab_size,
        "initializer_range": self._config.initializer_range,
        "train_file": os.path.join(unmasked, "train.npz"),
        "heldout_file": os.path.join(heldout, "heldout.npz"),
        "token_heldout_file": os.path.join(masks, "heldout.npz"),
        "tokenizer_file": os.path.join(heldout, tfrecords.TOKENIZER_FILE),
        "output_dir": folder,
        **settings(values),
      }
      variables = [f"{k}={v}" for k, v in comparison.MALLOC_TUNED.items()]
      line = [self._python, "-m", _PROGRAM, json.dumps(value)]
      return ["env", *variables, *line]

    def read() -> dict[str, Any]:
      found = _read_json(os.path.join(folder, "result.json"))
      seconds, curve = found.pop("seconds_per_step"), found.pop("curve")
      flops = self._config.pretraining_flops(self._length, self._predictions)
      return {**found, **self._values(seconds, flops, curve)}

    self.jobs[key] = _Job(arguments, read)

  def _values(
    self, seconds_per_step: float, flops: float, curve: Sequence[Values]
  ) -> dict[str, Any]:
    """Returns the values of a run, with those of its last evaluation."""
    points = [
      {
        **{name: point[name] for name in ("step", *report.COLUMNS)},
        "minutes": point["step"] * seconds_per_step / 60,
        "operations": point["step"] * self._first.batch * flops,
      }
      for point in curve
    ]
    last = points[-1] if points else {}
    return {"seconds_per_step": seconds_per_step, **last, "curve": points}


def _kind(recipe: pretraining.Recipe) -> tuple:
  return recipe.preset, recipe.batch, recipe.data["max_seq_length"]


def _write_arrays(folder: str, split: str) -> dict[str, Any]:
  """Writes all records of a split as a file for NumPy; returns no values."""
  count = tfrecords.read_manifest(folder).split(split).records
  batches = tfrecords.read_dataset(folder, split, count, training=False)
  arrays = {name: x.numpy() for name, x in next(iter(batches)).items()}
  np.savez(os.path.join(folder, f"{split}.npz"), **arrays)
  return {}


def run(
  input_files: str,
  spm_model_file: str,
  recipes: Sequence[str],
  learning_rates: Sequence[str],
  minutes: float,
  repeats: int,
  peers_dir: str,
  output_dir: str,
) -> None:
  """Trains what is not finished; writes table, numbers and picture."""
  if not output_dir:
    raise ValueError("the benchmark quality needs --output_dir.")
  files.check_local(output_dir)
  if not 0 < minutes < math.inf:
    raise ValueError(f"--minutes is {minutes:g}; must be a number above 0.")
  try:
    rates = [float(rate) for rate in learning_rates]
  except ValueError as error:
    raise ValueError(f"--learning_rates must be numbers: {error}.") from None
  chosen = [pretraining.get_recipe(name) for name in recipes]
  text = dict(input_files=input_files, spm_model_file=spm_model_file)
  planned = _Plan(output_dir, text, minutes, chosen)
  files.make_folder(output_dir)
  held = files.lock(
    os.path.join(output_dir, "lock"),
    f"another process works in {output_dir}: wait until it has finished, or "
    "set another --output_dir.",
  )
  settings = {"minutes": minutes, **text}
  settings.update({f"recipe {x.name}": [x.flags, x.data] for x in chosen})
  path = os.path.join(output_dir, "settings.json")
  settings = command_line.check_settings(path, settings)
  if rates:
    planned.peer_speeds(peers_dir)  # May take minutes.
  files.write_json(path, settings)

  keys: dict[str, list[str]] = {recipe.name: [] for recipe in chosen}
  tried: dict[float, report.Run] = {}
  best = 0.0  # The learning rate that the first seed chooses.
  for index in range(repeats):
    for recipe in chosen:
      keys[recipe.name].append(planned.recipe_run(recipe, recipe.seed + index))
      planned.token_masks(recipe, keys[recipe.name][-1])
    seed = chosen[0].seed + index
    if rates and index:
      keys[report.PEER].append(planned.peer_run(best, seed))
    elif rates:
      runs = {rate: planned.peer_run(rate, seed) for rate in rates}
      values = _finish(planned.jobs, output_dir, held)
      tried = {rate: values[key] for rate, key in runs.items()}
      best = min(tried, key=lambda rate: report.objective(tried[rate]))
      keys[report.PEER] = [runs[best]]
  values = _finish(planned.jobs, output_dir, held)
  runs = {
    name: [{**values[key], **values.get(f"{key}/token_masks", {})} for key in x]
    for name, x in keys.items()
  }
  title = (
    f"{chosen[0].preset}, {minutes:g} minutes, seeds {chosen[0].seed} to "
    f"{seed}; {distribution.describe_machine()}"
  )
  tables = f"{title}\n\n{report.table(runs)}\n"
  if tried:
    tables += f"\n{report.PEER}, first seed:\n\n{report.rate_table(tried)}\n"
  print(tables, flush=True)
  path = os.path.join(output_dir, "quality")
  numbers = {"title": title, "runs": runs, "learning_rates": tried}
  files.write_json(f"{path}.json", numbers, indent=2)
  files.write_text(f"{path}.md", tables)
  report.draw(title, runs, f"{path}.png")


def _finish(
  jobs: Mapping[str, _Job], output_dir: str, held: Any
) -> dict[str, Any]:
  """Runs the unfinished jobs, one at a time; returns all values."""
  paths = {
    key: os.path.join(output_dir, "done", key.replace("/", "__") + ".json")
    for key in jobs
  }
  count = sum(map(files.exists, paths.values()))
  print(f"{len(jobs)} jobs, {count} already finished", flush=True)
  values: dict[str, Any] = {}
  # The data come first.
  for key in sorted(jobs, key=lambda key: not key.startswith("data/")):
    command, read, result = jobs[key]
    if files.exists(paths[key]):
      values[key] = _read_json(paths[key])
      continue
    if not (result and files.exists(result)):
      log = os.path.join(output_dir, "logs", f"{key}.log")
      for path in (log, os.path.join(output_dir, key)):
        files.make_folder(os.path.dirname(path))
      print(f"{key}, log in {log}", flush=True)
      with files.open(log, "a") as out:
        done = subprocess.run(
          command(values), stdout=out, stderr=out, pass_fds=[held.fileno()]
        )
      if done.returncode:
        raise ValueError(
          f"{key} failed, see {log}; the same command continues."
        )
    values[key] = read()
    files.make_folder(os.path.dirname(paths[key]))
    files.write_json(paths[key], values[key])
  return values
