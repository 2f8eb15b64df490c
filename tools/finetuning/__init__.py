"""Fine-tuning: tasks with their data, one run, and several seeds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__, submodules=["jobs", "registry", "run", "summary", "trained_run"]
)
