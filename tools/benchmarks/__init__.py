"""Measurements of speed, memory, serving and survival.

Each module is a subcommand of tools.benchmark or a separate program.
"""
