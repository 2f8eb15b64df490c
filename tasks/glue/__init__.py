"""GLUE: nine tasks about sentences and pairs of them, and the diagnostics."""
