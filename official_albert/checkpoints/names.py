"""One table: what a weight is called by Google, by this package, by others.

Google's name is the common one: every format is read into it and written from
it. A row holds

  tf1:   the name in a TF1 checkpoint of google-research/albert.
  own:   the attributes on the way to the variable in a model of this package,
         which is also its name in a checkpoint of ours.
  hf:    the name in a Hugging Face folder; "" where that has no such weight.
  shape: V, E, T, P, H, I as in the configuration, C classes.

A TF1 `kernel` is [inputs, outputs]; the `weight` of a torch Linear is its
transpose. The classifiers' `output_weights` are [classes, H] on both sides.
TensorFlow is not loaded here.

Sources: modeling.py, run_pretraining.py, classifier_utils.py, squad_utils.py
of google-research/albert; modeling_albert.py of transformers 4.57.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Union

from official_albert import modeling

Dimension = Union[str, int]


@dataclasses.dataclass(frozen=True)
class Row:
  """One weight; {g} and {i} are the group and the block in it."""

  tf1: str
  own: str
  hf: str
  shape: tuple[Dimension, ...]

  @property
  def transposed(self) -> bool:
    """Whether Hugging Face stores the transpose."""
    return self.tf1.endswith("/kernel")

  def shape_in(
    self, config: modeling.AlbertConfig, classes: int = 0
  ) -> tuple[int, ...]:
    """The shape of the TF1 variable."""
    sizes = {
      "V": config.vocab_size,
      "E": config.embedding_size,
      "T": config.type_vocab_size,
      "P": config.max_position_embeddings,
      "H": config.hidden_size,
      "2H": 2 * config.hidden_size,
      "I": config.intermediate_size,
      "C": classes,
    }
    return tuple(sizes.get(size, size) for size in self.shape)


def _dense(tf1: str, own: str, hf: str, inputs, outputs) -> tuple[Row, ...]:
  return (
    Row(
      f"{tf1}/kernel", f"{own}/kernel", hf and f"{hf}.weight", (inputs, outputs)
    ),
    Row(f"{tf1}/bias", f"{own}/bias", hf and f"{hf}.bias", (outputs,)),
  )


def _norm(tf1: str, own: str, hf: str, size: Dimension) -> tuple[Row, ...]:
  return (
    Row(f"{tf1}/beta", f"{own}/beta", hf and f"{hf}.bias", (size,)),
    Row(f"{tf1}/gamma", f"{own}/gamma", hf and f"{hf}.weight", (size,)),
  )


def _table(name: str, size: Dimension) -> Row:
  return Row(
    f"bert/embeddings/{name}",
    f"albert/embedding/{name}",
    f"albert.embeddings.{name}.weight",
    (size, "E"),
  )


_TF1_BLOCK = "bert/encoder/transformer/group_{g}/inner_group_{i}"
_ATTENTION = "albert/encoder/attentions/{g}/{i}"
_FFN = "albert/encoder/ffns/{g}/{i}"
_HF_BLOCK = "albert.encoder.albert_layer_groups.{g}.albert_layers.{i}"

_EMBEDDING = (
  _table("word_embeddings", "V"),
  _table("token_type_embeddings", "T"),
  _table("position_embeddings", "P"),
  *_norm(
    "bert/embeddings/LayerNorm",
    "albert/embedding/layer_norm",
    "albert.embeddings.LayerNorm",
    "E",
  ),
)
# Hugging Face has it in every model, the original only if E is not H, and this
# package as the configuration says.
PROJECTION = _dense(
  "bert/encoder/embedding_hidden_mapping_in",
  "albert/embedding/projection",
  "albert.encoder.embedding_hidden_mapping_in",
  "E",
  "H",
)
_BLOCK = (
  *(
    row
    for part in ("query", "key", "value")
    for row in _dense(
      f"{_TF1_BLOCK}/attention_1/self/{part}",
      f"{_ATTENTION}/{part}",
      f"{_HF_BLOCK}.attention.{part}",
      "H",
      "H",
    )
  ),
  *_dense(
    f"{_TF1_BLOCK}/attention_1/output/dense",
    f"{_ATTENTION}/output_dense",
    f"{_HF_BLOCK}.attention.dense",
    "H",
    "H",
  ),
  *_norm(
    f"{_TF1_BLOCK}/LayerNorm",
    f"{_ATTENTION}/layer_norm",
    f"{_HF_BLOCK}.attention.LayerNorm",
    "H",
  ),
  *_dense(
    f"{_TF1_BLOCK}/ffn_1/intermediate/dense",
    f"{_FFN}/intermediate",
    f"{_HF_BLOCK}.ffn",
    "H",
    "I",
  ),
  # The original nests the second product under the first one's scope.
  *_dense(
    f"{_TF1_BLOCK}/ffn_1/intermediate/output/dense",
    f"{_FFN}/output_dense",
    f"{_HF_BLOCK}.ffn_output",
    "I",
    "H",
  ),
  *_norm(
    f"{_TF1_BLOCK}/LayerNorm_1",
    f"{_FFN}/layer_norm",
    f"{_HF_BLOCK}.full_layer_layer_norm",
    "H",
  ),
)
_POOLER = _dense(
  "bert/pooler/dense", "albert/pooler", "albert.pooler", "H", "H"
)

_MASKED_LM = (
  *_dense(
    "cls/predictions/transform/dense",
    "masked_lm/transform",
    "predictions.dense",
    "H",
    "E",
  ),
  *_norm(
    "cls/predictions/transform/LayerNorm",
    "masked_lm/layer_norm",
    "predictions.LayerNorm",
    "E",
  ),
  Row(
    "cls/predictions/output_bias",
    "masked_lm/output_bias",
    "predictions.bias",
    ("V",),
  ),
)


def _classifier(
  tf1: str, own: str, hf: str, classes: Dimension
) -> tuple[Row, ...]:
  return (
    Row(f"{tf1}output_weights", f"{own}output_weights", f"{hf}.weight",
        (classes, "H")),
    Row(f"{tf1}output_bias", f"{own}output_bias", f"{hf}.bias", (classes,)),
  )  # fmt: skip


_SENTENCE_ORDER = _classifier(
  "cls/seq_relationship/", "sentence_order/", "sop_classifier.classifier", 2
)
# Hugging Face's question answering has only the head of SQuAD 1.1.
_SPANS_OR_NONE = (
  *_dense("start_logits/dense", "start_dense", "", "H", 1),
  *_dense("end_logits/dense_0", "end_hidden", "", "2H", "H"),
  *_norm("end_logits/LayerNorm", "end_norm", "", "H"),
  *_dense("end_logits/dense_1", "end_dense", "", "H", 1),
  *_dense("answer_class/dense_0", "answer_hidden", "", "2H", "H"),
  _dense("answer_class/dense_1", "answer_dense", "", "H", 1)[0],
)
HEADS: Mapping[str, tuple[Row, ...]] = {
  "none": (),
  "pretraining": (*_MASKED_LM, *_SENTENCE_ORDER),
  "masked_lm": _MASKED_LM,
  "classification": _classifier("", "classifier/", "classifier", "C"),
  "regression": _classifier("", "classifier/", "classifier", 1),
  "multiple_choice": _classifier("", "classifier/", "classifier", 1),
  "squad1": _classifier("cls/squad/", "", "qa_outputs", 2),
  "squad2": _SPANS_OR_NONE,
}
# Heads that never look at the pooled output: a checkpoint may lack a pooler.
WITHOUT_POOLER = ("masked_lm", "squad1", "squad2")

GLOBAL_STEP = "global_step"
# Optimizer state stands under its variable's name with one of these behind it.
SLOTS = {"adam_m": "m", "adam_v": "v"}


def encoder_rows(config: modeling.AlbertConfig) -> tuple[Row, ...]:
  """The rows of a configuration's encoder, with its groups written out.

  Raises:
    ValueError: the model shares only parts of its layers, which no other
      format can express.
  """
  if config.sharing != "all":
    raise ValueError(
      f"a model with sharing={config.sharing!r} has no TF1 names: the "
      "original always shares whole layers."
    )
  blocks = [
    Row(*(text.format(g=group, i=inner) for text in (row.tf1, row.own, row.hf)),
        row.shape)
    for group in range(config.num_hidden_groups)
    for inner in range(config.inner_group_num)
    for row in _BLOCK
  ]  # fmt: skip
  projection = PROJECTION if config.has_projection else ()
  return (*_EMBEDDING, *projection, *blocks, *_POOLER)


def rows(config: modeling.AlbertConfig, head: str) -> tuple[Row, ...]:
  """The rows of encoder and head, one of `HEADS`."""
  return (*encoder_rows(config), *HEADS[head])


def is_pooler(name: str) -> bool:
  """Whether a TF1 name is the pooler's."""
  return name.startswith("bert/pooler/")


def is_slot(name: str) -> bool:
  """Whether a TF1 name is optimizer state of a variable."""
  return name.rsplit("/", 1)[-1] in SLOTS
