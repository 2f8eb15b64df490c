from .checkpoint_files import (
  CONFIG_FILE as CONFIG_FILE,
  HF_CONFIG_FILE as HF_CONFIG_FILE,
  LATEST as LATEST,
  SUMMARY_FILE as SUMMARY_FILE,
  TokenizerFile as TokenizerFile,
  checked_tokenizer as checked_tokenizer,
  chosen_tokenizer as chosen_tokenizer,
  find_prefix as find_prefix,
  find_tokenizer as find_tokenizer,
  folders_of as folders_of,
  is_best as is_best,
  run_folder as run_folder,
  seed_folder as seed_folder,
)
from .formats import (
  CHECKPOINT_NAME as CHECKPOINT_NAME,
  WRITERS as WRITERS,
  check_sizes as check_sizes,
  config_of_run as config_of_run,
  is_archive as is_archive,
  read_checkpoint as read_checkpoint,
  unpacked_archive as unpacked_archive,
  write_tf1_checkpoint as write_tf1_checkpoint,
)
from .hf_checkpoints import ARCHITECTURES as ARCHITECTURES
from .loading import (
  LoadReport as LoadReport,
  TARGET_SCALE as TARGET_SCALE,
  by_path as by_path,
  fill as fill,
  load_tf1_checkpoint as load_tf1_checkpoint,
  name_variables as name_variables,
  path_of as path_of,
  split_by_shape as split_by_shape,
  tf1_variables as tf1_variables,
)
from .names import (
  HEADS as HEADS,
  is_slot as is_slot,
  may_lack as may_lack,
  rows as rows,
)
from .portable import (
  OPTIMIZER_STATE as OPTIMIZER_STATE,
  PortableCheckpoint as PortableCheckpoint,
)
from .surgery import (
  change_vocabulary as change_vocabulary,
  expand_groups as expand_groups,
  resize_positions as resize_positions,
)
from .tensor_bundle import (
  TensorBundle as TensorBundle,
  write_bundle as write_bundle,
)

READ_FORMATS: tuple[str, ...]
WRITE_FORMATS: tuple[str, ...]
POSITION_METHODS: tuple[str, ...]
