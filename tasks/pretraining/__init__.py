"""ALBERT's pretraining: masked LM and sentence order.

The task, the model with its two heads, recipes, and what a pretrained model
serves. `data` makes the records.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "export": [
      "export_run",
      "open_run",
      "trained_length",
    ],
    "flops": [
      "training_flops",
    ],
    "mask_filling": [
      "fill_masks",
    ],
    "model": [
      "AlbertForPretraining",
    ],
    "phases": [
      "at_depths",
      "make_tasks",
    ],
    "recipes": [
      "NOT_RUN",
      "RECIPES",
      "Recipe",
      "get_recipe",
    ],
    "serving": [
      "ServedPretraining",
    ],
    "task": [
      "PretrainingTask",
      "loss_totals",
      "loss_weights",
    ],
  },
)
