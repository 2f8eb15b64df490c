"""A pretraining run's weights as a SavedModel that fills masks in raw text.

What the SavedModel offers stands in `serving`; this is about which weights of
a run go into it, and that the folder is whole or not there.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import tensorflow as tf

from official_albert import (
  best_checkpoint,
  checkpoints,
  distribution,
  run_record,
  text_layers,
)
from official_albert import config as config_lib
from tasks.pretraining import model as model_lib
from tasks.pretraining import serving
from tfrecords import schemas

LATEST, BEST = "latest", "best"


def find_checkpoint(model_dir: str, checkpoint: str = "") -> str:
  """The prefix of one of a run's checkpoints.

  Args:
    model_dir: the run's folder.
    checkpoint: `LATEST`, `BEST`, or a prefix itself. "": the best if the run
      keeps one, else the latest.

  Raises:
    FileNotFoundError: there is no such checkpoint.
  """
  best = best_checkpoint.read(model_dir)
  if checkpoint == BEST or (best and not checkpoint):
    if not best:
      raise FileNotFoundError(
        f"{model_dir} keeps no best checkpoint, as it was trained without "
        "--eval_steps: give --checkpoint=latest."
      )
    return best_checkpoint.prefix_of(model_dir, best)
  if checkpoint not in ("", LATEST):
    return checkpoint
  latest = tf.train.latest_checkpoint(model_dir)
  if latest is None:
    raise FileNotFoundError(f"the folder {model_dir} holds no checkpoint.")
  return latest


def check_new(export_dir: str) -> None:
  """Refuses a folder that is there.

  Raises:
    FileExistsError: it is.
  """
  if os.path.exists(export_dir):
    raise FileExistsError(
      f"export_dir {export_dir} exists already: choose a new folder, as a "
      "server may be reading the old one."
    )


def export(
  model_dir: str,
  export_dir: str,
  top_k: int = 5,
  max_seq_length: int = 0,
  checkpoint: str = "",
) -> str:
  """Writes the SavedModel under a temporary name, then renames it.

  The process computes in float32 from then on.

  Args:
    model_dir: the run's folder, with its record and its tokenizer.
    export_dir: must not exist yet.
    top_k: pieces returned for each mask.
    max_seq_length: longer texts lose their end; 0: what the weights were
      trained with.
    checkpoint: see `find_checkpoint`.

  Returns:
    The prefix of the checkpoint that was taken.

  Raises:
    FileNotFoundError: `model_dir` lacks a checkpoint or its record.
    FileExistsError: `export_dir` is there already.
    ValueError: the checkpoint does not fit its record.
  """
  check_new(export_dir)
  record = run_record.read(model_dir)
  data = record["data"]
  config_file = os.path.join(model_dir, run_record.CONFIG_FILE)
  config = config_lib.AlbertConfig.from_json_file(config_file)
  path = find_checkpoint(model_dir, checkpoint)
  # A server's processor need not multiply bfloat16.
  distribution.set_precision("float32")
  model = model_lib.AlbertForPretraining(config, name="model")
  report = checkpoints.warm_start(model, path)
  if report.missing:
    raise ValueError(f"{path} lacks weights of the model: {report}")
  # Runs did not say the kind while there was only this one.
  kind = data["tokenizer"].get("kind", "sentencepiece")
  tokenizer_file = os.path.join(model_dir, schemas.TOKENIZER_FILES[kind])
  fill_mask = serving.FillMask(
    model,
    text_layers.FillMaskTextLayer(
      text_layers.make_text_layer(
        kind, tokenizer_file, data["tokenizer"]["lower_case"]
      ),
      max_seq_length or _trained_length(record, path),
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
    for name in (tokenizer_file, config_file):
      shutil.copy(name, extra)
    os.chmod(temporary, 0o755)
    os.rename(temporary, export_dir)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)
    raise
  return path


def _trained_length(record, path: str) -> int:
  """Positions beyond it have had no training when `path` was written."""
  try:
    step = checkpoints.step_of(path)
  except ValueError:  # Not one of a run.
    return record["data"]["max_seq_length"]
  return run_record.max_seq_length(record, step)
