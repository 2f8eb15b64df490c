"""Writes a preprocessor and an encoder for TF Hub: folders, archives, pages.

    OUTPUT/NAME/VERSION/                      the encoder's SavedModel
    OUTPUT/NAME/VERSION.tar.gz, VERSION.md    its archive and its page
    OUTPUT/NAME_preprocess/...                the same of the preprocessor

Both modules are loaded again and compared with the tokenizer and the model that
they are from, before the folder gets its name.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import files, tokenization, training
from official_albert.serving import hub
from tools.hub import archive as hub_archive
from tools.hub import handle as hub_handle
from tools.hub import page as hub_page
from tools.hub import sources as hub_sources

# The same operations twice, added up in another order at most.
TOLERANCE = 1e-5
# What tokenizers could differ in.
_PROBES = (
  "In 1922, Søren's café sold 3,000 croissants (for €2 each).",
  "  Two\tlines:\n一二 ﬁne ½ İstanbul ",
  "",
)


def publish(
  source: hub_sources.Source,
  publication: hub_handle.Publication,
  output_dir: str,
  seq_length: int = hub.SEQ_LENGTH,
) -> None:
  """Makes everything; `output_dir` is whole or not there.

  Args:
    source: weights and tokenizer.
    publication: names and licence.
    output_dir: does not exist, or is empty.
    seq_length: of the preprocessor, unless its caller says otherwise.

  Raises:
    FileExistsError: the folder holds something.
    ValueError: `seq_length` is not of this model, or what was saved does not
      compute the same.
    OSError: it cannot be written.
  """
  check_output(output_dir)
  longest = source.config.max_position_embeddings
  if seq_length > longest:
    raise ValueError(
      f"seq_length {seq_length} is more than the model's {longest} position "
      "embeddings: lower it."
    )
  preprocessor = hub.HubPreprocessor(source.text_layer, seq_length)
  model, heads = source.model, source.heads
  encoder = hub.HubEncoder(
    model.albert,
    model.masked_lm if "masked_lm" in heads else None,
    model.sentence_order if "sentence_order" in heads else None,
  )
  pages = {
    publication.name: hub_page.encoder_page(publication, source),
    publication.preprocess_name: hub_page.preprocessor_page(
      publication, source, seq_length
    ),
  }
  with files.new_folder(output_dir) as folder:
    _save(source, preprocessor, encoder, publication, folder)
    for name, page in pages.items():
      base = os.path.join(folder, name, str(publication.version))
      hub_archive.write(base, f"{base}.tar.gz")
      files.write_text(f"{base}.md", page)


def check_output(path: str) -> None:
  """Refuses a folder that holds something.

  Raises:
    FileExistsError: it does, or is a file.
  """
  if os.path.exists(path) and not (
    os.path.isdir(path) and not os.listdir(path)
  ):
    raise FileExistsError(
      f"--output_dir {path} is there and not empty: choose a new folder, as "
      "published versions do not change."
    )


def _save(source, preprocessor, encoder, publication, folder: str) -> None:
  with tempfile.TemporaryDirectory(prefix="hub-assets-") as assets:
    for module, name in (
      (preprocessor, publication.preprocess_name),
      (encoder, publication.name),
    ):
      _attach_assets(module, source, os.path.join(assets, name))
      target = os.path.join(folder, name, str(publication.version))
      hub.save_hub_object(module, target)
  _prove(source, publication, folder)


def _attach_assets(
  module: hub.HubObject, source: hub_sources.Source, folder: str
) -> None:
  """The tokenizer and the configuration, by the attributes that TF Hub has."""
  os.makedirs(folder)
  kind = source.tokenizer.kind
  tokenizer = os.path.join(folder, tokenization.TOKENIZER_FILES[kind])
  shutil.copyfile(source.tokenizer.path, tokenizer)
  config = os.path.join(folder, training.CONFIG_FILE)
  source.config.to_json_file(config)
  attribute = "vocab_file" if kind == "wordpiece" else "sp_model_file"
  setattr(module, attribute, tf.saved_model.Asset(tokenizer))
  module.albert_config_file = tf.saved_model.Asset(config)


def _prove(source, publication, folder: str) -> None:
  """Loads both modules and compares.

  Raises:
    ValueError: they say something else than tokenizer and model.
  """
  preprocessor, encoder = (
    tf.saved_model.load(os.path.join(folder, name, str(publication.version)))
    for name in (publication.preprocess_name, publication.name)
  )
  tokens = preprocessor.tokenize(tf.constant(_PROBES))
  if tokens.shape.rank > 2:
    tokens = tokens.merge_dims(1, -1)
  expected = source.tokenizer.open().encode_batch(list(_PROBES))
  if tokens.to_list() != expected:
    raise ValueError(
      "the preprocessor cuts text otherwise than the tokenizer "
      f"{source.tokenizer.path}: nothing was written."
    )
  inputs = preprocessor(tf.constant(_PROBES))
  features = {own: inputs[name] for name, own in hub.FEATURES.items()}
  said, wanted = encoder(inputs), source.model.albert(features, training=False)
  for name in ("sequence_output", "pooled_output"):
    a, b = said[name].numpy(), wanted[name].numpy()
    allowed = TOLERANCE * max(1.0, np.abs(b).max())
    difference = np.abs(a - b).max()
    if not difference <= allowed:
      raise ValueError(
        f"{name} of the encoder that was saved differs by {difference:.3g} "
        f"from the model's, more than {allowed:.3g}: nothing was written."
      )
