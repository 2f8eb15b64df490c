"""The paper's tables and figures as experiments, for tools.run_experiments.

`tables` declares the experiments, `scales` their sizes. `plan` turns a table
into jobs, which `runner` runs; `results` reads and judges their numbers,
`report` writes Markdown, JSON and PNG.
"""
