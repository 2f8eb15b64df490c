"""Classifies texts or pairs of texts, or predicts a number for them.

`examples` reads the user's own data; `glue` has the nine tasks of GLUE.
"""
