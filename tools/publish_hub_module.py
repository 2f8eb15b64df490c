"""Publishes an encoder and its preprocessor as reusable SavedModels.

    python -m tools.publish_hub_module --input=RUN --output_dir=hub \\
      --handle=my-team/albert-en --license="Apache 2.0"

The modules replace tensorflow/albert_en_base and albert_en_preprocess in other
programs. The folder is ready for the Kaggle CLI; see docs/publishing.md.
They need tensorflow, and the preprocessor also tensorflow_text, but nothing of
this package.
"""

from __future__ import annotations

from absl import flags

from official_albert import files
from official_albert.tools.cli import command_line, encoder_flags, path_flags

_CHECKPOINT = path_flags.define_shared("checkpoint")
_NUM_HIDDEN_LAYERS = path_flags.define_num_hidden_layers()
_INPUT = path_flags.define(
  "input",
  None,
  "A run's folder, a checkpoint of any format that convert_checkpoint reads, "
  "or a .tar.gz of one.",
)
_OUTPUT_DIR = path_flags.define("output_dir", None, "A new or empty folder.")
_HANDLE = flags.DEFINE_string(
  "handle", None, "PUBLISHER/NAME: the model NAME of PUBLISHER on Kaggle."
)
_LICENSE = flags.DEFINE_string(
  "license", None, "The license of the weights, by Kaggle's name."
)
_SEQ_LENGTH = flags.DEFINE_integer(
  "seq_length", 128, "Default length of the preprocessor's inputs."
)


if __name__ == "__main__":
  flags.mark_flags_as_required(["input", "output_dir", "handle", "license"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tools.hub import publication as hub_publication


def main(_) -> None:
  files.check_new_folder(_OUTPUT_DIR.value, "--output_dir")
  hub_publication.split_handle(_HANDLE.value)  # Checks it.
  source = hub_publication.read(
    _INPUT.value,
    tokenizer=encoder_flags.chosen_tokenizer(),
    checkpoint=_CHECKPOINT.value,
    config_file=encoder_flags.CONFIG_FILE.value,
    num_hidden_layers=_NUM_HIDDEN_LAYERS.value,
  )
  hub_publication.publish(
    source, _HANDLE.value, _LICENSE.value, _OUTPUT_DIR.value, _SEQ_LENGTH.value
  )
  for note in source.notes:
    print(f"note: {note}")
  head = "with" if hasattr(source.module.model, "masked_lm") else "without"
  print(f"published {source.checkpoint} as {_HANDLE.value} {head} mlm")


if __name__ == "__main__":
  command_line.run(main)
