"""Sizes, layers and attention of models, and plots of runs."""
