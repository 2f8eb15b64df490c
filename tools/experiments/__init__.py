"""The paper's tables and figures as experiments, for tools.run_experiments.

`declaration` says what a table is; `paper_tables` and `own_tables` are tables,
`scales` how large they are. `plan` makes `jobs` and `model_jobs` of a table,
which `runner` runs. `results` brings what they found into rows and columns,
`verdicts` compares with the paper, `report` and `pictures` write Markdown, JSON
and PNG.
"""
