"""The names of each weight in TF1, in this package and in Hugging Face.

Readers translate names to TF1 names; writers translate from them. This module
does not load TensorFlow.

Sources: modeling.py, run_pretraining.py, classifier_utils.py, squad_utils.py
of google-research/albert; modeling_albert.py of transformers 4.57.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Container, Mapping, Union

from official_albert import modeling


@dataclasses.dataclass(frozen=True)
class Row:
  """One weight.

  Attributes:
    tf1: the name in a checkpoint of google-research/albert.
    own: the attribute path in a model of this package whose encoder is its
      attribute `albert`. It is also the name in this package's checkpoints.
    hf: the name in a Hugging Face folder; "" if there is no such weight.
    shape: the dimensions of the TF1 variable. V, E, T, P, H, I and R (rank)
      are sizes of the configuration, C is the number of classes, L of blocks.
  """

  tf1: str
  own: str
  hf: str
  shape: tuple[Union[str, int], ...]

  @property
  def transposed(self) -> bool:
    """Whether Hugging Face stores the transpose, as torch's Linear does."""
    return self.tf1.endswith("/kernel")

  def shape_in(
    self, config: modeling.AlbertConfig, classes: int = 0
  ) -> tuple[int, ...]:
    """Returns the shape for a configuration and a number of classes."""
    sizes: Mapping[Any, Any] = {
      "V": config.vocab_size,
      "E": config.embedding_size,
      "T": config.type_vocab_size,
      "P": config.max_position_embeddings,
      "H": config.hidden_size,
      "2H": 2 * config.hidden_size,
      "3H": 3 * config.hidden_size,
      "I": config.intermediate_size,
      "C": classes,
      "L": config.num_blocks,
      "R": config.adapter_rank,
    }
    return tuple(sizes.get(size, size) for size in self.shape)

  def in_block(self, group: int, inner: int) -> Row:
    """Returns the row with {g} and {i} replaced by numbers."""
    names = (self.tf1, self.own, self.hf)
    tf1, own, hf = (name.format(g=group, i=inner) for name in names)
    return Row(tf1, own, hf, self.shape)


# How the names of adapters begin, here and thus in a portable checkpoint.
ADAPTERS = "albert/encoder/adapters/"

# The weights of each kind of layer: the name's suffix in TF1 and in this
# package, the suffix in Hugging Face, and which of the layer's dimensions the
# weight has.
_ALL, _FIRST, _LAST = slice(None), slice(1), slice(1, None)
_KINDS = {
  "value": [("", "", _ALL)],
  "table": [("", ".weight", _ALL)],
  "norm": [("/beta", ".bias", _ALL), ("/gamma", ".weight", _ALL)],
  "dense": [("/kernel", ".weight", _ALL), ("/bias", ".bias", _LAST)],
  "kernel": [("/kernel", ".weight", _ALL)],
  "classes": [
    ("output_weights", ".weight", _ALL),
    ("output_bias", ".bias", _FIRST),
  ],
}


def _rows(
  table: str, tf1: str = "", own: str = "", hf: str = ""
) -> tuple[Row, ...]:
  """Returns the rows of a table of layers; `tf1`, `own`, `hf` are prefixes.

  A line has a kind of layer, its name in TF1, in this package and in Hugging
  Face ("-" means no name), and its dimensions.
  """
  rows = []
  for line in table.strip().splitlines():
    kind, *names, dimensions = line.split(maxsplit=4)
    a, b, c = ("" if name == "-" else name for name in names)
    shape = tuple(int(d) if d.isdigit() else d for d in dimensions.split())
    for suffix, hf_suffix, part in _KINDS[kind]:
      hf_name = hf + c + hf_suffix if c else ""
      rows.append(Row(tf1 + a + suffix, own + b + suffix, hf_name, shape[part]))
  return tuple(rows)


