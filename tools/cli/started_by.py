"""The command line of a program that another one starts, and no person.

Only the standard library is used: some of these programs run in environments
that have none of this project's packages.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Optional, Sequence


def json_object(text: str) -> dict[str, Any]:
  """What `text` says.

  Raises:
    ValueError: it is no JSON object.
  """
  value = json.loads(text)
  if not isinstance(value, dict):
    raise ValueError(f"{text!r} is no JSON object.")
  return value


def arguments(
  starter: str,
  *kinds: Callable[[str], Any],
  argv: Optional[Sequence[str]] = None,
) -> list[Any]:
  """The arguments as values; exits with 2 if `starter` cannot have given them.

  Args:
    starter: the program that starts this one, "tools.benchmark".
    kinds: makes a value of each argument, or raises ValueError.
    argv: the arguments; by default those of this process.
  """
  given = sys.argv[1:] if argv is None else argv
  if len(given) == len(kinds):
    try:
      return [kind(text) for kind, text in zip(kinds, given)]
    except ValueError:
      pass
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
  print(
    f"{program}: error: this program is started by {starter}, which see.",
    file=sys.stderr,
  )
  sys.exit(2)
