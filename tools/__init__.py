"""Command-line programs: `python -m tools.NAME --help`."""

import _signal as signal  # `signal` makes classes; Ctrl-C would hit them.
import os
import sys


def _interrupt(*unused) -> None:
  """Ends the process at Ctrl-C; no KeyboardInterrupt, which NumPy changes."""
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
  os.write(2, f"{program}: interrupted.\n".encode())
  os._exit(128 + signal.SIGINT)


# `python -m tools.NAME`, which imports this package first. Once it has imported
# its modules, command_line.run handles Ctrl-C.
if (
  sys.argv[:1] == ["-m"]
  and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
  signal.signal(signal.SIGINT, _interrupt)
