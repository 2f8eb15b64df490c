"""What the folder of a run holds: its record, its checkpoints, the best one.

The record is albert_config.json and run.json beside the checkpoints. `Start`
compares it with the settings of a restart, and writes it right before the first
training step, so a start that trains nothing does not change it.

Training writes such folders and `checkpoints` reads them. This module is what
both know about them. Only the record of a training loads TensorFlow, for its
version.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import glob
import itertools
import json
import os
import platform
import re
import time
from typing import Any, Mapping, Optional, Sequence

from typing_extensions import TypedDict

from official_albert import files
from official_albert.config import AlbertConfig
from official_albert.train_config import TrainConfig

CONFIG_FILE = "albert_config.json"
RECORD_FILE = "run.json"
RECORD_ADVICE = "restore the file from a backup, or start another run"

# The names of checkpoints end in their steps, as in model.ckpt-1000.
CHECKPOINT_NAME = "model.ckpt"
BEST_FOLDER, BEST_FILE = "best", "best.json"
# Names of checkpoints of a run, for --checkpoint.
LATEST, BEST = "latest", "best"
# tools.run_finetuning writes it above the folders of several seeds or trials.
SUMMARY_FILE = "summary.json"
RESULTS_FILE = "eval_results.json"
# The metrics by split.
Results = dict[str, dict[str, float]]
# After the name of a label, the name of its threshold among the metrics.
THRESHOLD = " threshold"
_VARIABLES, ASSETS = "variables", "assets"
_INDEX = ".index"
_CHECKPOINT_FILE = re.compile(
  rf"{re.escape(CHECKPOINT_NAME)}-\d+\.(index|data-\d{{5}}-of-\d{{5}})"
)
# Of tools.publish_hub_module, above the folders of its modules.
_PUBLICATION_FILE, _PUBLISHED_ENCODER = "model-metadata.json", "encoder"

# Settings that a restart may change freely, because they affect neither past
# nor future steps. Only the last part of a name is compared, as in
# `phases[1].gradient_accumulation_steps`. `recipe` is only a name for other
# settings, which are compared; `trained_on` follows from the data.
FREE = frozenset(
  "early_stopping_evaluations eval_batch_size eval_steps keep_checkpoint_max "
  "model_dir profiler_port recipe save_checkpoints_steps "
  "steps_per_loop trained_on".split()
)
# Settings that depend on the machine. They change only rounding or dropout
# masks, so a restart only warns. The data may have moved to another folder; its
# content is compared. `tensorflow` is the version.
OF_THE_MACHINE = frozenset(
  "attention compile_chains distribution gradient_accumulation_steps "
  "input_dir num_replicas precision recompute_activations tensorflow "
  "xla".split()
)
# All other settings shape the result. A restart that changes one is refused
# unless the user allows it.


class _Object(TypedDict):
  """A JSON object of which only the named keys are checked."""


_Object.__pydantic_config__ = {"extra": "allow"}  # type: ignore[attr-defined]


class _Tokenizer(_Object, total=False):
  kind: str
  keep_accents: Optional[bool]
  lower_case: bool
  max_word_characters: int
  sha256: str
  split_chinese: bool


class _TaskSettings(_Object, total=False):
  """The settings of fine-tuning tasks, and of their records."""

  columns: dict[str, str]
  dev_share: float
  doc_stride: int
  end_n_top: int
  labels: Optional[list[str]]
  max_answer_length: int
  max_qa_length: int
  max_query_length: int
  n_best_size: int
  start_n_top: int


class _Data(_Object, total=False):
  head: str
  max_seq_length: int
  settings: Optional[_TaskSettings]
  task: str
  tokenizer: Optional[_Tokenizer]


class BestRecord(TypedDict):
  """The content of best.json."""

  step: int
  phase: int
  metric: str
  best_is: str
  values: dict[str, float]
  checkpoint: str


class RunRecord(_Object):
  """The content of run.json that is read; see `write_run`."""

  settings: dict[str, Any]  # Empty for converted weights.
  data: _Data
  versions: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Start:
  """What a run starts with: its folder's record is compared with it.

  Attributes:
    albert_config, settings, data: as in `write_run`.
    tokenizer: the path of the data's tokenizer.
    tokenizer_sha256: its hash when the data was made.
    allow_changed_settings: whether to accept changes of settings that shape the
      result.
  """

  albert_config: AlbertConfig
  settings: Mapping[str, Any]
  data: Mapping[str, Any]
  tokenizer: str
  tokenizer_sha256: str
  allow_changed_settings: bool = False

  def write(self, model_dir: str) -> None:
    """Writes the record, and a copy of the tokenizer for exports."""
    if files.sha256(self.tokenizer) != self.tokenizer_sha256:
      raise ValueError(
        f"{self.tokenizer} is not the tokenizer that the records were made "
        "with: make the folder again with tools.create_pretraining_data."
      )
    write_run(model_dir, self.albert_config, self.settings, self.data)
    name = os.path.basename(self.tokenizer)
    files.copy(self.tokenizer, os.path.join(model_dir, name))

  def check(self, model_dir: str) -> list[str]:
    """Compares the start with the folder's record.

    A folder without checkpoints is not compared; it need not exist.

    Returns:
      A description of each changed setting.

    Raises:
      ValueError: the checkpoints belong to another model or tokenizer, or
        settings that shape the result have changed.
    """
    numbered = list_checkpoints(model_dir)
    if not numbered:
      return []
    config_path = os.path.join(model_dir, CONFIG_FILE)
    if files.exists(config_path):
      before = dataclasses.asdict(AlbertConfig.from_json_file(config_path))
      for name, value in dataclasses.asdict(self.albert_config).items():
        if before[name] != value:
          raise ValueError(
            f"{model_dir} holds a run with {name} {before[name]}, but the "
            f"flags ask for {value}: choose another model_dir, or the old "
            "setting."
          )
    if not files.exists(os.path.join(model_dir, RECORD_FILE)):
      return []
    record = read_run(model_dir)
    if record["data"].get("tokenizer") != self.data.get("tokenizer"):
      raise ValueError(
        f"{model_dir} was trained with another tokenizer than that of "
        f"{self.data.get('input_dir', 'the data')}, so the same ids mean other "
        "pieces: choose another model_dir."
      )
    if not record["settings"]:
      return []  # Converted weights have no settings.
    changes = self._changes(record)
    shaping = "; ".join(
      change
      for name, change in changes.items()
      if name.rpartition(".")[2] not in OF_THE_MACHINE
    )
    if shaping and not self.allow_changed_settings:
      raise ValueError(
        f"{model_dir} holds a run at step {step_of(numbered[-1]):,} with "
        f"other settings ({shaping}): give the old values, another folder, or "
        "--allow_changed_settings to continue with the new ones."
      )
    return list(changes.values())

  def _changes(self, record: Mapping[str, Any]) -> dict[str, str]:
    """Returns a description of each setting that differs, by its name."""
    # JSON turns tuples into lists, as in the record.
    settings, data = json.loads(json.dumps([self.settings, self.data]))
    old = _flat({**record["settings"], "data": record["data"]})
    new = _flat({**settings, "data": data})
    old["tensorflow"] = record["versions"]["tensorflow"]
    new["tensorflow"] = _tensorflow_version()
    fields = dataclasses.fields(TrainConfig)
    changes, defaults = {}, {field.name: field.default for field in fields}
    for name in sorted({*old, *new}):
      last_part = name.rpartition(".")[2]
      if last_part in FREE or ".tokenizer." in name:
        continue
      before, now = old.get(name), new.get(name)
      if last_part == "init_checkpoint":
        before, now = (path and files.absolute(path) for path in (before, now))
      # It did not exist, and is off or as without it.
      is_new = name not in old and (not now or now == defaults.get(name))
      if before != now and not is_new:
        changes[name] = (
          f"{name} was {old.get(name)!r:.80} at the last start and is now "
          f"{new.get(name)!r:.80}"
        )
    return changes


def _flat(value: Any, name: str = "") -> dict[str, Any]:
  """Returns the values of nested objects, by names such as a.b[0].c."""
  if isinstance(value, dict):
    parts = {(f"{name}.{key}" if name else key): v for key, v in value.items()}
  elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
    parts = {f"{name}[{i}]": v for i, v in enumerate(value)}
  else:
    return {name: value}
  return {k: x for part, v in parts.items() for k, x in _flat(v, part).items()}


def write_run(
  model_dir: str,
  albert_config: AlbertConfig,
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
) -> None:
  """Writes both files; `settings` and `data` are JSON values."""
  files.make_folder(model_dir)
  record = {
    "settings": settings,
    "data": data,
    "versions": {
      "python": platform.python_version(),
      "tensorflow": _tensorflow_version(),
    },
    "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
  }
  path = os.path.join(model_dir, RECORD_FILE)
  albert_config.to_json_file(os.path.join(model_dir, CONFIG_FILE))
  files.write_json(path, record, indent=2, sort_keys=True)


def _tensorflow_version() -> str:
  # Not of the package, which is tensorflow-tpu on TPU VMs. Programs that only
  # read records do not load TensorFlow.
  import tensorflow as tf

  return tf.__version__


def read_run(model_dir: str) -> RunRecord:
  """Reads run.json.

  Raises:
    FileNotFoundError: the folder is not a run's folder.
    ValueError: the file is not the record of a run.
  """
  path = os.path.join(model_dir, RECORD_FILE)
  if not files.exists(path):
    raise FileNotFoundError(
      f"{path} does not exist: {model_dir} is not the folder of a run."
    )
  return files.read_json(path, RunRecord, RECORD_ADVICE)


def trained_layers(settings: Mapping[str, Any], step: int) -> int:
  """Returns how many layers the update that made `step` applied; 0: all.

  `settings` are those of a record. Only a pretraining that ended early, or a
  best checkpoint, is of a phase with fewer layers than the model.

  Raises:
    ValueError: the settings are damaged.
  """
  layers, phases = settings.get("phase_layers") or "0", settings.get("phases")
  try:
    ends = itertools.accumulate(phase["steps"] for phase in phases or [])
    depths = [int(x) for x in layers.split(",")]
    return depths[min(sum(step > end for end in ends), len(depths) - 1)]
  except (AttributeError, LookupError, TypeError, ValueError) as error:
    raise ValueError(
      f"{RECORD_FILE} has phase_layers {layers!r:.40} for phases "
      f"{phases!r:.80}: {RECORD_ADVICE}."
    ) from error


def recorded_folder(folders: Sequence[str]) -> str:
  """Returns the first of the folders that has a run.json; "" if none has."""
  paths = (os.path.join(folder, RECORD_FILE) for folder in folders)
  return os.path.dirname(next(filter(files.exists, paths), ""))


def combined_data(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Combines the descriptions of all phases into the `data` of a record."""
  if len(descriptions) == 1:
    return dict(descriptions[0])
  return {
    "tokenizer": descriptions[0]["tokenizer"],
    "max_seq_length": max(d["max_seq_length"] for d in descriptions),
    "phases": list(descriptions),
  }


