"""What several tasks share: rows of text, records, metrics, recipes."""

from official_albert.tasks.common.disk_list import ExampleList
from official_albert.tasks.common.probabilities import (
  PROBABILITIES_SUFFIX,
  ProbabilityTable,
  read_probabilities,
  write_probabilities,
)
from official_albert.tasks.common.recipe import Recipe, TaskOptions
from official_albert.tasks.common.rows import (
  NO_SPACES,
  InvalidRow,
  InvalidRows,
  Record,
  TextExample,
  check_label,
  plain_cell,
  read_lines,
  read_table,
  read_tsv,
  refuse_surrogates,
  text_cell,
)
