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

  Attributes:
    model: a float32 model with the weights.
    has_masked_lm, has_sentence_order: whether the heads have weights.
    tokenizer: the tokenizer.
    trained_length: the longest sequence of the training; 0 if unknown.
    notes: one sentence each for the publisher.
  """

  model: model_lib.AlbertForPretraining
  has_masked_lm: bool
  has_sentence_order: bool
  tokenizer: checkpoints.TokenizerFile
  trained_length: int
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
    return Source(
      model,
      has("cls/predictions/"),
      has("cls/seq_relationship/"),
      tokenizer,
      (stored.record.get("data") or {}).get("max_seq_length", 0),
      (*stored.notes, f"the weights are {stored.shown(stored.source)}."),
    )


def publish(
  source: Source,
  publication: hub_metadata.Publication,
  output_dir: str,
  seq_length: int,
) -> None:
  """Writes both modules with their metadata to a new folder.

  Nothing is left behind if a saved module computes something else.
  `seq_length` is the default length of the preprocessor.
  """
  model, config = source.model, source.model.config
  longest = config.max_position_embeddings
  if seq_length > longest:
    raise ValueError(
      f"seq_length {seq_length} is more than the model's {longest} position "
      "embeddings: lower it."
    )
  text_layer = source.tokenizer.make_layer()
  config.check_fits(text_layer.vocab_size, 0)
  modules = {
    hub_metadata.PREPROCESSOR: hub.HubPreprocessor(text_layer, seq_length),
    hub_metadata.ENCODER: hub.HubEncoder(
      model.albert,
      model.masked_lm if source.has_masked_lm else None,
      model.sentence_order if source.has_sentence_order else None,
    ),
  }
  with (
    files.new_folder(output_dir) as folder,
    tempfile.TemporaryDirectory(prefix="hub-assets-") as assets,
  ):
    record = source.tokenizer.record(config.vocab_size)
    runs.write_run(assets, config, {}, {"tokenizer": record})
    source.tokenizer.copy_to(assets)
    saved = {instance: os.path.join(folder, instance) for instance in modules}
    for instance, module in modules.items():
      _attach_assets(module, source, assets)
      hub.save_hub_object(module, saved[instance])
    check_modules(source, *saved.values())
    card = hub_metadata.model_metadata(publication, config)
    files.write_json(os.path.join(folder, "model-metadata.json"), card)
    for instance, path in saved.items():
      files.write_json(
        os.path.join(path, "model-instance-metadata.json"),
        hub_metadata.instance_metadata(
          publication, config, instance, source.has_masked_lm, seq_length
        ),
      )


def _attach_assets(module: hub.HubObject, source: Source, folder: str) -> None:
  """Adds the files of a folder, the tokenizer by its name in TF Hub."""
  kind = source.tokenizer.kind
  is_wordpiece = kind == "wordpiece"
  for attribute, name in (
    (
      "vocab_file" if is_wordpiece else "sp_model_file",
      tokenization.TOKENIZER_FILES[kind],
    ),
    ("albert_config_file", runs.CONFIG_FILE),
    ("record_file", runs.RECORD_FILE),
  ):
    path = os.path.join(folder, name)
    setattr(module, attribute, tf.saved_model.Asset(path))


def check_modules(
  source: Source, preprocessor_dir: str, encoder_dir: str
) -> None:
  """Loads both modules; ValueError if they differ from the source."""
  preprocessor = tf.saved_model.load(preprocessor_dir)
  encoder = tf.saved_model.load(encoder_dir)
  tokens = preprocessor.tokenize(tf.constant(_PROBES))
  if tokens.shape.rank > 2:
    tokens = tokens.merge_dims(1, -1)
  if tokens.to_list() != source.tokenizer.open().encode_batch(list(_PROBES)):
    raise ValueError(
      "the saved preprocessor and the tokenizer "
      f"{source.tokenizer.path} return different ids: nothing was written."
    )
  inputs = preprocessor(tf.constant(_PROBES))
  features = {own: inputs[name] for name, own in hub.FEATURES.items()}
  saved, own = encoder(inputs), source.model.albert(features, training=False)
  for name in ("sequence_output", "pooled_output"):
    a, b = saved[name].numpy(), own[name].numpy()
    allowed = TOLERANCE * max(1.0, np.abs(b).max())
    difference = np.abs(a - b).max()
    if not difference <= allowed:
      raise ValueError(
        f"{name} of the saved encoder differs by {difference:.3g} from the "
        f"model's, more than {allowed:.3g}: nothing was written."
      )
