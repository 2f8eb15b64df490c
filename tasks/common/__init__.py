"""What several tasks share: rows of text, records, metrics, recipes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "finetuning_records": ["build_records", "cache_key"],
    "finetuning_task": [
      "Batch",
      "FinetuningTask",
      "LabelTask",
      "Outputs",
      "Predictions",
      "accuracy_sums",
    ],
    "probability_table": [
      "INPUT_PREFIX",
      "PROBABILITIES_SUFFIX",
      "ProbabilityTable",
      "average_probabilities",
      "check_names",
      "read_probabilities",
      "write_probabilities",
    ],
    "recipe": ["ModelSettings", "Recipe"],
    "rows": [
      "Record",
      "TextExample",
      "check_label",
      "plain_cell",
      "read_lines",
      "read_table",
      "read_tsv",
      "refuse_surrogates",
      "text_cell",
    ],
    "text_metrics": [
      "accuracy",
      "f1",
      "macro_f1",
      "matthews",
      "mean_squared_error",
      "pearson",
      "spearman",
    ],
  },
)
