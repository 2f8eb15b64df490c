"""The paper's tables and figures as experiments, for tools.run_experiments.

`tables` declares the experiments, in the terms of `declaration`; `scales` has
their sizes. `plan` turns a table into jobs, which `runner` runs and `readings`
reads. `results` collects the numbers and judges them, `report` writes Markdown
and JSON, `pictures` draws.
"""
