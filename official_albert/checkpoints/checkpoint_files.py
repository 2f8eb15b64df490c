"""Finds the files of a checkpoint: weights, configuration, tokenizer."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import tempfile
from typing import Any, Mapping, Optional, Sequence

from official_albert import files, tokenization, training
from official_albert.tokenization import in_graph

CONFIG_FILE = "albert_config.json"
HF_CONFIG_FILE = "config.json"
# tools.run_finetuning --seeds writes it above the folders of its runs.
SUMMARY_FILE = "summary.json"
LATEST, BEST = "latest", "best"
_VARIABLES = "variables"
_INDEX = ".index"
# Of tools.publish_hub_module, above the folders of its modules.
_PUBLICATION_FILE, _PUBLISHED_ENCODER = "model-metadata.json", "encoder"


@dataclasses.dataclass(frozen=True)
class _Summary:
  """The fields of summary.json that this module reads."""

  best_seed: int
  seeds: dict[str, Any]


def seed_folder(folder: str, seed: int) -> str:
  """Returns the folder of one of several runs with different seeds."""
  return os.path.join(folder, f"seed_{seed}")


def run_folder(path: str) -> str:
  """Returns `path`, or the folder in it that has the weights.

  That is the best run's if it holds several seeds, and the encoder's if it is
  of tools.publish_hub_module.
  """
  if files.exists(os.path.join(path, _PUBLICATION_FILE)):
    return os.path.join(path, _PUBLISHED_ENCODER)
  summary_file = os.path.join(path, SUMMARY_FILE)
  if not files.exists(summary_file):
    return path
  advice = "give the folder of one of its seeds"
  summary = files.read_json(summary_file, _Summary, advice)
  # The summary of a single run is in the run's own folder.
  several = len(summary.seeds) > 1
  return seed_folder(path, summary.best_seed) if several else path


def find_prefix(path: str, checkpoint: str = "") -> str:
  """Returns the prefix of the TensorFlow checkpoint at a path.

  Args:
    path: a checkpoint prefix, or the folder of a run, of several seeds (the
      best seed is used), of a SavedModel, of tools.publish_hub_module, or of a
      single checkpoint.
    checkpoint: which checkpoint of a folder: `LATEST`, `BEST` or a prefix. ""
      is the best checkpoint if the run keeps one, else the latest.

  Raises:
    FileNotFoundError, ValueError: no checkpoint matches, or several do.
  """
  if checkpoint not in ("", LATEST, BEST):
    path, checkpoint = checkpoint, ""
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
      "official_albert.load, and export it by TextClassifier.export."
    )
  if not files.is_dir(path):
    raise FileNotFoundError(
      f"no checkpoint at {path}: {path}.index does not exist; give the "
      "prefix without .index or .data, or the folder."
    )
  path = run_folder(path)
  if checkpoint != LATEST:
    best = training.read_best(path)
    if best:
      return training.best_prefix(path, best)
    if checkpoint == BEST:
      raise FileNotFoundError(
        f"{path} keeps no best checkpoint, because it was trained without "
        "--eval_steps: give --checkpoint=latest."
      )
  numbered = training.list_checkpoints(path)
  if numbered:
    return numbered[-1]
  for folder in (path, os.path.join(path, _VARIABLES)):
    found = fnmatch.filter(_visible_names(folder), f"*{_INDEX}")
    prefixes = [os.path.join(folder, x.removesuffix(_INDEX)) for x in found]
    if len(found) > 1:
      raise ValueError(
        f"{folder} holds {len(found)} checkpoints: give the prefix of one, "
        f"such as {prefixes[0]}."
      )
    if found:
      return prefixes[0]
  raise FileNotFoundError(f"the folder {path} holds no checkpoint.")


def is_best(prefix: str) -> bool:
  """Returns whether a checkpoint is the best one of a run."""
  return os.path.basename(os.path.dirname(prefix)) == training.BEST_FOLDER


def folders_of(prefix: str) -> list[str]:
  """Returns the folders to search for a checkpoint's other files, in order.

  The list starts with the checkpoint's folder. The parent folder follows only
  for variables/ of a SavedModel and best/ of a run.
  """
  folder = os.path.dirname(files.absolute(prefix))
  above, name = os.path.split(folder)
  if name == _VARIABLES:
    return [folder, os.path.join(above, "assets"), above]
  return [folder, above] if name == training.BEST_FOLDER else [folder]


def _visible_names(folder: str) -> list[str]:
  """Returns the sorted names in a folder that may be missing."""
  names = files.list_dir(folder) if files.is_dir(folder) else []
  return [name for name in names if not name.startswith(".")]


def find_only_file(folders: Sequence[str], *patterns: str) -> str:
  """Returns the first unique match of a pattern in a folder, or ""."""
  for folder in folders:
    names = _visible_names(folder)
    for pattern in patterns:
      found = fnmatch.filter(names, pattern)
      if len(found) == 1:
        return os.path.join(folder, found[0])
  return ""


@dataclasses.dataclass(frozen=True)
class TokenizerFile:
  """The file of a model's tokenizer.

  Attributes:
    path: the path of the file, which may be temporary.
    kind: a key of `tokenization.TOKENIZER_FILES`.
    rules: how text is changed first.
    problem: the message of the ValueError of each use; "" for none.
    temporary: the temporary folder of the file, if there is one.
  """

  path: str
  kind: str
  rules: tokenization.TextRules = tokenization.TextRules()
  problem: str = ""
  temporary: Optional[tempfile.TemporaryDirectory] = None

  def check(self) -> None:
    """Raises ValueError if the tokenizer cannot be used."""
    if self.problem:
      raise ValueError(self.problem)

  def sha256(self) -> str:
    """Returns the SHA-256 of the file in hexadecimal."""
    return files.sha256(self.path)

  def record(self, vocab_size: int) -> dict[str, Any]:
    """Returns what run.json says of the tokenizer, as JSON values."""
    return {
      "kind": self.kind,
      **self.rules.to_dict(),
      "sha256": self.sha256(),
      "vocab_size": vocab_size,
    }

  def open(self) -> tokenization.Tokenizer:
    """Opens the tokenizer; see `tokenization.open_tokenizer`."""
    self.check()
    return tokenization.TOKENIZERS[self.kind](self.path, **self.rules.to_dict())

  def make_layer(self) -> in_graph.TextLayer:
    """Returns the same tokenizer in the graph."""
    self.check()
    return in_graph.make_text_layer(
      self.kind, self.path, **self.rules.to_dict()
    )

  def copy_to(self, folder: str) -> None:
    """Copies the file to a folder, under its standard name."""
    name = tokenization.TOKENIZER_FILES[self.kind]
    files.copy(self.path, os.path.join(folder, name))


def chosen_tokenizer(
  spm_model_file: str,
  vocab_file: str,
  lower_case: bool = True,
  keep_accents: Optional[bool] = None,
) -> Optional[TokenizerFile]:
  """Returns the tokenizer given by flags; None if neither is set.

  Raises:
    ValueError, FileNotFoundError: both are given, or the file does not exist.
  """
  if spm_model_file and vocab_file:
    raise ValueError(
      f"{spm_model_file} and {vocab_file} are two tokenizers for one model: "
      "give one of them."
    )
  path = spm_model_file or vocab_file
  if not path:
    return None
  if not files.is_file(path):
    raise FileNotFoundError(f"the tokenizer {path} does not exist.")
  kind = "wordpiece" if vocab_file else "sentencepiece"
  rules = tokenization.TextRules(lower_case, keep_accents)
  return TokenizerFile(path, kind, rules)


def find_tokenizer(
  folders: Sequence[str], rules: Optional[tokenization.TextRules] = None
) -> Optional[TokenizerFile]:
  """Returns the tokenizer in the first folder that has one, or None."""
  models = "tokenizer.model", "spiece.model", "*.model"
  path = find_only_file(folders, *models, "vocab.txt", "vocab*.txt")
  if not path:
    return None
  kind = "sentencepiece" if path.endswith(".model") else "wordpiece"
  return TokenizerFile(path, kind, rules or tokenization.TextRules())


def checked_tokenizer(
  found: Optional[TokenizerFile],
  recorded: Mapping[str, Any],
  where: str,
  wanted: Optional[TokenizerFile] = None,
  lower_case: Optional[bool] = None,
  keep_accents: Optional[bool] = None,
) -> Optional[TokenizerFile]:
  """Returns the tokenizer to use with a model, or None if there is none.

  Args:
    found: the tokenizer beside the weights.
    recorded: what the run.json of the model says of its tokenizer.
    where: the folder of the model, for the error message.
    wanted: the user's choice instead of `found`.
    lower_case: None uses the recorded value, or that of `found`, or True.
    keep_accents: likewise; the default is that of the original.

  Raises:
    ValueError: the model was trained with another tokenizer.
    OSError: the file of the tokenizer cannot be read.
  """
  file = wanted or found
  if file is None:
    return None
  file.check()
  rules = found.rules if found else tokenization.TextRules()
  if "lower_case" in recorded:
    rules = tokenization.TextRules.of(recorded)
  if lower_case is not None:
    rules = dataclasses.replace(rules, lower_case=lower_case)
  if keep_accents is not None:
    rules = dataclasses.replace(rules, keep_accents=keep_accents)
  if "sha256" in recorded and recorded["sha256"] != file.sha256():
    raise ValueError(
      f"{file.path} is not the tokenizer that the model in {where} was "
      "trained with, so the same ids mean other pieces: give that tokenizer, "
      "or none if it is in the folder."
    )
  return dataclasses.replace(file, rules=rules)
