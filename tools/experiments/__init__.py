"""The paper's tables and figures as experiments, for tools.run_experiments.

`declaration` defines a table; `paper_tables`, `own_tables` and
`depth_inference` declare the tables, `tables` lists them, `scales` has their
sizes. `plan` makes `jobs` and `model_jobs` of a table, which `runner` runs.
`results` collects their numbers, `report` compares them with the paper's and
writes Markdown and JSON, `pictures` PNG.
"""
