"""Turns raw text into masked, SOP-labeled records, locally or with Apache Beam.

Documents are split into sentences, paired, masked and written to shards, whose
bytes depend on the text and the settings only. Workers load no TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "beam_builder": ["build_dataset_with_beam"],
    "build_worker": ["BuildSettings"],
    "data_statistics": [
      "Counts",
      "count_examples",
      "format_table",
      "summarize_examples",
    ],
    "dataset_builder": ["build_dataset"],
    "documents": [
      "DocumentReader",
      "ReaderSettings",
      "Skipped",
      "find_files",
      "split_sentences",
    ],
    "example_settings": [
      "ExampleSettings",
      "KEEP_SHARE",
      "MASKED_LM_PROB",
      "MASK_SHARE",
      "num_to_predict",
    ],
    "examples": ["Vocabulary", "create_instance", "pad_instances"],
    "sentence_pairs": ["Pair"],
    "token_store": ["HELDOUT", "TRAIN"],
    "wikipedia": ["WikipediaDump"],
  },
)
