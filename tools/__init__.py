"""Command-line programs: `python -m tools.NAME --help`."""

import contextlib

# Before TensorFlow, whose start-up notices it turns off. Some programs run in
# environments of their own, where an installed official_albert is not found.
with contextlib.suppress(ModuleNotFoundError):
  import official_albert  # noqa: F401
