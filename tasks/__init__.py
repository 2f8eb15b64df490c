"""Objectives, one folder each: examples, model, task, metrics, serving.

Nothing that loads TensorFlow is imported here: the workers that make records
load `tasks.pretraining` and must not pay for it.
"""

# Before TensorFlow, whose start-up notices it turns off.
import official_albert
