"""Command-line programs: `python -m tools.NAME --help`.

This runs before any tool imports TensorFlow, so it is the place that keeps
TensorFlow's start-up chatter off the terminal. Level 3, because the pip wheel
reports at level "error" that three CUDA libraries are registered twice;
failures that matter are raised as exceptions in any case.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
