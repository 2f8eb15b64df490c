"""The paper's tables and figures as experiments, for tools.run_experiments.

`tables` declares them and their scales, `runs` runs the commands of a row and
reads their numbers, `report` writes and draws them beside the paper's.
"""
