"""Command-line programs: `python -m tools.NAME --help`."""

import _signal as signal  # `signal` makes classes; Ctrl-C would hit them.
import contextlib
import os
import pathlib
import platform
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


def set_environment() -> None:
  """Sets what TensorFlow reads at its start, unless the user has set it.

  Only programs call this: `import official_albert` leaves the environment of
  the importing process as it is.
  """
  if "tensorflow" in sys.modules:
    return
  defaults = {
    # Hides TensorFlow's start-up messages. At level 2, the pip wheel still
    # reports that three CUDA libraries are registered twice. Failures that
    # matter raise exceptions.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # Flushing a file in a bucket uploads what is new, not the whole file again.
    "GCS_APPEND_MODE": "compose",
    # Each open reader allocates a block and fills it with zeros: 64 MiB and 36
    # ms of CPU time with TensorFlow's default. Training opens a few dozen
    # shards.
    "GCS_READ_CACHE_BLOCK_SIZE_MB": "8",
  }
  # TensorFlow's own default on x86 CPUs is to use oneDNN with AVX-512 VNNI or
  # later only. With AVX2, it makes a step of albert_base_v2 1.2 times as fast.
  if platform.machine().lower() in ("x86_64", "amd64"):
    defaults["TF_ENABLE_ONEDNN_OPTS"] = "1"
  for name, value in defaults.items():
    os.environ.setdefault(name, value)


_main = getattr(sys.modules["__main__"], "__file__", None) or ""
_is_script = pathlib.Path(_main).parent == pathlib.Path(__file__).parent
if sys.argv[:1] == ["-m"] or _is_script:
  set_environment()

# Before TensorFlow, whose Keras it chooses. Some programs run in environments
# of their own, where an installed official_albert is not found.
with contextlib.suppress(ModuleNotFoundError):
  import official_albert  # noqa: F401
