"""Averages the predictions of several models of one task.

    python -m tools.ensemble --members=run/seed-1,run/seed-2 --output_dir=both
    python -m tools.ensemble --members='run/seed-*' --output_dir=all

Each member is a folder of predictions. Tables of probabilities (such as
dev.probabilities.tsv) are averaged split by split, every member counting as
much as any other; the output folder gets tables of the same names. Members
have to agree on the splits, the examples and the labels.
"""

from __future__ import annotations

import glob
import os
from typing import Sequence

from absl import flags

from official_albert import probability_table
from tools import command_line

_MEMBERS = flags.DEFINE_string(
  "members", None, "Folders of the models, or globs of them, comma-separated."
)
_OUTPUT_DIR = flags.DEFINE_string(
  "output_dir", None, "Folder for the averages; made if it is not there."
)


def find_members(patterns: str) -> list[str]:
  """The folders that a comma-separated list of names and globs stands for.

  Raises:
    FileNotFoundError: a name or glob stands for no folder.
    ValueError: fewer than two folders, or one of them twice.
  """
  members: list[str] = []
  for pattern in filter(None, map(str.strip, patterns.split(","))):
    matches = [pattern] if os.path.isdir(pattern) else glob.glob(pattern)
    folders = sorted(path for path in matches if os.path.isdir(path))
    if not folders:
      raise FileNotFoundError(f"--members: there is no folder {pattern!r}.")
    members += folders
  if len(members) < 2:
    raise ValueError(
      f"--members names {len(members)} folder(s): an ensemble has two or more."
    )
  seen: dict[str, str] = {}
  for member in members:
    real = os.path.realpath(member)
    if real in seen:
      raise ValueError(
        f"--members: {member} is {seen[real]} again, and would count twice."
      )
    seen[real] = member
  return members


def average_tables(
  members: Sequence[str],
) -> dict[str, probability_table.ProbabilityTable]:
  """By file name, the mean of the members' tables of probabilities.

  Returns:
    Nothing if no member has a table.

  Raises:
    OSError: a table cannot be read.
    ValueError: a member lacks a table that another one has, or a table is not
      in order or not about the same examples; the message names it.
  """
  found = {
    member: {
      name
      for name in os.listdir(member)
      if name.endswith(probability_table.SUFFIX)
    }
    for member in members
  }
  names = sorted(set().union(*found.values()))
  for name in names:
    for member in members:
      if name not in found[member]:
        other = next(m for m in members if name in found[m])
        raise ValueError(
          f"{member} has no {name}, but {other} has: predict the same splits "
          "with all members."
        )
  averages = {}
  for name in names:
    paths = [os.path.join(member, name) for member in members]
    tables = {path: probability_table.read(path) for path in paths}
    averages[name] = probability_table.average(tables)
  return averages


def write_tables(
  output_dir: str, tables: dict[str, probability_table.ProbabilityTable]
) -> None:
  """Writes each table under its name and prints where."""
  for name, table in tables.items():
    path = os.path.join(output_dir, name)
    probability_table.write(path, table)
    print(f"wrote {path} ({len(table.ids):,} examples)")


def main(argv: Sequence[str]) -> None:
  del argv
  members, output_dir = find_members(_MEMBERS.value), _OUTPUT_DIR.value
  if os.path.realpath(output_dir) in map(os.path.realpath, members):
    raise ValueError(
      f"--output_dir {output_dir} is a member, whose predictions would be "
      "lost: name another folder."
    )
  # All is read and averaged before anything is written.
  tables = average_tables(members)
  if not tables:
    raise ValueError(
      f"no member has a file *{probability_table.SUFFIX}: predict first."
    )

  os.makedirs(output_dir, exist_ok=True)
  print(f"averaging {len(members)} members: {', '.join(members)}")
  write_tables(output_dir, tables)


if __name__ == "__main__":
  flags.mark_flags_as_required(["members", "output_dir"])
  command_line.run(main)
