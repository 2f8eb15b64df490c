"""ALBERT in other systems, timed in turns with ours.

Each system has a separate virtual environment.
"""
