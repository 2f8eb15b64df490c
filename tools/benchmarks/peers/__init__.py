"""Other systems' ALBERTs, timed in turns with ours.

Each has a virtual environment of its own.
"""
