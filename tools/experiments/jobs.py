"""Jobs, where they work, and those that make data.

A job is finished when the runner has written down what its reader found; what
it leaves half done, the same command goes on with.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Mapping

import tfrecords
from official_albert import distribution
from tools.experiments import scales

# What finished jobs found, by their keys.
Values = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Job:
  """One process.

  Attributes:
    key: names it and its folder below the output folder, once for all tables
      that want the same.
    title: for people.
    arguments: from what the jobs it needs have found to what follows `python
      -m`.
    read: its numbers, as JSON values.
    needs: keys of jobs that have to be finished first.
    cost: floating-point operations, roughly; the time left is estimated by
      them. 0 where nobody knows, which is of data.
    result: a file that is there only when the command has ended well, or "".
    uses_all_cores: whether it cannot share the machine with another job.
    note: what --dry_run says of it besides.
  """

  key: str
  title: str
  arguments: Callable[[Values], list[str]]
  read: Callable[[], dict[str, Any]]
  needs: tuple[str, ...] = ()
  cost: float = 1e9
  result: str = ""
  uses_all_cores: bool = False
  note: str = ""


@dataclasses.dataclass(frozen=True)
class Place:
  """Where an experiment's text, tasks and results are.

  Attributes:
    output_dir: everything is written below it.
    input_files, additional_files: as --input_files of the data tools.
    task_data_dirs: from a column of `declaration.TASKS` to --data_dir.
  """

  output_dir: str
  input_files: str
  additional_files: str
  task_data_dirs: Mapping[str, str]

  @property
  def sentences_file(self) -> str:
    """What layers are compared on."""
    return self.path("data", "sentences.txt")

  def path(self, *parts: str) -> str:
    """Of a file or folder below the output folder."""
    return os.path.join(self.output_dir, *parts)


def name_of(key: str) -> str:
  """A model's key as part of another one: "models/A/seed_1" is A-seed_1."""
  return "-".join(key.split("/")[1:])


def as_flags(values: Mapping[str, Any]) -> list[str]:
  """Flags of a command line, by their names without dashes."""

  def one(name: str, value: Any) -> str:
    if isinstance(value, bool):
      return f"--{name}" if value else f"--no{name}"
    return f"--{name}={value}"

  return [one(name, value) for name, value in values.items()]


def vocabulary(place: Place, scale: scales.Scale) -> Job:
  """Learns the pieces of the text."""
  folder = place.path("data", "vocabulary")
  arguments = [
    "tools.train_vocabulary",
    f"--input_files={place.input_files}",
    f"--output_dir={folder}",
    f"--vocab_size={scale.vocab_size}",
  ]
  return Job(
    "data/vocabulary",
    "vocabulary",
    lambda values: arguments,
    lambda: {},
    result=os.path.join(folder, tfrecords.TOKENIZER_FILE),
    cost=0.0,
    uses_all_cores=True,
  )


def records(
  place: Place, scale: scales.Scale, pair: str, more_data: bool
) -> Job:
  """Makes the pretraining records of one kind."""
  name = f"records-{pair}" + ("-more" if more_data else "")
  folder = place.path("data", name)
  text = [place.input_files]
  # After the others: which documents are held out goes by their numbers.
  if more_data:
    text.append(place.additional_files)
  tokenizer = place.path("data", "vocabulary", tfrecords.TOKENIZER_FILE)
  arguments = [
    "tools.create_pretraining_data",
    f"--input_files={','.join(text)}",
    f"--output_dir={folder}",
    f"--spm_model_file={tokenizer}",
    f"--sentence_pair={pair}",
    f"--num_workers={distribution.cpu_count()}",
    *as_flags(scale.data),
  ]
  return Job(
    f"data/{name}",
    f"records, {pair}{' with additional text' if more_data else ''}",
    lambda values: arguments,
    lambda: _describe_records(folder),
    needs=("data/vocabulary",),
    result=os.path.join(folder, tfrecords.MANIFEST_FILE),
    cost=0.0,
    uses_all_cores=True,
  )


def _describe_records(folder: str) -> dict[str, Any]:
  manifest = tfrecords.read_manifest(folder)
  return {
    "train_examples": manifest.split("train").records,
    "heldout_examples": manifest.split("heldout").records,
    "unigram_entropy_nats": manifest.split("train").statistics[
      "unigram_entropy_nats"
    ],
  }
