"""The Markdown pages of a publication, in the format of TF Hub's publishers.

Source: "Write documentation" of TF Hub's documentation.
"""

from __future__ import annotations

import string

from official_albert import tokenization
from tools.cli import printing
from tools.hub import handle as hub_handle
from tools.hub import sources as hub_sources

_ENCODER = string.Template("""\
## Overview

ALBERT ([arXiv 1909.11942](https://arxiv.org/abs/1909.11942)) is a BERT with
factorized embeddings, layers that share their parameters, and sentence-order
prediction.

$overview

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

$outputs

$heads

## Assets

- `$encoder`: this module, with $assets in its `assets/`.
- `$preprocessor`: its preprocessor.

## Metrics

$metrics

## License

$license
""")

_PREPROCESSOR = string.Template("""\
## Overview

Turns plain text (UTF-8) into the inputs of [$name]($encoder). The text is
$case and cut into pieces by a $kind vocabulary of $vocabulary, like the
encoder's training data. There is nothing to train.

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
  first, [SEP], the second, [SEP], padding. Texts that are too long lose the end
  of the longer one.
- `tokenize.get_special_tokens_dict()`: `start_of_sequence_id`,
  `end_of_segment_id`, `padding_id`, `mask_id` and `vocab_size`.

## Assets

- `$preprocessor`: this module, with $assets in its `assets/`.

## Metrics

Not measured; see the encoder's page.

## License

$license
""")

_HEADS = {
  "masked_lm": """\
- `mlm` takes `masked_lm_positions`, int32 `[batch, predictions]`, too, and also
  returns `mlm_logits`, `[batch, predictions, {vocabulary}]`.
""",
  "sentence_order": """\
- `sop` also returns `sop_logits`, `[batch, 2]`: 0 is in order, 1 is swapped.
""",
}
_LOAD_HEAD = """
A head shares the encoder's variables. Load it by
`hub.KerasLayer(hub.load("{encoder}").{head}, trainable=True)`."""
_NO_HEADS = (
  "The weights came without pretraining heads, so there is no `mlm` and no "
  "`sop`."
)


def encoder_page(
  publication: hub_handle.Publication, source: hub_sources.Source
) -> str:
  """Returns the page of the encoder."""
  c = source.config
  sizes = (
    f"L={c.num_hidden_layers}, H={c.hidden_size}, A={c.num_attention_heads}, "
    f"E={c.embedding_size}"
  )
  head = _head(
    publication,
    publication.name,
    publication.description or f"ALBERT encoder, {sizes}.",
    {
      "task": "text-embedding",
      "fine-tunable": "true",
      # The site has no "albert"; tensorflow/albert_en_base has this tag.
      "network-architecture": "transformer",
    },
  )
  blocks = c.num_hidden_layers * c.inner_group_num
  outputs = [
    ("`pooled_output`, and as `default`", f"`[batch, {c.hidden_size}]`"),
    ("`sequence_output`", f"`[batch, seq_length, {c.hidden_size}]`"),
    (
      "`encoder_outputs`",
      f"a list of {blocks}, the last is `sequence_output`",
    ),
  ]
  return head + _ENCODER.substitute(
    _shared(publication, source),
    overview=printing.table(("", ""), _overview(source)),
    outputs=printing.table(("name", "shape"), outputs),
    heads=_heads(publication, source),
    metrics=_metrics(source),
  )


def preprocessor_page(
  publication: hub_handle.Publication,
  source: hub_sources.Source,
  seq_length: int,
) -> str:
  """Returns the page of the preprocessor."""
  wordpiece = source.tokenizer.kind == "wordpiece"
  head = _head(
    publication,
    publication.preprocess_name,
    f"Text preprocessing for {publication.name}.",
    {"task": "text-preprocessing", "fine-tunable": "false"},
  )
  return head + _PREPROCESSOR.substitute(
    _shared(publication, source),
    name=publication.name,
    case="lower-cased" if source.tokenizer.lower_case else "left in its case",
    kind="WordPiece" if wordpiece else "SentencePiece",
    vocabulary=f"{source.text_layer.vocab_size:,}",
    seq_length=seq_length,
    shape="[batch, (words), (tokens)]" if wordpiece else "[batch, (tokens)]",
  )


def _head(publication, name: str, description: str, tags) -> str:
  tags = {
    "asset-path": publication.archive(name),
    **tags,
    "format": "saved_model_2",
    "language": publication.language,
    "license": publication.license,
  }
  lines = [f"<!-- {tag}: {value} -->\n" for tag, value in tags.items() if value]
  return (
    f"# Module {publication.publisher}/{name}/{publication.version}\n"
    f"{description}\n\n{''.join(lines)}\n"
  )


def _shared(publication, source: hub_sources.Source) -> dict[str, str]:
  file = tokenization.TOKENIZER_FILES[source.tokenizer.kind]
  return {
    "encoder": publication.archive(publication.name),
    "preprocessor": publication.archive(publication.preprocess_name),
    "assets": f"`{file}` and `albert_config.json`",
    "license": publication.license,
  }


def _overview(source: hub_sources.Source) -> list[tuple[str, object]]:
  c, data = source.config, source.data
  rows = [
    ("layers L", c.num_hidden_layers),
    ("hidden size H", c.hidden_size),
    ("attention heads A", c.num_attention_heads),
    ("embedding size E", c.embedding_size),
    ("feed-forward size", c.intermediate_size),
    ("groups of layers with parameters of their own", c.num_hidden_groups),
    ("pieces in the vocabulary", f"{c.vocab_size:,}"),
    ("longest sequence", c.max_position_embeddings),
    ("parameters of the encoder", f"{c.parameter_count():,}"),
    ("dropout of hidden states, while training", c.hidden_dropout_prob),
    ("dropout of attention, while training", c.attention_probs_dropout_prob),
    ("format of the checkpoint", source.kind),
  ]
  if source.step:
    rows.append(("training steps", f"{source.step:,}"))
  if "task" in data:
    rows.append(("fine-tuned for", data["task"]))
  # A converted checkpoint has its model's length there.
  if data.get("max_seq_length") and "head" not in data:
    rows.append(("longest sequence in training", data["max_seq_length"]))
  return rows


def _heads(publication, source: hub_sources.Source) -> str:
  if not source.heads:
    return _NO_HEADS
  first = "mlm" if "masked_lm" in source.heads else "sop"
  text = "".join(_HEADS[head] for head in source.heads) + _LOAD_HEAD
  return text.format(
    vocabulary=source.config.vocab_size,
    encoder=publication.archive(publication.name),
    head=first,
  )


def _metrics(source: hub_sources.Source) -> str:
  if source.measured is None:
    return "Not measured."
  what, file, values = source.measured
  rows = [(name, f"{value:.4g}") for name, value in values.items()]
  return (
    f"{what[0].upper()}{what[1:]} (`{file}` of the run):\n\n"
    + printing.table(("metric", "value"), rows)
  )
