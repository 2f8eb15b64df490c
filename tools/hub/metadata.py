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
  "agpl-3.0": "GNU Affero General Public License 3.0",
  "apache-2.0": "Apache 2.0",
  "bsd-3-clause": "BSD-3-Clause",
  "cc-by-3.0": "Attribution 3.0 Unported (CC BY 3.0)",
  "cc-by-3.0-igo": "Attribution 3.0 IGO (CC BY 3.0 IGO)",
  "cc-by-4.0": "Attribution 4.0 International (CC BY 4.0)",
  "cc-by-nc-4.0": "Attribution-NonCommercial 4.0 International (CC BY-NC 4.0)",
  "cc-by-nc-nd-4.0": "Attribution-NonCommercial-NoDerivatives 4.0 "
  "International (CC BY-NC-ND 4.0)",
  "cc-by-nc-sa-3.0-igo": "Attribution-NonCommercial-ShareAlike 3.0 IGO "
  "(CC BY-NC-SA 3.0 IGO)",
  "cc-by-nc-sa-4.0": "CC BY-NC-SA 4.0",
  "cc-by-nd-4.0": "Attribution-NoDerivatives 4.0 International (CC BY-ND 4.0)",
  "cc-by-sa-3.0": "CC BY-SA 3.0",
  "cc-by-sa-4.0": "CC BY-SA 4.0",
  "cc0-1.0": "CC0: Public Domain",
  "cdla-permissive-1.0": "Community Data License Agreement - Permissive - "
  "Version 1.0",
  "cdla-sharing-1.0": "Community Data License Agreement - Sharing - Version "
  "1.0",
  "gfdl-1.3": "GNU Free Documentation License 1.3",
  "gpl-2.0": "GPL 2",
  "gpl-3.0": "GPL 3",
  "lgpl-3.0": "GNU Lesser General Public License 3.0",
  "mit": "MIT",
  "odc-by": "ODC Attribution License (ODC-By)",
  "pddl": "ODC Public Domain Dedication and Licence (PDDL)",
}
ENCODER, PREPROCESSOR = "encoder", "preprocess"

_CARD = string.Template("""\
ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)) is a BERT with
factorized embeddings, layers that share their parameters, and sentence-order
prediction. The variation `encoder` takes the outputs of the variation
`preprocess`; both have the interface of TF Hub's text encoders.

$facts

All variables are float32 and trainable. There are no regularization losses:
weight decay is the optimizer's.

## Metrics

$metrics
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

Inputs are `input_word_ids`, `input_mask` and `input_type_ids`, int32
`[batch, seq_length]`, as the preprocessor makes them. Outputs, float32:

- `pooled_output`, also named `default`: `[batch, $hidden]`
- `sequence_output`: `[batch, seq_length, $hidden]`
- `encoder_outputs`: a list of $blocks, the last is `sequence_output`
$heads""")
_HEADS = {
  "masked_lm": """
`hub.load(encoder_path).mlm` also takes `masked_lm_positions`, int32
`[batch, predictions]`, and returns `mlm_logits`. It shares the encoder's
variables.
""",
  "sentence_order": """
`hub.load(encoder_path).sop` also returns `sop_logits`, `[batch, 2]`: 0 is in
order, 1 is swapped. It shares the encoder's variables.
""",
}

_PREPROCESSOR = string.Template("""\
Turns plain text (UTF-8) into the inputs of [$encoder]. The text is $case and
split into pieces by a $kind vocabulary of $vocabulary, like the encoder's
training data. There is nothing to train.

```python
import kagglehub
import tensorflow_hub as hub
import tensorflow_text  # Its operations.

preprocessor = hub.load(kagglehub.model_download("$preprocessor"))
inputs = preprocessor(["One text."])  # seq_length $seq_length

first = preprocessor.tokenize(["A first text."])
second = preprocessor.tokenize(["A second one."])
inputs = preprocessor.bert_pack_inputs([first, second], seq_length=64)

special_tokens_dict = preprocessor.tokenize.get_special_tokens_dict()
```

- `tokenize`: strings `[batch]` to an int32 RaggedTensor `$shape`.
- `bert_pack_inputs`: a list of one or two of them to `input_word_ids`,
  `input_mask` and `input_type_ids`, int32 `[batch, seq_length]`: [CLS], the
  first, [SEP], the second, [SEP], padding. The longer text is truncated.
- `tokenize.get_special_tokens_dict()`: `start_of_sequence_id`,
  `end_of_segment_id`, `padding_id`, `mask_id` and `vocab_size`.
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
    if not re.fullmatch("[A-Za-z0-9, -]*", self.language):
      raise ValueError(
        f"language {self.language!r} must be of letters, digits, '-', ',' and "
        "spaces, such as en or 'en, de'."
      )
    if "\n" in self.description:
      raise ValueError("the description must be one line.")

  @property
  def publisher(self) -> str:
    return self.handle.split("/")[0]

  @property
  def name(self) -> str:
    return self.handle.split("/")[1]

  def kaggle_handle(self, instance: str) -> str:
    return f"{self.handle}/tensorFlow2/{instance}"


def model_metadata(
  publication: Publication, source: hub_sources.Source
) -> dict[str, Any]:
  """Returns the content of model-metadata.json."""
  metrics = [(name, f"{x:.4g}") for name, x in source.metrics.items()]
  return {
    "ownerSlug": publication.publisher,
    "title": publication.name,
    "slug": publication.name,
    "subtitle": publication.description or _summary(source),
    "isPrivate": True,
    "description": _CARD.substitute(
      facts=printing.table(("", ""), _facts(publication, source)),
      metrics=printing.table(("held-out data", ""), metrics)
      if metrics
      else "Not measured.",
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
  lower_case = source.tokenizer.rules.lower_case
  handles = {
    "encoder": publication.kaggle_handle(ENCODER),
    "preprocessor": publication.kaggle_handle(PREPROCESSOR),
  }
  if instance == ENCODER:
    overview = _summary(source)
    usage = _ENCODER.substitute(
      handles,
      hidden=config.hidden_size,
      blocks=config.num_hidden_layers * config.inner_group_num,
      heads="".join(_HEADS[head] for head in source.heads),
    )
  else:
    overview = f"Text preprocessing for {publication.name}."
    usage = _PREPROCESSOR.substitute(
      handles,
      case="lower-cased" if lower_case else "left in its case",
      kind="WordPiece" if wordpiece else "SentencePiece",
      vocabulary=f"{source.text_layer.vocab_size:,}",
      seq_length=seq_length,
      shape="[batch, (words), (tokens)]" if wordpiece else "[batch, (tokens)]",
    )
  return {
    "ownerSlug": publication.publisher,
    "modelSlug": publication.name,
    "instanceSlug": instance,
    "framework": "tensorFlow2",
    "overview": overview,
    "usage": usage,
    "licenseName": LICENSES[publication.license],
    "fineTunable": instance == ENCODER,
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


def _facts(
  publication: Publication, source: hub_sources.Source
) -> list[tuple[str, object]]:
  data = source.data
  rows = {
    "language": publication.language,
    "checkpoint format": source.kind,
    "training steps": f"{source.step:,}" if source.step else "",
    "fine-tuned for": data.get("task", ""),
    "max_seq_length": data.get("max_seq_length", ""),
    "parameters of the encoder": f"{source.config.parameter_count():,}",
    **source.config.to_dict(),
  }
  return [(name, value) for name, value in rows.items() if value != ""]
