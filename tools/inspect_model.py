"""Looks into a model: parameters, operations, memory, layers and attention.

    python -m tools.inspect_model --preset=albert_xxlarge_v2
    python -m tools.inspect_model --model=RUN --text="Tea was cold." \\
        --output_dir=OUT
    python -m tools.inspect_model --model=SHARED --model=UNSHARED \\
        --input_files=sentences.txt --output_dir=OUT

Parameters by part, operations a token and memory need no weights. With --model
and sentences there are besides, for each layer, the L2 distance and the angle
between its input and output (figure 2 of arXiv 1909.11942), and for each head
where it looks. All of it is printed; --output_dir is made whole or not at all:

    inspection.json        "models": a list of objects with
      "model"              the name
      "config"             as in albert_config.json
      "parameters"         of each part; "encoder" and "pretraining" are sums
      "flops_per_token"    "forward", "training", and for which
                           "max_seq_length" and "max_predictions_per_seq"
      "memory"             "training", "training_recomputed" (with
                           --recompute_activations) and "inference", in bytes,
                           by precision and part; for which "train_batch_size",
                           "batch_size" and "max_seq_length"; a "note"
      "layers"             [{"layer": 1, "l2_distance", "degrees"}, ...], means
                           over all tokens, [CLS] and [SEP] too
      "attention"          [{"layer": 1, "heads": [{"head": 1, "distance" (in
                           positions), "entropy" (nats), "cls_share",
                           "sep_share", "self_share"}, ...]}, ...], likewise
      "sentences"          "count", "tokens" and "cut", those that were too
                           long; null without any
    layer_similarity.png   both curves, of all models together
    attention.png          every head of every layer on the first sentence; of
                           further models attention_2.png and so on

With inner_group_num above 1, each application of a block counts as a layer.
"""

from __future__ import annotations

import functools
from typing import Any, Optional, Sequence

from absl import flags

from official_albert import files, modeling, tokenization
from tools import inspection
from tools.cli import command_line, model_depth_flag, path_flags

_MODEL = path_flags.define_multi(
  "model",
  [],
  "A run's folder, or whatever AlbertModel.from_checkpoint reads; may be given "
  "several times.",
)
_PRESET = flags.DEFINE_string(
  "preset", "", "A configuration by name, beside --model or instead of it."
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file",
  "",
  "Of the one --model, by default the one beside it; without --model, a "
  "configuration to look at.",
)
_TEXT = flags.DEFINE_multi_string(
  "text", [], "A sentence; may be given several times."
)
_INPUT_FILES = path_flags.define(
  "input_files",
  "",
  "Names and globs of files, comma-separated: a sentence a line, or JSON "
  "lines.",
  remote=True,
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "A new folder for the numbers and the plots."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length",
  0,
  "Tokens a sequence, for operations and memory; longer sentences lose their "
  "end. 0: the model's positions.",
)
_MAX_PREDICTIONS = flags.DEFINE_integer(
  "max_predictions_per_seq", 0, "Masked tokens of training; 0: 15%."
)
_TRAIN_BATCH_SIZE = flags.DEFINE_integer(
  "train_batch_size", 32, "Sequences of one device, for the memory of training."
)
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size", 1, "Sequences, for the memory of inference."
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", "", "SentencePiece model, if none lies beside --model."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", "", "WordPiece vocabulary, likewise."
)
_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Whether a tokenizer given by a flag lower-cases."
)


def configurations() -> dict[str, modeling.AlbertConfig]:
  """By name, what is looked at without weights.

  Raises:
    ValueError: nothing is to be looked at, or no such preset.
  """
  found = {}
  if _PRESET.value:
    found[_PRESET.value] = modeling.AlbertConfig.from_preset(_PRESET.value)
  if _CONFIG_FILE.value and not _MODEL.value:
    found[_CONFIG_FILE.value] = modeling.AlbertConfig.from_json_file(
      _CONFIG_FILE.value
    )
  if not found and not _MODEL.value:
    raise ValueError(
      "nothing to look at: give --model, --preset or --albert_config_file."
    )
  if len(_MODEL.value) > 1 and _CONFIG_FILE.value:
    raise ValueError(
      "--albert_config_file is of one --model: leave it out, or give them one "
      "by one."
    )
  return {
    name: model_depth_flag.at_depth(config) for name, config in found.items()
  }


def given_tokenizer() -> Optional[tokenization.Tokenizer]:
  """The one that the flags name, None if they name none."""
  if not _SPM_MODEL_FILE.value and not _VOCAB_FILE.value:
    return None
  return tokenization.open_tokenizer(
    _SPM_MODEL_FILE.value, _VOCAB_FILE.value, _LOWER_CASE.value
  )


def main(argv: Sequence[str]) -> None:
  del argv
  load = inspection.summary.Load(
    _TRAIN_BATCH_SIZE.value,
    _BATCH_SIZE.value,
    _MAX_SEQ_LENGTH.value,
    _MAX_PREDICTIONS.value,
  )
  load.check()
  alone = configurations()
  names = inspection.summary.names_of(_MODEL.value)
  sentences = inspection.sentences.read(_TEXT.value, _INPUT_FILES.value)
  if sentences and not _MODEL.value:
    raise ValueError(
      "sentences need weights to go through: give --model, or leave --text and "
      "--input_files out."
    )
  if _OUTPUT_DIR.value:
    files.check_new_folder(_OUTPUT_DIR.value, "--output_dir")
  models: list[dict[str, Any]] = []
  series: dict[str, Any] = {}
  plots: dict[str, Any] = {}
  tokenizer = given_tokenizer()
  for index, (path, name) in enumerate(zip(_MODEL.value, names)):
    # Loads TensorFlow, which a preset's figures need not wait for.

    depth = model_depth_flag.NUM_HIDDEN_LAYERS.value
    opened = inspection.inspected_model.open_model(
      path, _CONFIG_FILE.value, depth, tokenizer
    )
    print(f"{name}: weights of {opened.source}")
    values = inspection.summary.figures(name, opened.model.config, load)
    if sentences:
      findings = inspection.inspected_model.look_into(
        opened, sentences, values["flops_per_token"]["max_seq_length"], path
      )
      values.update(findings.values)
      series[name] = values["layers"]
      plots[inspection.summary.attention_file(index)] = functools.partial(
        inspection.plot.plot_attention, findings.maps, findings.pieces, name
      )
    models.append(values)
    print(inspection.text.describe(values) + "\n", flush=True)
  for name, config in alone.items():
    models.append(inspection.summary.figures(name, config, load))
    print(inspection.text.describe(models[-1]) + "\n")
  if series:
    plots[inspection.summary.SIMILARITY_FILE] = functools.partial(
      inspection.plot.plot_similarity, series
    )
  else:
    print(
      "No sentences: for layers and attention give --model and --text or "
      "--input_files."
    )
  if _OUTPUT_DIR.value:
    inspection.summary.write(_OUTPUT_DIR.value, models, plots)
    print(f"written to {_OUTPUT_DIR.value}")


if __name__ == "__main__":
  command_line.run(main)
