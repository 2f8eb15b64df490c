"""Flags that name files and folders, and which of them may be remote.

A flag whose program cannot read or write everything at a remote address refuses
such a value while the command line is parsed, so before any work. To make a
flag remote, pass `remote=True` where it is defined: no other code knows.
`path_flags_test.py` finds flags that are defined without this module.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from absl import flags

from official_albert import files

# Flags belong to the module that calls this one; `--help` groups them by it.
flags.disclaim_key_flags()


class PathParser(flags.ArgumentParser):
  """Takes one or more paths in one string.

  Attributes:
    remote: whether addresses such as gs://bucket/x are taken.
  """

  syntactic_help = ""

  def __init__(self, remote: bool = False):
    super().__init__()
    self.remote = remote

  def parse(self, argument: str) -> str:
    """Returns the argument.

    Raises:
      ValueError: it is remote, and the flag is not.
    """
    argument = super().parse(argument)
    if not self.remote:
      files.check_local(argument)
    return argument


class PathListParser(flags.ListParser):
  """Takes a comma-separated list; see `PathParser`."""

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
    name: of the flag.
    default: a local path.
    text: of `--help`.
    remote: whether the program handles remote addresses whole.
    **options: see `flags.DEFINE`.
  """
  parser = PathParser(remote)
  serializer = flags.ArgumentSerializer()
  return flags.DEFINE(
    parser, name, default, text, serializer=serializer, **options
  )


def define_list(
  name: str, default: Optional[Sequence[str]], text: str, remote: bool = False
) -> flags.FlagHolder[list[str]]:
  """Defines a flag like `flags.DEFINE_list`; see `define`."""
  return flags.DEFINE(
    PathListParser(remote),
    name,
    default,
    text,
    serializer=flags.CsvListSerializer(","),
  )


def define_multi(
  name: str, default: Optional[Sequence[str]], text: str, remote: bool = False
) -> flags.FlagHolder[list[str]]:
  """Defines a flag like `flags.DEFINE_multi_string`; see `define`."""
  return flags.DEFINE_multi(
    PathParser(remote), flags.ArgumentSerializer(), name, default, text
  )


def define_checkpoint() -> flags.FlagHolder[str]:
  """Defines --checkpoint: which checkpoint of a run a program takes."""
  return define(
    "checkpoint",
    "",
    "Of a run: latest, best, or a checkpoint's prefix; by default the best if "
    "the run keeps one, else the latest.",
  )
