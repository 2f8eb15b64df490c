"""Checks, counts and shows pretraining records."""
