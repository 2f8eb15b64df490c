"""Measurements of speed, memory and serving.

Each module is a subcommand of tools.benchmark or a separate program.
"""
