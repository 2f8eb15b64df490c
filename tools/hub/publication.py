"""Writes a preprocessor and an encoder for Kaggle Models.

    OUTPUT/model-metadata.json    for `kaggle models create -p OUTPUT`
    OUTPUT/encoder/               SavedModel and model-instance-metadata.json
    OUTPUT/preprocess/            the same of the preprocessor

Both modules are loaded again and compared with the tokenizer and the model
before the folder gets its name.

Source of the JSON files: docs/models_metadata.md and kaggle_api_extended.py of
github.com/Kaggle/kaggle-cli, once kaggle-api.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)

from official_albert import (
  files,
  inference,
  modeling,
  runs,
  serving,
  tokenization,
)
from official_albert.serving import hub

_ENCODER, _PREPROCESSOR = "encoder", "preprocess"
_CARD = """\
ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)). The variation
`encoder` takes the outputs of the variation `preprocess`; both have the
interface of TF Hub's text encoders.
"""
_USAGE = """\
```python
import kagglehub
import tensorflow_hub as hub
import tensorflow_text  # Operations of the preprocessor.

preprocessor = hub.load(kagglehub.model_download("{base}/preprocess"))
encoder = hub.load(kagglehub.model_download("{base}/encoder"))
pooled_output = encoder(preprocessor(["A text."]))["pooled_output"]
```
"""
# For the same operations in another order.
TOLERANCE = 1e-5
# Texts that tokenizers treat differently.
_PROBES = (
  "In 1922, Søren's café sold 3,000 croissants (for €2 each).",
  "  Two\tlines:\n一二 ﬁne ½ İstanbul ",
  "",
)


def read(path: str, **options: Any) -> serving.Source:
  """Reads weights and tokenizer; `options` are those of `open_source`.

  Raises:
    ValueError, OSError: there is no checkpoint or no tokenizer, or the model
      has no pooler.
  """
  source = inference.open_source(
    path, with_texts=False, lenient=True, dtype="float32", **options
  )
  if not source.module.has_pooler:
    raise ValueError(
      f"{path} has no pooler, so that pooled_output would be noise: publish "
      "a model that was pretrained or fine-tuned with one."
    )
  if source.tokenizer is None:
    raise ValueError(
      f"no tokenizer beside {path}: give --spm_model_file, or --vocab_file "
      "for WordPiece."
    )
  return source


def publish(
  source: serving.Source,
  handle: str,
  license: str,
  output_dir: str,
  seq_length: int,
) -> None:
  """Writes both modules with their metadata to a new folder.

  Nothing is left behind if a saved module computes something else.
  `seq_length` is the default length of the preprocessor.
  """
  model, tokenizer = source.module.model, source.tokenizer
  albert = getattr(model, "albert", model)
  config, longest = albert.config, albert.config.max_position_embeddings
  if seq_length > longest:
    raise ValueError(
      f"seq_length {seq_length} is more than the model's {longest} position "
      "embeddings: lower it."
    )
  text_layer = tokenizer.make_layer()
  config.check_fits(text_layer.vocab_size, 0)
  modules = {
    _PREPROCESSOR: hub.HubPreprocessor(text_layer, seq_length),
    _ENCODER: hub.HubEncoder(
      albert,
      getattr(model, "masked_lm", None),
      model.sentence_order
      if "sentence_order" in source.module.text_signatures
      else None,
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
    data = {
      "max_seq_length": source.module.max_seq_length,
      "tokenizer": tokenizer.record(config.vocab_size),
    }
    if source.module.kind == "embedding":
      data |= {"head": "embedding", "settings": source.module.settings()}
    runs.write_run(temporary, config, {}, data)
    tokenizer.copy_to(temporary)
    saved = {instance: os.path.join(folder, instance) for instance in modules}
    for instance, module in modules.items():
      for attribute, name in assets.items():
        asset = tf.saved_model.Asset(os.path.join(temporary, name))
        setattr(module, attribute, asset)
      hub.save_hub_object(module, saved[instance])
    check_modules(source, *saved.values())
    for path, card in _cards(handle, license, config).items():
      files.write_json(os.path.join(folder, path), card)


def split_handle(handle: str) -> tuple[str, str]:
  """Returns the publisher and the name of PUBLISHER/NAME, checked."""
  part = "([a-z0-9]+(?:[%s][a-z0-9]+)*)"
  found = re.fullmatch(f"{part % '_-'}/{part % '-'}", handle)
  if not found:
    raise ValueError(
      f"handle {handle!r} must be PUBLISHER/NAME, such as my-team/albert-en: "
      "lower case, digits and single hyphens."
    )
  return found[1], found[2]


def _cards(
  handle: str, license: str, config: modeling.AlbertConfig
) -> dict[str, dict[str, Any]]:
  """Returns the contents of the JSON files by their paths."""
  publisher, name = split_handle(handle)
  summary = (
    f"ALBERT encoder, L={config.num_hidden_layers}, H={config.hidden_size}, "
    f"A={config.num_attention_heads}, E={config.embedding_size}, V="
    f"{config.vocab_size}."
  )
  cards: dict[str, dict[str, Any]] = {
    "model-metadata.json": {
      "ownerSlug": publisher,
      "title": name,
      "slug": name,
      "subtitle": summary,
      "isPrivate": True,
      "description": _CARD,
      "publishTime": "",
      "provenanceSources": "",
    }
  }
  for instance in (_ENCODER, _PREPROCESSOR):
    is_encoder = instance == _ENCODER
    cards[f"{instance}/model-instance-metadata.json"] = {
      "ownerSlug": publisher,
      "modelSlug": name,
      "instanceSlug": instance,
      "framework": "tensorFlow2",
      "overview": summary if is_encoder else f"Texts for {name}.",
      "usage": _USAGE.format(base=f"{handle}/tensorFlow2"),
      "licenseName": license,
      "fineTunable": is_encoder,
      "trainingData": [],
      "modelInstanceType": "Unspecified",
      "baseModelInstance": "",
      "externalBaseModelUrl": "",
    }
  return cards


def check_modules(
  source: serving.Source, preprocessor_dir: str, encoder_dir: str
) -> None:
  """Loads both modules; ValueError if they differ from the source."""
  preprocessor = tf.saved_model.load(preprocessor_dir)
  encoder = tf.saved_model.load(encoder_dir)
  tokens = preprocessor.tokenize(tf.constant(_PROBES))
  inputs = preprocessor(tf.constant(_PROBES))
  features = {own: inputs[name] for name, own in hub.FEATURES.items()}
  model = source.module.model
  saved = encoder(inputs)
  own = getattr(model, "albert", model)(features, training=False)
  wrong = []
  for name in ("sequence_output", "pooled_output"):
    a, b = saved[name].numpy(), own[name].numpy()
    allowed = TOLERANCE * max(1.0, np.abs(b).max())
    if not np.abs(a - b).max() <= allowed:  # NaN must fail too.
      wrong.append(name)
  if tokens.shape.rank > 2:  # WordPiece's come by words.
    tokens = tokens.merge_dims(1, -1)
  if tokens.to_list() != source.tokenizer.open().encode_batch(list(_PROBES)):
    wrong.append("the ids")
  if wrong:
    raise ValueError(
      f"{files.quote(*wrong)} of the saved modules are not those of the model "
      f"with {source.tokenizer.path}: nothing was written."
    )
