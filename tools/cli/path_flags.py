"""Flags for paths of files and folders.

A program that cannot read or write remote addresses everywhere refuses them
while it parses its flags, before any work. To allow remote addresses for a
flag, define it with `remote=True`. `path_flags_test.py` finds flags for paths
that are defined without this module.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from absl import flags

from official_albert import files

# Flags belong to the module that calls this one; `--help` groups them by it.
flags.disclaim_key_flags()


class PathParser(flags.ArgumentParser):
  """Parses one or more paths in one string.

  Attributes:
    remote: whether to allow addresses such as gs://bucket/x.
  """

  syntactic_help = ""

  def __init__(self, remote: bool = False):
    super().__init__()
    self.remote = remote

  def parse(self, argument: str) -> str:
    argument = super().parse(argument)
    if not self.remote:
      files.check_local(argument)
    return argument


class PathListParser(flags.ListParser):
  """Parses a comma-separated list; see `PathParser`."""

  def __init__(self, remote: bool = False):
    super().__init__()
    self.remote = remote

  def parse(self, argument: Any) -> list[str]:
    paths = super().parse(argument)
    if not self.remote:
      for path in paths:
        files.check_local(path)
    return paths


def define(
  name: str,
  default: Optional[str],
  text: str,
  remote: bool = False,
  **options: Any,
) -> flags.FlagHolder[str]:
  """Defines a flag like `flags.DEFINE_string`.

  Args:
    name: the name of the flag.
    default: a local path.
    text: the text for `--help`.
    remote: whether to allow remote addresses.
    **options: see `flags.DEFINE`.
  """
  parser, serializer = PathParser(remote), flags.ArgumentSerializer()
  return flags.DEFINE(
    parser, name, default, text, serializer=serializer, **options
  )


def define_list(
  name: str, default: Optional[Sequence[str]], text: str, remote: bool = False
) -> flags.FlagHolder[list[str]]:
  """Defines a flag like `flags.DEFINE_list`; see `define`."""
  parser, serializer = PathListParser(remote), flags.CsvListSerializer(",")
  return flags.DEFINE(parser, name, default, text, serializer=serializer)


def define_multi(
  name: str, default: Optional[Sequence[str]], text: str, remote: bool = False
) -> flags.FlagHolder[list[str]]:
  """Defines a flag like `flags.DEFINE_multi_string`; see `define`."""
  parser, serializer = PathParser(remote), flags.ArgumentSerializer()
  return flags.DEFINE_multi(parser, serializer, name, default, text)


def define_checkpoint() -> flags.FlagHolder[str]:
  """Defines --checkpoint, which selects a checkpoint of a run."""
  return define(
    "checkpoint",
    "",
    "Checkpoint of a run: latest, best, or a prefix; by default the best if "
    "there is one, else the latest.",
  )
