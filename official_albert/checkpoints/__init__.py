"""Pretrained weights of every format: find, read, convert, write.

One table (names.py) says what a weight is called by google-research/albert, by
Hugging Face and here. Readers give a `PortableCheckpoint`, which writers take.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "checkpoint_files": [
      "CONFIG_FILE",
      "LATEST",
      "SUMMARY_FILE",
      "TensorBundle",
      "find_only_file",
      "find_prefix",
      "find_tokenizer",
      "folders_of",
      "is_best",
      "run_folder",
      "seed_folder",
      "write_bundle",
    ],
    "hf_checkpoints": [
      "carries",
      "read",
    ],
    "hf_config": [
      "ARCHITECTURES",
      "HF_CONFIG_FILE",
    ],
    "names": [
      "HEADS",
      "is_slot",
      "rows",
    ],
    "own_checkpoints": [
      "write",
    ],
    "portable": [
      "OPTIMIZER_STATE",
      "PortableCheckpoint",
      "TokenizerFile",
      "chosen_tokenizer",
      "recorded_tokenizer",
      "shapes_of",
    ],
    "pretrained": [
      "READERS",
      "WRITERS",
      "choose",
      "fill",
      "open_weights",
      "read_checkpoint",
    ],
    "reference_checkpoints": [
      "load_tf1_checkpoint",
      "tf1_variables",
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
# What to do with positions that a longer model has and the weights lack.
POSITION_METHODS = ("tile", "interpolate")
