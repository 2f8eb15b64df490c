"""Writes a preprocessor and an encoder for Kaggle Models.

    OUTPUT/model-metadata.json    for `kaggle models create -p OUTPUT`
    OUTPUT/encoder/               SavedModel and model-instance-metadata.json
    OUTPUT/preprocess/            the same of the preprocessor

Both modules are loaded again and compared with the tokenizer and the model
before the folder gets its name.
"""

from __future__ import annotations

import os
import tempfile
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import checkpoints, files, runs, tokenization
from official_albert.serving import hub
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tools.hub import metadata as hub_metadata

# For the same operations in another order.
TOLERANCE = 1e-5
# Texts that tokenizers treat differently.
_PROBES = (
  "In 1922, Søren's café sold 3,000 croissants (for €2 each).",
  "  Two\tlines:\n一二 ﬁne ½ İstanbul ",
  "",
)


class Source(NamedTuple):
  """A model to publish.

  The heads of the float32 model may have no weights; `notes` are for the
  publisher.
  """

  model: model_lib.AlbertForPretraining
  has_masked_lm: bool
  has_sentence_order: bool
  tokenizer: checkpoints.TokenizerFile
  notes: tuple[str, ...]


def read(
  path: str,
  checkpoint: str = "",
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  num_hidden_layers: int = 0,
) -> Source:
  """Reads weights and tokenizer; the arguments are those of `open_source`.

  Raises:
    ValueError, OSError: there is no checkpoint or no tokenizer, or the model
      has no pooler.
  """
  with checkpoints.open(path, config_file, checkpoint=checkpoint) as stored:
    depth = num_hidden_layers or stored.config.num_hidden_layers
    model = model_lib.AlbertForPretraining(
      stored.config.at_depth(depth), name="model", dtype="float32"
    )
    # Other weights of the encoder may not be missing.
    missing = checkpoints.fill(model, stored).missing

    def has(prefix: str) -> bool:
      return not any(name.startswith(prefix) for name in missing)

    if not has("bert/pooler/"):
      raise ValueError(
        f"{path} has no pooler, so that pooled_output would be noise: publish "
        "a model that was pretrained or fine-tuned with one."
      )
    tokenizer = tokenizer or stored.tokenizer
    if tokenizer is None:
      raise ValueError(
        f"no tokenizer beside {path}: give --spm_model_file, or --vocab_file "
        "for WordPiece."
      )
    notes = (*stored.notes, f"the weights are {stored.shown(stored.source)}.")
    heads = has("cls/predictions/"), has("cls/seq_relationship/")
    return Source(model, *heads, tokenizer, notes)


def publish(
  source: Source, handle: str, license: str, output_dir: str, seq_length: int
) -> None:
  """Writes both modules with their metadata to a new folder.

  Nothing is left behind if a saved module computes something else.
  `seq_length` is the default length of the preprocessor.
  """
  model, config, tokenizer = source.model, source.model.config, source.tokenizer
  longest = config.max_position_embeddings
  if seq_length > longest:
    raise ValueError(
      f"seq_length {seq_length} is more than the model's {longest} position "
      "embeddings: lower it."
    )
  text_layer = tokenizer.make_layer()
  config.check_fits(text_layer.vocab_size, 0)
  modules = {
    hub_metadata.PREPROCESSOR: hub.HubPreprocessor(text_layer, seq_length),
    hub_metadata.ENCODER: hub.HubEncoder(
      model.albert,
      model.masked_lm if source.has_masked_lm else None,
      model.sentence_order if source.has_sentence_order else None,
    ),
  }
  # The tokenizer by its name in TF Hub.
  is_wordpiece = tokenizer.kind == "wordpiece"
  file = "vocab_file" if is_wordpiece else "sp_model_file"
  assets = {
    file: tokenization.TOKENIZER_FILES[tokenizer.kind],
    "albert_config_file": runs.CONFIG_FILE,
    "record_file": runs.RECORD_FILE,
  }
  with (
    files.new_folder(output_dir) as folder,
    tempfile.TemporaryDirectory(prefix="hub-assets-") as temporary,
  ):
    record = tokenizer.record(config.vocab_size)
    runs.write_run(temporary, config, {}, {"tokenizer": record})
    tokenizer.copy_to(temporary)
    saved = {instance: os.path.join(folder, instance) for instance in modules}
    for instance, module in modules.items():
      for attribute, name in assets.items():
        asset = tf.saved_model.Asset(os.path.join(temporary, name))
        setattr(module, attribute, asset)
      hub.save_hub_object(module, saved[instance])
    check_modules(source, *saved.values())
    card = hub_metadata.model_metadata(handle, config)
    files.write_json(os.path.join(folder, "model-metadata.json"), card)
    for name, path in saved.items():
      card = hub_metadata.instance_metadata(handle, license, config, name)
      files.write_json(os.path.join(path, "model-instance-metadata.json"), card)


def check_modules(
  source: Source, preprocessor_dir: str, encoder_dir: str
) -> None:
  """Loads both modules; ValueError if they differ from the source."""
  preprocessor = tf.saved_model.load(preprocessor_dir)
  encoder = tf.saved_model.load(encoder_dir)
  tokens = preprocessor.tokenize(tf.constant(_PROBES))
  if tokens.shape.rank > 2:
    tokens = tokens.merge_dims(1, -1)
  inputs = preprocessor(tf.constant(_PROBES))
  features = {own: inputs[name] for name, own in hub.FEATURES.items()}
  saved, own = encoder(inputs), source.model.albert(features, training=False)
  wrong = []
  for name in ("sequence_output", "pooled_output"):
    a, b = saved[name].numpy(), own[name].numpy()
    allowed = TOLERANCE * max(1.0, np.abs(b).max())
    if not np.abs(a - b).max() <= allowed:  # NaN must fail too.
      wrong.append(name)
  if tokens.to_list() != source.tokenizer.open().encode_batch(list(_PROBES)):
    wrong.append("the ids")
  if wrong:
    raise ValueError(
      f"{files.quote(*wrong)} of the saved modules are not those of the model "
      f"with {source.tokenizer.path}: nothing was written."
    )
