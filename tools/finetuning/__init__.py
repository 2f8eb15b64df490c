"""Fine-tuning runs: what a task name stands for, one run, several seeds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "jobs",
    "race_job",
    "registry",
    "run",
    "split_predictions",
    "squad_job",
    "summary",
    "text_jobs",
    "trained_run",
  ],
)
