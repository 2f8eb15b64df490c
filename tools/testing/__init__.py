"""Toy data, toy models and runners, for the tests of programs."""
