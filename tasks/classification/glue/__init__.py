"""GLUE: nine tasks on sentences or pairs of sentences, and the diagnostics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "benchmark": ["GLUE_RECIPES", "GLUE_TASKS", "GlueTask", "get_glue_task"],
    "examples": ["find_file", "read_split"],
    "submission": [
      "SUBMISSION_FILES",
      "evaluate_glue",
      "glue_average",
      "task_score",
      "write_predictions",
      "write_zip",
    ],
  },
)
