"""Converts checkpoints, and loads models to export them."""
