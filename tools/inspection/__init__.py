"""Sizes and layers of models, and plots of runs."""
