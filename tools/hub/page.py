"""The Markdown pages of a publication, in the format of TF Hub's publishers.

What a page says of the model is taken from its configuration and from its
run's records; what they do not say, the page does not say either.

Source: "Write documentation" of TF Hub's documentation.
"""

from __future__ import annotations

import string

from official_albert import tokenization
from tools.hub import handle as hub_handle
from tools.hub import sources as hub_sources

_ENCODER = string.Template("""\
## Overview

ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)) is a BERT with
factorized embeddings, layers that share their parameters, and sentence-order
prediction.

| | |
|---|---|
| layers L | $layers |
| hidden size H | $hidden |
| attention heads A | $attention_heads |
| embedding size E | $embedding |
| feed-forward size | $intermediate |
| groups of layers with parameters of their own | $groups |
| pieces in the vocabulary | $vocabulary |
| longest sequence | $positions |
| parameters of the encoder | $parameters |
| dropout of hidden states, while training | $hidden_dropout |
| dropout of attention, while training | $attention_dropout |
$training
All variables are float32 and trainable. There are no regularization losses:
weight decay is the optimizer's.

## Usage

```python
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # Operations of the preprocessor.

texts = tf.keras.layers.Input(shape=(), dtype=tf.string)
preprocessor = hub.KerasLayer("$preprocessor")
encoder = hub.KerasLayer("$encoder", trainable=True)
outputs = encoder(preprocessor(texts))
pooled_output = outputs["pooled_output"]
```

Inputs are `input_word_ids`, `input_mask` and `input_type_ids`, int32
`[batch, seq_length]`, as the preprocessor makes them. Outputs, float32:

| name | shape |
|---|---|
| `pooled_output`, and as `default` | `[batch, $hidden]` |
| `sequence_output` | `[batch, seq_length, $hidden]` |
| `encoder_outputs` | a list of $blocks, the last is `sequence_output` |

$heads
## Assets

- `$encoder`: this module, with $assets in its `assets/`.
- `$preprocessor`: its preprocessor.

## Metrics

$metrics
## Licence

$license
""")

_PREPROCESSOR = string.Template("""\
## Overview

Turns plain text (UTF-8) into the inputs of [$name]($encoder). The text is
$case and cut into pieces by a $kind vocabulary of $vocabulary, as the data was
that the encoder was trained on. There is nothing to train.

## Usage

```python
import tensorflow_hub as hub
import tensorflow_text  # Its operations.

preprocessor = hub.load("$preprocessor")
inputs = preprocessor(["One text."])  # seq_length $seq_length

first = preprocessor.tokenize(["A first text."])
second = preprocessor.tokenize(["A second one."])
inputs = preprocessor.bert_pack_inputs([first, second], seq_length=64)

special_tokens_dict = preprocessor.tokenize.get_special_tokens_dict()
```

- `tokenize`: strings `[batch]` to an int32 RaggedTensor `$shape`.
- `bert_pack_inputs`: a list of one or two of them to `input_word_ids`,
  `input_mask` and `input_type_ids`, int32 `[batch, seq_length]`: [CLS], the
  first, [SEP], the second, [SEP], padding. What is too long is cut at the end
  of the longer one.
- `tokenize.get_special_tokens_dict()`: `start_of_sequence_id`,
  `end_of_segment_id`, `padding_id`, `mask_id` and `vocab_size`.

## Assets

- `$preprocessor`: this module, with $assets in its `assets/`.

## Metrics

Not measured; see the encoder's page.

## Licence

$license
""")

_MLM = """\
- `mlm` takes `masked_lm_positions`, int32 `[batch, predictions]`, too, and also
  returns `mlm_logits`, `[batch, predictions, {vocabulary}]`.
"""
_SOP = """\
- `sop` also returns `sop_logits`, `[batch, 2]`: 0 is in order, 1 is swapped.
"""
_SHARED = """
Load them by `hub.KerasLayer(hub.load("{encoder}").{head}, trainable=True)`;
they share the encoder's variables.
"""
_NO_HEADS = """\
The weights came without pretraining heads, so there is no `mlm` and no `sop`.
"""


