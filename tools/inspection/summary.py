"""The numbers of one model, as JSON values, and the files that they go to."""

from __future__ import annotations

import collections
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from official_albert import files, modeling
from tools.inspection import model_size

REPORT_FILE = "inspection.json"
SIMILARITY_FILE = "layer_similarity.png"
# Measured as docs/inspect_model.md says.
NOTE = (
  "Activations are an estimate. The TPU's compiler laid out 16% less to 20% "
  "more than\nall of this together; a process on a CPU took 0.8 to 1 GiB more."
)


def attention_file(index: int) -> str:
  """The name of a model's attention maps; `index` counts models from 0."""
  return f"attention_{index + 1}.png" if index else "attention.png"


class Load(NamedTuple):
  """What is computed at once.

  Attributes:
    train_batch_size: sequences of one device.
    batch_size: of inference.
    max_seq_length: S; 0: the model's positions.
    max_predictions_per_seq: P; 0: 15% of the tokens.
  """

  train_batch_size: int = 32
  batch_size: int = 1
  max_seq_length: int = 0
  max_predictions_per_seq: int = 0

  def check(self) -> None:
    """Refuses numbers of no meaning.

    Raises:
      ValueError: one is below its least.
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
  """Of each path its last part, where that says which it is; else all of it.

  What lies in a run has the run's name in front: RUN/best.

  Raises:
    ValueError: a path comes twice.
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


def length_for(config: modeling.AlbertConfig, max_seq_length: int) -> int:
  """The length of sequences; 0 is the model's longest.

  Raises:
    ValueError: the model has not so many positions.
  """
  longest = config.max_position_embeddings
  if max_seq_length > longest:
    raise ValueError(
      f"--max_seq_length is {max_seq_length}, but the model has only "
      f"{longest} position embeddings: give at most that."
    )
  return max_seq_length or longest


def figures(
  name: str, config: modeling.AlbertConfig, load: Load
) -> dict[str, Any]:
  """What a configuration alone says; see inspect_model.py for the keys.

  Raises:
    ValueError: the model has not so many positions, or a sequence not so many
      tokens to mask.
  """
  length = length_for(config, load.max_seq_length)
  predictions = load.max_predictions_per_seq
  predictions = predictions or model_size.default_predictions(length)
  if predictions > length:
    raise ValueError(
      f"--max_predictions_per_seq is {predictions}, more than the {length} "
      "tokens of a sequence: give at most that."
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
  """Writes a new folder, complete or not at all.

  Args:
    folder: does not exist, or is empty.
    models: for inspection.json.
    plots: by file name, what draws it to a path.

  Raises:
    FileExistsError: the folder holds something.
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
