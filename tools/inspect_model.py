"""Inspects a model: parameters, operations and layers.

    python -m tools.inspect_model --preset=albert_xxlarge_v2
    python -m tools.inspect_model --model=SHARED --model=UNSHARED \\
        --input_files=sentences.txt --output_dir=OUT

Parameters by part and operations per token need no weights. With --model and
sentences, the program also measures the L2 distance and the angle between input
and output of each layer, and draws them (figure 2 of arXiv 1909.11942), to
layer_similarity.png in --output_dir; layers.json has the numbers.
"""

from __future__ import annotations

import os
from typing import Optional, Sequence

import numpy as np
from absl import flags

from official_albert import files
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import (
  command_line,
  encoder_flags,
  path_flags,
  printing,
)

_MODEL = flags.DEFINE_multi(
  path_flags.PathParser(),
  flags.ArgumentSerializer(),
  "model",
  [],
  "A run's folder, or what AlbertModel.from_checkpoint reads; may be repeated.",
)
_PRESET = flags.DEFINE_string(
  "preset", "", "Name of a configuration, in addition to --model or instead."
)
_TEXT = flags.DEFINE_multi_string("text", [], "A sentence; may be repeated.")
_INPUT_FILES = path_flags.define(
  "input_files",
  "",
  "Names and globs of files, comma-separated: one sentence per line, or JSON "
  "lines.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "A new folder for the plot of layers."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length",
  0,
  "Tokens per sequence, for operations; longer sentences are "
  "truncated. 0: the model's positions.",
  lower_bound=0,
)


if __name__ == "__main__":
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import inference, modeling
from official_albert.tools.inspection import model_numbers, plot


def read_sentences() -> list[str]:
  """Returns the sentences of --text, then those of --input_files."""
  found = list(_TEXT.value)
  if _INPUT_FILES.value:
    paths = data.find_files(_INPUT_FILES.value, takes_weights=False)
    for document in data.DocumentReader(paths, data.ReaderSettings()):
      found += document
  return found


def show(name: str, config: modeling.AlbertConfig) -> int:
  """Prints the size of a model; returns the maximum length of sequences."""
  length = _MAX_SEQ_LENGTH.value or config.max_position_embeddings
  config.check_fits(0, length)
  print(f"== {name} ==\n\n{model_numbers.describe(config, length)}\n")
  return length


def inspect(path: str, sentences: Sequence[str]) -> Optional[np.ndarray]:
  """Prints the numbers of a model with weights; returns those of layers."""
  source = inference.open_source(
    path,
    head=inference.ENCODER,
    with_texts=False,
    lenient=True,
    config_file=encoder_flags.CONFIG_FILE.value,
    tokenizer=encoder_flags.chosen_tokenizer(),
    dtype="float32",
  )
  print(f"{path}: weights of {source.checkpoint}")
  model = source.module.model
  length = show(path, model.config)
  if not sentences:
    return None
  if source.tokenizer is None:
    raise ValueError(
      f"{path} has no tokenizer: set --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  layers = model_numbers.measure_layers(
    model, source.tokenizer.open(), sentences, length
  )
  rows = [
    [number, f"{distance:.3f}", f"{degrees:.2f}"]
    for number, (distance, degrees) in enumerate(layers.tolist(), 1)
  ]
  print(printing.table(["layer", "L2 distance", "degrees"], rows) + "\n")
  return layers


def main(_) -> None:
  paths, preset = _MODEL.value, _PRESET.value
  config_file = "" if paths else encoder_flags.CONFIG_FILE.value
  if not (paths or preset or config_file):
    raise ValueError(
      "nothing to inspect: set --model, --preset or --albert_config_file."
    )
  sentences = read_sentences()
  if (sentences or _OUTPUT_DIR.value) and not (sentences and paths):
    raise ValueError(
      "layers need sentences and weights: set --text or --input_files with "
      "--model, or remove them and --output_dir."
    )
  if _OUTPUT_DIR.value:
    files.check_new_folder(_OUTPUT_DIR.value, "--output_dir")
  found = {path: inspect(path, sentences) for path in paths}
  if preset:
    show(preset, modeling.AlbertConfig.from_preset(preset))
  if config_file:
    show(config_file, modeling.AlbertConfig.from_json_file(config_file))
  if not sentences:
    print("For layers, add --text or --input_files to a --model.")
  if _OUTPUT_DIR.value:
    with files.new_folder(_OUTPUT_DIR.value) as folder:
      path = os.path.join(folder, "layer_similarity.png")
      plot.plot_similarity(found, path)
      layers = {x: y.tolist() for x, y in found.items() if y is not None}
      files.write_json(os.path.join(folder, "layers.json"), layers)
    print(f"written to {_OUTPUT_DIR.value}")


if __name__ == "__main__":
  command_line.run(main)
