"""Measurements of speed, memory and serving, the subcommands of a program."""
