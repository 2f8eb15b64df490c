"""Command-line programs: `python -m tools.NAME --help`."""

# Before TensorFlow, whose start-up notices it turns off.
import official_albert  # noqa: F401
