"""Lets the tests of several programs share a process.

Programs may give their flags the same names, which absl refuses within one
process. Tests parse no flags of the modules they import, so each test file may
start without those of the files before it.
"""

from __future__ import annotations

from absl import flags


def pytest_collectstart(collector) -> None:
  """Forgets the flags of tools before a test file imports others."""
  del collector
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    if module.startswith("tools."):
      for flag in list(defined):
        delattr(flags.FLAGS, flag.name)
