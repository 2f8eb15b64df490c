"""What several tasks share: rows of text, records, metrics, recipes."""

from official_albert.tasks.common.disk_list import ExampleList
from official_albert.tasks.common.recipe import Recipe, TaskOptions
from official_albert.tasks.common.rows import (
  NO_SPACES,
  PROBABILITIES_SUFFIX,
  InvalidRow,
  InvalidRows,
  ProbabilityTable,
  Record,
  TextExample,
  check_label,
  plain_cell,
  read_lines,
  read_probabilities,
  read_table,
  read_tsv,
  refuse_surrogates,
  text_cell,
  write_probabilities,
)