_EMBEDDING = _rows(
  """
  table  word_embeddings        word_embeddings        word_embeddings       V E
  table  token_type_embeddings  token_type_embeddings  token_type_embeddings T E
  table  position_embeddings    position_embeddings    position_embeddings   P E
  norm   LayerNorm              layer_norm             LayerNorm             E
  """,
  "bert/embeddings/",
  "albert/embedding/",
  "albert.embeddings.",
)
# Hugging Face models always have the projection. The original has it only if E
# and H differ. In this package, the configuration decides.
PROJECTION = _rows(
  "dense  hidden_mapping_in  projection  hidden_mapping_in  E H",
  "bert/encoder/embedding_",
  "albert/embedding/",
  "albert.encoder.embedding_",
)
# {g} is the group or the set of weights, {i} the block within it.
_TF1_BLOCK = "bert/encoder/transformer/group_{g}/inner_group_{i}/"
_HF_BLOCK = "albert.encoder.albert_layer_groups.{g}.albert_layers.{i}."
_ATTENTION = _rows(
  """
  dense  attention_1/self/query    query         attention.query      H H
  dense  attention_1/self/key      key           attention.key        H H
  dense  attention_1/self/value    value         attention.value      H H
  dense  attention_1/output/dense  output_dense  attention.dense      H H
  norm   LayerNorm                 layer_norm    attention.LayerNorm  H
  """,
  _TF1_BLOCK,
  "albert/encoder/attentions/{g}/{i}/",
  _HF_BLOCK,
)
# The original nests the second dense layer under the first one's scope.
_FFN = _rows(
  """
  dense  ffn_1/intermediate/dense         intermediate  ffn         H I
  dense  ffn_1/intermediate/output/dense  output_dense  ffn_output  I H
  norm   LayerNorm_1                 layer_norm  full_layer_layer_norm  H
  """,
  _TF1_BLOCK,
  "albert/encoder/ffns/{g}/{i}/",
  _HF_BLOCK,
)
# Of all applied blocks; other programs have no names for them.
_ADAPTERS = tuple(
  Row(name := f"{ADAPTERS}{kernel}_{x}", name, "", ("L", *shape))
  for kernel, inputs, outputs in (
    ("attention", "H", "3H"),
    ("attention_output", "H", "H"),
    ("ffn", "H", "I"),
    ("ffn_output", "I", "H"),
  )
  for x, shape in (("a", (inputs, "R")), ("b", ("R", outputs)))
)
_POOLER = _rows("dense  bert/pooler/dense  albert/pooler  albert.pooler  H H")
_MASKED_LM = _rows(
  """
  dense  transform/dense      transform    dense      H E
  norm   transform/LayerNorm  layer_norm   LayerNorm  E
  value  output_bias          output_bias  bias       V
  """,
  "cls/predictions/",
  "masked_lm/",
  "predictions.",
)
_SENTENCE_ORDER = _rows(
  "classes cls/seq_relationship/ sentence_order/ sop_classifier.classifier 2 H"
)
HEADS: Mapping[str, tuple[Row, ...]] = {
  "none": (),
  "pretraining": (*_MASKED_LM, *_SENTENCE_ORDER),
  "masked_lm": _MASKED_LM,
  "classification": _rows("classes  -  classifier/  classifier  C H"),
  "multi_label": _rows("classes  -  classifier/  classifier  C H"),
  "token_classification": _rows("classes  -  classifier/  classifier  C H"),
  "regression": _rows("classes  -  classifier/  classifier  1 H"),
  "embedding": (),  # The encoder alone; see `config.Pooling`.
  "multiple_choice": _rows("classes  -  classifier/  classifier  1 H"),
  "squad1": _rows("classes  cls/squad/  -  qa_outputs  2 H"),
  # Hugging Face has no such head.
  "squad2": _rows(
    """
    dense   start_logits/dense    start_dense    -  H 1
    dense   end_logits/dense_0    end_hidden     -  2H H
    norm    end_logits/LayerNorm  end_norm       -  H
    dense   end_logits/dense_1    end_dense      -  H 1
    dense   answer_class/dense_0  answer_hidden  -  2H H
    kernel  answer_class/dense_1  answer_dense   -  H 1
    """
  ),
}

GLOBAL_STEP = "global_step"
# Suffixes of optimizer state in TF1 names, and this package's slot names.
SLOTS = {"adam_m": "m", "adam_v": "v"}


def rows(config: modeling.AlbertConfig, *heads: str) -> tuple[Row, ...]:
  """Returns the rows of an encoder and of heads, some of which overlap.

  Heads are keys of `HEADS`. An encoder has rows for each set of weights and
  block. TF1 and Hugging Face have no names for layers of a group that do not
  share all weights. Those of the rows have the numbers of sets in place of
  groups.
  """
  projection = PROJECTION if config.has_projection else ()
  kinds = (("attention", _ATTENTION), ("ffn", _FFN))
  blocks = [
    row.in_block(number, inner)
    for number in range(max(config.num_sets(kind) for kind, _ in kinds))
    for inner in range(config.inner_group_num)
    for kind, layers in kinds
    if number < config.num_sets(kind)
    for row in layers
  ]
  of_heads = (row for head in heads for row in HEADS[head])
  adapters = _ADAPTERS if config.adapter_rank else ()
  return (*_EMBEDDING, *projection, *blocks, *adapters, *_POOLER, *of_heads)


def has_head(head: str, tf1_names: Container[str]) -> bool:
  """Returns whether all weights of a head are among the names."""
  return all(row.tf1 in tf1_names for row in HEADS[head])


def may_lack(head: str, name: str) -> bool:
  """Returns whether a model with this head needs no value for a TF1 variable.

  Hugging Face models with such a head do not have the variable.
  """
  without_pooler = head in (
    *("masked_lm", "token_classification"),
    *("squad1", "squad2"),
  )
  return without_pooler and name.startswith("bert/pooler/")


def is_slot(name: str) -> bool:
  """Returns whether a TF1 name belongs to optimizer state."""
  return name.rsplit("/", 1)[-1] in SLOTS


def check_groups(config: modeling.AlbertConfig, source: str) -> None:
  """Raises ValueError if other programs cannot have the model's layers.

  google-research/albert and Hugging Face share whole layers, and compute the
  group of a layer in floating point. `source` is the origin of the model.
  """
  layers, groups = config.num_hidden_layers, config.num_hidden_groups
  if config.sharing != "all" or config.adapter_rank:
    raise ValueError(
      f"{source} has sharing={config.sharing!r} and adapter_rank="
      f"{config.adapter_rank}, but Hugging Face and google-research/albert "
      "always share whole layers."
    )
  for i in range(layers):
    theirs = {int(i / layers * groups), int(i / (layers / groups))}
    if theirs != {config.group_of_layer(i)}:
      raise ValueError(
        f"{source} has {groups} groups for {layers} layers, for which "
        "google-research/albert or Hugging Face rounds the group of layer "
        f"{i}: the converted model would compute something else."
      )
