"""Writes a preprocessor and an encoder for TF Hub: folders, archives, pages.

    OUTPUT/NAME/VERSION/                      the encoder's SavedModel
    OUTPUT/NAME/VERSION.tar.gz, VERSION.md    its archive and its page
    OUTPUT/NAME_preprocess/...                the same of the preprocessor

Both modules are loaded again and compared with the tokenizer and the model
before the folder gets its name.
"""

from __future__ import annotations

import fnmatch
import gzip
import os
import shutil
import tarfile
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import files, tokenization, training
from official_albert.serving import hub
from tools.hub import handle as hub_handle
from tools.hub import page as hub_page
from tools.hub import sources as hub_sources

# For the same operations in another order.
TOLERANCE = 1e-5
# Texts that tokenizers treat differently.
_PROBES = (
  "In 1922, Søren's café sold 3,000 croissants (for €2 each).",
  "  Two\tlines:\n一二 ﬁne ½ İstanbul ",
  "",
)
# The site refuses other files, because no loader needs them.
_ALLOWED = (
  "saved_model.pb",
  "variables/variables.*",
  "assets/*",
  "assets.extra/*",
)


def publish(
  source: hub_sources.Source,
  publication: hub_handle.Publication,
  output_dir: str,
  seq_length: int = hub.SEQ_LENGTH,
) -> None:
  """Writes both modules with their archives and pages.

  Args:
    source: weights and tokenizer.
    publication: names and license.
    output_dir: a folder that does not exist or is empty.
    seq_length: the default length of the preprocessor.

  Raises:
    FileExistsError: the folder is not empty.
    ValueError: `seq_length` exceeds the model's, or a saved module computes
      something else.
    OSError: the folder cannot be written; nothing is left behind.
  """
  longest = source.config.max_position_embeddings
  if seq_length > longest:
    raise ValueError(
      f"seq_length {seq_length} is more than the model's {longest} position "
      "embeddings: lower it."
    )
  model, heads = source.model, source.heads
  modules = {
    publication.preprocess_name: hub.HubPreprocessor(
      source.text_layer, seq_length
    ),
    publication.name: hub.HubEncoder(
      model.albert,
      model.masked_lm if "masked_lm" in heads else None,
      model.sentence_order if "sentence_order" in heads else None,
    ),
  }
  pages = {
    publication.preprocess_name: hub_page.preprocessor_page(
      publication, source, seq_length
    ),
    publication.name: hub_page.encoder_page(publication, source),
  }
  with (
    files.new_folder(output_dir) as folder,
    tempfile.TemporaryDirectory(prefix="hub-assets-") as assets,
  ):
    bases = []
    for name, module in modules.items():
      base = os.path.join(folder, name, str(publication.version))
      _attach_assets(module, source, os.path.join(assets, name))
      hub.save_hub_object(module, base)
      files.write_text(f"{base}.md", pages[name])
      bases.append(base)
    check_modules(source, *bases)
    for base in bases:
      write_archive(base, f"{base}.tar.gz")


def _attach_assets(
  module: hub.HubObject, source: hub_sources.Source, folder: str
) -> None:
  """Adds tokenizer and configuration, by the attributes that TF Hub uses."""
  os.makedirs(folder)
  kind = source.tokenizer.kind
  tokenizer = os.path.join(folder, tokenization.TOKENIZER_FILES[kind])
  shutil.copyfile(source.tokenizer.path, tokenizer)
  config = os.path.join(folder, training.CONFIG_FILE)
  source.config.to_json_file(config)
  attribute = "vocab_file" if kind == "wordpiece" else "sp_model_file"
  setattr(module, attribute, tf.saved_model.Asset(tokenizer))
  module.albert_config_file = tf.saved_model.Asset(config)


def check_modules(
  source: hub_sources.Source, preprocessor_dir: str, encoder_dir: str
) -> None:
  """Loads both modules and compares them with the source.

  Raises:
    ValueError: they compute something else.
  """
  preprocessor = tf.saved_model.load(preprocessor_dir)
  encoder = tf.saved_model.load(encoder_dir)
  tokens = preprocessor.tokenize(tf.constant(_PROBES))
  if tokens.shape.rank > 2:
    tokens = tokens.merge_dims(1, -1)
  if tokens.to_list() != source.tokenizer.open().encode_batch(list(_PROBES)):
    raise ValueError(
      "the preprocessor cuts text otherwise than the tokenizer "
      f"{source.tokenizer.path}: nothing was written."
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
        f"{name} of the encoder that was saved differs by {difference:.3g} "
        f"from the model's, more than {allowed:.3g}: nothing was written."
      )


def write_archive(folder: str, path: str) -> None:
  """Packs a SavedModel for TF Hub's library and its site.

  Members are relative to the folder. The bytes depend only on names and
  contents.

  Source: "Model hosting protocol" and "Write documentation" of TF Hub's
  documentation; tools/validator.py of tensorflow/tfhub.dev.

  Raises:
    ValueError: the folder holds a file that no SavedModel has.
    OSError: a file cannot be read, or the archive not written.
  """
  names = sorted(
    os.path.relpath(os.path.join(parent, name), folder)
    for parent, _, found in os.walk(folder)
    for name in found
  )
  for name in names:
    if not any(fnmatch.fnmatch(name, pattern) for pattern in _ALLOWED):
      raise ValueError(
        f"{os.path.join(folder, name)} is no file of a SavedModel, so TF Hub "
        "would refuse the archive: remove it."
      )
  # The library creates only folders that the archive names.
  parents = {os.path.dirname(name) for name in names} - {""}
  with (
    files.replacing(path) as temporary,
    open(temporary, "wb") as raw,
    gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed,
    tarfile.open(
      fileobj=packed, mode="w", format=tarfile.GNU_FORMAT
    ) as archive,
  ):
    for name in sorted([*names, *parents]):
      source, entry = os.path.join(folder, name), tarfile.TarInfo(name)
      if name in parents:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
      else:
        entry.mode, entry.size = 0o644, os.path.getsize(source)
        with open(source, "rb") as file:
          archive.addfile(entry, file)
