"""What several tasks share: rows of text, records, metrics, recipes."""

from official_albert.tasks.common.probability_table import (
  INPUT_PREFIX,
  PROBABILITIES_SUFFIX,
  ProbabilityTable,
  check_names,
  read_probabilities,
  write_probabilities,
)
from official_albert.tasks.common.recipe import Recipe, TaskOptions
from official_albert.tasks.common.rows import (
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
from official_albert.tasks.common.text_metrics import METRICS, scores
