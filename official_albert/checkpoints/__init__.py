"""Pretrained weights of every format: finding, loading, converting, writing.

One table (names.py) maps the names of weights between google-research/albert,
Hugging Face and this package. Readers return a `PortableCheckpoint`, which
`fill` loads into a model and writers write. The module of a format is imported
when such a checkpoint is read or written.
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
      "find_only_file",
      "find_prefix",
      "folders_of",
      "is_best",
      "run_folder",
      "seed_folder",
      "write_bundle",
    ],
    "formats": [
      "READERS",
      "WRITERS",
      "choose",
      "read_checkpoint",
    ],
    "hf_config": [
      "ARCHITECTURES",
    ],
    "loading": [
      "load_tf1_checkpoint",
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
      "fill",
      "shapes_of",
    ],
    "safe_archives": [
      "is_archive",
      "unpacked_archive",
    ],
    "surgery": [
      "change_vocabulary",
      "cutter",
      "expand_groups",
      "pieces_of",
      "resize_positions",
    ],
    "tf1_checkpoints": [
      "CHECKPOINT_NAME",
      "read_tf1_checkpoint",
      "write_tf1_checkpoint",
    ],
    "tokenizer_files": [
      "TokenizerFile",
      "chosen_tokenizer",
      "find_tokenizer",
      "recorded_tokenizer",
    ],
    "variable_paths": [
      "LoadReport",
      "OBJECT_GRAPH",
      "by_path",
      "path_of",
      "split_by_shape",
    ],
  },
)

READ_FORMATS = ("tf1", "tf_hub", "hf", "official_albert")
WRITE_FORMATS = ("tf1", "hf", "official_albert")
# How to initialize the additional positions of a longer model.
POSITION_METHODS = ("tile", "interpolate")