def encoder_page(
  publication: hub_handle.Publication, source: hub_sources.Source
) -> str:
  """The page of the encoder."""
  config = source.config
  sizes = (
    f"L={config.num_hidden_layers}, H={config.hidden_size}, "
    f"A={config.num_attention_heads}, E={config.embedding_size}"
  )
  description = publication.description or f"ALBERT encoder, {sizes}."
  text = _ENCODER.substitute(
    _shared(publication, source),
    layers=config.num_hidden_layers,
    hidden=config.hidden_size,
    attention_heads=config.num_attention_heads,
    embedding=config.embedding_size,
    intermediate=config.intermediate_size,
    groups=config.num_hidden_groups,
    vocabulary=f"{config.vocab_size:,}",
    positions=config.max_position_embeddings,
    parameters=f"{config.parameter_count():,}",
    hidden_dropout=config.hidden_dropout_prob,
    attention_dropout=config.attention_probs_dropout_prob,
    blocks=config.num_hidden_layers * config.inner_group_num,
    training=_training(source),
    heads=_heads(publication, source),
    metrics=_metrics(source),
  )
  head = _head(
    publication, publication.name, description, "text-embedding", True
  )
  return head + text


def preprocessor_page(
  publication: hub_handle.Publication,
  source: hub_sources.Source,
  seq_length: int,
) -> str:
  """The page of the preprocessor."""
  wordpiece = source.tokenizer.kind == "wordpiece"
  text = _PREPROCESSOR.substitute(
    _shared(publication, source),
    name=publication.name,
    case="lower-cased" if source.tokenizer.lower_case else "left in its case",
    kind="WordPiece" if wordpiece else "SentencePiece",
    vocabulary=f"{source.text_layer.vocab_size:,}",
    seq_length=seq_length,
    shape="[batch, (words), (tokens)]" if wordpiece else "[batch, (tokens)]",
  )
  head = _head(
    publication,
    publication.preprocess_name,
    f"Text preprocessing for {publication.name}.",
    "text-preprocessing",
    False,
  )
  return head + text


def _head(
  publication: hub_handle.Publication,
  name: str,
  description: str,
  task: str,
  fine_tunable: bool,
) -> str:
  tags = {
    "asset-path": publication.archive(name),
    "task": task,
    "fine-tunable": str(fine_tunable).lower(),
    "format": "saved_model_2",
    "language": publication.language,
    "license": publication.license,
    # The site's list has no "albert"; tensorflow/albert_en_base says this.
    "network-architecture": "transformer" if fine_tunable else "",
  }
  lines = [
    f"# Module {publication.publisher}/{name}/{publication.version}",
    description,
    "",
    *(f"<!-- {tag}: {value} -->" for tag, value in tags.items() if value),
    "\n",
  ]
  return "\n".join(lines)


def _shared(
  publication: hub_handle.Publication, source: hub_sources.Source
) -> dict[str, str]:
  file = tokenization.TOKENIZER_FILES[source.tokenizer.kind]
  return {
    "encoder": publication.archive(publication.name),
    "preprocessor": publication.archive(publication.preprocess_name),
    "assets": f"`{file}` and `albert_config.json`",
    "license": publication.license,
  }


def _training(source: hub_sources.Source) -> str:
  """Rows of the overview: where the weights are from."""
  rows = {"format of the checkpoint": source.kind}
  if source.step:
    rows["training steps"] = f"{source.step:,}"
  if "task" in source.data:
    rows["fine-tuned for"] = source.data["task"]
  # Of a converted checkpoint nobody knows it.
  if source.data.get("max_seq_length") and "head" not in source.data:
    rows["longest sequence in training"] = source.data["max_seq_length"]
  return "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def _heads(
  publication: hub_handle.Publication, source: hub_sources.Source
) -> str:
  values = {
    "vocabulary": source.config.vocab_size,
    "encoder": publication.archive(publication.name),
  }
  texts = {"masked_lm": ("mlm", _MLM), "sentence_order": ("sop", _SOP)}
  there = [texts[head] for head in source.heads]
  if not there:
    return _NO_HEADS
  text = (
    _SHARED
    if len(there) > 1
    else _SHARED.replace("Load them", "Load it").replace(
      "they share", "it shares"
    )
  )
  return "".join(text for _, text in there).format(**values) + text.format(
    head=there[0][0], **values
  )


def _metrics(source: hub_sources.Source) -> str:
  if source.measured is None:
    return "Not measured.\n"
  what = source.measured.what
  rows = (
    f"| {name} | {value:.4g} |"
    for name, value in source.measured.values.items()
  )
  return (
    f"{what[0].upper()}{what[1:]} (`{source.measured.file}` of the run):\n\n"
    "| metric | value |\n|---|---|\n" + "\n".join(rows) + "\n"
  )
