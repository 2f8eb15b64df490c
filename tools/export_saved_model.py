"""Exports a pretraining run as a SavedModel that fills masks in raw text.

    python -m tools.export_saved_model --model_dir=RUN --export_dir=EXPORT

The SavedModel's signature `serving_default` takes `text` <string>[B] and
returns `tokens`, `token_ids`, `probabilities` and `mask_positions`; see
tasks/pretraining/serving.py. The tokenizer is part of the graph, so whoever
loads it needs tensorflow and tensorflow_text, and nothing of this package.
"""

from __future__ import annotations

from absl import flags

from tasks.pretraining import export
from tools import command_line

_MODEL_DIR = flags.DEFINE_string(
  "model_dir", None, "Folder of tools.run_pretraining."
)
_EXPORT_DIR = flags.DEFINE_string(
  "export_dir", None, "Folder of the SavedModel; must not exist yet."
)
_CHECKPOINT = flags.DEFINE_string(
  "checkpoint",
  "",
  "latest, best, or a checkpoint's prefix; by default the best if the run "
  "keeps one, else the latest.",
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Pieces returned for each mask.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length",
  0,
  "Longer texts lose their end; 0: as many as the model was trained with.",
)


def main(argv) -> None:
  del argv
  path = export.export(
    _MODEL_DIR.value,
    _EXPORT_DIR.value,
    _TOP_K.value,
    _MAX_SEQ_LENGTH.value,
    _CHECKPOINT.value,
  )
  print(f"exported {path} to {_EXPORT_DIR.value}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["model_dir", "export_dir"])
  command_line.run(main)
