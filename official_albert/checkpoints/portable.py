"""A checkpoint between formats: what a reader gives and a writer takes.

Values stand under the names of the TF1 releases, see names.py, and
are read when they are asked for, so that a conversion never holds more of them
than its writer needs.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import os
from typing import Callable, Iterator, Mapping, Optional, Sequence

import numpy as np

from official_albert import files, modeling, tokenization
from official_albert.checkpoints import names as checkpoint_names

# Why a name is not carried that is no weight of the model.
OPTIMIZER_STATE = "optimizer state, carried on request only"
RUN_STATE = "state of the run"


class LazyTensors(collections.abc.Mapping):
  """Arrays by name, each read when it is asked for.

  Attributes:
    shapes: of each, known without reading it.
  """

  def __init__(
    self,
    shapes: Mapping[str, Sequence[int]],
    load: Callable[[str], np.ndarray],
  ):
    self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
    self._load = load

  def __getitem__(self, name: str) -> np.ndarray:
    if name not in self.shapes:
      raise KeyError(name)
    return self._load(name)

  def __contains__(self, name: object) -> bool:
    return name in self.shapes  # Mapping's own would read the value.

  def __iter__(self) -> Iterator[str]:
    return iter(self.shapes)

  def __len__(self) -> int:
    return len(self.shapes)


def shapes_of(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
  """The shapes, without reading what has not been read."""
  if isinstance(tensors, LazyTensors):
    return dict(tensors.shapes)
  return {name: tuple(np.shape(value)) for name, value in tensors.items()}


@dataclasses.dataclass(frozen=True)
class TokenizerFile:
  """The tokenizer that a model's ids are from.

  Attributes:
    path: its file, which may go when the source is closed.
    kind: a key of `tokenization.TOKENIZER_FILES`.
    lower_case: whether text is lower-cased first.
  """

  path: str
  kind: str
  lower_case: bool = True

  def sha256(self) -> str:
    """Of the file, in hexadecimal."""
    return files.sha256(self.path)

  def open(self) -> tokenization.Tokenizer:
    """Opens the tokenizer.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file is not of this kind, or damaged.
    """
    paths = {self.kind: self.path}
    return tokenization.open_tokenizer(
      paths.get("sentencepiece", ""),
      paths.get("wordpiece", ""),
      self.lower_case,
    )


def chosen_tokenizer(
  spm_model_file: str, vocab_file: str, lower_case: bool
) -> Optional[TokenizerFile]:
  """The tokenizer of whichever file is given; None if neither is.

  Raises:
    ValueError: both are given.
    FileNotFoundError: the file does not exist.
  """
  if spm_model_file and vocab_file:
    raise ValueError(
      f"{spm_model_file} and {vocab_file} are two tokenizers for one model: "
      "give one of them."
    )
  path = spm_model_file or vocab_file
  if not path:
    return None
  if not os.path.isfile(path):
    raise FileNotFoundError(f"the tokenizer {path} does not exist.")
  kind = "wordpiece" if vocab_file else "sentencepiece"
  return TokenizerFile(path, kind, lower_case)


def recorded_tokenizer(
  folder: str, recorded: Mapping[str, object]
) -> TokenizerFile:
  """The tokenizer in the folder of a run, as its run.json describes it."""
  # Runs did not say the kind while there was only this one.
  kind = str(recorded.get("kind", "sentencepiece"))
  lower_case = bool(recorded.get("lower_case", True))
  path = os.path.join(folder, tokenization.TOKENIZER_FILES[kind])
  return TokenizerFile(path, kind, lower_case)


@dataclasses.dataclass
class PortableCheckpoint:
  """What a conversion carries.

  Attributes:
    source: where it is from, for messages.
    config: the encoder.
    tensors: values by TF1 names: weights <float32>, "NAME/adam_m" and
      "NAME/adam_v" of the optimizer if asked for, "global_step" <int64>[] if
      the source knows it.
    head: a key of `checkpoint_names.HEADS`.
    tokenizer: None if the source has none.
    labels: names of the classes, in the head's order; () if not known.
    task: what a classifier or a regression was fine-tuned on, by its name in
      --task of tools.run_finetuning; "" if the source does not name it.
    multi_label: whether each class of a classifier has a probability of its
      own, which no model of this package computes.
    unexpected: of the source's names, what is not carried, and why.
    missing: TF1 names that the model should have and the source has not.
    notes: what was inferred or translated, one sentence each.
  """

  source: str
  config: modeling.AlbertConfig
  tensors: Mapping[str, np.ndarray]
  head: str
  tokenizer: Optional[TokenizerFile] = None
  labels: tuple[str, ...] = ()
  task: str = ""
  multi_label: bool = False
  unexpected: dict[str, str] = dataclasses.field(default_factory=dict)
  missing: tuple[str, ...] = ()
  notes: list[str] = dataclasses.field(default_factory=list)

  @property
  def step(self) -> int:
    """The training step; 0 if the source does not know it."""
    if checkpoint_names.GLOBAL_STEP not in self.tensors:
      return 0
    return int(self.tensors[checkpoint_names.GLOBAL_STEP])

  @property
  def rows(self) -> tuple[checkpoint_names.Row, ...]:
    """Those of the table whose values are here."""
    return tuple(
      row
      for row in checkpoint_names.rows(self.config, self.head)
      if row.tf1 in self.tensors
    )

  @property
  def slots(self) -> tuple[str, ...]:
    """The names of optimizer state."""
    return tuple(
      name for name in self.tensors if checkpoint_names.is_slot(name)
    )


def find_head(names, wanted: str = "", classes: int = 0) -> str:
  """The head that a checkpoint has.

  Args:
    names: the checkpoint's TF1 names.
    wanted: what the user or the source says of it; "" to look.
    classes: of `output_weights`, if it is there.

  Raises:
    ValueError: `wanted` is not there.
  """
  if wanted:
    if wanted not in checkpoint_names.HEADS:
      raise ValueError(
        f"unknown head {wanted!r}; choose one of "
        f"{', '.join(checkpoint_names.HEADS)}."
      )
    lacking = [
      row.tf1 for row in checkpoint_names.HEADS[wanted] if row.tf1 not in names
    ]
    if lacking:
      raise ValueError(
        f"the checkpoint has no {wanted} head: it lacks {lacking[0]}."
      )
    return wanted
  if "output_weights" in names:
    return "regression" if classes == 1 else "classification"
  for head in ("squad1", "squad2", "pretraining", "masked_lm"):
    if all(row.tf1 in names for row in checkpoint_names.HEADS[head]):
      return head
  return "none"


def select(
  source: str,
  config: modeling.AlbertConfig,
  stored: Mapping[str, Sequence[int]],
  load: Callable[[str], np.ndarray],
  head: str = "",
  include_optimizer: bool = False,
  given_names: Optional[Mapping[str, str]] = None,
) -> PortableCheckpoint:
  """Checks names, counts and shapes, and takes what belongs to the model.

  Args:
    source: for messages.
    config: the encoder.
    stored: the source's shapes, by TF1 names as far as it has them.
    load: gives the value of such a name.
    head: see `find_head`.
    include_optimizer: whether to carry optimizer state.
    given_names: the source's own names by TF1 names, for the report.

  Raises:
    ValueError: a weight is missing or has another shape than the
      configuration says, or the source has no such head.
  """
  given_names = given_names or {}
  classes = (stored.get("output_weights") or [0])[0]
  notes = []
  if not head and classes == 1:
    notes.append(
      "output_weights has one class and is taken for a regression; say "
      "--head=multiple_choice if it scores options."
    )
  head = find_head(stored, head, classes)
  rows = checkpoint_names.rows(config, head)
  missing = [row.tf1 for row in rows if row.tf1 not in stored]
  if not set(stored) & {row.tf1 for row in rows}:
    first = (
      min(given_names.get(name, name) for name in stored) if stored else ""
    )
    raise ValueError(
      f"{source} holds no variable with an ALBERT name; its first is {first!r}."
    )
  needed = [
    name
    for name in missing
    if not (
      checkpoint_names.is_pooler(name)
      and head in checkpoint_names.WITHOUT_POOLER
    )
  ]
  if needed:
    more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
    raise ValueError(
      f"{source} lacks {needed[0]}{more} of the {len(rows)} variables of its "
      "configuration: it is another model's, or not whole."
    )
  for row in rows:
    expected = row.shape_in(config, classes)
    if row.tf1 in stored and tuple(stored[row.tf1]) != expected:
      raise ValueError(
        f"{given_names.get(row.tf1, row.tf1)} has shape "
        f"{list(stored[row.tf1])} in {source} but {list(expected)} by the "
        "configuration: they belong to different models."
      )
  taken = [row.tf1 for row in rows if row.tf1 in stored]
  if checkpoint_names.GLOBAL_STEP in stored:
    taken.append(checkpoint_names.GLOBAL_STEP)
  slots = [
    f"{row.tf1}/{slot}" for row in rows for slot in checkpoint_names.SLOTS
  ]
  found = [name for name in slots if name in stored]
  if include_optimizer:
    if set(found) != set(slots):
      raise ValueError(
        f"{source} holds {len(found)} of the {len(slots)} optimizer slots of "
        "its variables: convert it without --include_optimizer."
      )
    for name in found:
      if tuple(stored[name]) != tuple(stored[name.rsplit("/", 1)[0]]):
        raise ValueError(
          f"{name} has another shape than its variable in {source}."
        )
    taken += found
  unexpected = {
    given_names.get(name, name): OPTIMIZER_STATE
    if checkpoint_names.is_slot(name)
    else f"not part of an encoder with head {head}"
    for name in sorted(set(stored) - set(taken))
  }
  return PortableCheckpoint(
    source=source,
    config=config,
    tensors=LazyTensors({name: stored[name] for name in taken}, load),
    head=head,
    unexpected=unexpected,
    missing=tuple(missing),
    notes=notes,
  )
