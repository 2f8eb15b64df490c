"""Exports a pretraining run as a SavedModel that fills masks in raw text.

    python -m tools.export_saved_model --model_dir=RUN --export_dir=EXPORT

The SavedModel's signature `serving_default` takes `text` <string>[B] and
returns `tokens`, `token_ids`, `probabilities` and `mask_positions`; see
tasks/pretraining/serving.py. The tokenizer is part of the graph, so whoever
loads it needs tensorflow and tensorflow_text, and nothing of this package.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from absl import flags

from official_albert import checkpoints, run_record, text_layers
from official_albert import config as config_lib
from tasks.pretraining import model as model_lib
from tasks.pretraining import serving
from tfrecords import schemas
from tools import command_line

_MODEL_DIR = flags.DEFINE_string(
  "model_dir", None, "Folder of tools.run_pretraining."
)
_EXPORT_DIR = flags.DEFINE_string(
  "export_dir", None, "Folder of the SavedModel; must not exist yet."
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Pieces returned for each mask.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length",
  0,
  "Longer texts lose their end; 0: as many as the model was trained with.",
)


def export(
  model_dir: str, export_dir: str, top_k: int, max_seq_length: int = 0
) -> None:
  """Writes the SavedModel under a temporary name, then renames it.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    FileExistsError: `export_dir` is there already.
    ValueError: the checkpoint does not fit its record.
  """
  if os.path.exists(export_dir):
    raise FileExistsError(
      f"export_dir {export_dir} exists already: choose a new folder, as a "
      "server may be reading the old one."
    )
  data = run_record.read(model_dir)["data"]
  config_file = os.path.join(model_dir, run_record.CONFIG_FILE)
  config = config_lib.AlbertConfig.from_json_file(config_file)
  model = model_lib.AlbertForPretraining(config, name="model")
  report = checkpoints.warm_start(model, model_dir)
  if report.missing:
    raise ValueError(f"{model_dir} lacks weights of the model: {report}")
  # Runs did not say the kind while there was only this one.
  kind = data["tokenizer"].get("kind", "sentencepiece")
  tokenizer_file = os.path.join(model_dir, schemas.TOKENIZER_FILES[kind])
  fill_mask = serving.FillMask(
    model,
    text_layers.FillMaskTextLayer(
      text_layers.make_text_layer(
        kind, tokenizer_file, data["tokenizer"]["lower_case"]
      ),
      max_seq_length or data["max_seq_length"],
    ),
    top_k,
  )
  parent = os.path.dirname(os.path.abspath(export_dir))
  os.makedirs(parent, exist_ok=True)
  temporary = tempfile.mkdtemp(prefix=".export-", dir=parent)
  try:
    fill_mask.save(temporary)
    # TF Serving leaves this folder alone; people want it beside the weights.
    extra = os.path.join(temporary, "assets.extra")
    os.makedirs(extra)
    for path in (tokenizer_file, config_file):
      shutil.copy(path, extra)
    os.chmod(temporary, 0o755)
    os.rename(temporary, export_dir)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)
    raise


def main(argv) -> None:
  del argv
  export(
    _MODEL_DIR.value, _EXPORT_DIR.value, _TOP_K.value, _MAX_SEQ_LENGTH.value
  )
  print(f"exported {_MODEL_DIR.value} to {_EXPORT_DIR.value}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["model_dir", "export_dir"])
  command_line.run(main)