def read_best(model_dir: str) -> Optional[BestRecord]:
  """Reads best.json; returns None if the run has no best checkpoint.

  Raises:
    ValueError: the file is damaged.
  """
  path = os.path.join(model_dir, BEST_FOLDER, BEST_FILE)
  try:
    return files.read_json(path, BestRecord, "remove its folder")
  except FileNotFoundError:
    return None


def write_results(model_dir: str, results: Results) -> None:
  """Writes `eval_results.json`."""
  files.write_json(os.path.join(model_dir, RESULTS_FILE), results)


def read_results(model_dir: str) -> Results:
  """Reads `eval_results.json`; returns {} if there is none."""
  path = os.path.join(model_dir, RESULTS_FILE)
  if not files.exists(path):
    return {}
  return files.read_json(path, Results, "remove it, and evaluate again")


def read_thresholds(model_dir: str) -> dict[str, float]:
  """Returns the thresholds that a run chose for labels; {} without them."""
  return {
    name.removesuffix(THRESHOLD): value
    # The first split, which chooses them, wins.
    for values in reversed(read_results(model_dir).values())
    for name, value in values.items()
    if name.endswith(THRESHOLD)
  }


def checkpoint_files(model_dir: str) -> dict[str, list[str]]:
  """Returns the files of each checkpoint in a folder, by prefixes and steps.

  Some of them may be missing. Files with other names, such as copies, are the
  user's.
  """
  found: dict[str, list[str]] = {}
  folder = glob.escape(model_dir)
  for path in files.glob(os.path.join(folder, f"{CHECKPOINT_NAME}-[0-9]*")):
    if _CHECKPOINT_FILE.fullmatch(os.path.basename(path)):
      found.setdefault(path.rpartition(".")[0], []).append(path)
  return {prefix: found[prefix] for prefix in sorted(found, key=step_of)}


