"""The command line of a program that another program starts.

Only the standard library is used: some of these programs run in environments
that have none of this project's packages.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Optional, Sequence


def json_object(text: str) -> dict[str, Any]:
  """Parses a JSON object; raises ValueError for anything else."""
  value = json.loads(text)
  if not isinstance(value, dict):
    raise ValueError(f"{text!r} is not a JSON object.")
  return value


def arguments(
  starter: str,
  *kinds: Callable[[str], Any],
  argv: Optional[Sequence[str]] = None,
) -> list[Any]:
  """Returns the arguments as values; exits with 2 if they are not as expected.

  Args:
    starter: the program that starts this one, such as "tools.benchmark".
    *kinds: for each argument, what makes a value of it or raises ValueError.
    argv: the arguments; by default those of this process.
  """
  given = sys.argv[1:] if argv is None else argv
  try:
    if len(given) == len(kinds):
      return [kind(text) for kind, text in zip(kinds, given)]
  except ValueError:
    pass
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
  print(
    f"{program}: error: start {starter} instead, which starts this program.",
    file=sys.stderr,
  )
  sys.exit(2)
