"""A search for the learning rate, the batch size and the number of epochs.

Optuna's TPE chooses the values of each trial, which is a run of its own. What
it has learned is in `search.journal`, so a search that was killed continues:
with the run in which it was killed, and then with the values that it would have
chosen without the kill. After each trial, `summary.json` names the best folder,
and those of the other runs are removed.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Sequence

import tensorflow as tf

from official_albert import files, runs
from official_albert.tools.cli import command_line, printing
from official_albert.training import Divergence

_JOURNAL = "search.journal"
_BATCH_SIZES = (8, 16, 32, 64)
# The rates are from the default one, divided by the first, to the second times.
_LOWER, _HIGHER = 10, 4
_MOST_EPOCHS = 8
SEARCHED = ("learning_rate", "train_batch_size", "num_train_epochs")


def find_best(
  output_dir: str,
  trials: int,
  flags: Sequence[str],
  given: Sequence[str],
  rate: float,
  is_highest: bool,
  seed: int,
  run: Callable[[str, Mapping[str, Any]], float],
) -> tuple[str, dict[str, Any]]:
  """Makes trials, and returns the folder and the values of the best one.

  Args:
    output_dir: the local folder of the search, with a folder for each trial.
    trials: their number, with those of earlier calls.
    flags: what may not change if the search continues.
    given: names of flags that are not searched.
    rate: the default learning rate, in the middle of the searched ones.
    is_highest: whether the highest metric is the best.
    seed: that of the search.
    run: makes or resumes the run in a folder, with values by the name of the
      flag; returns its metric.

  Raises:
    ValueError: Optuna is missing, nothing is searched, all runs fail, or the
      folder has a search with other flags.
  """
  try:
    import optuna
    from optuna import distributions
    from optuna.storages import journal
  except ModuleNotFoundError as error:
    raise ValueError(
      "--search_trials needs Optuna: python -m pip install optuna."
    ) from error
  space = {
    "learning_rate": distributions.FloatDistribution(
      rate / _LOWER, rate * _HIGHER, log=True
    ),
    "train_batch_size": distributions.CategoricalDistribution(_BATCH_SIZES),
    "num_train_epochs": distributions.IntDistribution(1, _MOST_EPOCHS),
  }
  space = {name: x for name, x in space.items() if name not in given}
  if not space:
    raise ValueError(
      "--search_trials searches --learning_rate, --train_batch_size and "
      "--num_train_epochs, but all of them are given: leave one out."
    )
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  files.make_folder(output_dir)
  backend = journal.JournalFileBackend(os.path.join(output_dir, _JOURNAL))
  study = optuna.create_study(
    study_name="search",
    storage=optuna.storages.JournalStorage(backend),
    direction="maximize" if is_highest else "minimize",
    load_if_exists=True,
  )
  flags = sorted(flags)
  if study.user_attrs.setdefault("flags", flags) != flags:
    raise ValueError(
      f"{output_dir} has a search with {' '.join(study.user_attrs['flags'])}: "
      "give these flags, or another --output_dir."
    )
  study.set_user_attr("flags", flags)
  states = optuna.trial.TrialState

  kept, found = "", list[dict[str, Any]]()
  for number in range(max(trials, len(study.trials))):
    if number == len(study.trials):
      # Each trial has a seed, so it does not depend on kills.
      study.sampler = optuna.samplers.TPESampler(seed=seed + number)
      study.ask(space)
    trial = study.trials[number]
    folder = os.path.join(output_dir, f"trial_{number}")
    if not trial.state.is_finished():
      values = ", ".join(f"{k} {_shown(x)}" for k, x in trial.params.items())
      print(f"{folder}, of {trials} trials: {values}", flush=True)
      try:
        study.tell(number, run(folder, trial.params))
      # A batch may be too large for a GPU.
      except (Divergence, tf.errors.ResourceExhaustedError) as error:
        reason = command_line.describe(error)
        print(f"{folder} has failed: {reason}", flush=True)
        study.tell(number, state=states.FAIL)
    if study.get_trials(states=[states.COMPLETE]):
      kept = f"trial_{study.best_trial.number}"
    found = [
      {"folder": f"trial_{x.number}", **x.params, "value": x.value}
      for x in study.trials
    ]
    summary = {"best_folder": kept, "trials": found}
    files.write_json(os.path.join(output_dir, runs.SUMMARY_FILE), summary)
    for x, row in zip(study.trials, found):
      if x.state.is_finished() and row["folder"] != kept:
        files.remove_tree(os.path.join(output_dir, row["folder"]))
  columns = ["folder", *space, "value"]
  rows = [[x["folder"], *(_shown(x[k]) for k in columns[1:])] for x in found]
  print(printing.table(columns, rows), flush=True)
  if not kept:
    raise ValueError(f"all {trials} trials have failed: give a lower rate.")
  return os.path.join(output_dir, kept), study.best_trial.params


def _shown(value: Any) -> str:
  return "failed" if value is None else f"{value:.4g}"
