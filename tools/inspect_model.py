"""Inspects a model: parameters, operations and layers.

    python -m tools.inspect_model --preset=albert_xxlarge_v2
    python -m tools.inspect_model --model=RUN --text="Tea was cold." \\
        --output_dir=OUT
    python -m tools.inspect_model --model=SHARED --model=UNSHARED \\
        --input_files=sentences.txt --output_dir=OUT

Parameters by part and operations per token need no weights. With --model and
sentences, the program also measures the L2 distance and the angle between input
and output of each layer (figure 2 of arXiv 1909.11942). Everything is printed;
--output_dir gets:

    inspection.json        all numbers; docs/inspect_model.md lists its keys
    layer_similarity.png   both curves, all models together

With inner_group_num above 1, each application of a block counts as a layer.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Mapping, Sequence

from absl import flags

from official_albert import files
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, encoder_flags, path_flags

_NUM_HIDDEN_LAYERS = path_flags.define_num_hidden_layers()
_MODEL = path_flags.define_multi(
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
  "output_dir", "", "A new folder for the numbers and the plots."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length",
  0,
  "Tokens per sequence, for operations; longer sentences are "
  "truncated. 0: the model's positions.",
  lower_bound=0,
)
_MAX_PREDICTIONS = flags.DEFINE_integer(
  "max_predictions_per_seq",
  0,
  "Masked tokens of training; 0: 15%.",
  lower_bound=0,
)


if __name__ == "__main__":
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import modeling
from official_albert.tools.inspection import layers as layers_lib
from official_albert.tools.inspection import model_size, plot


def configurations() -> dict[str, modeling.AlbertConfig]:
  """Returns the configurations to inspect without weights, by name."""
  found = {}
  if _PRESET.value:
    found[_PRESET.value] = modeling.AlbertConfig.from_preset(_PRESET.value)
  if encoder_flags.CONFIG_FILE.value and not _MODEL.value:
    found[encoder_flags.CONFIG_FILE.value] = (
      modeling.AlbertConfig.from_json_file(encoder_flags.CONFIG_FILE.value)
    )
  if not found and not _MODEL.value:
    raise ValueError(
      "nothing to inspect: set --model, --preset or --albert_config_file."
    )
  if len(_MODEL.value) > 1 and encoder_flags.CONFIG_FILE.value:
    raise ValueError(
      "--albert_config_file belongs to one --model: remove it, or inspect the "
      "models one by one."
    )
  return {
    name: config.at_depth(_NUM_HIDDEN_LAYERS.value or config.num_hidden_layers)
    for name, config in found.items()
  }


def names_of(paths: Sequence[str]) -> list[str]:
  """Returns the last part of each path, or the paths if these are equal."""
  if len(set(paths)) < len(paths):
    raise ValueError("--model names the same path twice.")
  names = [os.path.basename(os.path.normpath(path)) for path in paths]
  return names if len(set(names)) == len(names) else list(paths)


def read_sentences() -> list[str]:
  """Returns the sentences of --text, then those of --input_files."""
  found = list(_TEXT.value)
  if not all(text.strip() for text in found):
    raise ValueError("--text is empty: set it to a sentence.")
  if _INPUT_FILES.value:
    for document in data.DocumentReader(data.find_files(_INPUT_FILES.value)):
      found += document
  if found and not _MODEL.value:
    raise ValueError(
      "sentences need a model with weights: set --model, or remove --text and "
      "--input_files."
    )
  return found


def main(argv: Sequence[str]) -> None:
  del argv
  alone = configurations()
  names = names_of(_MODEL.value)
  sentences = read_sentences()
  if _OUTPUT_DIR.value:
    files.check_new_folder(_OUTPUT_DIR.value, "--output_dir")
  measure = functools.partial(
    model_size.measure,
    max_seq_length=_MAX_SEQ_LENGTH.value,
    max_predictions_per_seq=_MAX_PREDICTIONS.value,
  )
  tokenizer = encoder_flags.chosen_tokenizer()
  models: list[dict[str, Any]] = []
  found: dict[str, Any] = {}
  for path, name in zip(_MODEL.value, names):
    opened = layers_lib.open_model(
      path,
      encoder_flags.CONFIG_FILE.value,
      _NUM_HIDDEN_LAYERS.value,
      tokenizer.open() if tokenizer else None,
    )
    print(f"{name}: weights of {opened.source}")
    values = measure(name, opened.model.config)
    if sentences:
      length = values["flops_per_token"]["max_seq_length"]
      found[name] = layers_lib.look_into(opened, sentences, length, path)
      values.update(found[name])
    models.append(values)
  models += [measure(name, config) for name, config in alone.items()]
  for values in models:
    print(model_size.describe(values) + "\n")
  if not found:
    print("For layers, add --text or --input_files to a --model.")
  if _OUTPUT_DIR.value:
    with files.new_folder(_OUTPUT_DIR.value) as folder:
      write(folder, models, found)
    print(f"written to {_OUTPUT_DIR.value}")


def write(
  folder: str, models: Sequence[Mapping[str, Any]], found: Mapping[str, Any]
) -> None:
  """Writes the numbers, and the plots of the findings by model."""
  path = os.path.join(folder, "inspection.json")
  files.write_json(path, {"models": models}, allow_nan=False)
  if found:
    plot.plot_similarity(
      {name: values["layers"] for name, values in found.items()},
      os.path.join(folder, "layer_similarity.png"),
    )


if __name__ == "__main__":
  command_line.run(main)
