"""Finds, reads and writes pretrained weights of every format.

One table (names.py) maps the names of weights between google-research/albert,
Hugging Face and this package. Readers return a `PortableCheckpoint`, which
`fill` loads into a model and writers write.
"""

from official_albert.checkpoints.hf_checkpoints import ARCHITECTURES
from official_albert.checkpoints.hubs import downloaded
from official_albert.checkpoints.loading import (
  WRITERS,
  Head,
  LoadReport,
  fill,
  load_tf1_checkpoint,
  open,
  read_checkpoint,
  tf1_variables,
  warm_start,
)
from official_albert.checkpoints.names import HEADS, is_slot, may_lack, rows
from official_albert.checkpoints.portable import (
  PortableCheckpoint,
  by_path,
  merge_adapters,
  name_variables,
)
from official_albert.checkpoints.tokenizer_file import (
  OWN_TOKENIZER,
  TokenizerChoice,
  TokenizerFile,
)
