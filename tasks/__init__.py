"""Objectives, one folder each: examples, model, task, metrics, serving.

Nothing is imported here: the workers that make records load
`tasks.pretraining` and must not pay for TensorFlow.
"""
