"""Command-line programs: `python -m tools.NAME --help`.

This runs before any tool imports TensorFlow, so it is the place that keeps
TensorFlow's start-up chatter (CPU features, missing CUDA) off the terminal.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
