"""Publishes an encoder and its preprocessor in TF Hub's format.

    python -m tools.publish_hub_module --input=RUN --output_dir=hub \\
      --handle=my-team/albert_en/1 --license=apache-2.0 --language=en \\
      --asset_root=https://storage.googleapis.com/BUCKET

The two take the place of tensorflow/albert_en_base and albert_en_preprocess in
anybody's program; see docs/tf_hub.md. They need tensorflow and, the
preprocessor, tensorflow_text, but nothing of this package.
"""

from __future__ import annotations

from absl import flags

from official_albert import checkpoints
from official_albert.serving import hub as serving_hub
from tools import hub
from tools.cli import (
  checkpoint_flag,
  command_line,
  model_depth_flag,
  path_flags,
)

_INPUT = path_flags.define(
  "input",
  None,
  "A run's folder, a checkpoint of any format that convert_checkpoint reads, "
  "or a .tar.gz of one.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "The new folder; must be empty or not there."
)
_HANDLE = flags.DEFINE_string(
  "handle",
  None,
  "PUBLISHER/NAME/VERSION; the preprocessor gets its name from "
  "it: NAME_preprocess.",
)
_LICENSE = flags.DEFINE_enum(
  "license", None, hub.handle.LICENSES, "Of the weights, for the pages."
)
_LANGUAGE = flags.DEFINE_string(
  "language", "", "Of the text, such as en, for the pages."
)
_DESCRIPTION = flags.DEFINE_string(
  "description", "", "One line for the encoder's page; by default its sizes."
)
_ASSET_ROOT = flags.DEFINE_string(
  "asset_root",
  "",
  "The address under which --output_dir will be found, for the pages; without "
  "it they name the archives by their place in the folder.",
)
_SEQ_LENGTH = flags.DEFINE_integer(
  "seq_length",
  serving_hub.SEQ_LENGTH,
  "Length of the preprocessor's inputs, where its caller does not say one.",
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file",
  "",
  "Configuration of a TensorFlow checkpoint; by default the one beside it.",
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", "", "SentencePiece model instead of the one in --input."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", "", "WordPiece vocabulary instead of the one in --input."
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Whether tokenizers given by flags lower-case."
)


def main(argv) -> None:
  del argv
  hub.publication.check_output(_OUTPUT_DIR.value)
  publisher, name, version = hub.handle.parse_handle(_HANDLE.value)
  publication = hub.handle.Publication(
    publisher,
    name,
    version,
    _LICENSE.value,
    _LANGUAGE.value,
    _DESCRIPTION.value,
    _ASSET_ROOT.value,
  )
  with hub.sources.opened(
    _INPUT.value,
    checkpoint_flag.CHECKPOINT.value,
    _CONFIG_FILE.value,
    checkpoints.chosen_tokenizer(
      _SPM_MODEL_FILE.value, _VOCAB_FILE.value, _LOWER_CASE.value
    ),
    model_depth_flag.NUM_HIDDEN_LAYERS.value,
  ) as source:
    hub.publication.publish(
      source, publication, _OUTPUT_DIR.value, _SEQ_LENGTH.value
    )
    for note in source.notes:
      print(f"note: {note}")
    print(f"published {publisher}/{name}/{version} with {_said(source.heads)}")
    _note_length(source.data)
  if not publication.asset_root:
    print("the pages name no address: give --asset_root, or edit asset-path")


def _note_length(data) -> None:
  """Says so if the preprocessor's inputs are longer than any in training."""
  trained, length = data.get("max_seq_length", 0), _SEQ_LENGTH.value
  # Of a converted checkpoint that number is the model's.
  if "head" not in data and 0 < trained < length:
    print(
      f"note: the model was trained on {trained} tokens at most, and the "
      f"preprocessor makes {length}; see --seq_length."
    )


def _said(heads) -> str:
  names = {"masked_lm": "mlm", "sentence_order": "sop"}
  return " and ".join(names[head] for head in heads) or "no pretraining heads"


if __name__ == "__main__":
  flags.mark_flags_as_required(["input", "output_dir", "handle", "license"])
  command_line.run(main)
