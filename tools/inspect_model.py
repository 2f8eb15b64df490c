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

import os
from typing import Any, Sequence

from absl import flags

from official_albert import files
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, encoder_flags, path_flags

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


if __name__ == "__main__":
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import inference, modeling
from official_albert.tools.inspection import layers, model_size, plot


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


def inspect(path: str, sentences: Sequence[str]) -> dict[str, Any]:
  """Returns the numbers of a model with weights."""
  source = inference.open_source(
    path,
    head=inference.ENCODER,
    with_texts=False,
    lenient=True,
    config_file=encoder_flags.CONFIG_FILE.value,
    tokenizer=encoder_flags.chosen_tokenizer(),
    lower_case=encoder_flags.LOWER_CASE.value,
    keep_accents=encoder_flags.KEEP_ACCENTS.value,
    dtype="float32",
  )
  print(f"{path}: weights of {source.checkpoint}")
  values = model_size.measure(
    path, source.module.model.config, _MAX_SEQ_LENGTH.value
  )
  if not sentences:
    return values
  if source.tokenizer is None:
    raise ValueError(
      f"{path} has no tokenizer: set --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  length = values["flops_per_token"]["max_seq_length"]
  return values | layers.measure(
    source.module.model, source.tokenizer.open(), sentences, length
  )


def main(argv: Sequence[str]) -> None:
  del argv
  config_file, paths = encoder_flags.CONFIG_FILE.value, _MODEL.value
  configs = {}
  if _PRESET.value:
    configs[_PRESET.value] = modeling.AlbertConfig.from_preset(_PRESET.value)
  if config_file and not paths:
    configs[config_file] = modeling.AlbertConfig.from_json_file(config_file)
  if not (configs or paths):
    raise ValueError(
      "nothing to inspect: set --model, --preset or --albert_config_file."
    )
  if config_file and len(paths) > 1:
    raise ValueError(
      "--albert_config_file belongs to one --model: remove it, or inspect the "
      "models one by one."
    )
  sentences = read_sentences()
  if _OUTPUT_DIR.value:
    files.check_new_folder(_OUTPUT_DIR.value, "--output_dir")
  models = [inspect(path, sentences) for path in paths]
  models += [
    model_size.measure(name, config, _MAX_SEQ_LENGTH.value)
    for name, config in configs.items()
  ]
  for values in models:
    print(model_size.describe(values) + "\n")
  found = {x["model"]: x["layers"] for x in models if x["layers"]}
  if not found:
    print("For layers, add --text or --input_files to a --model.")
  if _OUTPUT_DIR.value:
    with files.new_folder(_OUTPUT_DIR.value) as folder:
      path = os.path.join(folder, "inspection.json")
      files.write_json(path, {"models": models}, allow_nan=False)
      if found:
        path = os.path.join(folder, "layer_similarity.png")
        plot.plot_similarity(found, path)
    print(f"written to {_OUTPUT_DIR.value}")


if __name__ == "__main__":
  command_line.run(main)
