"""What Kaggle Models shows of a publication: names, license, model card.

`kaggle models create` reads `model-metadata.json`, and `kaggle models instances
create` reads `model-instance-metadata.json` beside the files of an instance.

Source: docs/models_metadata.md and kaggle_api_extended.py of
github.com/Kaggle/kaggle-cli, once kaggle-api.
"""

from __future__ import annotations

import dataclasses
import re
import string
from typing import TYPE_CHECKING, Any

from official_albert.tools.cli import printing

if TYPE_CHECKING:
  from official_albert.tools.hub import sources as hub_sources

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

_CARD = string.Template("""\
ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)) is a BERT with
factorized embeddings, layers that share their parameters, and sentence-order
prediction. The variation `encoder` takes the outputs of the variation
`preprocess`; both have the interface of TF Hub's text encoders. All variables
are float32 and trainable.

$facts
""")

_ENCODER = string.Template("""\
```python
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf_keras, as of tensorflow_hub.

import kagglehub
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # Operations of the preprocessor.

preprocessor = hub.KerasLayer(kagglehub.model_download("$preprocessor"))
encoder_path = kagglehub.model_download("$encoder")
encoder = hub.KerasLayer(encoder_path, trainable=True)

texts = tf.keras.layers.Input(shape=(), dtype=tf.string)
pooled_output = encoder(preprocessor(texts))["pooled_output"]
```

Outputs, float32: `pooled_output` (or `default`), `[batch, $hidden]`;
`sequence_output`, `[batch, seq_length, $hidden]`;
`encoder_outputs`, a list of $blocks such. $heads
""")
_HEADS = {
  "masked_lm": "`hub.load(encoder_path).mlm` also takes `masked_lm_positions`, "
  "int32 `[batch, predictions]`, and returns `mlm_logits`. ",
  "sentence_order": "`hub.load(encoder_path).sop` also returns `sop_logits`, "
  "`[batch, 2]`: 0 is in order, 1 is swapped.",
}

_PREPROCESSOR = string.Template("""\
Turns plain text (UTF-8) into the inputs of [$encoder]. The text is $case and
split into pieces by a $kind vocabulary of $vocabulary, like the encoder's
training data.

```python
import kagglehub
import tensorflow_hub as hub
import tensorflow_text  # Its operations.

preprocessor = hub.load(kagglehub.model_download("$preprocessor"))
inputs = preprocessor(["One text."])  # seq_length $seq_length

first = preprocessor.tokenize(["A first text."])  # $shape
second = preprocessor.tokenize(["A second one."])
inputs = preprocessor.bert_pack_inputs([first, second], seq_length=64)

special_tokens_dict = preprocessor.tokenize.get_special_tokens_dict()
```
""")


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
  publication: Publication, source: hub_sources.Source
) -> dict[str, Any]:
  """Returns the content of model-metadata.json."""
  publisher, name = publication.handle.split("/")
  facts = {
    "language": publication.language,
    "checkpoint format": source.kind,
    "training steps": f"{source.step:,}" if source.step else "",
    "fine-tuned for": source.data.get("task", ""),
    "max_seq_length": source.data.get("max_seq_length", ""),
    "parameters of the encoder": f"{source.config.parameter_count():,}",
    **source.config.to_dict(),
  }
  return {
    "ownerSlug": publisher,
    "title": name,
    "slug": name,
    "subtitle": publication.description or _summary(source),
    "isPrivate": True,
    "description": _CARD.substitute(
      facts=printing.table(
        ("", ""), [(key, x) for key, x in facts.items() if x != ""]
      )
    ),
    "publishTime": "",
    "provenanceSources": "",
  }


def instance_metadata(
  publication: Publication,
  source: hub_sources.Source,
  instance: str,
  seq_length: int,
) -> dict[str, Any]:
  """Returns the content of model-instance-metadata.json.

  `seq_length` is the default length of the preprocessor.
  """
  config, wordpiece = source.config, source.tokenizer.kind == "wordpiece"
  publisher, name = publication.handle.split("/")
  is_encoder = instance == ENCODER
  usage = _ENCODER if is_encoder else _PREPROCESSOR
  lower_case = source.tokenizer.rules.lower_case
  return {
    "ownerSlug": publisher,
    "modelSlug": name,
    "instanceSlug": instance,
    "framework": "tensorFlow2",
    "overview": _summary(source)
    if is_encoder
    else f"Text preprocessing for {name}.",
    "usage": usage.substitute(
      encoder=f"{publication.handle}/tensorFlow2/{ENCODER}",
      preprocessor=f"{publication.handle}/tensorFlow2/{PREPROCESSOR}",
      hidden=config.hidden_size,
      blocks=config.num_hidden_layers * config.inner_group_num,
      heads="".join(_HEADS[head] for head in source.heads),
      case="lower-cased" if lower_case else "left in its case",
      kind="WordPiece" if wordpiece else "SentencePiece",
      vocabulary=f"{source.text_layer.vocab_size:,}",
      seq_length=seq_length,
      shape="[batch, (words), (tokens)]" if wordpiece else "[batch, (tokens)]",
    ),
    "licenseName": LICENSES[publication.license],
    "fineTunable": is_encoder,
    "trainingData": [],
    "modelInstanceType": "Unspecified",
    "baseModelInstance": "",
    "externalBaseModelUrl": "",
  }


def _summary(source: hub_sources.Source) -> str:
  c = source.config
  return (
    f"ALBERT encoder, L={c.num_hidden_layers}, H={c.hidden_size}, "
    f"A={c.num_attention_heads}, E={c.embedding_size}."
  )
