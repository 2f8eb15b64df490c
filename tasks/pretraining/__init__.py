"""ALBERT's pretraining: masked LM and sentence order.

It has the task, the model with two heads, the recipes, and the serving of a
pretrained model. `data` builds the records.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "dynamic_masking": ["TRAIN", "DynamicMasking"],
    "model": ["AlbertForPretraining"],
    "recipes": ["NOT_RUN", "RECIPES", "Recipe", "get_recipe"],
    "serving": ["ServedPretraining", "trained_length"],
    "task": [
      "PretrainingTask",
      "at_depths",
      "loss_totals",
      "loss_weights",
      "make_tasks",
    ],
  },
)
