"""Classification and regression of texts: a task of the training loop.

Reference: google-research/albert classifier_utils.py (create_model,
model_fn_builder): cross entropy, or for STS-B the squared error.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from official_albert import checkpoints, modeling
from official_albert.tasks.common import finetuning_task


class ClassificationTask(finetuning_task.LabelTask):
  """Trains one head on the pooled output, for classes or for a number."""

  def __init__(self, *args, targets: Optional[np.ndarray] = None, **kwargs):
    """Creates the task.

    Args (the others: see `LabelTask`):
      targets: the numbers of a regression to train on, <float>[N], which are
        standardized. None trains on them as they are, as the original does.
    """
    super().__init__(*args, **kwargs)
    self._targets = targets
    kind = "regression" if self.labels is None else "classification"
    self.head = checkpoints.Head(kind, tuple(self.labels or ()))

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    """Builds the encoder with its pooler and one head."""
    model = modeling.AlbertForSequenceClassification(
      self.config,
      len(self.labels or "1"),
      self.settings.classifier_dropout,
      **self.model_options(),
    )
    if self._targets is not None:
      model.classifier.set_targets(self._targets)
    return model
