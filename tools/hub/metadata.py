"""What Kaggle Models shows of a publication: names, license, model card.

`kaggle models create` reads `model-metadata.json`, and `kaggle models instances
create` reads `model-instance-metadata.json` beside the files of an instance.

Source: docs/models_metadata.md and kaggle_api_extended.py of
github.com/Kaggle/kaggle-cli, once kaggle-api.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from official_albert import config as config_lib
from official_albert.tools.cli import printing

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
ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)) is a BERT with
factorized embeddings, layers that share their parameters, and sentence-order
prediction. The variation `encoder` takes the outputs of the variation
`preprocess`; both have the interface of TF Hub's text encoders. All variables
are float32 and trainable.

{facts}
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

# Pairs of texts, and other lengths than {seq_length}.
module = hub.load(preprocessor_path)
first = module.tokenize(["A first text."])
second = module.tokenize(["A second one."])
inputs = module.bert_pack_inputs([first, second], seq_length=64)
```

Outputs of the encoder, float32: `pooled_output` (or `default`), `[batch,
{hidden}]`; `sequence_output`, `[batch, seq_length, {hidden}]`;
`encoder_outputs`, a list of {blocks} such. {heads}
"""
_MASKED_LM = (
  "`hub.load(encoder_path).mlm` also takes `masked_lm_positions`, int32 "
  "`[batch, predictions]`, and returns `mlm_logits`."
)


@dataclasses.dataclass(frozen=True)
class Publication:
  """The publisher's choices; the handle is PUBLISHER/NAME."""

  handle: str
  license: str
  language: str = ""
  description: str = ""

  def __post_init__(self):
    part = "[a-z0-9]+(?:[%s][a-z0-9]+)*"
    if not re.fullmatch(f"{part % '_-'}/{part % '-'}", self.handle):
      raise ValueError(
        f"handle {self.handle!r} must be PUBLISHER/NAME, such as "
        "my-team/albert-en: lower case, digits and single hyphens."
      )
    if set(self.language + self.description) & set("|\n"):
      raise ValueError("language and description must be one line without |.")


def model_metadata(
  publication: Publication, config: config_lib.AlbertConfig
) -> dict[str, Any]:
  """Returns the content of model-metadata.json."""
  publisher, name = publication.handle.split("/")
  facts = {
    "parameters of the encoder": f"{config.parameter_count():,}",
    **config.to_dict(),
  }
  if publication.language:
    facts = {"language": publication.language, **facts}
  return {
    "ownerSlug": publisher,
    "title": name,
    "slug": name,
    "subtitle": publication.description or _summary(config),
    "isPrivate": True,
    "description": _CARD.format(facts=printing.table(("", ""), facts.items())),
    "publishTime": "",
    "provenanceSources": "",
  }


def instance_metadata(
  publication: Publication,
  config: config_lib.AlbertConfig,
  instance: str,
  has_masked_lm: bool,
  seq_length: int,
) -> dict[str, Any]:
  """Returns the content of model-instance-metadata.json.

  `seq_length` is the default length of the preprocessor.
  """
  publisher, name = publication.handle.split("/")
  is_encoder = instance == ENCODER
  return {
    "ownerSlug": publisher,
    "modelSlug": name,
    "instanceSlug": instance,
    "framework": "tensorFlow2",
    "overview": _summary(config)
    if is_encoder
    else f"Text preprocessing for {name}.",
    "usage": _USAGE.format(
      base=f"{publication.handle}/tensorFlow2",
      hidden=config.hidden_size,
      blocks=config.num_hidden_layers * config.inner_group_num,
      heads=_MASKED_LM if has_masked_lm else "",
      seq_length=seq_length,
    ),
    "licenseName": LICENSES[publication.license],
    "fineTunable": is_encoder,
    "trainingData": [],
    "modelInstanceType": "Unspecified",
    "baseModelInstance": "",
    "externalBaseModelUrl": "",
  }


def _summary(config: config_lib.AlbertConfig) -> str:
  return (
    f"ALBERT encoder, L={config.num_hidden_layers}, H={config.hidden_size}, "
    f"A={config.num_attention_heads}, E={config.embedding_size}."
  )
