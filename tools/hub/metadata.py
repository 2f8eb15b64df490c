"""What Kaggle Models needs of a publication: names, license, usage.

`kaggle models create` reads `model-metadata.json`, and `kaggle models instances
create` reads `model-instance-metadata.json` beside the files of an instance.

Source: docs/models_metadata.md and kaggle_api_extended.py of
github.com/Kaggle/kaggle-cli, once kaggle-api.
"""

from __future__ import annotations

import re
from typing import Any

from official_albert import config as config_lib

# The names that Kaggle gives to licenses.
LICENSES = {
  "apache-2.0": "Apache 2.0",
  "bsd-3-clause": "BSD-3-Clause",
  "cc-by-4.0": "Attribution 4.0 International (CC BY 4.0)",
  "cc-by-nc-4.0": "Attribution-NonCommercial 4.0 International (CC BY-NC 4.0)",
  "cc-by-nc-sa-4.0": "CC BY-NC-SA 4.0",
  "cc-by-sa-4.0": "CC BY-SA 4.0",
  "cc0-1.0": "CC0: Public Domain",
  "gpl-3.0": "GPL 3",
  "mit": "MIT",
}
ENCODER, PREPROCESSOR = "encoder", "preprocess"

_CARD = """\
ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)). The variation
`encoder` takes the outputs of the variation `preprocess`; both have the
interface of TF Hub's text encoders.
"""
_USAGE = """\
```python
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf_keras, as of tensorflow_hub.

import kagglehub
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # Operations of the preprocessor.

preprocessor_path = kagglehub.model_download("{base}/preprocess")
encoder_path = kagglehub.model_download("{base}/encoder")
preprocessor = hub.KerasLayer(preprocessor_path)
encoder = hub.KerasLayer(encoder_path, trainable=True)

texts = tf.keras.layers.Input(shape=(), dtype=tf.string)
pooled_output = encoder(preprocessor(texts))["pooled_output"]
```
"""


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


def model_metadata(
  handle: str, config: config_lib.AlbertConfig
) -> dict[str, Any]:
  """Returns the content of model-metadata.json."""
  publisher, name = split_handle(handle)
  return {
    "ownerSlug": publisher,
    "title": name,
    "slug": name,
    "subtitle": _summary(config),
    "isPrivate": True,
    "description": _CARD,
    "publishTime": "",
    "provenanceSources": "",
  }


def instance_metadata(
  handle: str, license: str, config: config_lib.AlbertConfig, instance: str
) -> dict[str, Any]:
  """Returns the content of model-instance-metadata.json."""
  publisher, name = split_handle(handle)
  is_encoder = instance == ENCODER
  return {
    "ownerSlug": publisher,
    "modelSlug": name,
    "instanceSlug": instance,
    "framework": "tensorFlow2",
    "overview": _summary(config) if is_encoder else f"Texts for {name}.",
    "usage": _USAGE.format(base=f"{handle}/tensorFlow2"),
    "licenseName": LICENSES[license],
    "fineTunable": is_encoder,
    "trainingData": [],
    "modelInstanceType": "Unspecified",
    "baseModelInstance": "",
    "externalBaseModelUrl": "",
  }


def _summary(config: config_lib.AlbertConfig) -> str:
  return (
    f"ALBERT encoder, L={config.num_hidden_layers}, H={config.hidden_size}, "
    f"A={config.num_attention_heads}, E={config.embedding_size}, V="
    f"{config.vocab_size}."
  )