def list_checkpoints(model_dir: str) -> list[str]:
  """Returns the prefixes of the complete checkpoints in a folder, by step."""
  found = checkpoint_files(model_dir).items()
  return [prefix for prefix, paths in found if f"{prefix}{_INDEX}" in paths]


def step_of(path: str) -> int:
  """Returns the step at the end of a checkpoint's name."""
  return int(path.rsplit("-", 1)[-1])


@dataclasses.dataclass(frozen=True)
class _Summary:
  """What summary.json says of the folders of runs beside it."""

  best_folder: str = ""  # That of a single run is the summary's own.


def run_folder(path: str) -> str:
  """Returns `path`, or the folder in it that has the weights.

  That is the best run's if it holds several seeds or the trials of a search,
  and the encoder's if it is of tools.publish_hub_module.
  """
  if files.exists(os.path.join(path, _PUBLICATION_FILE)):
    return os.path.join(path, _PUBLISHED_ENCODER)
  summary_file = os.path.join(path, SUMMARY_FILE)
  if not files.exists(summary_file):
    return path
  advice = "give the folder of one of its runs"
  name = files.read_json(summary_file, _Summary, advice).best_folder
  return os.path.join(path, name) if name else path


def find_prefix(path: str, checkpoint: str = "") -> str:
  """Returns the prefix of the TensorFlow checkpoint at a path.

  Args:
    path: a checkpoint prefix, or the folder of a run, of several seeds or a
      search (the best run is used), of a SavedModel, of
      tools.publish_hub_module, or of a single checkpoint.
    checkpoint: which checkpoint of a folder: `LATEST`, `BEST` or a prefix. ""
      is the best checkpoint if the run keeps one, else the latest.

  Raises:
    FileNotFoundError, ValueError: no checkpoint matches, or several do.
  """
  if checkpoint not in ("", LATEST, BEST):
    path, checkpoint = checkpoint, ""  # Only the prefix counts.
  if files.exists(f"{path}{_INDEX}"):
    if checkpoint:
      raise ValueError(
        f"{path} is one checkpoint, and --checkpoint={checkpoint} chooses one "
        "in the folder of a run: leave it out, or give the run's folder."
      )
    return path
  if path.endswith(".keras"):
    raise ValueError(
      f"{path} is a file of Keras, not a checkpoint: read it in Python by "
      "tf.keras.models.load_model, and export it by TextClassifier.export."
    )
  if not files.is_dir(path):
    raise FileNotFoundError(
      f"no checkpoint at {path}: no such folder or archive, and no {path}"
      ".index; give a folder, an archive, or a prefix without .index."
    )
  path = run_folder(path)
  if checkpoint != LATEST:
    best = read_best(path)
    if best:
      return os.path.join(path, BEST_FOLDER, best["checkpoint"])
  if not files.exists(os.path.join(path, RECORD_FILE)):  # Of another program.
    chosen = _chosen_by_tf1(path, checkpoint)
    if chosen:
      return chosen
  if checkpoint == BEST:
    raise FileNotFoundError(
      f"{path} keeps no best checkpoint, as a run with --eval_steps does: give "
      "--checkpoint=latest."
    )
  numbered = list_checkpoints(path)
  if numbered:
    return numbered[-1]
  for folder in (path, os.path.join(path, _VARIABLES)):
    found = fnmatch.filter(visible_names(folder), f"*{_INDEX}")
    prefixes = [os.path.join(folder, x.removesuffix(_INDEX)) for x in found]
    if len(found) > 1:
      raise ValueError(
        f"{folder} holds {len(found)} checkpoints: give the prefix of one, "
        f"such as {prefixes[0]}."
      )
    if found:
      return prefixes[0]
  inside = [os.path.join(path, name) for name in visible_names(path)]
  run = recorded_folder(inside)
  advice = f", but those of runs: give one, such as {run}" if run else ""
  hf = [x for x in inside if files.exists(os.path.join(x, "config.json"))]
  if hf and not run:  # Such as checkpoint-500 of Hugging Face's Trainer.
    advice = f", but folders of models: give one, such as {hf[-1]}"
  raise FileNotFoundError(f"the folder {path} holds no checkpoint{advice}.")


