"""Turns raw text into masked, SOP-labeled records, locally or with Apache Beam.

The bytes of the shards depend on the text and the settings only. The way of a
document to a shard is in three files: `documents` cuts files into blocks,
`build_worker` makes the examples of a shard of them, and `dataset_builder` runs
both on one machine. `beam_builder` is another engine.
"""

from official_albert.tasks.pretraining.data.data_statistics import (
  count_examples,
  summarize_examples,
)
from official_albert.tasks.pretraining.data.dataset_builder import build_dataset
from official_albert.tasks.pretraining.data.documents import (
  DocumentReader,
  find_files,
)
from official_albert.tasks.pretraining.data.examples import (
  create_instance,
  pad_instances,
)
from official_albert.tasks.pretraining.data.sentence_pairs import Pair
from official_albert.tasks.pretraining.data.settings import (
  HELDOUT,
  KEEP_SHARE,
  MASK_SHARE,
  MASKED_LM_PROB,
  TRAIN,
  BuildSettings,
  ExampleSettings,
  ReaderSettings,
  num_to_predict,
)
