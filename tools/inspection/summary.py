"""Reads sentences, collects a model's numbers as JSON values, writes them."""

from __future__ import annotations

import collections
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from official_albert import files, modeling
from tasks.pretraining import data
from tools.inspection import model_size

REPORT_FILE = "inspection.json"
SIMILARITY_FILE = "layer_similarity.png"
# Measured as described in docs/inspect_model.md.
NOTE = (
  "Activations are an estimate. The TPU's compiler laid out 16% less to 20% "
  "more than\nall of this together; a process on a CPU took 0.8 to 1 GiB more."
)


def attention_file(index: int) -> str:
  """Returns the file name of the attention maps of model 0, 1, ..."""
  return f"attention_{index + 1}.png" if index else "attention.png"


class Load(NamedTuple):
  """Batch and sequence sizes.

  Attributes:
    train_batch_size: sequences per device in training.
    batch_size: sequences in inference.
    max_seq_length: tokens per sequence; 0: the model's positions.
    max_predictions_per_seq: masked tokens; 0: 15% of the tokens.
  """

  train_batch_size: int = 32
  batch_size: int = 1
  max_seq_length: int = 0
  max_predictions_per_seq: int = 0

  def check(self) -> None:
    """Checks the sizes.

    Raises:
      ValueError: one is too small.
    """
    for name, least in (
      ("train_batch_size", 1),
      ("batch_size", 1),
      ("max_seq_length", 0),
      ("max_predictions_per_seq", 0),
    ):
      if getattr(self, name) < least:
        raise ValueError(
          f"--{name} must be at least {least}, got {getattr(self, name)}."
        )


def names_of(paths: Sequence[str]) -> list[str]:
  """Returns the last part of each path, or the whole path if it is ambiguous.

  Checkpoints in a run keep the run's name: RUN/best.

  Raises:
    ValueError: a path is repeated.
  """
  if len(set(paths)) < len(paths):
    raise ValueError("--model names the same path twice.")
  last = []
  for path in paths:
    folder, name = os.path.split(os.path.normpath(path))
    if name == "best" or ".ckpt" in name:
      name = os.path.join(os.path.basename(folder), name)
    last.append(name)
  counts = collections.Counter(last)
  return [
    name if counts[name] == 1 else path for name, path in zip(last, paths)
  ]


def read_sentences(texts: Sequence[str], input_files: str) -> list[str]:
  """Returns the sentences of the flags, those of --text first.

  Args:
    texts: values of --text.
    input_files: names and globs, in the formats of
      tools.create_pretraining_data; "": none.

  Raises:
    OSError: a file cannot be read.
    ValueError: a text is empty, or a file is empty or damaged.
  """
  if not all(text.strip() for text in texts):
    raise ValueError("--text is empty: set it to a sentence.")
  found = list(texts)
  if input_files:
    paths = data.find_files(input_files)
    for document in data.DocumentReader(paths, data.ReaderSettings()):
      found += document
  return found


def length_for(config: modeling.AlbertConfig, max_seq_length: int) -> int:
  """Returns the length of sequences; 0 stands for the model's longest.

  Raises:
    ValueError: the model has fewer positions.
  """
  longest = config.max_position_embeddings
  if max_seq_length > longest:
    raise ValueError(
      f"--max_seq_length is {max_seq_length}, but the model has only "
      f"{longest} position embeddings: lower it."
    )
  return max_seq_length or longest


def figures(
  name: str, config: modeling.AlbertConfig, load: Load
) -> dict[str, Any]:
  """Returns the numbers of a configuration; see inspect_model.py for the keys.

  Raises:
    ValueError: a sequence is longer than the model's positions, or has fewer
      tokens than predictions.
  """
  length = length_for(config, load.max_seq_length)
  predictions = load.max_predictions_per_seq
  predictions = predictions or model_size.default_predictions(length)
  if predictions > length:
    raise ValueError(
      f"--max_predictions_per_seq is {predictions}, more than the {length} "
      "tokens of a sequence: lower it."
    )

  def training(recompute: bool) -> dict[str, dict[str, int]]:
    return {
      precision: model_size.training_bytes(
        config,
        model_size.Setting(
          load.train_batch_size, length, predictions, precision, recompute
        ),
      )
      for precision in model_size.PRECISIONS
    }

  inference = {
    precision: model_size.inference_bytes(
      config,
      model_size.Setting(load.batch_size, length, precision=precision),
    )
    for precision in model_size.PRECISIONS
  }
  return {
    "model": name,
    "config": config.to_dict(),
    "parameters": model_size.parameters(config),
    "flops_per_token": {
      **model_size.flops_per_token(config, length, predictions),
      "max_seq_length": length,
      "max_predictions_per_seq": predictions,
    },
    "memory": {
      "train_batch_size": load.train_batch_size,
      "batch_size": load.batch_size,
      "max_seq_length": length,
      "training": training(False),
      "training_recomputed": training(True),
      "inference": inference,
      "note": NOTE,
    },
    "layers": [],
    "attention": [],
    "sentences": None,
  }


def write(
  folder: str,
  models: Sequence[Mapping[str, Any]],
  plots: Mapping[str, Callable[[str], None]],
) -> None:
  """Writes a new folder.

  Args:
    folder: does not exist, or is empty.
    models: of inspection.json.
    plots: by file name, a function that draws to a path.

  Raises:
    FileExistsError: the folder is not empty.
    OSError: it cannot be written.
  """
  with files.new_folder(folder) as temporary:
    files.write_json(
      os.path.join(temporary, REPORT_FILE),
      {"models": list(models)},
      allow_nan=False,
    )
    for name, draw in plots.items():
      draw(os.path.join(temporary, name))