def _chosen_by_tf1(folder: str, checkpoint: str) -> str:
  """Returns the prefix that other programs take of a folder, or "".

  google-research/albert predicts with the best checkpoint, if it kept one, and
  TensorFlow continues from the one that the file `checkpoint` names.
  """
  names = [] if checkpoint == LATEST else [f"{CHECKPOINT_NAME}-{BEST}"]
  state = os.path.join(folder, "checkpoint")
  if checkpoint != BEST and files.is_file(state):
    text = files.read_bytes(state).decode("utf-8", "replace")
    names += re.findall(r'^model_checkpoint_path: "(?:.*/)?(.+)"$', text, re.M)
  prefixes = [os.path.join(folder, name) for name in names]
  is_there = (x for x in prefixes if files.exists(f"{x}{_INDEX}"))
  return next(is_there, "")


def folders_of(prefix: str) -> list[str]:
  """Returns the folders to search for a checkpoint's other files, in order.

  The list starts with the checkpoint's folder. The parent folder follows only
  for variables/ of a SavedModel and best/ of a run.
  """
  folder = os.path.dirname(files.absolute(prefix))
  above, name = os.path.split(folder)
  if name == _VARIABLES:
    return [folder, os.path.join(above, ASSETS), above]
  return [folder, above] if name == BEST_FOLDER else [folder]


def visible_names(folder: str) -> list[str]:
  """Returns the sorted names in a folder that may be missing."""
  names = files.list_dir(folder) if files.is_dir(folder) else []
  return [name for name in names if not name.startswith(".")]
