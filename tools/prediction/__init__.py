"""Predictions, for tools.predict and in Python: texts in, answers out."""
