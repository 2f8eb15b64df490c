"""The tables of the paper as experiments: rows, their runs, and a report."""
