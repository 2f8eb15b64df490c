"""Command-line programs: `python -m tools.NAME --help`."""

import contextlib
import os
import sys


def _report(kind, error, trace) -> None:
  """Reports Ctrl-C in one sentence, and other exceptions as usual."""
  if not issubclass(kind, KeyboardInterrupt):
    sys.__excepthook__(kind, error, trace)
    return
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
  print(f"{program}: interrupted.", file=sys.stderr)


# `python -m tools.NAME`, which imports this package first. Once it has imported
# its modules, command_line.run handles Ctrl-C.
if sys.argv[:1] == ["-m"]:
  sys.excepthook = _report

# Before TensorFlow, whose start-up notices it turns off. Some programs run in
# environments of their own, where an installed official_albert is not found.
with contextlib.suppress(ModuleNotFoundError):
  import official_albert  # noqa: F401
