"""The paper's tables and figures as experiments, for tools.run_experiments.

`tables` declares them and their scales, `runs` plans and runs the commands of a
table, `report` reads their results, judges them and draws them.
"""
