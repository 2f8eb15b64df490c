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

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import files, runs, tokenization
from official_albert.serving import hub
from official_albert.tools.hub import metadata as hub_metadata
from official_albert.tools.hub import sources as hub_sources

# For the same operations in another order.
TOLERANCE = 1e-5
# Texts that tokenizers treat differently.
_PROBES = (
  "In 1922, Søren's café sold 3,000 croissants (for €2 each).",
  "  Two\tlines:\n一二 ﬁne ½ İstanbul ",
  "",
)


def publish(
  source: hub_sources.Source,
  publication: hub_metadata.Publication,
  output_dir: str,
  seq_length: int,
) -> None:
  """Writes both modules with their metadata to a new folder.

  Nothing is left behind if a saved module computes something else.
  `seq_length` is the default length of the preprocessor.
  """
  longest = source.config.max_position_embeddings
  if seq_length > longest:
    raise ValueError(
      f"seq_length {seq_length} is more than the model's {longest} position "
      "embeddings: lower it."
    )
  model, heads = source.model, source.heads
  modules = {
    hub_metadata.PREPROCESSOR: hub.HubPreprocessor(
      source.text_layer, seq_length
    ),
    hub_metadata.ENCODER: hub.HubEncoder(
      model.albert,
      model.masked_lm if "masked_lm" in heads else None,
      model.sentence_order if "sentence_order" in heads else None,
    ),
  }
  with (
    files.new_folder(output_dir) as folder,
    tempfile.TemporaryDirectory(prefix="hub-assets-") as assets,
  ):
    saved = {instance: os.path.join(folder, instance) for instance in modules}
    for instance, module in modules.items():
      _attach_assets(module, source, os.path.join(assets, instance))
      hub.save_hub_object(module, saved[instance])
    check_modules(source, *saved.values())
    card = hub_metadata.model_metadata(publication, source)
    files.write_json(os.path.join(folder, "model-metadata.json"), card)
    for instance, path in saved.items():
      files.write_json(
        os.path.join(path, "model-instance-metadata.json"),
        hub_metadata.instance_metadata(
          publication, source, instance, seq_length
        ),
      )


def _attach_assets(
  module: hub.HubObject, source: hub_sources.Source, folder: str
) -> None:
  """Adds tokenizer, configuration and a record, as TF Hub names the first."""
  files.make_folder(folder)
  tokenizer = source.tokenizer
  data = {"tokenizer": tokenizer.record(source.config.vocab_size)}
  runs.write_run(folder, source.config, {}, data)
  tokenizer.copy_to(folder)
  is_wordpiece = tokenizer.kind == "wordpiece"
  for attribute, name in (
    (
      "vocab_file" if is_wordpiece else "sp_model_file",
      tokenization.TOKENIZER_FILES[tokenizer.kind],
    ),
    ("albert_config_file", runs.CONFIG_FILE),
    # How the tokenizer changes text, for those who open the weights again.
    ("record_file", runs.RECORD_FILE),
  ):
    path = os.path.join(folder, name)
    setattr(module, attribute, tf.saved_model.Asset(path))


def check_modules(
  source: hub_sources.Source, preprocessor_dir: str, encoder_dir: str
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
