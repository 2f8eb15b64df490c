"""Finds, reads and writes pretrained weights of every format.

One table (names.py) maps the names of weights between google-research/albert,
Hugging Face and this package. Readers return a `PortableCheckpoint`, which
`fill` loads into a model and writers write.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "checkpoint_files": [
      "CONFIG_FILE",
      "HF_CONFIG_FILE",
      "LATEST",
      "SUMMARY_FILE",
      "TensorBundle",
      "TokenizerFile",
      "checked_tokenizer",
      "chosen_tokenizer",
      "find_prefix",
      "find_tokenizer",
      "folders_of",
      "is_best",
      "run_folder",
      "seed_folder",
      "write_bundle",
    ],
    "formats": [
      "CHECKPOINT_NAME",
      "READERS",
      "WRITERS",
      "choose",
      "is_archive",
      "read_checkpoint",
      "read_tensorflow",
      "unpacked_archive",
      "write_tf1_checkpoint",
    ],
    "hf_checkpoints": ["ARCHITECTURES"],
    "loading": [
      "LoadReport",
      "by_path",
      "fill",
      "load_tf1_checkpoint",
      "path_of",
      "split_by_shape",
      "tf1_variables",
    ],
    "names": [
      "HEADS",
      "is_slot",
      "may_lack",
      "rows",
    ],
    "portable": [
      "OPTIMIZER_STATE",
      "PortableCheckpoint",
    ],
    "surgery": [
      "change_vocabulary",
      "expand_groups",
      "resize_positions",
    ],
  },
)

READ_FORMATS = ("tf1", "tf_hub", "hf", "official_albert")
WRITE_FORMATS = ("tf1", "hf", "official_albert")
# How to initialize the additional positions of a longer model.
POSITION_METHODS = ("tile", "interpolate")
