"""What several tasks share: labelled records, text rows, metrics, serving."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "finetuning_records": [
      "build_records",
      "cache_key",
    ],
    "finetuning_task": [
      "Batch",
      "FinetuningTask",
      "ModelSettings",
      "Predictions",
      "accuracy_sums",
      "check_fits",
    ],
    "probability_table": [
      "PROBABILITIES_SUFFIX",
      "ProbabilityTable",
      "average_probabilities",
      "read_probabilities",
      "write_probabilities",
    ],
    "text_examples": [
      "Row",
      "STANDARD_INPUT",
      "TextExample",
      "read_lines",
      "read_tsv",
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
    "text_serving": [
      "ServedTextTask",
    ],
  },
)
